#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// A number as a function of an element's position: constant + the sum of factor * position along
/// each axis. Axes of extent 1 have the factor 0.
struct AffineForm {
  Expr constant;
  SymShape factors;
  /// Whether it is the same number at each position.
  bool is_uniform() const;
};

/// True at the positions at which all of these numbers are at least 0, or equal 0.
struct PositionCondition {
  std::vector<AffineForm> at_least_zero, zero;
  bool is_always() const { return at_least_zero.empty() && zero.empty(); }
};

/// What tensors contain as functions of positions: ranges, comparisons of ranges, triangles. So
/// masks are known where extents are open, too.
class PositionForms {
 public:
  /// The elements of an integer tensor. Nothing where they are no such function.
  std::optional<AffineForm> number(const GraphValue* value);
  /// Where a BOOL tensor is true; where a floating tensor is 0, if it is at most `kForbiddenScore`
  /// everywhere else.
  std::optional<PositionCondition> condition(const GraphValue* value);

 private:
  struct Form {
    std::optional<AffineForm> number;
    std::optional<PositionCondition> condition;
  };
  const Form& form(const GraphValue* value);
  Form compute(const GraphValue& value);
  Form known(const GraphValue& value) const;
  Form computed(const GraphNode& node);
  Form moved(const GraphNode& node);
  Form joined(const GraphNode& node);
  Form gathered(const GraphNode& node);

  std::unordered_map<const GraphValue*, Form> forms_;
  int depth_ = 0;
};

/// The opposite condition. Nothing where it is no condition of this kind.
std::optional<PositionCondition> negated(const PositionCondition& condition);

}  // namespace opwright
