#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// A score from which on a key has no weight beside one that may be met.
inline constexpr double kForbiddenScore = -1e4;
/// Nodes that are followed in one direction.
inline constexpr int kMostFollowed = 16;

/// An attention that is written as layers: what is between the product with the keys and the
/// softmax, and behind it.
struct AttentionPattern {
  GraphNode *softmax = nullptr, *scores = nullptr, *result = nullptr;  ///< and the two products
  double scale = 1, cap = 0;
  float masked_score = -std::numeric_limits<float>::infinity();
  GraphValue *allowed = nullptr, *bias = nullptr;
  size_t allowed_rank = 4, bias_rank = 4;  ///< of the scores that they were read by
  bool is_forbidden = false;               ///< whether the mask says what is forbidden instead
  std::optional<SymShape> shape;           ///< of the scores: [batch, heads, queries, keys]
  std::vector<DataType> roundings;         ///< other types than FP32 that casts between have
};

/// The attention around a softmax, whose scores and weights nobody else reads; nothing where it is
/// around none.
std::optional<AttentionPattern> find_attention(const Graph& graph, GraphNode* softmax);

}  // namespace opwright
