#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "network/kernel_launch.h"
#include "network/operator.h"

namespace opwright {

/// The launch of a compiled kernel with evaluated expressions, and the block of its arguments. The
/// kernels of all devices share it. Messages name the layer and the kernel.
class LaunchValues {
 public:
  /// Throws Error for a launch that does not fit the ports.
  LaunchValues(KernelLaunch launch, std::string name, const KernelArgs& args);

  const KernelLaunch& launch() const { return launch_; }
  void set_shapes(std::span<const Shape> inputs, std::span<const Shape> outputs);
  /// Sets the elements of an input; only shape inputs of the kernel use them.
  void set_values(int input, std::span<const int64_t> elements);
  /// Evaluates the launch and checks the rules that all devices share.
  void evaluate();
  /// Writes the extra arguments, after the caller has checked the other values.
  void accept();
  void set_pointers(void const* const* inputs, void* const* outputs) {
    for (size_t i = 0; i < num_inputs_; ++i) pointers_[i] = const_cast<void*>(inputs[i]);
    for (size_t o = 0; o < num_outputs_; ++o) pointers_[num_inputs_ + o] = outputs[o];
  }
  void set_scratch(size_t number, void* address) {
    pointers_[num_inputs_ + num_outputs_ + number] = address;
  }
  /// Address of the bytes of a tensor map, which are an argument.
  void* tensor_map(size_t number) { return maps_[number].bytes; }
  /// The number of elements of an input.
  int64_t elements(int32_t input) const { return elements_[static_cast<size_t>(input)]; }
  /// Adds null pointers for parameters behind all others. Called before arguments().
  void add_null_pointers(size_t count) { arguments_.insert(arguments_.end(), count, &null_); }
  /// Sets the address in a pointer argument; at first it is host memory with the value.
  void set_pointer_argument(size_t argument, void* address) {
    scalars_[argument].address = address;
  }

  /// Pointers to the arguments: inputs, extra arguments, outputs, scratch, tensor maps, or in the
  /// launch's order.
  void** arguments() { return arguments_.data(); }
  size_t num_arguments() const { return arguments_.size(); }
  int64_t value(int32_t instruction) const { return values_[instruction]; }
  /// The number of the grid's cells, capped above the size of any grid.
  int64_t cells() const { return cells_; }

  /// "layer 'l': compiled kernel 'ns::plugin kernel': "
  std::string who() const;
  /// "inputs[0].shape[1] - 4"
  std::string text(int32_t instruction) const;
  void require_at_least(int64_t least, int32_t instruction, const char* what) const;
  /// "2 inputs, 1 extra argument and 1 output"
  std::string describe_arguments() const;

  static constexpr const char* kGridNames[] = {"grid_x", "grid_y", "grid_z"};
  static constexpr const char* kBlockNames[] = {"block_x", "block_y", "block_z"};

 private:
  struct Scalar {
    union {
      int8_t int8;
      int16_t int16;
      int32_t int32;
      int64_t int64 = 0;
      float float32;
      double float64;
    };
    void* address = nullptr;  ///< the argument itself if it is a pointer: address of the value
  };
  /// Has the size and the alignment that devices need.
  struct alignas(64) TensorMap {
    std::byte bytes[128]{};
  };
  struct ShapeInput {
    size_t input;
    size_t first, count;  ///< numbers of its symbols
  };

  void add_shape_input(int32_t input, std::span<const PortDesc> ports);
  std::string find_failing() const;
  void set_scalar(size_t i);
  template <class T>
  T narrow(size_t i, int64_t value) const;

  const std::string layer_, name_;
  const KernelLaunch launch_;
  const size_t num_inputs_, num_outputs_;
  size_t num_extents_ = 0;
  std::vector<std::string> symbol_names_;
  std::vector<ShapeInput> shape_inputs_;
  std::vector<int64_t> symbols_, values_;
  std::vector<Scalar> scalars_;
  std::vector<void*> pointers_;
  std::vector<TensorMap> maps_;
  std::vector<int64_t> elements_;  // number of elements, per input
  std::vector<void*> arguments_;
  void* null_ = nullptr;
  int64_t cells_ = 0;
  std::optional<size_t> unwritten_;  // an output with elements
};

}  // namespace opwright
