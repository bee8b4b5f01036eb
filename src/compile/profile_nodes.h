#pragma once

#include <memory>
#include <vector>

#include "compile/passes.h"

namespace opwright {

/// The graph's nodes as one profile runs them. Where a profile has so few rows that a kernel for
/// few rows pays, a RowProduct does the work of a product and of the nodes that make its rows or
/// read them. Other profiles of the same graph and weights, with many rows, have separate steps.
class ProfileNodes {
 public:
  /// `context` has the ranges of the profile. The graph outlives the object.
  ProfileNodes(const Graph& graph, const PassContext& context);
  /// The nodes in topological order.
  const std::vector<GraphNode*>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<GraphNode>> joined_;
  std::vector<GraphNode*> all_;
};

}  // namespace opwright
