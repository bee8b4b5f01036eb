#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compile/expansion.h"
#include "control/body.h"
#include "network/network.h"

namespace opwright {

/// The network that a loop repeats. Its inputs are named as in body.h; inputs that no layer uses
/// are left out. Its outputs are, in this order, whether to go on (if `is_computed`), the states,
/// and the tensors that are stacked.
struct LoopBody {
  std::shared_ptr<const Network> network;
  bool is_computed = false;  ///< whether the body decides if there is another iteration
  int states = 0;
  int captures = 0;  ///< tensors from outside that the body reads
  int stacked = 0;
  /// Lengths of the stacked outputs, in the symbols of the network around the loop. Iterations
  /// beyond a length are left out, and zeros stand for missing ones. Empty: as many as there are
  /// iterations.
  std::vector<Expr> lengths{};
};

/// Name of the body's input that has the number of the iteration, a scalar INT64.
inline constexpr const char* kIterationInput = "iteration";

/// ONNX's Loop as a layer. Inputs: the most iterations (a scalar INT64; absent: no limit), whether
/// to begin (a scalar BOOL; absent: yes), the states, the captured tensors. Outputs: the last
/// states, the stacked tensors along a new first axis, and, if `counts`, the number of iterations
/// (a scalar INT64). States keep their type and shape.
class Loop final : public Operator {
 public:
  static constexpr std::string_view kKind = "Loop";
  Loop(LoopBody body, bool counts);

  std::string_view kind() const override { return kKind; }
  std::optional<int> num_outputs() const override;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Candidate> candidates(const CandidateQuery& query) const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;
  Attributes attributes() const override;
  /// Two bodies with the same text may take different times.
  std::optional<std::string> timing_key() const override { return std::nullopt; }
  OperatorPtr with_weights_as_inputs(const IsRefittable& is_refittable,
                                     std::vector<BodyWeight>& weights) const override;
  std::vector<const Network*> bodies() const override { return {body_.network.get()}; }
  bool communicates() const override { return has_collective(bodies()); }
  bool is_pure() const override { return !communicates(); }

 private:
  const LoopBody body_;
  const bool counts_;
  const int64_t identity_;  ///< distinguishes this loop from others
};

}  // namespace opwright
