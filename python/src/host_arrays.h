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
enum class ArrayKind { kNumpy, kTorch };
ArrayKind kind_of(nb::handle object);
/// What DLPack calls the type; nothing for those that engines do not have.
std::optional<DataType> data_type(nb::dlpack::dtype type);
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

/// Sorts positional and named arguments to the inputs: take(input, value). Throws Error for those
/// that are too many, unknown, given twice or missing.
template <class Take>
void sort_arguments(const Engine& engine, const nb::args& args, const nb::kwargs& kwargs,
                    Take&& take) {
  const std::vector<PlanPort>& inputs = engine.plan().inputs;
  const auto expected_names = [&] {
    std::string names;
    for (const PlanPort& port : inputs) names += (names.empty() ? "'" : ", '") + port.name + "'";
    return names;
  };
  require(args.size() <= inputs.size(), "the engine takes ", inputs.size(), " inputs (",
          expected_names(), "); ", args.size(), " were given");
  std::vector<bool> given(inputs.size());
  for (size_t i = 0; i < args.size(); ++i) {
    take(i, args[i]);
    given[i] = true;
  }
  for (auto [key, value] : kwargs) {
    const Port* const found = engine.find_port(nb::cast<std::string>(key));
    require(found != nullptr && found->is_input, "the engine has no input '",
            nb::cast<std::string>(key), "'; it has ", expected_names());
    const auto i = static_cast<size_t>(found->index);
    require(!given[i], "input '", nb::cast<std::string>(key),
            "' was given twice, by position and by name");
    take(i, value);
    given[i] = true;
  }
  for (size_t i = 0; i < given.size(); ++i)
    require(given[i], "input '", inputs[i].name, "' is missing; the engine takes ",
            expected_names());
}

}  // namespace opwright::python
