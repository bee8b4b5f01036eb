#include "operators/pointwise.h"

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_plan.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {
namespace {

class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(const Pointwise& op, const KernelArgs& args)
      : plan_(args.layer, decode(op.params()), op.params().results, args.inputs, args.outputs) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    plan_.set_shapes(inputs, outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    parallel_for(plan_.tiles(), plan_.grain(),
                 [&](int64_t begin, int64_t end) { plan_.run(inputs, outputs, begin, end); });
  }

 private:
  PointwisePlan plan_;
};

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  const PortDesc& output = query.outputs[0];
  std::vector<Candidate> result;
  for (const TensorFormat format : formats_of(query, output.max.rank())) {
    // Padding of channels must stay 0, which a program does not leave it at.
    if (!fills_blocks(output, format)) continue;
    Candidate candidate = linear_candidate(query, "tiles");
    // Smaller inputs stay LINEAR and are indexed accordingly.
    for (size_t i = 0; i < query.inputs.size(); ++i)
      if (has_shape_of(query.inputs[i], output)) candidate.inputs[i].format = format;
    for (PortType& type : candidate.outputs) type.format = format;
    result.push_back(std::move(candidate));
  }
  add_lower_precisions(query, output, result);
  return result;
}

}  // namespace

KernelEntry pointwise_kernels() {
  return {candidates, [](const Operator& op, const KernelArgs& args) -> std::unique_ptr<Kernel> {
            return std::make_unique<PointwiseKernel>(static_cast<const Pointwise&>(op), args);
          }};
}

}  // namespace opwright
