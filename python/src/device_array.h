#pragma once

#include "backend/memory.h"
#include "bindings.h"
#include "opwright/types.h"

namespace opwright {
class Device;
}

namespace opwright::python {

/// A dense array in a GPU's memory: `DeviceArray` in Python. Engines return it to callers whose
/// array library they cannot make arrays of.
class DeviceArray {
 public:
  /// An array with memory of its own.
  DeviceArray(const Device& device, DataType dtype, const Shape& shape);
  /// An array at an address. `owner` keeps the memory; with None the user of the array keeps it.
  DeviceArray(const Device& device, DataType dtype, const Shape& shape, void* data,
              nb::handle owner)
      : device_(&device), dtype_(dtype), shape_(shape), owner_(nb::borrow(owner)), data_(data) {}
  void* data() const { return data_; }
  size_t num_bytes() const { return static_cast<size_t>(bytes_of(dtype_, shape_.numel())); }
  DataType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Device& device() const { return *device_; }
  /// Sets a shape with fewer elements. They lie densely in the new shape.
  void set_shape(const Shape& shape) { shape_ = shape; }

 private:
  const Device* device_;
  DataType dtype_;
  Shape shape_;
  std::shared_ptr<DeviceMemory> memory_;  ///< null if the array does not own its memory
  nb::object owner_;
  void* data_;
};

}  // namespace opwright::python
