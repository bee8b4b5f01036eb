#include "operators/kv_cache.h"

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
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
  ConfigWriter config;
  config.type("Element", element);
  config.type("Start", storage_type(args.inputs[2].type.dtype));
  config.type("End", is_packed ? storage_type(args.inputs[3].type.dtype) : "void");
  config.flag("kIsPacked", is_packed);
  source.add_declarations(include("kv_cache.cuh") + config.write());
  const Expr tokens = update[is_packed ? 0 : 2];
  // All tokens of a packed update may belong to any batch.
  const Expr updated = cache[0] * cache[1] * tokens * cache[3];
  return source.finish(
      str("update_cache<Config>({in0, in1, in2, ", is_packed ? "in3" : "nullptr", ", out0, ",
          source.values({numel(result), updated, cache[1], cache[2], result[2], tokens, cache[3]}),
          "});\n"),
      blocks_for(updated, kThreads), kThreads);
}

const RegisteredKernels<KvCacheUpdate> kKvCacheKernels({kv_cache_candidates,
                                                        generate_kv_cache<KvCacheUpdate>, nullptr});
const RegisteredKernels<KvCacheWrite> kKvCacheWriteKernels({kv_cache_candidates,
                                                            generate_kv_cache<KvCacheWrite>,
                                                            nullptr});

}  // namespace
}  // namespace opwright::gpu
