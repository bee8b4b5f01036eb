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

/// Decides which keys a query meets.
struct Mask {
  Tensor* allowed = nullptr;  ///< BOOL that broadcasts to the scores; null: all keys
  Tensor* bias = nullptr;     ///< added to the scores; null: none
};

/// Stages at which ONNX's Attention can show its scores, in the order of qk_matmul_output_mode.
enum class AttentionStage : int32_t { kProduct, kCapped, kMasked, kWeights };

struct AttentionOptions {
  double scale = 1;
  double cap = 0;  ///< scores become cap * tanh(scores / cap); 0: no cap
  /// A score that broadcasts to [batch, heads, 1, 1], of a key whose value is 0; null: none.
  Tensor* sink = nullptr;
  std::optional<DataType> precision{};                  ///< type of the softmax; none: the query's
  std::function<void(AttentionStage, Tensor*)> show{};  ///< receives the scores
  bool normalizes = true;                               ///< whether a softmax normalizes the
                                                        ///< scores; false: nothing does
  std::function<Tensor*(Tensor*)> round{};              ///< rounds the weights; none: they stay
  /// Over which keys, values and the mask are split by the keys' axis. More than one go with a
  /// scale, a cap, and what normalizes.
  int64_t ranks = 1;
};

/// softmax(scale * Q K^T + mask) V, of the paper "Attention Is All You Need" (Vaswani et al.,
/// 2017). Heads may share keys (Ainslie et al., 2023). Rows without an allowed key give 0.
Tensor* attend(LayerWriter& writer, const Heads& heads, const Mask& mask,
               const AttentionOptions& options);

/// The same over the keys of all ranks. Each has its part of the keys, the values and the mask, and
/// the same queries. A rank computes the result for its keys, and each row's logarithm of the sum
/// of its exponentials. All ranks get these and add them in one order, so that all get the same
/// bits. attend() calls it.
Tensor* attend_over_ranks(LayerWriter& writer, const Heads& heads, const Mask& mask,
                          const AttentionOptions& options);

/// softmax(scores) over the last axis. Gives 0 where the mask forbids the key, and in rows without
/// an allowed key. The scores are already masked. `sink` is AttentionOptions::sink.
Tensor* masked_softmax(LayerWriter& writer, Tensor* scores, const Mask& mask,
                       Tensor* sink = nullptr);
/// x times a factor; x itself where the factor is 1.
Tensor* scaled(LayerWriter& writer, Tensor* x, double factor);
/// cap * tanh(scores / cap).
Tensor* capped(LayerWriter& writer, Tensor* scores, double cap);
/// Number of `heads` query heads that share one of `shared` heads. Throws Error unless the number
/// is a constant.
int64_t heads_per_group(LayerWriter& writer, const Expr& heads, const Expr& shared);
/// Products of stacks of matrices [batch, heads, rows, ...] with [batch, heads / group, ...]. Heads
/// of a group lie below each other, so that no operand is repeated.
Tensor* multiply_grouped(LayerWriter& writer, Tensor* a, Tensor* b, MatrixOperation op,
                         int64_t group);
/// The shape [batch, length, heads, size] of x, [batch, length, heads * size].
SymShape heads_apart(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute);
/// [batch, length, heads * size] as [batch, heads, length, size].
Tensor* split_heads(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute);
/// The opposite of split_heads().
Tensor* join_heads(LayerWriter& writer, Tensor* x);
/// 1 / sqrt(size of a head). The size has to be constant.
double default_scale(LayerWriter& writer, const Expr& size);
/// True where a key lies at or before its query. The queries follow `offset` keys.
Tensor* causal_mask(LayerWriter& writer, const Heads& heads, const Expr& offset);
/// BOOL: true where `a` is not greater than `b`.
Tensor* not_greater(LayerWriter& writer, Tensor* a, Tensor* b);
/// The AND of both tensors, broadcast; the other tensor where one is null; null where both are.
Tensor* both_allowed(LayerWriter& writer, Tensor* a, Tensor* b);

}  // namespace opwright
