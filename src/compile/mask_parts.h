#pragma once

#include <unordered_map>

#include "compile/graph.h"
#include "compile/position_form.h"
#include "operators/attention.h"

namespace opwright {

/// Separates what a mask of an attention says about positions from data.
class MaskParts {
 public:
  explicit MaskParts(Graph& graph) : graph_(graph) {}

  /// A mask that broadcasts to scores [..., queries, keys].
  struct Mask {
    GraphValue* value = nullptr;  ///< null: all keys
    bool is_forbidden = false;    ///< whether a BOOL mask is true where a key is forbidden
  };
  /// Takes a causal part out of the mask and sets `kind`, which may have been set before. What is
  /// left of the mask remains. `excludes`: a row without an allowed key gives 0. Else parts of data
  /// stay together with what is causal: such a row gives the mean of all values.
  void take_causal(Mask& mask, const Expr& queries, const Expr& keys, bool excludes,
                   CausalMaskKind& kind);

 private:
  struct Rest {
    GraphValue* value = nullptr;  ///< null: nothing is left
    PositionCondition taken;
  };
  /// The part of a BOOL mask that is no function of positions, and the part that is.
  Rest separate(GraphValue* mask);
  Rest separate_both(GraphNode& node, GraphValue* a, GraphValue* b);
  GraphValue* reshaped(GraphNode& node, GraphValue* rest);

  Graph& graph_;
  PositionForms forms_;
  std::unordered_map<GraphValue*, Rest> known_;
};

}  // namespace opwright
