#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/attributes.h"
#include "plugin/compiled_kernel.h"
#include "symbolic/expr_program.h"

namespace opwright {

/// How a compiled kernel is launched, as one expression program over the symbols of KernelCode.
struct KernelLaunch {
  std::string symbol;      ///< what the code exports
  std::string layer_kind;  ///< see KernelCode
  std::vector<ExprInstruction> program;
  std::array<int32_t, 3> grid{}, block{};  ///< instructions
  int32_t shared_memory = 0;
  struct Argument {
    ArgumentType type = ArgumentType::kINT32;
    int32_t value = 0;    ///< instruction
    double constant = 0;  ///< added to it for floating types
  };
  std::vector<Argument> arguments;
  std::vector<int32_t> scratch;  ///< instructions
  std::vector<int32_t> shape_inputs;
  struct Check {
    int32_t condition = 0;  ///< instruction
    std::string message;
  };
  std::vector<Check> checks;

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

KernelLaunch make_launch(const KernelCode& code);
Attributes encode(const KernelLaunch& launch);
/// The launch from untrusted attributes; symbols and shape inputs are checked when the inputs are
/// known.
KernelLaunch decode_launch(const Attributes& attributes, std::string_view layer);

}  // namespace opwright
