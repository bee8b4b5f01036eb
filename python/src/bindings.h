#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/blob.h"
#include "base/shape.h"
#include "base/types.h"
#include "opwright/logger.h"

namespace nb = nanobind;

namespace opwright::python {

// Each file of this folder has one of these functions, which adds the file's names to the module.
void bind_interpreter_end(nb::module_& m);
void bind_types(nb::module_& m);
void bind_logger(nb::module_& m);
void bind_limits(nb::module_& m);
void bind_progress(nb::module_& m);
void bind_threads(nb::module_& m);
void bind_error_recorder(nb::module_& m);
void bind_gpu_allocator(nb::module_& m);
void bind_network(nb::module_& m);
void bind_layer_enums(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_communicator(nb::module_& m);
void bind_run_graph(nb::module_& m);
void bind_add_layers(nb::module_& m);
void bind_regions(nb::module_& m);
void bind_builder(nb::module_& m);
void bind_onnx(nb::module_& m);
void bind_runtime(nb::module_& m);
void bind_refitter(nb::module_& m);
void bind_call(nb::module_& m);
void bind_device_array(nb::module_& m);
void bind_plugin(nb::module_& m);
void bind_plugin_v2(nb::module_& m);
void bind_plugin_v3(nb::module_& m);
void bind_registry(nb::module_& m);
void bind_sources(nb::module_& m);
void bind_program(nb::module_& m);

/// The numpy.dtype of a data type. BF16 and FP8 take theirs from ml_dtypes if that is installed.
/// Throws Error if NumPy has no such type.
nb::object numpy_dtype(DataType type);
/// The data type of a numpy.dtype, including ml_dtypes' bfloat16 and float8_e4m3fn. Refuses double
/// precision with an Error that names `what`.
DataType data_type(nb::handle numpy_dtype, std::string_view what);

/// A shape from Dims, a tuple, a list or a torch.Size.
Shape to_shape(nb::handle sequence);
nb::tuple to_tuple(const Shape& shape);

/// The index of an element for a Python index, which counts from the end if it is negative. Throws
/// IndexError for an index out of range.
size_t index_in(nb::ssize_t index, size_t size);
/// Throws IndexError for an index out of range.
inline void check_position(int64_t index, size_t count) {
  if (index < 0 || static_cast<uint64_t>(index) >= count) throw nb::index_error();
}
/// The path as os.fsdecode decodes it; empty for None.
std::string to_path(nb::handle path);

/// The bytes of a contiguous object with the buffer protocol. The Blob keeps the object alive.
Blob borrow_bytes(nb::handle object);
/// The elements of a NumPy array, an array-like object or Weights. The Blob keeps them alive.
struct ArrayData {
  DataType dtype;
  Shape shape;
  Blob data;
};
ArrayData to_array(nb::handle object, std::string_view what);
/// The elements as a read-only NumPy array of one axis, without a copy. Elements of 4 bits are
/// unpacked. Throws Error if NumPy has no such type.
nb::object flat_array(DataType type, const Blob& data, int64_t count);

/// Adds `with object as name:`. Leaving the block has no effect: an object ends with its last
/// reference.
template <class Class>
void add_context_manager(Class& c) {
  using T = typename Class::Type;
  c.def(
      "__enter__", [](T& self) -> T& { return self; }, nb::rv_policy::reference, "The object.");
  c.def(
      "__exit__", [](T&, nb::handle, nb::handle, nb::handle) {}, nb::arg("exc_type").none(),
      nb::arg("exc_value").none(), nb::arg("traceback").none(),
      "Does nothing: the object goes with its last reference.");
}

/// An ILogger that writes to a logger of Python's module logging; never destroyed.
ILogger* python_logger(const std::string& name);

/// Keeps a Python object alive from C++; may be dropped on any thread.
std::shared_ptr<const void> keep_alive(nb::handle object);

/// Throws NotImplementedError that names the object's class, for methods of base classes.
[[noreturn]] void fail_undefined(nb::handle self, const char* method);

}  // namespace opwright::python
