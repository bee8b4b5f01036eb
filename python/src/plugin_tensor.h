#pragma once

#include "bindings.h"
#include "execution_domain.h"
#include "network/operator.h"

namespace opwright::python {

/// Owners of the memory of a tensor that is held beyond its call.
struct TensorOwners {
  std::shared_ptr<const void> memory;  ///< memory of the engine
  Blob constant;
  nb::object objects;  ///< arrays that the engine's caller gave and receives
};

/// The memory of a plugin's input or output during a call: `Tensor` in Python. It is made once per
/// execution context. A call only sets its address.
class PluginTensor {
 public:
  PluginTensor(PortType type, float scale, bool read_only, bool data_dependent, RunPlace place)
      : type_(type),
        scale_(scale),
        read_only_(read_only),
        data_dependent_(data_dependent),
        place_(place) {}

  /// Sets the address. Null ends the call: from then on using the tensor is an error.
  void set_data(void* data) {
    data_ = data;
    is_told_ &= data == nullptr;
  }
  void set_shape(const Shape& shape);
  void set_queue(Queue queue) { place_.queue = queue; }
  /// Sets the object of the input whose memory this output uses.
  void set_aliased(nb::object input) { aliased_ = std::move(input); }
  /// Sets the owners of the memory, for a tensor that is still held when its call is over.
  void set_owners(TensorOwners owners) { owners_ = std::move(owners); }

  /// The address. Throws Error outside of a call.
  void* data() const;
  /// The device of the memory; null for the host.
  const Device* device() const { return place_.device; }
  Queue queue() const;
  /// "this tensor lies in GPU memory: ...", with the ways to an array.
  static const char* device_advice();
  PortType type() const { return type_; }
  /// The scale of INT8 elements; 1 if the tensor has none.
  float scale() const { return scale_; }
  bool is_read_only() const { return read_only_; }
  bool is_data_dependent() const { return data_dependent_; }
  const Shape& shape() const { return shape_; }
  /// Strides in elements. Throws Error for a format that strides cannot describe.
  const Shape& strides() const;
  /// Bytes from the first to behind the last element, with the format's padding.
  int64_t extent_bytes() const;
  const nb::object& shape_tuple() const { return shape_tuple_; }
  const nb::object& aliased() const { return aliased_; }
  const nb::object& objects() const { return owners_.objects; }
  /// A tensor over the memory of `source` in another shape of at most as many elements. The padding
  /// of a vectorized format counts too, and the new tensor is linear.
  static PluginTensor view(nb::object source, const Shape* shape);
  const nb::object& source() const { return source_; }

  /// Layout of arrays over the memory. Strides are in bytes. Two four-bit elements form one element
  /// of a byte.
  struct Layout {
    DataType dtype;
    int rank = 0;
    int64_t itemsize = 0, bytes = 0;  ///< bytes: size of all elements
    bool is_contiguous = false;
    nb::ssize_t shape[Dims::MAX_DIMS] = {};
    nb::ssize_t strides[Dims::MAX_DIMS] = {};
  };
  /// The layout. Throws Error if arrays cannot describe the memory.
  const Layout& layout() const;

  /// The number of arrays and other views that share the memory.
  int views() const { return views_; }
  void count_view(int change);
  /// Notes that the address was given to an object that refers only to the tensor itself.
  void tell_address() { source_tensor().is_told_ = true; }
  /// Whether the address was given in this call.
  bool is_told() const { return is_told_; }

 private:
  [[noreturn]] void fail_without_layout() const;
  /// The shape of the memory itself, with the vectors as the last axis.
  Shape vectorized_shape() const;

  PluginTensor& source_tensor();

  void* data_ = nullptr;
  PortType type_;
  float scale_;
  bool read_only_;
  bool data_dependent_;
  bool has_strides_ = false, has_layout_ = false;
  bool is_told_ = false;
  RunPlace place_;
  int views_ = 0;
  Shape shape_, strides_;
  Layout layout_;
  nb::object shape_tuple_, aliased_;
  nb::object source_;  ///< the tensor whose memory a view shares
  TensorOwners owners_;
};

/// Names, during a run, the Python objects whose memory the run uses.
class RunMemory {
 public:
  RunMemory();
  virtual ~RunMemory();
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;
  virtual nb::object objects() const = 0;
  /// The objects of this thread's run; invalid if the run names none.
  static nb::object current_objects();

 private:
  const RunMemory* const outer_;
};

}  // namespace opwright::python
