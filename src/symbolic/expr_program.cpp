#include "symbolic/expr_program.h"

#include <limits>

#include "base/error.h"
#include "symbolic/arithmetic.h"

namespace opwright {

int32_t ExprProgramBuilder::add(const Expr& expr) {
  const auto emit = [&](const ExprInstruction& instruction) {
    require(instructions_.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()),
            "too many expressions");
    instructions_.push_back(instruction);
    return static_cast<int32_t>(instructions_.size() - 1);
  };
  struct Frame {
    Expr expr;
    int next = 0;  // the operand to visit
  };
  // Visits operands first. An explicit stack avoids recursion, as expressions may be chains of any
  // length.
  std::vector<Frame> stack;
  const auto visit = [&](const Expr& e) {
    if (!index_.contains(e)) stack.push_back({e});
  };
  visit(expr);
  while (!stack.empty()) {
    const Expr e = stack.back().expr;
    if (stack.back().next < e.arity()) {
      visit(e.operand(stack.back().next++));
      continue;
    }
    stack.pop_back();
    const auto operand = [&](int i) { return index_.at(e.operand(i)); };
    int32_t index = 0;
    if (e.is_constant()) {
      index = emit({.op = ExprOp::kConstant, .value = e.constant()});
    } else if (e.op() == ExprOp::kSymbol) {
      index = emit({.op = ExprOp::kSymbol, .value = e.symbol_id()});
    } else if (e.op() == ExprOp::kSelect) {
      index = emit({.op = e.op(), .a = operand(0), .b = operand(1), .c = operand(2)});
    } else {
      index = operand(0);
      for (int i = 1; i < e.arity(); ++i) index = emit({.op = e.op(), .a = index, .b = operand(i)});
    }
    index_.emplace(e, index);
  }
  return index_.at(expr);
}

void evaluate(std::span<const ExprInstruction> instructions, std::span<const int64_t> symbols,
              std::span<int64_t> values) {
  require(values.size() == instructions.size(), "a program of ", instructions.size(),
          " expressions gives as many values, not ", values.size());
  evaluate(instructions, symbols, values, 0, instructions.size());
}

void evaluate(std::span<const ExprInstruction> instructions, std::span<const int64_t> symbols,
              std::span<int64_t> values, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    const ExprInstruction& in = instructions[i];
    switch (in.op) {
      case ExprOp::kConstant:
        values[i] = in.value;
        break;
      case ExprOp::kSymbol:
        require(static_cast<uint64_t>(in.value) < symbols.size(), "symbol s", in.value,
                " has no value: there are ", symbols.size());
        values[i] = symbols[static_cast<size_t>(in.value)];
        break;
      default:
        values[i] = apply(in.op, values[static_cast<size_t>(in.a)],
                          values[static_cast<size_t>(in.b)], values[static_cast<size_t>(in.c)]);
    }
  }
}

void validate(std::span<const ExprInstruction> instructions, int symbol_count) {
  for (size_t i = 0; i < instructions.size(); ++i) {
    const ExprInstruction& in = instructions[i];
    const auto where = [&] { return str("expression ", i, ": "); };
    int count = 0;
    try {
      count = operand_count(in.op);
    } catch (const Error& error) {
      fail(where(), error.what());
    }
    const int32_t operands[] = {in.a, in.b, in.c};
    for (int k = 0; k < count; ++k)
      if (operands[k] < 0 || static_cast<size_t>(operands[k]) >= i)
        fail(where(), "operand ", k, " refers to ", operands[k], ", which does not come before");
    // Evaluation reads all three operands.
    for (int k = count; k < 3 && count > 0; ++k)
      if (operands[k] != 0) fail(where(), "operand ", k, " is ", operands[k], " but is not used");
    if (in.op == ExprOp::kSymbol && (in.value < 0 || in.value >= symbol_count))
      fail(where(), "there is no symbol ", in.value, " among ", symbol_count);
  }
}

}  // namespace opwright
