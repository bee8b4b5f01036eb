#include "operators/assertion.h"

#include <cstdint>
#include <string>
#include <vector>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/kernels.h"
#include "base/error.h"

namespace opwright::gpu {
namespace {

/// The host waits for the condition's computation and reads it, as it reads the condition of a
/// loop.
class AssertionKernel final : public Kernel {
 public:
  AssertionKernel(const AssertionParams& params, const KernelArgs& args)
      : device_(*args.device), layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    condition_.resize(static_cast<size_t>(inputs[0].numel()));
  }
  void enqueue(void const* const* inputs, void* const*, void*, Queue queue) override {
    if (condition_.empty()) return;
    require(!device_.is_capturing(queue), "layer '", layer_,
            "' looks at what the GPU has computed, and the work of this stream is being captured, "
            "so it cannot be waited for; run the engine without capturing it");
    device_.copy(condition_.data(), inputs[0], condition_.size(), queue);
    params_.require_all(layer_, condition_);
  }
  std::string capture_obstacle() const override { return "the host looks at its condition"; }
  std::string description() const override { return "host"; }

 private:
  const Device& device_;
  const std::string layer_;
  const AssertionParams params_;
  std::vector<uint8_t> condition_;
};

std::vector<Candidate> assertion_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "host")};
}

std::unique_ptr<Kernel> make_assertion(const Operator& op, const KernelArgs& args) {
  return std::make_unique<AssertionKernel>(static_cast<const Assertion&>(op).params(), args);
}

void check_assertion(const Operator&, const KernelArgs& args) {
  const Candidate& candidate = *args.candidate;
  const PortType condition{DataType::kBOOL, TensorFormat::kLINEAR};
  require(args.inputs.size() == 1 && args.inputs[0].present && args.outputs.empty() &&
              candidate.inputs == std::vector{condition} && candidate.outputs.empty() &&
              candidate.tactic == 0 && args.packed.empty(),
          "Layer '", args.layer, "': an Assertion takes one condition, BOOL in LINEAR, and it has ",
          args.inputs.size(), " inputs and ", args.outputs.size(), " outputs, ", str(candidate),
          " by tactic ", candidate.tactic, "; the file was not written by Opwright as it is");
}

const RegisteredKernels<Assertion> kAssertionKernels({assertion_candidates, nullptr, make_assertion,
                                                      check_assertion});

}  // namespace
}  // namespace opwright::gpu
