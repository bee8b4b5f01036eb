// Merges the results that warps, and the blocks of a cluster, computed for different keys. A result
// of a row is its largest score, the sum of its weights and the weighted sums of values. A warp
// saves 16 rows of C::kSavedRow numbers.
#pragma once

#include "attention_state.cuh"
#include "cluster.cuh"

struct Merged {
  float most, sum = 0.0f, value = 0.0f;
  // `most` is the largest of all scores, found before merging.
  __device__ explicit Merged(float most) : most(most == nothing() ? 0.0f : most) {}
  __device__ void add(float other_most, float other_sum, float other_value) {
    const float factor = power_of_two(other_most - most);
    sum = fmaf(factor, other_sum, sum);
    value = fmaf(factor, other_value, value);
  }
  __device__ float result() const { return sum == 0.0f ? 0.0f : value / sum; }
};
template <class C, class Unit>
__device__ inline void save_state(const AttentionState<Unit>& state, float* to, int rows) {
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    if (Unit::row(i) >= rows) continue;
    float* const row = to + Unit::row(i) * C::kSavedRow;
    if (Unit::far() == 0) row[C::kValueSize] = state.most[i], row[C::kValueSize + 1] = state.sum[i];
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; ++j) row[Unit::column(j)] = state.sums[i][j];
  }
}
// Merges one element of the block's rows over the block's warps.
template <class C>
__device__ inline Merged merge_warps(const float* saved, int row, int column) {
  float most = nothing();
#pragma unroll
  for (int i = 0; i < C::kWarpsN; ++i)
    most = fmaxf(most, saved[i * C::kSaved + row * C::kSavedRow + C::kValueSize]);
  Merged merged(most);
#pragma unroll
  for (int i = 0; i < C::kWarpsN; ++i) {
    const float* const from = saved + i * C::kSaved + row * C::kSavedRow;
    merged.add(from[C::kValueSize], from[C::kValueSize + 1], from[column]);
  }
  merged.most = most;
  return merged;
}
// Layout of the received results. Each block merges its share of the columns and receives that
// share from every block. Behind the values of a row lie the largest score and the sum of each
// block.
template <class C>
struct Sent {
  static constexpr int kShare = C::kValueSize / C::kParts, kRow = C::kParts * (kShare + 2);
  static constexpr int kMost = C::kParts * kShare, kSum = kMost + C::kParts;
};
__device__ inline void write_block(float* place, int rank, float number) {
  asm volatile(
      "st.shared::cluster.f32 [%0], %1;" ::"r"(place_in_block(shared_address(place), rank)),
      "f"(number)
      : "memory");
}
template <class C>
__device__ inline void send_to_block(const Merged& merged, float* sent, int part, int row,
                                     int column) {
  typedef Sent<C> To;
  const int rank = column / To::kShare;
  float* const to = sent + row * To::kRow;
  write_block(to + part * To::kShare + column % To::kShare, rank, merged.value);
  if (column % To::kShare != 0) return;
  write_block(to + To::kMost + part, rank, merged.most);
  write_block(to + To::kSum + part, rank, merged.sum);
}
template <class C>
__device__ inline Merged merge_blocks(const float* sent, int row, int column) {
  typedef Sent<C> From;
  const float* const from = sent + row * From::kRow;
  float largest = nothing();
#pragma unroll
  for (int i = 0; i < C::kParts; ++i) largest = fmaxf(largest, from[From::kMost + i]);
  Merged all(largest);
#pragma unroll
  for (int i = 0; i < C::kParts; ++i)
    all.add(from[From::kMost + i], from[From::kSum + i], from[i * From::kShare + column]);
  return all;
}
