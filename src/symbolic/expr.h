#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"

namespace opwright {

enum class ExprOp : uint8_t {
  kConstant,
  kSymbol,
  kSum,
  kProd,
  kMax,
  kMin,
  kSub,
  kEqual,     ///< 1 or 0
  kLess,      ///< 1 or 0
  kFloorDiv,  ///< rounds toward minus infinity
  kCeilDiv,
  kSelect,  ///< a != 0 ? b : c
  /// The extent that the operands broadcast to: the largest of those that are not 1, else 1. All
  /// operands equal it or are 1.
  kBroadcast,
};

/// An immutable integer expression over symbols (extents of network inputs, values of shape inputs,
/// size tensors). Construction brings it into a normal form, so that equal shapes that are written
/// differently mostly compare equal. Sums and products are expanded into polynomials with sorted
/// terms, quotients are reduced, kSub and kCeilDiv are rewritten. Polynomials beyond a fixed size
/// stay as written. Equal expressions share one node, so that copying, comparing and hashing take
/// constant time. Thread safe.
class Expr {
 public:
  /// The constant 0.
  Expr();
  Expr(int64_t value);  // NOLINT: implicit, dimensions are written as plain numbers
  static Expr symbol(int id);
  /// Throws Error when constants overflow or are divided by zero.
  static Expr make(ExprOp op, const Expr& a, const Expr& b);
  static Expr select(const Expr& condition, const Expr& then_value, const Expr& else_value);

  ExprOp op() const;
  bool is_constant() const { return op() == ExprOp::kConstant; }
  /// Throws Error when the expression is not constant.
  int64_t constant() const;
  /// The symbol's id; only for kSymbol.
  int symbol_id() const;
  /// The number of operands: any from two on for kSum, kProd, kMax, kMin and kBroadcast.
  int arity() const;
  const Expr& operand(int i) const;
  /// "s0 * 3 + 6"; `names` has the symbols' names, if given. Very long text is cut.
  std::string str(std::span<const std::string> names = {}) const;
  /// The value for the given symbol values (indexed by id). Throws Error on division by zero,
  /// overflow or a missing symbol, also in the branch that a kSelect does not choose.
  int64_t evaluate(std::span<const int64_t> symbols) const;
  /// Whether the expression has any symbol that is marked true.
  bool depends_on(const std::vector<bool>& symbols) const;
  size_t hash() const;

  friend bool operator==(const Expr& a, const Expr& b);
  friend Expr operator+(const Expr& a, const Expr& b) { return make(ExprOp::kSum, a, b); }
  friend Expr operator-(const Expr& a, const Expr& b) { return make(ExprOp::kSub, a, b); }
  friend Expr operator*(const Expr& a, const Expr& b) { return make(ExprOp::kProd, a, b); }
  friend Expr max(const Expr& a, const Expr& b) { return make(ExprOp::kMax, a, b); }
  friend Expr min(const Expr& a, const Expr& b) { return make(ExprOp::kMin, a, b); }
  friend Expr floor_div(const Expr& a, const Expr& b) { return make(ExprOp::kFloorDiv, a, b); }
  friend Expr ceil_div(const Expr& a, const Expr& b) { return make(ExprOp::kCeilDiv, a, b); }

 private:
  friend struct ExprNodes;
  struct Node;
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

using SymShape = std::vector<Expr>;

SymShape sym_shape(const Shape& shape);
/// The product of the extents.
Expr numel(std::span<const Expr> shape);
/// The shape when every extent is constant; throws Error otherwise.
Shape constant_shape(std::span<const Expr> shape);
bool is_constant(std::span<const Expr> shape);
/// Whether all extents are 1.
bool are_ones(std::span<const Expr> shape);
/// Throws Error as Expr::evaluate does, and when an extent is negative.
Shape evaluate(std::span<const Expr> shape, std::span<const int64_t> symbols);
/// NumPy's broadcasting of two extents. A constant other than 1 and a symbolic extent give the
/// constant; two symbolic extents give a kBroadcast. The runtime repeats the checks on concrete
/// shapes. Throws Error for constants that cannot agree.
Expr broadcast(const Expr& a, const Expr& b);
SymShape broadcast(std::span<const Expr> a, std::span<const Expr> b);
/// "(batch, 3, s1 * 2)".
std::string str(std::span<const Expr> shape, std::span<const std::string> names = {});
inline std::string str(const SymShape& shape, const std::vector<std::string>& names) {
  return str(std::span(shape), std::span(names));
}
std::ostream& operator<<(std::ostream& out, const Expr& e);
std::ostream& operator<<(std::ostream& out, std::span<const Expr> shape);

}  // namespace opwright
