#include "operators/pointwise.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/elementwise.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

ElementwiseBody write_body(const Pointwise& op, const KernelArgs& args) {
  const std::vector<PointwiseInstruction> program = decode(op.params());
  const Ints& results = op.params().results;
  require(results.size() == args.outputs.size(), "layer '", args.layer,
          "': a pointwise program of ", results.size(), " results has ", args.outputs.size(),
          " outputs");
  ElementwiseBody body;
  body.declarations = pointwise_functions();
  for (size_t i = 0; i < program.size(); ++i) {
    const PointwiseInstruction& instruction = program[i];
    if (instruction.op == opcode(PointwiseOp::kInput)) {
      require(static_cast<size_t>(instruction.a) < args.inputs.size() &&
                  register_type(args.inputs[instruction.a].type.dtype) ==
                      register_type(instruction.type),
              "layer '", args.layer, "': instruction ", i, " of the pointwise program reads input ",
              instruction.a, " as ", name(instruction.type), ", which it does not have");
      if (std::find(body.reads.begin(), body.reads.end(), instruction.a) == body.reads.end())
        body.reads.push_back(instruction.a);
    }
    // The cast is for integers shorter than int, which C++ computes as int.
    body.statements += str("const ", register_type(instruction.type), " r", i, " = (",
                           register_type(instruction.type), ")(",
                           pointwise_expression(program, static_cast<int>(i)), ");\n");
  }
  for (size_t i = 0; i < results.size(); ++i)
    body.statements += str("y", i, " = convert<", register_type(args.outputs[i].type.dtype), ">(r",
                           results[i], ");\n");
  return body;
}

std::vector<Candidate> pointwise_candidates(const Operator&, const CandidateQuery& query) {
  std::vector<Candidate> types = {linear_candidate(query, {})};
  add_lower_precisions(query, query.outputs[0], types);
  std::vector<Candidate> result;
  for (const Candidate& type : types)
    for (const Candidate& candidate : with_formats(type, query))
      for (Candidate& tactic : elementwise_tactics(candidate, query))
        result.push_back(std::move(tactic));
  return result;
}

std::optional<GeneratedKernel> generate_pointwise(const Operator& op, const KernelArgs& args) {
  return generate_elementwise("pointwise", args,
                              write_body(static_cast<const Pointwise&>(op), args));
}

const RegisteredKernels<Pointwise> kPointwiseKernels({.candidates = pointwise_candidates,
                                                      .generate = generate_pointwise,
                                                      .make = nullptr,
                                                      .tactics = elementwise_tactic_names});

}  // namespace
}  // namespace opwright::gpu
