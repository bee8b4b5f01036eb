#include "backend/candidates.h"
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
  const std::string element = carrier_type(element_size(args.outputs[0].type.dtype)).data();
  source.set_input_type(1, element);
  source.set_output_type(0, element);
  source.add_declarations(include("indexing.cuh"));
  const std::vector<std::string> names = {"o", "d", "i"};
  const std::string extents[] = {source.value(inner), source.value(depth)};
  return source.finish(
      str("const ", element, " off = in1[0], on = in1[1];\n",
          "for (Index at = first_index(); at < ", source.value(count), "; at += index_step()) {\n",
          source.decompose("at", names, std::vector<Expr>{outer, depth, inner}),
          "out0[at] = find(in0[o * ", extents[0], " + i], ", extents[1], ") == d ? on : off;\n}\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<OneHot> kOneHotKernels({one_hot_candidates, generate_one_hot, nullptr});

}  // namespace
}  // namespace opwright::gpu
