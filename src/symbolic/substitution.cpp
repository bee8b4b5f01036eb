#include "symbolic/substitution.h"

#include <vector>

#include "base/error.h"

namespace opwright {
namespace {

Expr with_operands(const Expr& e, const std::vector<Expr>& operands) {
  if (e.op() == ExprOp::kSelect) return Expr::select(operands[0], operands[1], operands[2]);
  Expr result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) result = Expr::make(e.op(), result, operands[i]);
  return result;
}

}  // namespace

void Substitution::add(const Expr& from, const Expr& to) {
  given_.emplace(from, to);
  done_ = {};  // drops the buckets, too; clear() would visit them each time
}

Expr Substitution::operator()(const Expr& expr) const {
  if (given_.empty() || expr.is_constant()) return expr;
  // Visits operands first. An explicit stack avoids recursion, as expressions may be chains of any
  // length.
  std::vector<Expr> pending = {expr};
  while (!pending.empty()) {
    const Expr next = pending.back();
    if (done_.contains(next)) {
      pending.pop_back();
      continue;
    }
    const size_t count = pending.size();
    if (const auto found = given_.find(next); found != given_.end()) {
      if (const auto after = done_.find(found->second); after != done_.end())
        done_.emplace(next, after->second);
      else
        pending.push_back(found->second);
      continue;
    }
    for (int i = 0; i < next.arity(); ++i)
      if (!done_.contains(next.operand(i))) pending.push_back(next.operand(i));
    if (pending.size() > count) continue;
    std::vector<Expr> operands;
    bool is_same = true;
    for (int i = 0; i < next.arity(); ++i) {
      operands.push_back(done_.at(next.operand(i)));
      is_same = is_same && operands.back() == next.operand(i);
    }
    Expr made = next;
    try {
      if (!is_same) made = with_operands(next, operands);
    } catch (const Error&) {  // a run that evaluates the expression fails
    }
    // The new expression may be replaced itself, as a maximum may.
    if (!is_same && given_.contains(made)) {
      if (const auto after = done_.find(made); after != done_.end())
        made = after->second;
      else {
        pending.push_back(made);
        continue;
      }
    }
    done_.emplace(next, std::move(made));
  }
  return done_.at(expr);
}

SymShape Substitution::operator()(const SymShape& shape) const {
  SymShape result;
  result.reserve(shape.size());
  for (const Expr& extent : shape) result.push_back((*this)(extent));
  return result;
}

}  // namespace opwright
