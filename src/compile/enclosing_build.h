#pragma once

#include "compile/build_budget.h"
#include "compile/builder_config.h"

namespace opwright {

/// A build while its layers are compiled. The bodies of its loops and branches are built as parts
/// of this build.
class EnclosingBuild {
 public:
  EnclosingBuild(const BuilderConfig& config, const BuildBudget& budget, const Deadline& end);
  ~EnclosingBuild();
  EnclosingBuild(const EnclosingBuild&) = delete;
  EnclosingBuild& operator=(const EnclosingBuild&) = delete;

  const BuilderConfig& config() const { return config_; }
  const BuildBudget& budget() const { return budget_; }
  const Deadline& end() const { return end_; }

  /// The innermost build of the calling thread; null where the thread builds nothing.
  static const EnclosingBuild* current();

 private:
  const BuilderConfig& config_;
  const BuildBudget& budget_;
  const Deadline& end_;
  const EnclosingBuild* const before_;
};

}  // namespace opwright
