// What warps, and the blocks of a cluster, have found of their keys, and how it is merged: of each
// row the largest score, the sum and the sums of values.
// Expects attention_direct.cuh.
#pragma once

#include "approximations.cuh"
#include "attention_tiles.cuh"
#include "cluster.cuh"

constexpr int kSavedRow = kValueSize + 4, kSaved = 16 * kSavedRow;
struct Merged {
  float most, sum = 0.0f, value = 0.0f;
  // The largest of all scores is known before.
  __device__ explicit Merged(float most) : most(most == nothing() ? 0.0f : most) {}
  __device__ void add(float other_most, float other_sum, float other_value) {
    const float factor = power_of_two(other_most - most);
    sum = fmaf(factor, other_sum, sum);
    value = fmaf(factor, other_value, value);
  }
  __device__ float result() const { return sum == 0.0f ? 0.0f : value / sum; }
};
template <class State>
__device__ inline void save_state(const State& state, float* to, int rows) {
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    if (Unit::row(i) >= rows) continue;
    float* const row = to + Unit::row(i) * kSavedRow;
    if (Unit::far() == 0) row[kValueSize] = state.most[i], row[kValueSize + 1] = state.sum[i];
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; ++j) row[Unit::column(j)] = state.sums[i][j];
  }
}
// An element of the block's rows.
__device__ inline Merged merge_warps(const float* saved, int row, int column) {
  float most = nothing();
#pragma unroll
  for (int i = 0; i < kWarpsN; ++i)
    most = fmaxf(most, saved[i * kSaved + row * kSavedRow + kValueSize]);
  Merged merged(most);
#pragma unroll
  for (int i = 0; i < kWarpsN; ++i) {
    const float* const from = saved + i * kSaved + row * kSavedRow;
    merged.add(from[kValueSize], from[kValueSize + 1], from[column]);
  }
  merged.most = most;
  return merged;
}
// Each block merges its share of the columns, of which all send what they have: of a row, the
// largest score and the sum of each block lie behind the values of all.
template <int parts>
struct Sent {
  static constexpr int kShare = kValueSize / parts, kRow = parts * (kShare + 2);
  static constexpr int kMost = parts * kShare, kSum = kMost + parts;
};
__device__ inline void write_block(float* place, int rank, float number) {
  asm volatile(
      "st.shared::cluster.f32 [%0], %1;" ::"r"(place_in_block(shared_address(place), rank)),
      "f"(number)
      : "memory");
}
template <int parts>
__device__ inline void send_to_block(const Merged& merged, float* sent, int part, int row,
                                     int column) {
  typedef Sent<parts> To;
  const int rank = column / To::kShare;
  float* const to = sent + row * To::kRow;
  write_block(to + part * To::kShare + column % To::kShare, rank, merged.value);
  if (column % To::kShare != 0) return;
  write_block(to + To::kMost + part, rank, merged.most);
  write_block(to + To::kSum + part, rank, merged.sum);
}
template <int parts>
__device__ inline Merged merge_blocks(const float* sent, int row, int column) {
  typedef Sent<parts> From;
  const float* const from = sent + row * From::kRow;
  float largest = nothing();
#pragma unroll
  for (int i = 0; i < parts; ++i) largest = fmaxf(largest, from[From::kMost + i]);
  Merged all(largest);
#pragma unroll
  for (int i = 0; i < parts; ++i)
    all.add(from[From::kMost + i], from[From::kSum + i], from[i * From::kShare + column]);
  return all;
}
