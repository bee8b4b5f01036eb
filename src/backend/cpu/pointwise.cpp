#include "operators/pointwise.h"

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_plan.h"
#include "backend/cpu/port_rules.h"
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

std::vector<Candidate> pointwise_candidates(const Operator&, const CandidateQuery& query) {
  const PortDesc& output = query.outputs[0];
  std::vector<Candidate> result;
  for (const std::span<const PortDesc> ports : {query.inputs, query.outputs})
    for (const PortDesc& port : ports)
      if (!kConvertible.has(port.type.dtype)) return result;
  for (const TensorFormat format : formats_of(query, output.max.rank())) {
    // The padding of channels must stay 0, but a program may write other values there.
    if (!fills_blocks(output, format)) continue;
    Candidate candidate = linear_candidate(query, "tiles");
    // Smaller inputs stay LINEAR; the program indexes them accordingly.
    for (size_t i = 0; i < query.inputs.size(); ++i)
      if (has_shape_of(query.inputs[i], output)) candidate.inputs[i].format = format;
    for (PortType& type : candidate.outputs) type.format = format;
    result.push_back(std::move(candidate));
  }
  add_lower_precisions(query, output, result);
  return result;
}

void check_pointwise(const Operator& op, const KernelArgs& args) {
  const PointwiseParams& params = static_cast<const Pointwise&>(op).params();
  const std::vector<PointwiseInstruction> program = decode(params);
  const PortRules rules(op, args);
  rules.require_ports(args.inputs.size(), args.inputs.size(), params.results.size());
  const PortRules::Port y = rules.output(0);
  rules.require_format(y, kImageFormats);
  rules.require_filled(y);
  for (size_t i = 0; i < rules.outputs(); ++i) {
    const PortRules::Port output = rules.output(i);
    rules.require(output, kConvertible, {y.desc.type.format});
    const DataType type = program[params.results[i]].type;
    rules.require_that(register_type(output.desc.type.dtype) == type, rules.name_of(output), " is ",
                       name(output.desc.type.dtype), ", but the program computes ", name(type));
    rules.require_that(has_shape_of(output.desc, y.desc), "all outputs must have one shape, but ",
                       rules.name_of(output), " has ", output.desc.max, " instead of ", y.desc.max);
  }
  for (size_t i = 0; i < rules.inputs(); ++i) {
    const PortRules::Port input = rules.input(i);
    const bool may_follow = has_shape_of(input.desc, y.desc);
    rules.require(input, kConvertible,
                  may_follow ? kLinear | Formats{y.desc.type.format} : kLinear);
  }
  for (const PointwiseInstruction& instruction : program) {
    if (instruction.op != opcode(PointwiseOp::kInput)) continue;
    const auto index = static_cast<size_t>(instruction.a);
    rules.require_that(
        rules.has_input(index) && register_type(args.inputs[index].type.dtype) == instruction.type,
        "the program reads input ", index, " as ", name(instruction.type),
        ", which it does not have");
  }
}

const RegisteredKernels<Pointwise> kPointwiseKernels({pointwise_candidates,
                                                      make_kernel<PointwiseKernel, Pointwise>,
                                                      check_pointwise});

}  // namespace
}  // namespace opwright
