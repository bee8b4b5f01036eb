#pragma once

#include "backend/memory.h"
#include "bindings.h"
#include "opwright/types.h"

namespace opwright {
class Device;
}

namespace opwright::python {

/// A dense array in a GPU's memory: `DeviceArray` in Python, what engines give those who use a
/// library of arrays that they cannot make themselves.
class DeviceArray {
 public:
  /// With memory of its own.
  DeviceArray(const Device& device, DataType dtype, const Shape& shape);
  /// At an address, whose memory the owner keeps; None: whoever uses the array.
  DeviceArray(const Device& device, DataType dtype, const Shape& shape, void* data,
              nb::handle owner)
      : device_(&device), dtype_(dtype), shape_(shape), owner_(nb::borrow(owner)), data_(data) {}
  void* data() const { return data_; }
  size_t num_bytes() const { return static_cast<size_t>(bytes_of(dtype_, shape_.numel())); }
  DataType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Device& device() const { return *device_; }
  /// Fewer elements than before, which lie as densely as the shape makes them.
  void set_shape(const Shape& shape) { shape_ = shape; }

 private:
  const Device* device_;
  DataType dtype_;
  Shape shape_;
  std::shared_ptr<DeviceMemory> memory_;  ///< null at an address of others
  nb::object owner_;
  void* data_;
};

}  // namespace opwright::python
