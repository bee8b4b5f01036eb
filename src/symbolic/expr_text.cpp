#include "base/error.h"
#include "symbolic/expr_nodes.h"

namespace opwright {
namespace {

// Limits for texts. Longer texts are of no use to people, and shared subexpressions could make them
// exponentially long.
constexpr int kMaxDepth = 64;
constexpr size_t kMaxLength = 2000;

class Printer {
 public:
  explicit Printer(std::span<const std::string> names) : names_(names) {}

  std::string text;

  /// Prints an operand, in parentheses unless it can stand alone.
  void operand(const Expr& e, int depth) {
    const bool single = e.arity() == 0 || e.op() == ExprOp::kMax || e.op() == ExprOp::kMin ||
                        e.op() == ExprOp::kSelect || e.op() == ExprOp::kBroadcast;
    if (single) return print(e, depth);
    text += '(';
    print(e, depth);
    text += ')';
  }

  void print(const Expr& e, int depth) {
    if (depth > kMaxDepth || text.size() > kMaxLength) {
      text += "...";
      return;
    }
    switch (e.op()) {
      case ExprOp::kConstant:
        text += std::to_string(e.constant());
        break;
      case ExprOp::kSymbol: {
        const auto id = static_cast<size_t>(e.symbol_id());
        text += id < names_.size() ? names_[id] : "s" + std::to_string(id);
        break;
      }
      case ExprOp::kSum:
        sum(e, depth);
        break;
      case ExprOp::kProd:
        infix(e, " * ", depth);
        break;
      case ExprOp::kSub:
        infix(e, " - ", depth);
        break;
      case ExprOp::kEqual:
        infix(e, " == ", depth);
        break;
      case ExprOp::kLess:
        infix(e, " < ", depth);
        break;
      case ExprOp::kFloorDiv:
        infix(e, " // ", depth);
        break;
      case ExprOp::kCeilDiv:
        call("ceil_div", e, depth);
        break;
      case ExprOp::kMax:
        call("max", e, depth);
        break;
      case ExprOp::kMin:
        call("min", e, depth);
        break;
      case ExprOp::kSelect:
        call("select", e, depth);
        break;
      case ExprOp::kBroadcast:
        call("broadcast", e, depth);
        break;
    }
  }

 private:
  void sum(const Expr& e, int depth) {
    for (int i = 0; i < e.arity(); ++i) {
      const size_t start = text.size();
      const Expr& term = e.operand(i);
      if (term.op() == ExprOp::kProd && !ExprNodes::is_opaque(term))
        print(term, depth + 1);
      else
        operand(term, depth + 1);
      if (i == 0) continue;
      const bool negative = text[start] == '-';
      text.replace(start, negative, negative ? " - " : " + ");
    }
  }

  void infix(const Expr& e, const char* op, int depth) {
    int last = e.arity();
    Expr coefficient = 1;
    if (e.op() == ExprOp::kProd && e.operand(last - 1).is_constant()) {
      coefficient = e.operand(--last);
      if (coefficient.constant() < 0 && coefficient.constant() != INT64_MIN) {
        text += '-';
        coefficient = -coefficient.constant();
      }
    }
    for (int i = 0; i < last; ++i) {
      if (i) text += op;
      operand(e.operand(i), depth + 1);
    }
    if (coefficient != Expr(1)) text += op + coefficient.str();
  }

  void call(const char* function, const Expr& e, int depth) {
    text += function;
    for (int i = 0; i < e.arity(); ++i) {
      text += i ? ", " : "(";
      print(e.operand(i), depth + 1);
    }
    text += ')';
  }

  std::span<const std::string> names_;
};

}  // namespace

std::string Expr::str(std::span<const std::string> names) const {
  Printer printer(names);
  printer.print(*this, 0);
  return printer.text;
}

std::string str(std::span<const Expr> shape, std::span<const std::string> names) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += shape[i].str(names);
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Expr& e) { return out << e.str(); }

std::ostream& operator<<(std::ostream& out, std::span<const Expr> shape) {
  return out << str(shape);
}

}  // namespace opwright
