#include "operators/rotary_embedding.h"

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> rotary_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per element")};
}

std::optional<GeneratedKernel> generate_rotary(const Operator& op, const KernelArgs& args) {
  const RotaryEmbeddingParams& params = static_cast<const RotaryEmbedding&>(op).params();
  KernelSource source("rotary_embedding", args);
  const SymShape &x = source.dims(0), &cosines = source.dims(1), &sines = source.dims(2);
  const bool has_positions = args.inputs.size() > 3 && args.inputs[3].present;
  const SymShape& places = has_positions ? source.dims(3) : cosines;
  const Expr length = x[params.sequence_first ? 1 : 2];
  const int64_t given = params.rotary_embedding_dim;
  const Expr turned = given > 0 ? Expr(given) : x[3], half = floor_div(turned, Expr(2));
  source.check_equal(half + half, turned, "elements are turned in pairs");
  source.check(Expr(1) - Expr::make(ExprOp::kLess, x[3], turned),
               "more elements of a head are to be turned than it has");
  for (size_t i = 0; i < cosines.size(); ++i)
    source.check_equal(cosines[i], sines[i], "cosines and sines must have one shape");
  source.check_equal(cosines.back(), half, "an angle for each pair is expected");
  source.check_equal(places[1], length, "angles for each place of the sequence are expected");
  source.check_equal((places[0] - Expr(1)) * (places[0] - x[0]), Expr(0),
                     "angles for one or each sequence of the batch are expected");
  source.add_declarations(include("indexing.cuh"));
  const std::vector<std::string> names = params.sequence_first
                                             ? std::vector<std::string>{"batch", "t", "head", "e"}
                                             : std::vector<std::string>{"batch", "head", "t", "e"};
  const std::string turned_text = source.value(turned), half_text = source.value(half);
  const std::string place = str("((", source.value(places[0]), " == 1 ? (Index)0 : batch) * ",
                                source.value(length), " + t)");
  const std::string at =
      has_positions ? str("find(in3[", place, "], ", source.value(cosines[0]), ")") : place;
  const std::string pairs =
      params.interleaved
          ? "const Index pair = e / 2, other = at + (e % 2 == 0 ? 1 : -1);\n"
            "const bool is_first = e % 2 == 0;\n"
          : str("const bool is_first = e < ", half_text,
                ";\nconst Index pair = is_first ? e : e - ", half_text,
                ", other = is_first ? at + ", half_text, " : at - ", half_text, ";\n");
  const Expr count = numel(x);
  const std::string storage(storage_type(args.outputs[0].type.dtype));
  return source.finish(
      str("for (Index at = first_index(); at < ", source.value(count), "; at += index_step()) {\n",
          source.decompose("at", names, std::vector<Expr>(x.begin(), x.end())), "if (e >= ",
          turned_text, ") {\nout0[at] = in0[at];\ncontinue;\n}\nconst Index row = ", at, ";\n",
          pairs, "const float own = load(in0[at]), partner = load(in0[other]);\n",
          "const float cosine = row < 0 ? 0.0f : load(in1[row * ", half_text, " + pair]);\n",
          "const float sine = row < 0 ? 0.0f : load(in2[row * ", half_text, " + pair]);\n",
          "out0[at] = store<", storage,
          ">(is_first ? cosine * own - sine * partner : sine * partner + cosine * own);\n}\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<RotaryEmbedding> kRotaryEmbeddingKernels({rotary_candidates,
                                                                  generate_rotary, nullptr});

}  // namespace
}  // namespace opwright::gpu
