#pragma once

#include <string>

#include "network/operator.h"

namespace opwright {

/// The results of one branch of an If whose other branch cannot be built. Inputs: the condition (a
/// scalar BOOL) and the branch's results. Outputs: the results. A run whose condition chooses the
/// other branch throws Error with `problem`.
class ChosenBranch final : public Operator {
 public:
  static constexpr std::string_view kKind = "ChosenBranch";
  /// `expected`: the condition that chooses the branch that was built.
  ChosenBranch(bool expected, std::string problem)
      : expected_(expected), problem_(std::move(problem)) {}

  std::string_view kind() const override { return kKind; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Candidate> candidates(const CandidateQuery& query) const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;
  Attributes attributes() const override;
  std::optional<std::string> timing_key() const override { return std::nullopt; }

 private:
  const bool expected_;
  const std::string problem_;
};

}  // namespace opwright
