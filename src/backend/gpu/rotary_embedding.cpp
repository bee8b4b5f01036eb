#include "operators/rotary_embedding.h"

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The pairs that a thread may turn together: as many as 16 bytes have elements, if all parts of a
/// head are multiples.
int pairs_of_thread(DataType type, const Expr& size, const Expr& turned) {
  if (!size.is_constant() || !turned.is_constant()) return 1;
  for (int pairs = 128 / bits(type); pairs > 1; pairs /= 2) {
    const int64_t elements = int64_t{2} * pairs;
    if (size.constant() % elements == 0 && turned.constant() % elements == 0) return pairs;
  }
  return 1;
}

std::vector<Candidate> rotary_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "vectors of pairs")};
}

std::optional<GeneratedKernel> generate_rotary(const Operator& op, const KernelArgs& args) {
  const RotaryEmbeddingParams& params = static_cast<const RotaryEmbedding&>(op).params();
  KernelSource source("rotary_embedding", args);
  const SymShape &x = source.dims(0), &cosines = source.dims(1), &sines = source.dims(2);
  const bool has_positions = args.inputs.size() > 3 && args.inputs[3].present;
  const SymShape& places = has_positions ? source.dims(3) : cosines;
  const Expr length = x[params.sequence_first ? 1 : 2], heads = x[params.sequence_first ? 2 : 1];
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
  const int pairs = pairs_of_thread(args.inputs[0].type.dtype, x[3], turned);
  ConfigWriter config;
  config.type("Element", storage_type(args.inputs[0].type.dtype));
  config.type("Position", has_positions ? storage_type(args.inputs[3].type.dtype) : "void");
  config.number("kPairs", pairs);
  config.flag("kInterleaved", params.interleaved);
  config.flag("kLengthFirst", params.sequence_first);
  source.add_declarations(include("rotary_embedding.cuh") + config.write());
  const Expr rows = x[0] * x[1] * x[2];
  const Expr batch_step =
      Expr::select(Expr::make(ExprOp::kEqual, places[0], Expr(1)), Expr(0), length);
  const Expr turned_heads = params.turned_heads > 0 ? Expr(params.turned_heads) : heads;
  std::string text =
      str("rotate<Config>({in0, in1, in2, ", has_positions ? "in3" : "nullptr", ", out0");
  for (const Expr& number : {rows, length, heads, x[3], turned, turned_heads, batch_step,
                             has_positions ? cosines[0] : Expr(0)})
    text += str(", ", source.value(number));
  return source.finish(
      text + "});\n", blocks_for(ceil_div(numel(x), Expr(int64_t{2} * pairs)), kThreads), kThreads);
}

const RegisteredKernels<RotaryEmbedding> kRotaryEmbeddingKernels({rotary_candidates,
                                                                  generate_rotary, nullptr});

}  // namespace
}  // namespace opwright::gpu
