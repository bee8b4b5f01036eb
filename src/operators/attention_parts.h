#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "operators/layer_writer.h"

namespace opwright {

struct Heads {
  Tensor *query, *key, *value;  ///< [batch, heads, length, size]
};

/// What decides which keys a query meets.
struct Mask {
  Tensor* allowed = nullptr;  ///< BOOL that broadcasts to the scores; null: all of them
  Tensor* bias = nullptr;     ///< added to the scores; null: none
};

/// What ONNX's Attention can show of its scores, in the order of qk_matmul_output_mode.
enum class AttentionStage : int32_t { kProduct, kCapped, kMasked, kWeights };

struct AttentionOptions {
  double scale = 1;
  double cap = 0;  ///< scores become cap * tanh(scores / cap); 0: they do not
  /// A score that broadcasts to [batch, heads, 1, 1], of a key whose value is 0; null: none.
  Tensor* sink = nullptr;
  std::optional<DataType> precision{};                  ///< of the softmax; none: that of the query
  std::function<void(AttentionStage, Tensor*)> show{};  ///< hears of the scores
  bool normalizes = true;                               ///< by a softmax; false: not at all
  std::function<Tensor*(Tensor*)> round{};  ///< what becomes of the weights; none: they stay
};

/// softmax(scale * Q K^T + mask) V, of the paper "Attention Is All You Need" (Vaswani et al.,
/// 2017), with heads of keys that are shared (Ainslie et al., 2023). Rows without an allowed key
/// give 0.
Tensor* attend(LayerWriter& writer, const Heads& heads, const Mask& mask,
               const AttentionOptions& options);

/// softmax(scores) over the last axis, 0 where the mask allows nothing, and in rows of which it
/// leaves nothing. The scores are masked already. `sink` is AttentionOptions::sink.
Tensor* masked_softmax(LayerWriter& writer, Tensor* scores, const Mask& mask,
                       Tensor* sink = nullptr);
/// x times a factor, x itself where that is 1.
Tensor* scaled(LayerWriter& writer, Tensor* x, double factor);
/// How many of `heads` query heads share one of `shared` heads. Throws Error unless that is a
/// constant.
int64_t heads_per_group(LayerWriter& writer, const Expr& heads, const Expr& shared);
/// Products of stacks of matrices [batch, heads, rows, ...] with [batch, heads / group, ...]: heads
/// of a group lie below each other, so that nothing is repeated.
Tensor* multiply_grouped(LayerWriter& writer, Tensor* a, Tensor* b, MatrixOperation op,
                         int64_t group);
/// The shape [batch, length, heads, size] of x, [batch, length, heads * size].
SymShape heads_apart(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute);
/// [batch, length, heads * size] as [batch, heads, length, size].
Tensor* split_heads(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute);
/// The opposite.
Tensor* join_heads(LayerWriter& writer, Tensor* x);
/// 1 / sqrt(size of a head), which has to be constant.
double default_scale(LayerWriter& writer, const Expr& size);
/// Where keys do not lie behind their queries, which follow `offset` keys.
Tensor* causal_mask(LayerWriter& writer, const Heads& heads, const Expr& offset);
/// BOOL: where `a` is not greater than `b`.
Tensor* not_greater(LayerWriter& writer, Tensor* a, Tensor* b);
/// The tensor where it is there, broadcast with the other one; null where neither is.
Tensor* both_allowed(LayerWriter& writer, Tensor* a, Tensor* b);

}  // namespace opwright
