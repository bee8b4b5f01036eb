#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opwright/types.h"
#include "symbolic/expr_program.h"

namespace opwright {

enum class ArgumentType : int32_t {
  kINT32,
  kINT64,
  kFLOAT32,
  kFLOAT64,
  kINT8,
  kINT16,
  kPOINTER  ///< the address of the value as an INT64, for what a device knows before the host does;
            ///< memory of the kernel's own, which is written when shapes change the value, and else
            ///< keeps what a run has left there
};

/// How a compiled kernel is launched, as one expression program over the symbols of KernelCode
/// (plugin/compiled_kernel.h). Plans store it as it is.
struct KernelLaunch {
  std::string symbol;      ///< what the code exports
  std::string layer_kind;  ///< of the built-in layer that it computes; empty for a plugin's
  std::vector<ExprInstruction> program;
  std::array<int32_t, 3> grid{}, block{};  ///< instructions
  int32_t shared_memory = 0;
  bool begins_early = false;  ///< as KernelCode says
  struct Argument {
    ArgumentType type = ArgumentType::kINT32;
    int32_t value = 0;    ///< instruction
    double constant = 0;  ///< added to it for floating types
    friend bool operator==(const Argument&, const Argument&) = default;
  };
  std::vector<Argument> arguments;
  std::vector<int32_t> scratch;  ///< instructions
  std::vector<int32_t> shape_inputs;
  struct Check {
    int32_t condition = 0;  ///< instruction
    std::string message;
    friend bool operator==(const Check&, const Check&) = default;
  };
  std::vector<Check> checks;
  /// How the copying unit of the device (TMA) finds boxes of an input: a tensor map in its driver's
  /// sense is made of it and of the input's address, with rows in shared memory swizzled by 128
  /// bytes and zeros for what lies outside. Axes are numbered from the innermost one, whose
  /// neighbours lie together.
  struct TensorMap {
    static constexpr int kBytes = 128;  ///< of a row in shared memory
    int32_t input = 0;
    DataType type = DataType::kHALF;
    std::vector<int32_t> extents;  ///< instructions
    std::vector<int32_t> strides;  ///< instructions; in elements, of all axes but the innermost
    std::vector<int32_t> box;      ///< elements of each axis, or channels and pixels of windows
    std::vector<int32_t> steps;    ///< between the elements that are read, of each axis
    /// Instructions, of windows (the "im2col" mode): where along each axis between the channels
    /// and the images the first window begins, and how far behind the last element the last one.
    std::vector<int32_t> lower, upper;
    bool has_windows() const { return !lower.empty(); }
    friend bool operator==(const TensorMap&, const TensorMap&) = default;
  };
  std::vector<TensorMap> maps;
  std::vector<int32_t> order;  ///< what each parameter takes: a number among the inputs, the
                               ///< arguments, the outputs, the scratch buffers and the tensor maps;
                               ///< empty: all of them as they are
  friend bool operator==(const KernelLaunch&, const KernelLaunch&) = default;

  /// What the instruction takes, and itself as the last one.
  std::vector<ExprInstruction> part(int32_t instruction) const;
  /// Its value. Throws Error as Expr::evaluate() does.
  int64_t evaluate(int32_t instruction, std::span<const int64_t> symbols) const;
  /// The instruction as an expression, for messages. Throws Error where constants overflow.
  Expr expression(int32_t instruction) const;
};

/// Throws Error with its message for the first check that does not hold; `values` are those of the
/// program's instructions.
void require_checks(const KernelLaunch& launch, std::span<const int64_t> values,
                    std::string_view layer, std::string_view kernel);

/// Throws Error unless the program is one, and what refers to it is within it. Symbols and shape
/// inputs are checked once the inputs are known.
void validate(const KernelLaunch& launch);
std::string_view name(ArgumentType type);
/// Its numbers: two launches that differ have different texts.
std::string str(const KernelLaunch& launch);

}  // namespace opwright
