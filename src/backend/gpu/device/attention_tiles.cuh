// Attention by tiles that all warps of a block share. Queries and stages of keys and values are in
// shared memory. A warp multiplies 16 rows with its share of the tile's keys: with kIsTensor on
// tensor cores (attention_tensor.cuh), else by multiply-adds (attention_scalar.cuh).
#pragma once

#include "attention.cuh"
#include "attention_scalar.cuh"
#include "attention_state.cuh"
#include "attention_tensor.cuh"
#include "part_counters.cuh"

template <class Config>
struct TileConfig : AttentionConfig<Config, 16, 16> {
  typedef AttentionConfig<Config, 16, 16> Base;
  // Padded rows: eight rows below each other begin in different banks.
  static constexpr int kKeyRow = Base::kSize + Base::kVector;
  static constexpr int kValueRow = Base::kValueSize + Base::kVector;
  static constexpr int kKeyElements = Config::kTileN * kKeyRow;
  static constexpr int kStageElements = kKeyElements + Config::kTileN * kValueRow;
  static constexpr int kQueryElements = Config::kTileM * kKeyRow;
};

template <class C, bool is_tensor>
struct TileUnit {
  typedef TensorUnit<C> Unit;
};
template <class C>
struct TileUnit<C, false> {
  typedef ScalarUnit<C> Unit;
};

// Copies kTileN rows from `first` on, with all threads. Rows of the tile have `padded` elements and
// one vector of padding.
template <class C, int padded>
__device__ inline void copy_tile(typename C::Element* tile, const RowReader<C>& reader,
                                 Index first) {
  constexpr int kVectors = padded / C::kVector;
#pragma unroll 4
  for (int at = (int)threadIdx.x; at < C::kTileN * kVectors; at += C::kThreads) {
    const int row = at / kVectors, inner = at % kVectors * C::kVector;
    copy_vector<C>(tile + row * (padded + C::kVector) + inner,
                   reader.rows + (first + row) * reader.stride + inner,
                   first + row < reader.count ? reader.size - inner : 0, reader.is_aligned);
  }
}

// Merges the states of warps that have the same rows and different keys, one after the other.
template <class C, class Unit>
__device__ inline void merge_warps(AttentionState<Unit>& state, float* shared, int warp) {
  float* const found =
      shared + warp % C::kWarpsM * (32 * AttentionState<Unit>::kNumbers) + threadIdx.x % 32;
#pragma unroll
  for (int other = 1; other < C::kWarpsN; ++other) {
    if (warp / C::kWarpsM == other) state.save(found, 32);
    __syncthreads();
    if (warp / C::kWarpsM == 0) state.template add_saved<false>(found, 32);
    __syncthreads();
  }
}

// Merges the parts in the block that ends last, always in the same order. Returns false in all
// other blocks.
template <class C, class Unit, int words>
__device__ inline bool merge_parts(AttentionState<Unit>& state, const AttentionTask<C>& task,
                                   float* scratch, unsigned long long* const (&counters)[words],
                                   bool has_rows) {
  constexpr int kThreads = 32 * C::kWarpsM, kPart = kThreads * AttentionState<Unit>::kNumbers;
  float* const parts = scratch + task.number * C::kParts * kPart;
  if (has_rows) state.save(parts + task.part * kPart + threadIdx.x, kThreads);
  if (!is_last_part<C::kParts>(counters, task.number)) return false;
  if (has_rows) {
    state = AttentionState<Unit>();
    for (int i = 0; i < C::kParts; ++i)
      state.template add_saved<true>(parts + i * kPart + threadIdx.x, kThreads);
  }
  return true;
}

// The kernel. With several parts of the keys, `scratch` has room for the states of all tasks and
// parts, and `counters` are those of part_counters.cuh.
template <class Config, int words>
__device__ __forceinline__ void attend_by_tiles(const AttentionArguments<Config>& all,
                                                float* scratch,
                                                unsigned long long* const (&counters)[words]) {
  typedef TileConfig<Config> C;
  typedef typename C::Element Element;
  typedef typename TileUnit<C, C::kIsTensor>::Unit Unit;
  constexpr int kAhead = C::kStages - 1;  // tiles whose copies are on their way
  extern __shared__ uint4 shared[];
  Element* const query_tile = (Element*)shared;
  const auto key_tile = [&](int stage) {
    return query_tile + C::kQueryElements + stage * C::kStageElements;
  };
  float* const weights = (float*)key_tile(C::kStages);
  const int warp = (int)threadIdx.x / 32;
  const int warp_m = warp % C::kWarpsM * 16, warp_n = warp / C::kWarpsM * C::kWarpN;

  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const AttentionTask<C> task(all, number);
    const RowReader<C> keys = task.keys(all), values = task.values(all);
    const TileRange<C> tiles(all, task);
    const RowLimits<C, Unit> limits(all, task, warp_m);
    copy_queries<C, C::kTileM, C::kThreads>(
        all, task, query_tile, 0, (int)threadIdx.x,
        [](int line, int inner) { return line * C::kKeyRow + inner; });
    const auto copy_tiles = [&](int stage, Index tile) {
      Element* const to = key_tile(stage);
      if (tile < tiles.end) copy_tile<C, C::kSize>(to, keys, tile * C::kTileN);
      end_copies();
      if (tile < tiles.end)
        copy_tile<C, C::kValueSize>(to + C::kKeyElements, values, tile * C::kTileN);
      end_copies();
    };
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) copy_tiles(stage, tiles.first + stage);
    wait_for_copies<2 * kAhead>();
    __syncthreads();

    Unit unit(query_tile + warp_m * C::kKeyRow, weights + warp * 16 * C::kWarpN);
    unit.load_queries();
    AttentionState<Unit> state;
    int stage = 0;
    for (Index tile = tiles.first; tile < tiles.end; ++tile) {
      wait_for_copies<2 * kAhead - 1>();
      __syncthreads();
      copy_tiles(stage == 0 ? C::kStages - 1 : stage - 1, tile + kAhead);
      float scores[Unit::kRows][Unit::kColumns];
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) scores[i][j] = 0.0f;
      unit.multiply_keys(scores, key_tile(stage) + warp_n * C::kKeyRow);
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i) {
        const bool is_whole = (tile + 1) * C::kTileN <= limits.counts[i];
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) {
          const Index key = tile * C::kTileN + warp_n + Unit::column(j);
          const bool is_there = is_whole || key < limits.counts[i];
          scores[i][j] = limits.score(all, i, key, is_there, scores[i][j]);
        }
      }
      wait_for_copies<2 * kAhead>();
      __syncthreads();
      state.add(scores, unit, key_tile(stage) + C::kKeyElements + warp_n * C::kValueRow);
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
    }
    state.add_lanes();
    wait_for_copies<0>();
    __syncthreads();

    // After merging, the first warps of each row have the result of all warps.
    const bool has_rows = warp / C::kWarpsM == 0;
    if constexpr (C::kWarpsN > 1) merge_warps<C>(state, (float*)shared, warp);
    if constexpr (C::kParts > 1)
      if (!merge_parts<C>(state, task, scratch, counters, has_rows)) continue;
    if (has_rows) store_rows<C, Unit>(all, task, state, warp_m);
    __syncthreads();
  }
}
