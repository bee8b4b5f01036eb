#pragma once

#include <exception>
#include <utility>

#include "backend/device.h"

namespace opwright {

/// Runs what gives up kernels and memory of the device, which the calling thread must work with
/// for that.
template <class Release>
void release_on(const Device& device, Release&& release) noexcept {
  try {
    const DeviceScope scope(device);
    release();
    return;
  } catch (const std::exception&) {
    // The device's context is gone; what is left is the host's.
  }
  release();
}

}  // namespace opwright
