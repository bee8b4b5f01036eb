#pragma once

#include <cstdint>

namespace opwright {

/// Columns of BlockProduct are rounded up to multiples of this many elements, which must be there.
inline constexpr int64_t kAttentionLanes = 16;

/// c[m][n] (+)= sum over k of a[m][k] b[k][n], FP32; strides between rows are in elements.
struct BlockProduct {
  const float* a;
  int64_t a_stride, rows;
  const float* b;
  int64_t b_stride, columns, k;
  float* c;
  int64_t c_stride;
  bool adds;  ///< to what c has
};

/// What becomes of the scores of a query, in this order.
struct ScoreMask {
  float cap = 0;                           ///< cap * tanh(score / cap); 0: nothing
  const float* bias = nullptr;             ///< added, one per key; null: none
  const unsigned char* allowed = nullptr;  ///< one per key; null: all are
  float masked = 0;                        ///< the score of those that are not
};

struct AttentionFunctions {
  void (*multiply)(const BlockProduct& product);
  /// scores[m][n] = sum over e of queries[m][e] keys[n][e], for few queries.
  void (*dots)(const float* queries, int64_t query_stride, int64_t rows, const float* keys,
               int64_t key_stride, int64_t count, int64_t size, float* scores,
               int64_t score_stride);
  /// Changes the scores and returns the largest one.
  float (*mask)(float* scores, int64_t count, const ScoreMask& mask);
  /// e^(score - most) in their place; returns the sum.
  float (*exponentials)(float* scores, int64_t count, float most);
  void (*scale)(float* values, int64_t count, float factor);
};
const AttentionFunctions& attention_functions();

}  // namespace opwright
