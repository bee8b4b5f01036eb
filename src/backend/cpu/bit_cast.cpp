#include "operators/bit_cast.h"

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/types.h"

namespace opwright {
namespace {

class BitCastKernel final : public Kernel {
 public:
  explicit BitCastKernel(const KernelArgs& args)
      : layer_(args.layer), from_(args.inputs[0].type.dtype), to_(args.outputs[0].type.dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    bytes_ = 0;
    require_countable(inputs), require_countable(outputs);
    const int64_t bytes = bytes_of(from_, inputs[0].numel());
    require(bytes == bytes_of(to_, outputs[0].numel()), "Layer '", layer_,
            "': the output of shape ", outputs[0],
            " must have as many bytes as the input of shape ", inputs[0]);
    bytes_ = bytes;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    parallel_copy(outputs[0], inputs[0], bytes_);
  }

 private:
  const std::string layer_;
  const DataType from_, to_;
  int64_t bytes_ = 0;
};

constexpr Types kBitTypes = kWholeBytes | Types{DataType::kINT4, DataType::kFP4};

bool are_castable(DataType from, DataType to) {
  return kBitTypes.has(from) && kBitTypes.has(to) && are_bit_castable(from, to);
}

std::vector<Candidate> bit_cast_candidates(const Operator&, const CandidateQuery& query) {
  if (!are_castable(query.inputs[0].type.dtype, query.outputs[0].type.dtype)) return {};
  return {linear_candidate(query, "copy")};
}

void check_bit_cast(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kBitTypes);
  rules.require(rules.output(0), {static_cast<const BitCast&>(op).params().to});
  rules.require_that(are_castable(args.inputs[0].type.dtype, args.outputs[0].type.dtype),
                     rules.name_of(rules.output(0)),
                     " must have elements of the input's size, or "
                     "bytes for pairs of elements");
}

const RegisteredKernels<BitCast> kBitCastKernels({bit_cast_candidates,
                                                  make_kernel<BitCastKernel, BitCast>,
                                                  check_bit_cast});

}  // namespace
}  // namespace opwright
