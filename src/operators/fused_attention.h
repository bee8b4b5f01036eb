#pragma once

#include <cstdint>
#include <limits>

#include "operators/attention.h"
#include "operators/builtin.h"
#include "operators/fused_program.h"

namespace opwright {

/// Layout of an attention's operand or result.
enum class AttentionLayout : int32_t {
  kHEADS_FIRST,   ///< [batch, heads, length, size]
  kBATCH_FIRST,   ///< [batch, length, row], heads side by side in a row
  kLENGTH_FIRST,  ///< [length, batch, row]
};

struct FusedAttentionParams {
  float scale = 1;  ///< of the scores
  CausalMaskKind causal_kind = CausalMaskKind::kNONE;
  float cap = 0;  ///< scores become cap * tanh(scores / cap); 0: no cap
  /// The score of a key that `allowed` forbids.
  float masked_score = -std::numeric_limits<float>::infinity();
  int64_t heads = 1, shared_heads = 1;  ///< of queries, and of keys; the latter divide the former
  int64_t size = 1, value_size = 1;     ///< elements of a head of queries and keys, and of a head
                                        ///< of values
  Ints layouts{0, 0, 0, 0};             ///< of query, key, value and output
  Ints offsets{0, 0, 0};                ///< of query, key, value: where head 0 begins in a row
  Ints head_strides{0, 0, 0};           ///< from head to head in a row
  FusedProgram fused;                   ///< reads only the result
  template <class V>
  void visit(V& v) {
    v("scale", scale), v("causal_kind", causal_kind), v("cap", cap);
    v("masked_score", masked_score), v("heads", heads), v("shared_heads", shared_heads);
    v("size", size), v("value_size", value_size), v("layouts", layouts);
    v("offsets", offsets), v("head_strides", head_strides), fused.visit(v);
  }

  AttentionLayout layout(int operand) const {
    return static_cast<AttentionLayout>(layouts[static_cast<size_t>(operand)]);
  }
  int64_t heads_of(int operand) const { return operand == 0 ? heads : shared_heads; }
  int64_t size_of(int operand) const { return operand == 2 ? value_size : size; }
  /// Number of query heads that share one key head.
  int64_t group() const { return heads / shared_heads; }
};

/// softmax(scale * Q K^T + bias) V in one kernel, without the scores in memory ("FlashAttention",
/// Dao et al., 2022; Milakov and Gimelshein, 2018). Inputs: query, key and value of one floating
/// type, each with its layout; optionally `allowed`, BOOL, and `bias`, floating, both broadcast to
/// [batch, heads, queries, keys]. A query that may meet no key, with every score -infinity, gives
/// 0. The output's heads lie without gaps. The compiler makes it from the products, the softmax and
/// the nodes that move elements around them. A fused program may change the result, which it reads
/// in the type in which it would be stored.
class FusedAttention final : public BuiltinOperator<FusedAttention, FusedAttentionParams> {
 public:
  static constexpr std::string_view kKind = "FusedAttention";
  static constexpr int kAllowed = 3, kBias = 4;
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// The batch axis and the length axis of an operand.
inline int attention_batch_axis(AttentionLayout layout) {
  return layout == AttentionLayout::kLENGTH_FIRST ? 1 : 0;
}
inline int attention_length_axis(AttentionLayout layout) {
  return layout == AttentionLayout::kHEADS_FIRST    ? 2
         : layout == AttentionLayout::kLENGTH_FIRST ? 0
                                                    : 1;
}

/// Distances between neighbours in elements. The elements of a head lie side by side.
template <class Extent>
struct AttentionStrides {
  Extent batch, head, length;
  int64_t offset = 0;
};
/// Strides of an operand, or of the output (3), with these extents.
template <class Extent, class Extents>
AttentionStrides<Extent> attention_strides(const FusedAttentionParams& params, int operand,
                                           const Extents& dims) {
  const auto at = static_cast<size_t>(operand);
  const bool is_output = operand == 3;
  const int64_t size = is_output ? params.value_size : params.size_of(operand);
  const Extent stride = is_output ? size : params.head_strides[at];
  const int64_t offset = is_output ? 0 : params.offsets[at];
  switch (params.layout(operand)) {
    case AttentionLayout::kHEADS_FIRST: {
      const Extent head = dims[2] * Extent(size);
      return {Extent(is_output ? params.heads : params.heads_of(operand)) * head, head,
              Extent(size), 0};
    }
    case AttentionLayout::kBATCH_FIRST:
      return {dims[1] * dims[2], stride, dims[2], offset};
    case AttentionLayout::kLENGTH_FIRST:
      break;
  }
  return {dims[2], stride, dims[1] * dims[2], offset};
}

}  // namespace opwright
