#pragma once

#include <memory>
#include <vector>

#include "compile/passes.h"

namespace opwright {

/// The graph's nodes as one profile runs them: where its rows are so few that a kernel for them
/// pays, a RowProduct does the work of a product and of what makes its rows or reads them, too.
/// Profiles of many rows, of the same graph and weights, have separate steps.
class ProfileNodes {
 public:
  /// `context` has the ranges of the profile. The graph outlives the object.
  ProfileNodes(const Graph& graph, const PassContext& context);
  /// In topological order.
  const std::vector<GraphNode*>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<GraphNode>> joined_;
  std::vector<GraphNode*> all_;
};

}  // namespace opwright
