#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// One expression node of a flat program. Operands are indices of earlier nodes; for kConstant
/// `value` is the constant, for kSymbol it is the symbol's id.
struct ExprInstruction {
  ExprOp op = ExprOp::kConstant;
  int32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
  int64_t value = 0;
  friend bool operator==(const ExprInstruction&, const ExprInstruction&) = default;
};

/// All expressions of a plan as one flat, topologically ordered list with shared subexpressions.
/// When shapes change, one pass evaluates it from front to back without allocation.
class ExprProgramBuilder {
 public:
  /// The index of the instruction that computes `expr`.
  int32_t add(const Expr& expr);
  std::span<const ExprInstruction> instructions() const { return instructions_; }

 private:
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };
  std::vector<ExprInstruction> instructions_;
  std::unordered_map<Expr, int32_t, Hash> index_;
};

/// Evaluates all instructions into `values` (of the same size). `validate` has accepted the
/// instructions. Throws Error as Expr::evaluate does.
void evaluate(std::span<const ExprInstruction> instructions, std::span<const int64_t> symbols,
              std::span<int64_t> values);
/// The same for the instructions [first, last), with the values of all earlier ones given.
void evaluate(std::span<const ExprInstruction> instructions, std::span<const int64_t> symbols,
              std::span<int64_t> values, size_t first, size_t last);
/// Throws Error unless every operand refers to an earlier instruction, every symbol is below
/// `symbol_count` and every op is known.
void validate(std::span<const ExprInstruction> instructions, int symbol_count);

}  // namespace opwright
