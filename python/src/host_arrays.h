#pragma once

// Arrays in the host's memory, as an engine that is called takes and gives them.

#include <memory>
#include <utility>

#include <nanobind/ndarray.h>

#include "base/error.h"
#include "bindings.h"
#include "runtime/engine.h"

namespace opwright::python {

/// One argument as the engine sees it; `holder` keeps the memory alive.
struct Argument {
  const void* data = nullptr;
  Shape shape;
  DataType dtype = DataType::kFLOAT;
  nb::object holder;
};

/// What the caller gave decides what comes back.
enum class ArrayKind { kNumpy, kTorch, kJax };
ArrayKind kind_of(nb::handle object);
/// What DLPack calls the type; nothing for those that engines do not have.
std::optional<DataType> data_type(nb::dlpack::dtype type);
/// The other way. Throws Error for types that DLPack lacks.
nb::dlpack::dtype dlpack_type(DataType type);
/// The attribute of the module torch that is the type. Throws Error where there is none.
const char* torch_name(DataType type);
/// Throws Error: an array of that input's type was expected.
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
  /// A dense array of the input's type. Throws Error for another type, or memory that is not the
  /// host's.
  Argument convert(size_t input, nb::handle value) const;
  /// An array for an output and its address.
  std::pair<nb::object, void*> allocate(ArrayKind kind, int output, const Shape& shape) const;
  /// What the caller gets for a whole output: JAX's own array, else the array itself.
  static nb::object give(ArrayKind kind, nb::object array);
  /// The part of an output that was written, where its extents depended on data: elements lie as
  /// densely as the true extents make them.
  static nb::object trim(nb::object array, const Shape& allocated, const Shape& actual);

 private:
  Argument convert_extended(const PlanPort& port, nb::handle value) const;
  [[noreturn]] void refuse_device(const PlanPort& port, nb::handle value) const;

  const Engine& engine_;
  const std::unique_ptr<TorchTensors> torch_;
  std::vector<nb::object> output_dtypes_;
  // Of NumPy, looked up once.
  nb::object numpy_, empty_, ndarray_;
};

/// Throws Error for an engine that has inputs or outputs in formats which arrays do not have: where
/// channels lie in blocks, they take more memory than an array of their shape.
void check_array_formats(const Engine& engine);
/// Throws Error unless an output of that shape takes the bytes of the input that it is made in.
void check_alias(const Engine& engine, int output, const Shape& shape, const Argument& input);
/// Throws Error where an array cannot have the output's type.
void check_array_type(const PlanPort& output);
/// Arrays without elements may have no address; kernels are promised one.
void* usable_address(void* address);

/// "'x' (FP32 -1x8)", as messages show an input.
std::string describe_input(const Engine& engine, size_t input);
/// The number of the input of that name. Throws Error where there is none, TypeError for a key that
/// is no text.
size_t input_named(const Engine& engine, nb::handle name);
[[noreturn]] void refuse_count(const Engine& engine, size_t given);
[[noreturn]] void refuse_repeated(const Engine& engine, size_t input);
[[noreturn]] void refuse_missing(const Engine& engine, size_t input);

/// Sorts positional and named arguments to the inputs: take(input, value). A dict alone has them by
/// their names. Throws Error for those that are too many, unknown, given twice or missing.
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
