#include "operators/kv_cache.h"

#include "operators/infer.h"

namespace opwright {
namespace {

void check_inputs(const Inference& inference, const KvCacheUpdateParams& params) {
  const bool is_packed = params.update_form == AttentionIOForm::kPACKED_NHD;
  inference.require(params.mode == KVCacheMode::kLINEAR, "the cache mode is ",
                    static_cast<int32_t>(params.mode), "; expected LINEAR");
  inference.require(is_packed || params.update_form == AttentionIOForm::kPADDED_BHND,
                    "the update's form is ", static_cast<int32_t>(params.update_form),
                    "; expected PADDED_BHND or PACKED_NHD");
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_rank(0, 4, 4);
  inference.require_rank(1, is_packed ? 3 : 4, is_packed ? 3 : 4);
  const SymShape& cache = inference.input(0).dims;
  if (!is_packed) inference.require_extent(1, 0, cache[0], "the batch of the cache");
  inference.require_extent(1, 1, cache[1], "the heads of the cache");
  inference.require_extent(1, is_packed ? 2 : 3, cache[3], "the size of its heads");
  for (const int i : {2, 3}) {
    if (i == 3 && !is_packed) break;
    inference.require_type(i,
                           inference.input(i).dtype == DataType::kINT32 ||
                               inference.input(i).dtype == DataType::kINT64,
                           "INT32 or INT64");
    inference.require_rank(i, 1, 1);
    inference.require_extent(i, 0, i == 2 ? cache[0] : cache[0] + 1,
                             i == 2 ? "the batch of the cache" : "the batch of the cache and one");
  }
}

}  // namespace

std::vector<OutputInfo> KvCacheUpdate::infer(InferContext& context) const {
  const bool is_packed = params().update_form == AttentionIOForm::kPACKED_NHD;
  const Inference inference(context, kKind, {"cache", "update", "write indices", "update lengths"},
                            is_packed ? 4 : 3, 4);
  inference.require(is_packed || inference.optional(3) == nullptr,
                    "only the form PACKED_NHD has update lengths");
  check_inputs(inference, params());
  OutputInfo output = make_output(inference.input(0).dtype, inference.input(0).dims);
  output.aliased_input = 0;
  return {output};
}

std::vector<OutputInfo> KvCacheWrite::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"cache", "update", "write indices", "room"}, 3);
  inference.require(params().update_form == AttentionIOForm::kPADDED_BHND,
                    "the update's form must be PADDED_BHND");
  check_inputs(inference, params());
  SymShape shape = inference.input(0).dims;
  if (inference.optional(3)) {
    const std::vector<Expr>& room = inference.shape_values(3);
    inference.require(room.size() == 1, inference.port(3), " must hold one integer, but holds ",
                      room.size());
    shape[2] = room[0];
  }
  return {make_output(inference.input(0).dtype, std::move(shape))};
}

}  // namespace opwright
