// Merges the results that warps and blocks computed for different keys. A result of a row is its
// largest score, the sum of its weights and the weighted sums of values. A warp or a block saves
// C::kTileM rows of C::kSavedRow numbers.
#pragma once

#include "attention_state.cuh"
#include "barriers.cuh"
#include "cluster.cuh"
#include "part_counters.cuh"

// Four neighbours of a row's result.
struct Merged {
  float most = nothing(), sum = 0.0f;
  float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  // The number to subtract from scores, which is never -infinity.
  __device__ float base() const { return most == nothing() ? 0.0f : most; }
  // Raises the largest score.
  __device__ void raise(float other) {
    const float before = most;
    most = fmaxf(most, other);
    const float factor = power_of_two(before - base());
    sum *= factor;
    value.x *= factor, value.y *= factor, value.z *= factor, value.w *= factor;
  }
  // `most` is at least `other_most`.
  __device__ void add(float other_most, float other_sum, const float4& other) {
    const float factor = power_of_two(other_most - base());
    sum = fmaf(factor, other_sum, sum);
    value.x = fmaf(factor, other.x, value.x), value.y = fmaf(factor, other.y, value.y);
    value.z = fmaf(factor, other.z, value.z), value.w = fmaf(factor, other.w, value.w);
  }
};
// Saves a warp's rows. `rows` of them exist.
template <class C, class Unit>
__device__ inline void save_state(const AttentionState<Unit>& state, float* to, int rows) {
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    if (Unit::row(i) >= rows) continue;
    float* const row = to + Unit::row(i) * C::kSavedRow;
    if (Unit::near() == 0)
      *(float2*)(row + C::kValueSize) = make_float2(state.most[i], state.sum[i]);
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; j += 4)
      *(float4*)(row + Unit::column(j)) = make_float4(state.sums[i][j], state.sums[i][j + 1],
                                                      state.sums[i][j + 2], state.sums[i][j + 3]);
  }
}
// Merges four neighbours of the block's rows over the block's warps.
template <class C>
__device__ inline Merged merge_warps(const float* saved, int row, int column) {
  const float* const from = saved + row * C::kSavedRow;
  Merged merged;
  float2 sums[C::kWarpsN];
#pragma unroll
  for (int i = 0; i < C::kWarpsN; ++i) {
    sums[i] = *(const float2*)(from + i * C::kSaved + C::kValueSize);
    merged.most = fmaxf(merged.most, sums[i].x);
  }
#pragma unroll
  for (int i = 0; i < C::kWarpsN; ++i)
    merged.add(sums[i].x, sums[i].y, *(const float4*)(from + i * C::kSaved + column));
  return merged;
}

// Saves what a block merged in global memory.
template <class C>
__device__ inline void save_merged(const Merged& merged, float* to, int row, int column) {
  float* const own = to + row * C::kSavedRow;
  *(float4*)(own + column) = merged.value;
  if (column == 0)
    *(float4*)(own + C::kValueSize) = make_float4(merged.most, merged.sum, 0.0f, 0.0f);
}
// Merges what `parts` blocks saved in global memory. Several blocks' numbers are on their way at
// once.
template <class C>
__device__ inline Merged merge_saved(const float* saved, Index parts, int row, int column) {
  constexpr int kAtOnce = 8;
  const float* from = saved + row * C::kSavedRow;
  Merged all;
#pragma unroll 1
  for (Index part = 0; part < parts; part += kAtOnce, from += kAtOnce * C::kSaved) {
    float4 sums[kAtOnce], values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* const other = from + (part + i < parts ? i : 0) * C::kSaved;
      sums[i] = __ldcg((const float4*)(other + C::kValueSize));
      values[i] = __ldcg((const float4*)(other + column));
    }
    float most = nothing();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) most = fmaxf(most, sums[i].x);
    all.raise(most);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (part + i < parts) all.add(sums[i].x, sums[i].y, values[i]);
  }
  return all;
}

// Layout of the received results. Each block merges its share of the columns and receives that
// share from every block. Behind the values of a row lie the largest score and the sum of each
// block. A barrier lies behind all rows.
template <class C>
struct Sent {
  static constexpr int kShare = C::kValueSize / C::kParts, kSums = C::kParts * kShare;
  static constexpr int kRow = C::kParts * (kShare + 4);
  static_assert(C::kParts == 1 || kShare % 4 == 0);
  __device__ static unsigned barrier(float* sent) {
    return shared_address(sent + C::kTileM * kRow);
  }
  __device__ static int bytes(int rows) { return rows * kRow * 4; }
};
// Stores four numbers in another block, whose barrier counts the bytes.
__device__ inline void send(float* place, unsigned barrier, int rank, const float4& numbers) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(place_in_block(shared_address(place), rank)),
      "r"(__float_as_uint(numbers.x)), "r"(__float_as_uint(numbers.y)),
      "r"(__float_as_uint(numbers.z)), "r"(__float_as_uint(numbers.w)),
      "r"(place_in_block(barrier, rank))
      : "memory");
}
template <class C>
__device__ inline void send_to_block(const Merged& merged, float* sent, int part, int row,
                                     int column) {
  typedef Sent<C> To;
  const int rank = column / To::kShare;
  float* const to = sent + row * To::kRow;
  const unsigned barrier = To::barrier(sent);
  send(to + part * To::kShare + column % To::kShare, barrier, rank, merged.value);
  if (column % To::kShare == 0)
    send(to + To::kSums + part * 4, barrier, rank,
         make_float4(merged.most, merged.sum, 0.0f, 0.0f));
}
template <class C>
__device__ inline Merged merge_blocks(const float* sent, int row, int column) {
  typedef Sent<C> From;
  const float* const from = sent + row * From::kRow;
  Merged all;
  float2 sums[C::kParts];
#pragma unroll
  for (int i = 0; i < C::kParts; ++i) {
    sums[i] = *(const float2*)(from + From::kSums + i * 4);
    all.most = fmaxf(all.most, sums[i].x);
  }
#pragma unroll
  for (int i = 0; i < C::kParts; ++i)
    all.add(sums[i].x, sums[i].y, *(const float4*)(from + i * From::kShare + column));
  return all;
}
