#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "operators/indexing.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> one_hot_candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, [](const KernelArgs&) { return std::vector<std::string>{"a thread per element"}; });
}

std::optional<GeneratedKernel> generate_one_hot(const Operator& op, const KernelArgs& args) {
  KernelSource source("one_hot", args);
  const SymShape& indices = source.dims(0);
  const int64_t axis = static_cast<const OneHot&>(op).params().axis;
  const size_t place = axis < 0 ? axis + indices.size() + 1 : axis;
  const Expr outer = numel(std::span(indices).first(place));
  const Expr inner = numel(std::span(indices).subspan(place));
  const Expr depth = source.shape_values(2).at(0), count = outer * depth * inner;
  source.check_equal(source.dims(1)[0], Expr(2), "off and on are expected as the two values");
  const std::string_view element = carrier_type(element_size(args.outputs[0].type.dtype));
  source.set_input_type(1, element);
  source.set_output_type(0, element);
  ConfigWriter config;
  config.type("Element", element);
  config.type("Number", storage_type(args.inputs[0].type.dtype));
  source.add_declarations(include("one_hot.cuh") + config.write());
  return source.finish(
      str("write_one_hot<Config>({in0, in1, out0, ", source.values({count, depth, inner}), "});\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<OneHot> kOneHotKernels({one_hot_candidates, generate_one_hot, nullptr});

}  // namespace
}  // namespace opwright::gpu
