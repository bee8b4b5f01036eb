#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "compile/expansion.h"
#include "control/body.h"

namespace opwright {

/// ONNX's If as a layer that runs one of two bodies. Inputs: the condition (a scalar BOOL) and the
/// tensors that the bodies read of the network around them, named as in body.h. Outputs: the
/// bodies' results, which have the same types and ranks, and an INT64 scalar for each of `sizes`.
class Conditional final : public Operator {
 public:
  static constexpr std::string_view kKind = "Conditional";
  /// `bodies`: for a true condition, and for a false one. `sizes`: extents, as result and axis,
  /// that differ between the bodies and are known after the layer has run.
  Conditional(std::array<std::shared_ptr<const Network>, 2> bodies, int captures,
              std::vector<std::pair<int, int>> sizes);

  std::string_view kind() const override { return kKind; }
  std::optional<int> num_outputs() const override;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Candidate> candidates(const CandidateQuery& query) const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;
  Attributes attributes() const override;
  std::optional<std::string> timing_key() const override { return std::nullopt; }
  OperatorPtr with_weights_as_inputs(const IsRefittable& is_refittable,
                                     std::vector<BodyWeight>& weights) const override;
  std::vector<const Network*> bodies() const override {
    return {bodies_[0].get(), bodies_[1].get()};
  }
  bool communicates() const override { return has_collective(bodies()); }
  bool is_pure() const override { return !communicates(); }

 private:
  std::vector<std::pair<std::string, int>> passed_inputs() const;

  const std::array<std::shared_ptr<const Network>, 2> bodies_;
  const int captures_;
  const std::vector<std::pair<int, int>> sizes_;
  const int64_t identity_;  ///< distinguishes this layer from others
};

}  // namespace opwright
