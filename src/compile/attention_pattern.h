#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// A key whose score is at most this has no weight beside a key that may be met.
inline constexpr double kForbiddenScore = -1e4;
/// The most nodes that are followed in one direction.
inline constexpr int kMostFollowed = 16;

/// An attention that is written as layers: the nodes from the product with the keys to the softmax,
/// and from the softmax to the product with the values.
struct AttentionPattern {
  GraphNode *softmax = nullptr, *scores = nullptr, *result = nullptr;  ///< the softmax and the two
                                                                       ///< products
  double scale = 1, cap = 0;
  float masked_score = -std::numeric_limits<float>::infinity();
  GraphValue *allowed = nullptr, *bias = nullptr;
  size_t allowed_rank = 4, bias_rank = 4;  ///< ranks of the scores where the masks were read
  bool is_forbidden = false;               ///< whether `allowed` is true where a key is forbidden
  std::optional<SymShape> shape;           ///< of the scores: [batch, heads, queries, keys]
  std::vector<DataType> roundings;         ///< types of the casts between, other than FP32
};

/// The attention around a softmax. Nothing where there is none, or where another node reads the
/// scores or weights.
std::optional<AttentionPattern> find_attention(const Graph& graph, GraphNode* softmax);

}  // namespace opwright
