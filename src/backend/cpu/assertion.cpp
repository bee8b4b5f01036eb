#include "operators/assertion.h"

#include <cstdint>
#include <string>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"

namespace opwright {
namespace {

class AssertionKernel final : public Kernel {
 public:
  AssertionKernel(const AssertionParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    require_countable(inputs);
    count_ = static_cast<size_t>(inputs[0].numel());
  }

  void enqueue(void const* const* inputs, void* const*, void*, Queue) override {
    params_.require_all(layer_, {static_cast<const uint8_t*>(inputs[0]), count_});
  }

 private:
  const std::string layer_;
  const AssertionParams params_;
  size_t count_ = 0;
};

std::vector<Candidate> assertion_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "look")};
}

void check_assertion(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1, 0);
  rules.require(rules.input(0), {DataType::kBOOL});
}

const RegisteredKernels<Assertion> kAssertionKernels({assertion_candidates,
                                                      make_kernel<AssertionKernel, Assertion>,
                                                      check_assertion});

}  // namespace
}  // namespace opwright
