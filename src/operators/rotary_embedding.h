#pragma once

#include "operators/builtin.h"

namespace opwright {

struct RotaryEmbeddingParams {
  bool interleaved = false;          ///< pairs are neighbours; else they are elements of the two
                                     ///< halves
  int64_t rotary_embedding_dim = 0;  ///< leading elements of a head that are turned; 0: all
  bool sequence_first = false;       ///< x is [batch, length, heads, size]
  int64_t turned_heads = 0;          ///< leading heads that are turned; 0: all
  template <class V>
  void visit(V& v) {
    v("interleaved", interleaved), v("rotary_embedding_dim", rotary_embedding_dim);
    v.internal("sequence_first", sequence_first), v.internal("turned_heads", turned_heads);
  }
};
/// Turns pairs of elements of each head, x [batch, heads, length, size], by angles whose cosines
/// and sines are inputs 1 and 2: [batch or 1, length, turned / 2], or with positions as input 3
/// ([batch or 1, length], INT32 or INT64) tables [rows, turned / 2]. Negative positions count from
/// the end; positions out of range give zeros. The output has x's type and shape ("RoFormer", Su et
/// al., 2021).
class RotaryEmbedding final : public BuiltinOperator<RotaryEmbedding, RotaryEmbeddingParams> {
 public:
  static constexpr std::string_view kKind = "RotaryEmbedding";
  static constexpr LayerClass<class IRotaryEmbeddingLayer> kLayer{
      LayerType::kROTARY_EMBEDDING, "IRotaryEmbeddingLayer",
      "Pairs of elements of each head, turned by angles that positions give."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
