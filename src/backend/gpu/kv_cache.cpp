#include "operators/kv_cache.h"

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> kv_cache_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per element")};
}

/// Writes the elements of the update. Where the output is another tensor than the cache, it copies
/// the other elements first.
template <class Op>
std::optional<GeneratedKernel> generate_kv_cache(const Operator& op, const KernelArgs& args) {
  const bool is_packed =
      static_cast<const Op&>(op).params().update_form == AttentionIOForm::kPACKED_NHD;
  KernelSource source("kv_cache_update", args);
  const SymShape &cache = source.dims(0), &update = source.dims(1);
  if (!is_packed) source.check_equal(update[0], cache[0], "update and cache must have one batch");
  source.check_equal(update[1], cache[1], "update and cache must have as many heads");
  source.check_equal(update.back(), cache[3], "heads of update and cache must have one size");
  source.check_equal(source.dims(2)[0], cache[0], "an index for each batch is expected");
  if (is_packed)
    source.check_equal(source.dims(3)[0], cache[0] + Expr(1),
                       "a length for each batch is expected");
  SymShape result = cache;
  if (!is_packed && args.inputs.size() > 3 && args.inputs[3].present)
    result[2] = source.shape_values(3)[0];
  const std::string_view element = carrier_type(element_size(args.outputs[0].type.dtype));
  source.set_input_type(0, element), source.set_input_type(1, element);
  source.set_output_type(0, element);
  const Expr tokens = update[is_packed ? 0 : 2];
  const std::string heads = source.value(cache[1]), room = source.value(result[2]),
                    before = source.value(cache[2]), size = source.value(cache[3]),
                    all = source.value(tokens);
  source.add_declarations(include("kv_cache.cuh"));
  const std::string span = str("const Span span = span_of(in2[b], ", is_packed ? "in3[b]" : "0",
                               ", ", is_packed ? "in3[b + 1]" : all, ", ", all, ", ", room, ");\n");
  const std::vector<std::string> names = {"b", "h", "place", "e"};
  // All tokens of a packed update may belong to any batch.
  const Expr count = cache[0] * cache[1] * tokens * cache[3];
  const std::string from =
      is_packed ? str("((span.first + token) * ", heads, " + h) * ", size, " + e")
                : str("((b * ", heads, " + h) * ", all, " + token) * ", size, " + e");
  const std::vector<std::string> of_update = {"b", "h", "token", "e"};
  const std::vector<Expr> extents = {cache[0], cache[1], tokens, cache[3]};
  return source.finish(
      str("if ((const void*)out0 != (const void*)in0)\nfor (Index at = first_index(); at < ",
          source.value(numel(result)), "; at += index_step()) {\n",
          source.decompose("at", names, result), span,
          "const Index token = place - span.start;\n"
          "if (token < span.skipped || token >= span.count)\nout0[at] = place < ",
          before, " ? in0[((b * ", heads, " + h) * ", before, " + place) * ", size,
          " + e] : 0;\n}\n", "for (Index at = first_index(); at < ", source.value(count),
          "; at += index_step()) {\n", source.decompose("at", of_update, extents), span,
          "if (token < span.skipped || token >= span.count) continue;\nout0[((b * ", heads,
          " + h) * ", room, " + span.start + token) * ", size, " + e] = in1[", from, "];\n}\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<KvCacheUpdate> kKvCacheKernels({kv_cache_candidates,
                                                        generate_kv_cache<KvCacheUpdate>, nullptr});
const RegisteredKernels<KvCacheWrite> kKvCacheWriteKernels({kv_cache_candidates,
                                                            generate_kv_cache<KvCacheWrite>,
                                                            nullptr});

}  // namespace
}  // namespace opwright::gpu
