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
  /// The address of the value as an INT64, for values that a device knows before the host does. The
  /// memory belongs to the kernel. It is written when shapes change the value; otherwise it keeps
  /// the value that a run left there.
  kPOINTER
};

/// How a compiled kernel is launched, as one expression program over the symbols of KernelCode
/// (plugin/compiled_kernel.h). Plans store it unchanged.
struct KernelLaunch {
  std::string symbol;      ///< the name that the code exports
  std::string layer_kind;  ///< kind of the built-in layer that it computes; empty for a plugin
  std::vector<ExprInstruction> program;
  std::array<int32_t, 3> grid{}, block{};  ///< instructions
  int32_t shared_memory = 0;
  bool begins_early = false;  ///< see KernelCode
  struct Argument {
    ArgumentType type = ArgumentType::kINT32;
    int32_t value = 0;    ///< instruction
    double constant = 0;  ///< is added to the value for floating types
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
  /// How the device's copying unit (TMA) finds boxes of an input. The driver makes a tensor map of
  /// this and of the input's address, with rows in shared memory swizzled by 128 bytes, and zeros
  /// outside of the input. Axes are numbered from the innermost one, whose neighbours are adjacent.
  struct TensorMap {
    static constexpr int kBytes = 128;  ///< of a row in shared memory
    int32_t input = 0;
    DataType type = DataType::kHALF;  ///< FP32 is rounded to TF32
    std::vector<int32_t> extents;     ///< instructions
    std::vector<int32_t> strides;  ///< instructions; in elements, of all axes except the innermost
    std::vector<int32_t> box;      ///< elements per axis, or channels and pixels of windows
    std::vector<int32_t> steps;    ///< per axis: step between the elements that are read
    /// Instructions, for windows (the "im2col" mode). Along each axis between channels and images:
    /// where the first window begins, and how far behind the last element the last window begins.
    std::vector<int32_t> lower, upper;
    bool has_windows() const { return !lower.empty(); }
    friend bool operator==(const TensorMap&, const TensorMap&) = default;
  };
  std::vector<TensorMap> maps;
  /// The argument for each parameter, as a number among inputs, arguments, outputs, scratch buffers
  /// and tensor maps; empty: all of them in order.
  std::vector<int32_t> order;
  friend bool operator==(const KernelLaunch&, const KernelLaunch&) = default;

  /// The instructions that this one needs, followed by itself.
  std::vector<ExprInstruction> part(int32_t instruction) const;
  /// The instruction's value. Throws Error as Expr::evaluate() does.
  int64_t evaluate(int32_t instruction, std::span<const int64_t> symbols) const;
  /// The instruction as an expression, for messages. Throws Error where constants overflow.
  Expr expression(int32_t instruction) const;
};

/// Throws Error with the message of the first check that does not hold. `values` are those of the
/// program's instructions.
void require_checks(const KernelLaunch& launch, std::span<const int64_t> values,
                    std::string_view layer, std::string_view kernel);

/// Throws Error unless the program is valid and all references to it are in range. Symbols and
/// shape inputs are checked once the inputs are known.
void validate(const KernelLaunch& launch);
std::string_view name(ArgumentType type);
/// The launch as text. Different launches have different texts.
std::string str(const KernelLaunch& launch);

}  // namespace opwright
