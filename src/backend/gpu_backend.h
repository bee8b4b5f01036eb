#pragma once

#include <string>

#include "backend/device.h"

namespace opwright {

/// What the library of the CUDA backend gives to this one, which loads it when a GPU is first asked
/// for.
class GpuBackend {
 public:
  virtual ~GpuBackend() = default;
  /// Why no GPU can be used: no driver, one that is too old, no device. Empty: one can.
  virtual std::string obstacle() const = 0;
  virtual int device_count() const = 0;
  /// See get_device().
  virtual const Device& device(int ordinal) const = 0;
};

/// The name of the entry, and its type; it never returns null.
constexpr char kGpuBackendEntry[] = "opwright_gpu_backend";
using GpuBackendEntry = const GpuBackend* (*)();

}  // namespace opwright
