#include "operators/bit_cast.h"

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"

namespace opwright {
namespace {

class BitCastKernel final : public Kernel {
 public:
  explicit BitCastKernel(const KernelArgs& args)
      : layer_(args.layer), size_(element_size(args.inputs[0].type.dtype)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    bytes_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(inputs[0] == outputs[0], "Layer '", layer_, "': the output of shape ", outputs[0],
            " must have that of the input, ", inputs[0]);
    bytes_ = inputs[0].numel() * size_;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    parallel_copy(outputs[0], inputs[0], bytes_);
  }

 private:
  const std::string layer_;
  const int size_;
  int64_t bytes_ = 0;
};

std::vector<Candidate> bit_cast_candidates(const Operator&, const CandidateQuery& query) {
  const DataType from = query.inputs[0].type.dtype, to = query.outputs[0].type.dtype;
  if (!kWholeBytes.has(from) || !kWholeBytes.has(to) || element_size(from) != element_size(to))
    return {};
  return {linear_candidate(query, "copy")};
}

void check_bit_cast(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kWholeBytes);
  rules.require(rules.output(0), {static_cast<const BitCast&>(op).params().to});
  rules.require_that(
      element_size(args.inputs[0].type.dtype) == element_size(args.outputs[0].type.dtype),
      rules.name_of(rules.output(0)), " must have elements of the input's size");
}

const RegisteredKernels<BitCast> kBitCastKernels({bit_cast_candidates,
                                                  make_kernel<BitCastKernel, BitCast>,
                                                  check_bit_cast});

}  // namespace
}  // namespace opwright
