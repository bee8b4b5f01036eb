#pragma once

#include <functional>

#include "onnx/importer.h"

namespace opwright::onnx {

struct Heads {
  Tensor *query, *key, *value;  ///< [batch, heads, length, size]
};

/// What decides which keys a query meets.
struct Mask {
  Tensor* allowed = nullptr;  ///< BOOL that broadcasts to the scores; null: all of them
  Tensor* bias = nullptr;     ///< added to the scores; null: none
};

/// What Attention can show of its scores, in the order of qk_matmul_output_mode.
enum class AttentionStage : int32_t { kProduct, kCapped, kMasked, kWeights };

struct AttentionOptions {
  double scale = 1;
  double cap = 0;  ///< scores become cap * tanh(scores / cap); 0: they do not
  /// A score that broadcasts to [batch, heads, 1, 1], of a key whose value is 0; null: none.
  Tensor* sink = nullptr;
  std::optional<DataType> precision{};                  ///< of the softmax; none: that of the query
  std::function<void(AttentionStage, Tensor*)> show{};  ///< hears of the scores
};

/// softmax(scale * Q K^T + mask) V, of the paper "Attention Is All You Need" (Vaswani et al.,
/// 2017), with heads of keys that are shared (Ainslie et al., 2023). Rows without an allowed key
/// give 0.
Tensor* attend(NodeImporter& node, const Heads& heads, const Mask& mask,
               const AttentionOptions& options);

struct ProjectedInputs {
  Tensor *mask, *past, *bias;  ///< as com.microsoft's Attention has them; each may be null
};
/// Attention over [batch, length, queries, keys and values side by side]: the node's outputs are
/// set.
void attend_projected(NodeImporter& node, Tensor* all, const ProjectedInputs& given);

/// [batch, length, heads * size] as [batch, heads, length, size].
Tensor* split_heads(NodeImporter& node, Tensor* x, int64_t heads, std::string_view attribute);
/// The opposite.
Tensor* join_heads(NodeImporter& node, Tensor* x);
/// 1 / sqrt(size of a head), which has to be constant.
double default_scale(NodeImporter& node, const Expr& size);
/// Where keys do not lie behind their queries, which follow `offset` keys.
Tensor* causal_mask(NodeImporter& node, const Heads& heads, const Expr& offset);
/// The node's output, of its attributes for RotaryEmbedding: x, [batch, heads, length, size] or
/// [batch, length, heads * size], with cosines and sines of those positions, or without positions
/// of each place.
void rotate(NodeImporter& node, Tensor* x, Tensor* cosines, Tensor* sines, Tensor* positions,
            int64_t heads);
/// The tensor where it is there, broadcast with the other one; null where neither is.
Tensor* both_allowed(NodeImporter& node, Tensor* a, Tensor* b);

}  // namespace opwright::onnx
