#include "operators/fused_attention.h"

#include <cmath>

#include "operators/infer.h"

namespace opwright {
namespace {

/// More elements than any row may have.
constexpr int64_t kLimit = int64_t{1} << 31;

void require_sound(const Inference& inference, const FusedAttentionParams& params) {
  inference.require(
      params.layouts.size() == 4 && params.offsets.size() == 3 && params.head_strides.size() == 3,
      "expected 4 layouts, 3 offsets and 3 strides of heads");
  for (const int64_t layout : params.layouts)
    inference.require(layout >= 0 && layout <= static_cast<int>(AttentionLayout::kLENGTH_FIRST),
                      "unknown layout ", layout);
  for (const Ints* numbers : {&params.offsets, &params.head_strides})
    for (const int64_t number : *numbers)
      inference.require(number >= 0 && number < kLimit,
                        "offsets and strides of heads must be 0 to ", kLimit - 1, ", but one is ",
                        number);
  for (const int64_t number : {params.heads, params.shared_heads, params.size, params.value_size})
    inference.require(number >= 1 && number < kLimit, "heads and their sizes must be 1 to ",
                      kLimit - 1, ", but one is ", number);
  inference.require(params.heads % params.shared_heads == 0, "there are ", params.heads,
                    " heads of queries and ", params.shared_heads, " of keys; expected a multiple");
  inference.require(params.causal_kind >= CausalMaskKind::kNONE &&
                        params.causal_kind <= CausalMaskKind::kLOWER_RIGHT,
                    "unknown causal mask ", static_cast<int>(params.causal_kind));
  inference.require(std::isfinite(params.scale) && std::isfinite(params.cap) && params.cap >= 0,
                    "scale and cap must be finite and the cap not negative, but are ", params.scale,
                    " and ", params.cap);
  inference.require(!std::isnan(params.masked_score), "the score of a masked key is no number");
}

}  // namespace

std::vector<OutputInfo> FusedAttention::infer(InferContext& context) const {
  const FusedAttentionParams& params = this->params();
  const Inference inference(context, kKind, {"query", "key", "value", "allowed", "bias"}, 3);
  require_sound(inference, params);
  inference.require_floating(0);
  for (const int i : {1, 2}) inference.require_same_type(i, 0);
  Expr batch, lengths[3];
  for (int i = 0; i < 3; ++i) {
    const AttentionLayout layout = params.layout(i);
    const bool has_rows = layout != AttentionLayout::kHEADS_FIRST;
    inference.require_rank(i, has_rows ? 3 : 4, has_rows ? 3 : 4);
    const SymShape& dims = inference.input(i).dims;
    if (has_rows) {
      const auto at = static_cast<size_t>(i);
      const int64_t end = params.offsets[at] + (params.heads_of(i) - 1) * params.head_strides[at] +
                          params.size_of(i);
      inference.require(dims[2].is_constant() && end <= dims[2].constant(), "rows of ",
                        inference.port(i), ", whose shape is ", str(dims), ", must have at least ",
                        end, " elements");
    } else {
      inference.require_extent(i, 1, Expr(params.heads_of(i)), "the heads");
      inference.require_extent(i, 3, Expr(params.size_of(i)), "the size of a head");
    }
    const int batch_axis = attention_batch_axis(layout);
    if (i == 0)
      batch = dims[static_cast<size_t>(batch_axis)];
    else
      inference.require_extent(i, batch_axis, batch, "the batch");
    lengths[i] = dims[static_cast<size_t>(attention_length_axis(layout))];
    if (i == 2)
      inference.require_extent(2, attention_length_axis(layout), lengths[1], "the number of keys");
  }
  const SymShape scores = {batch, Expr(params.heads), lengths[0], lengths[1]};
  if (inference.optional(kAllowed)) {
    inference.require_type(kAllowed, inference.input(kAllowed).dtype == DataType::kBOOL, "BOOL");
    inference.require_broadcasts_to(kAllowed, scores);
  }
  if (inference.optional(kBias)) {
    inference.require_floating(kBias);
    inference.require_broadcasts_to(kBias, scores);
  }
  const Expr row(params.heads * params.value_size);
  SymShape dims;
  switch (params.layout(3)) {
    case AttentionLayout::kHEADS_FIRST:
      dims = {batch, Expr(params.heads), lengths[0], Expr(params.value_size)};
      break;
    case AttentionLayout::kBATCH_FIRST:
      dims = {batch, lengths[0], row};
      break;
    case AttentionLayout::kLENGTH_FIRST:
      dims = {lengths[0], batch, row};
      break;
  }
  inference.require(params.fused.places.empty(), "a fused program takes only the result, but has ",
                    params.fused.inputs(), " inputs");
  params.fused.check(inference, DataType::kFLOAT, dims, static_cast<int>(dims.size()) - 1);
  return {make_output(params.fused.present() ? params.fused.result : inference.input(0).dtype,
                      std::move(dims))};
}

}  // namespace opwright
