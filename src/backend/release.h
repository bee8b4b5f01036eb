#pragma once

#include <exception>
#include <utility>

#include "backend/device.h"

namespace opwright {

/// Runs `release`, which gives up kernels and memory of the device, within the device's scope.
template <class Release>
void release_on(const Device& device, Release&& release) noexcept {
  try {
    const DeviceScope scope(device);
    release();
    return;
  } catch (const std::exception&) {
    // The device's context is gone; only host memory is left to free.
  }
  release();
}

}  // namespace opwright
