#pragma once

#include <cstdint>

namespace opwright {

/// Columns of BlockProduct are rounded up to multiples of this number of elements; memory must have
/// room for them.
inline constexpr int64_t kAttentionLanes = 16;

/// c[m][n] (+)= sum over k of a[m][k] b[k][n], FP32; strides between rows are in elements.
struct BlockProduct {
  const float* a;
  int64_t a_stride, rows;
  const float* b;
  int64_t b_stride, columns, k;
  float* c;
  int64_t c_stride;
  bool adds;  ///< to the contents of c
};

/// Changes to the scores of a query, in this order.
struct ScoreMask {
  float cap = 0;                           ///< cap * tanh(score / cap); 0: no cap
  const float* bias = nullptr;             ///< added, one per key; null: none
  const unsigned char* allowed = nullptr;  ///< one per key; null: all keys are allowed
  float masked = 0;                        ///< the score of keys that are not allowed
};

struct AttentionFunctions {
  void (*multiply)(const BlockProduct& product);
  /// scores[m][n] = sum over e of queries[m][e] keys[n][e], for few queries.
  void (*dots)(const float* queries, int64_t query_stride, int64_t rows, const float* keys,
               int64_t key_stride, int64_t count, int64_t size, float* scores,
               int64_t score_stride);
  /// Changes the scores and returns the largest one.
  float (*mask)(float* scores, int64_t count, const ScoreMask& mask);
  /// Replaces each score with e^(score - most) and returns the sum.
  float (*exponentials)(float* scores, int64_t count, float most);
  void (*scale)(float* values, int64_t count, float factor);
};
const AttentionFunctions& attention_functions();

}  // namespace opwright
