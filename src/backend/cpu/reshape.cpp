#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/host_run.h"
#include "operators/movement.h"

namespace opwright {
namespace {

class ReshapeKernel final : public Kernel {
 public:
  explicit ReshapeKernel(const KernelArgs& args) : type_(args.outputs[0].type.dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    bytes_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(inputs[0].numel() == outputs[0].numel(), "cannot reshape ", inputs[0], " to ",
            outputs[0], ", which has another number of elements");
    bytes_ = bytes_of(type_, outputs[0].numel());
  }
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    // Where it can, the compiler gives input and output the same memory.
    parallel_copy(outputs[0], inputs[0], bytes_);
  }

 private:
  DataType type_;
  int64_t bytes_ = 0;
};

std::vector<Candidate> reshape_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "view")};
}

void check_reshape(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  const PortDesc &from = args.inputs[0], &to = args.outputs[0];
  // The compiler also makes a reshape where two formats of a tensor are the same bytes, and of a
  // transposition that moves the channels to their place in the output's format.
  rules.require_that(
      are_dense(from.type, to.type) ||
          (has_shape_of(from, to) && same_bytes(from.min, from.max, from.type, to.type)),
      "a reshape keeps the bytes, which ", str(from.type), " of shape ", from.max, " and ",
      str(to.type), " of shape ", to.max, " do not have in common");
}

const RegisteredKernels<Reshape> kReshapeKernels({reshape_candidates,
                                                  make_kernel<ReshapeKernel, Reshape>,
                                                  check_reshape});

}  // namespace
}  // namespace opwright
