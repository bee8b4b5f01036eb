#pragma once

// Arrays in the host's memory, which calls of an engine take and return.

#include <memory>
#include <utility>

#include <nanobind/ndarray.h>

#include "base/error.h"
#include "bindings.h"
#include "runtime/engine.h"

namespace opwright::python {

/// One argument of a call. `holder` keeps its memory alive.
struct Argument {
  const void* data = nullptr;
  Shape shape;
  DataType dtype = DataType::kFLOAT;
  nb::object holder;
};

/// Library of the arrays. The arguments decide which library's arrays a call returns.
enum class ArrayKind { kNumpy, kTorch, kJax };
ArrayKind kind_of(nb::handle object);
/// The data type of a DLPack type; empty for types that engines do not have.
std::optional<DataType> data_type(nb::dlpack::dtype type);
/// The DLPack type of a data type. Throws Error for types that DLPack lacks.
nb::dlpack::dtype dlpack_type(DataType type);
/// The name of the type in the module torch. Throws Error if torch has no such type.
const char* torch_name(DataType type);
/// Throws Error saying that an array of the input's type was expected.
[[noreturn]] void refuse_type(const PlanPort& port, nb::handle value);
/// Whether elements lie densely, in the order of the axes.
template <class Array>
bool is_contiguous(const Array& array) {
  if (array.size() == 0) return true;  // whatever the strides say
  int64_t expected = 1;
  for (int i = static_cast<int>(array.ndim()) - 1; i >= 0; --i) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

class TorchTensors;

/// Arrays for an engine's inputs and outputs.
class HostArrays {
 public:
  /// The engine must outlive the object.
  explicit HostArrays(const Engine& engine);
  ~HostArrays();
  /// Converts a value to a dense array of the input's type. Throws Error for another type, or
  /// memory that is not the host's.
  Argument convert(size_t input, nb::handle value) const;
  /// Makes an array for an output. Returns the array and its address.
  std::pair<nb::object, void*> allocate(ArrayKind kind, int output, const Shape& shape) const;
  /// The object that the caller gets for a whole output: a JAX array, or the array itself.
  static nb::object give(ArrayKind kind, nb::object array);
  /// The written part of an output whose extents depended on data. Elements lie densely in the true
  /// shape.
  static nb::object trim(nb::object array, const Shape& allocated, const Shape& actual);

 private:
  Argument convert_extended(const PlanPort& port, nb::handle value) const;
  [[noreturn]] void refuse_device(const PlanPort& port, nb::handle value) const;

  const Engine& engine_;
  const std::unique_ptr<TorchTensors> torch_;
  std::vector<nb::object> output_dtypes_;
  // Objects of NumPy, looked up once.
  nb::object numpy_, empty_, ndarray_;
};

/// Throws Error for an engine with inputs or outputs in formats that arrays do not have. Formats
/// with channels in blocks take more memory than an array of the same shape.
void check_array_formats(const Engine& engine);
/// Throws Error unless an output of that shape has as many bytes as the input that it is aliased
/// to.
void check_alias(const Engine& engine, int output, const Shape& shape, const Argument& input);
/// Throws Error if an array cannot have the output's type.
void check_array_type(const PlanPort& output);
/// A valid address for kernels. Arrays without elements may have none.
void* usable_address(void* address);

/// "'x' (FP32 -1x8)", as messages show an input.
std::string describe_input(const Engine& engine, size_t input);
/// The index of the input of that name. Throws Error for an unknown name, and TypeError for a key
/// that is not text.
size_t input_named(const Engine& engine, nb::handle name);
[[noreturn]] void refuse_count(const Engine& engine, size_t given);
[[noreturn]] void refuse_repeated(const Engine& engine, size_t input);
[[noreturn]] void refuse_missing(const Engine& engine, size_t input);

/// Assigns positional and named arguments to the inputs by take(input, value). A single dict has
/// them by name. Throws Error for too many, unknown, repeated or missing arguments.
template <class Take>
void sort_arguments(const Engine& engine, const nb::args& args, const nb::kwargs& kwargs,
                    Take&& take) {
  const size_t count = engine.plan().inputs.size();
  const bool by_name = args.size() == 1 && PyDict_Check(args[0].ptr());
  if (!by_name && args.size() > count) refuse_count(engine, args.size());
  std::vector<bool> given(count);
  for (size_t i = 0; !by_name && i < args.size(); ++i) {
    take(i, args[i]);
    given[i] = true;
  }
  const auto take_named = [&](nb::handle key, nb::handle value) {
    const size_t i = input_named(engine, key);
    if (given[i]) refuse_repeated(engine, i);
    take(i, value);
    given[i] = true;
  };
  if (by_name)
    for (auto [key, value] : nb::borrow<nb::dict>(args[0])) take_named(key, value);
  for (auto [key, value] : kwargs) take_named(key, value);
  for (size_t i = 0; i < count; ++i)
    if (!given[i]) refuse_missing(engine, i);
}

}  // namespace opwright::python
