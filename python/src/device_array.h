#pragma once

#include "backend/memory.h"
#include "bindings.h"
#include "opwright/types.h"

namespace opwright {
class Device;
}

namespace opwright::python {

/// A dense array in a GPU's memory that is its own: `DeviceArray` in Python, what engines give
/// those who use a library of arrays that they cannot make themselves.
class DeviceArray {
 public:
  DeviceArray(const Device& device, DataType dtype, const Shape& shape);
  void* data() const { return memory_->data(); }
  DataType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Device& device() const { return *device_; }
  /// Fewer elements than before, which lie as densely as the shape makes them.
  void set_shape(const Shape& shape) { shape_ = shape; }

 private:
  const Device* device_;
  DataType dtype_;
  Shape shape_;
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace opwright::python
