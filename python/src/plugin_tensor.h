#pragma once

#include "bindings.h"

namespace opwright::python {

/// The memory of a plugin's input or output during a call: `Tensor` in Python. Made once per
/// execution context; a call only sets its address.
class PluginTensor {
 public:
  PluginTensor(DataType dtype, TensorFormat format, bool read_only, bool data_dependent)
      : dtype_(dtype), format_(format), read_only_(read_only), data_dependent_(data_dependent) {}

  /// Null ends the call: from then on using the tensor is an error.
  void set_data(void* data) { data_ = data; }
  void set_shape(const Shape& shape);
  void set_scale(float scale) { scale_ = scale; }
  float scale() const { return scale_; }
  /// The object of the input whose memory this output is.
  void set_aliased(nb::object input) { aliased_ = std::move(input); }

  /// Throws Error outside of a call.
  void* data() const;
  DataType dtype() const { return dtype_; }
  TensorFormat format() const { return format_; }
  bool is_read_only() const { return read_only_; }
  bool is_data_dependent() const { return data_dependent_; }
  const Shape& shape() const { return shape_; }
  /// In elements. Throws Error for a format that strides cannot describe.
  const Shape& strides() const;
  bool is_contiguous() const;
  /// Bytes from the first to behind the last element.
  int64_t extent_bytes() const;
  const nb::object& shape_tuple() const { return shape_tuple_; }
  const nb::object& aliased() const { return aliased_; }
  /// A tensor over the memory of `source` in another shape of as many elements.
  static PluginTensor view(nb::object source, const Shape* shape);
  const nb::object& source() const { return source_; }

  // For the buffer protocol: strides in bytes.
  const nb::ssize_t* buffer_shape() const { return buffer_shape_; }
  const nb::ssize_t* buffer_strides() const { return buffer_strides_; }

 private:
  void* data_ = nullptr;
  DataType dtype_;
  TensorFormat format_;
  bool read_only_;
  bool data_dependent_;
  bool has_strides_ = false;
  float scale_ = 1;
  Shape shape_, strides_;
  nb::ssize_t buffer_shape_[Dims::MAX_DIMS] = {};
  nb::ssize_t buffer_strides_[Dims::MAX_DIMS] = {};
  nb::object shape_tuple_, aliased_;
  nb::object source_;  ///< of a view: the tensor whose address counts
};

}  // namespace opwright::python
