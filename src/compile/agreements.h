#pragma once

#include <vector>

#include "compile/graph.h"
#include "operators/infer.h"

namespace opwright {

/// Extents that an operator of the graph declares while it infers once more.
class Agreements final : public InferContext, public ExtentListener {
 public:
  struct Agreement {
    int input, axis;
    Expr expected;
    bool broadcasts;
  };
  struct Bound {
    int input, axis;
    Expr least;
  };

  Agreements(const Graph& graph, const GraphNode& node);

  std::vector<Agreement> find();
  std::vector<Bound> find_bounds();
  /// The outputs' shapes that follow from the inputs.
  std::vector<OutputInfo> infer() { return node_.op->infer(*this); }

  Expr declare_size_tensor(int output, const Expr&, const Expr&) override;
  bool is_non_negative(int symbol) const override;
  const SymbolTable* symbols() const override { return &graph_.symbols(); }
  void agree(int input, int axis, const Expr& expected, bool broadcasts) const override {
    found_.push_back({input, axis, expected, broadcasts});
  }
  void bound(int input, int axis, const Expr& least) const override {
    bounds_.push_back({input, axis, least});
  }

 private:
  const Graph& graph_;
  const GraphNode& node_;
  std::vector<const TensorInfo*> infos_;
  mutable std::vector<Agreement> found_;
  mutable std::vector<Bound> bounds_;
};

/// Every reader of the node's result reads a view with these extents instead. A run refuses the
/// view if the result has other extents.
void view_result(Graph& graph, const GraphNode* node, GraphValue* result, SymShape dims);

}  // namespace opwright
