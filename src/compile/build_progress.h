#pragma once

#include <string>

#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"

namespace opwright {

/// Reports phases and steps to the user's callback, which may cancel the build.
class BuildProgress {
 public:
  BuildProgress(const BuilderConfig& config, const BuildBudget& budget)
      : config_(config), budget_(budget) {}
  /// Throws BuildCancelledError if the callback cancels the build, and Error if the build's time is
  /// over. `node` is the subject of the next step; null: none.
  void operator()(const std::string& phase, int done, int total,
                  const GraphNode* node = nullptr) const;

 private:
  const BuilderConfig& config_;
  const BuildBudget& budget_;
};

}  // namespace opwright
