// Attention of few queries. Each warp loads keys and values from global memory directly into the
// registers of tensor core instructions. This works because both operands of a product may use the
// same permuted order of a head's elements. Each warp processes 16 keys at a time independently.
// The results of the block's warps, and of the kParts blocks of a cluster, are merged at the end.
#pragma once

#include "attention_merging.cuh"
#include "mma.cuh"

template <class Config>
struct DirectConfig : AttentionConfig<Config, 32, 64> {
  typedef AttentionConfig<Config, 32, 64> Base;
  static constexpr int kSavedRow = Base::kValueSize + 4, kSaved = 16 * kSavedRow;
  // Whether keys that are not allowed can be skipped, since they contribute nothing.
  static constexpr bool kSkipsMasked = Base::kHasAllowed && Config::kMaskExcludes;
};

// Reads C::kVector elements of a head of `size` elements, from `inner` on. Elements beyond the head
// are zeros.
template <class C, bool is_vector, int size>
__device__ inline uint4 read_head(const typename C::Element* head, int inner, bool is_there) {
  typedef typename C::Element Element;
  uint4 vector = make_uint4(0u, 0u, 0u, 0u);
  if (!is_there || inner >= size) return vector;
  if (is_vector && size % C::kVector == 0) return *(const uint4*)(head + inner);
  Pack<Element, C::kVector> pack;
#pragma unroll
  for (int i = 0; i < C::kVector; ++i) pack.at[i] = inner + i < size ? head[inner + i] : Element{};
  return *(const uint4*)&pack;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
// Prefetches C::kTileN keys and values from `first` on into the L2 cache.
template <class C>
__device__ inline void fetch_rows(const RowReader<C>& keys, const RowReader<C>& values,
                                  Index first) {
  constexpr int kLine = 128 / sizeof(typename C::Element);
  for (int i = (int)threadIdx.x % 32; i < 2 * C::kTileN; i += 32) {
    const RowReader<C>& reader = i < C::kTileN ? keys : values;
    const Index row = first + i % C::kTileN;
    if (row >= reader.count) continue;
#pragma unroll
    for (int at = 0; at < reader.size; at += kLine)
      fetch_line(reader.rows + row * reader.stride + at);
  }
}
// The operations of a warp on 16 keys.
template <class C>
struct DirectUnit {
  typedef typename C::Element Element;
  static constexpr int kRows = 2, kColumns = 4, kOutputs = C::kValueSize / 4;
  static constexpr int kLanes = 4;  // lanes that share the same queries
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ static int row(int i) { return near() + 8 * i; }
  __device__ static int key(int j) { return j / 2 * 8 + far() * 2 + j % 2; }
  __device__ static int column(int j) { return j / 16 * 64 + far() * 16 + j % 16; }

  uint4 queries[C::kSize / 32][2], keys[C::kSize / 32][2], values[C::kValueSize / 64][4];
  template <bool is_vector>
  __device__ void read_query(int i, const Element* head, bool is_there) {
#pragma unroll
    for (int k = 0; k < C::kSize / 32; ++k)
      queries[k][i] =
          read_head<C, is_vector, C::kHeadSize>(head, k * 32 + far() * C::kVector, is_there);
  }
  // Reads 16 keys and values, from `first` on.
  template <bool is_vector>
  __device__ void read(const RowReader<C>& key_rows, const RowReader<C>& value_rows, Index first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Index row = first + near() + 8 * i;
#pragma unroll
      for (int k = 0; k < C::kSize / 32; ++k)
        keys[k][i] = read_head<C, is_vector, C::kHeadSize>(key_rows.rows + row * key_rows.stride,
                                                           k * 32 + far() * C::kVector,
                                                           row < key_rows.count);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Index row = first + key(i);
#pragma unroll
      for (int n = 0; n < C::kValueSize / 64; ++n)
        values[n][i] = read_head<C, is_vector, C::kHeadValueSize>(
            value_rows.rows + row * value_rows.stride, n * 64 + near() * C::kVector,
            row < value_rows.count);
    }
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int k = 0; k < C::kSize / 32; ++k)
#pragma unroll
        for (int half = 0; half < 4; half += 2)
          Mma<Element>::add(
              scores[0][2 * i], scores[0][2 * i + 1], scores[1][2 * i], scores[1][2 * i + 1],
              word(queries[k][0], half), word(queries[k][1], half), word(queries[k][0], half + 1),
              word(queries[k][1], half + 1), word(keys[k][i], half), word(keys[k][i], half + 1));
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs],
                             const float (&own)[kRows][kColumns]) const {
    const unsigned a0 = pair<Element>(own[0][0], own[0][1]),
                   a1 = pair<Element>(own[1][0], own[1][1]),
                   a2 = pair<Element>(own[0][2], own[0][3]),
                   a3 = pair<Element>(own[1][2], own[1][3]);
#pragma unroll
    for (int n = 0; n < C::kValueSize / 64; ++n)
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const unsigned select = t % 2 == 0 ? 0x5410 : 0x7632;
        const int o = n * 16 + t;
        Mma<Element>::add(
            sums[0][o], sums[0][o + 8], sums[1][o], sums[1][o + 8], a0, a1, a2, a3,
            __byte_perm(word(values[n][0], t / 2), word(values[n][1], t / 2), select),
            __byte_perm(word(values[n][2], t / 2), word(values[n][3], t / 2), select));
      }
  }
};

// Prefetches a task's keys and values, and its mask, into the L2 cache while earlier kernels end.
// Those kernels may still change this data. Their changes reach the L2 cache, too, so later loads
// see them.
template <class C>
__device__ inline void fetch_task(const typename C::Arguments& all, Index number, int warp) {
  constexpr int kMostTiles = 4;  // limits the prefetch of a long key cache that is hardly filled
  const AttentionTask<C> task(all, number);
  const RowReader<C> keys = task.keys(all), values = task.values(all);
  const TileRange<C> tiles(all, task);
  const RowLimits<C, DirectUnit<C>> limits(all, task, warp % C::kWarpsM * 16);
  const Index last = tiles.first + kMostTiles * C::kWarpsN;
  for (Index tile = tiles.first + warp; tile < tiles.end && tile < last; tile += C::kWarpsN) {
    if constexpr (C::kHasAllowed)
      if (threadIdx.x % 32 == 0) fetch_line(limits.allowed_place(all, 0, tile * C::kTileN));
    fetch_rows(keys, values, tile * C::kTileN);
  }
}

// Computes a warp's result over its tiles of keys.
template <class C>
__device__ inline AttentionState<DirectUnit<C>> attend_to_keys(const typename C::Arguments& all,
                                                               const AttentionTask<C>& task,
                                                               int warp) {
  typedef DirectUnit<C> Unit;
  const RowReader<C> keys = task.keys(all), values = task.values(all);
  const TileRange<C> tiles(all, task);
  const RowLimits<C, Unit> limits(all, task, warp % C::kWarpsM * 16);
  AttentionState<Unit> state;
  // Only the loads exist in two versions. Two versions of the whole loop would spill registers.
  const bool has_vectors =
      keys.is_aligned && values.is_aligned && all.query.template is_aligned_to<C::kVector>();
  Unit unit;
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    const Index row = task.first_row + Unit::row(i);
    const typename C::Element* const query =
        all.query.data +
        (row < all.rows ? all.query.place(task.batch, task.head(row), task.query(row)) : 0);
    if (has_vectors)
      unit.template read_query<true>(i, query, row < all.rows);
    else
      unit.template read_query<false>(i, query, row < all.rows);
  }
  const auto read = [&](Index tile) {
    if (has_vectors)
      unit.template read<true>(keys, values, tile * C::kTileN);
    else
      unit.template read<false>(keys, values, tile * C::kTileN);
  };
  // Keys and values are loaded together with the mask, unless the previous tile was fully masked.
  bool reads_ahead = true;
  for (Index tile = tiles.first + warp; tile < tiles.end; tile += C::kWarpsN) {
    const bool has_read = reads_ahead;
    if (has_read) read(tile);
    if constexpr (C::kSkipsMasked) {
      bool is_met = false;
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) {
          const Index key = tile * C::kTileN + Unit::key(j);
          if (key < limits.counts[i]) is_met |= load(*limits.allowed_place(all, i, key)) != 0;
        }
      reads_ahead = __any_sync(0xffffffffu, is_met);
      if (!reads_ahead) continue;
      if (!has_read) read(tile);
    }
    float scores[Unit::kRows][Unit::kColumns];
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) scores[i][j] = 0.0f;
    unit.multiply_keys(scores);
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) {
        const Index key = tile * C::kTileN + Unit::key(j);
        scores[i][j] = limits.score(all, i, key, key < limits.counts[i], scores[i][j]);
      }
    state.add(scores, unit);
  }
  state.add_lanes();
  return state;
}

// The kernel. It reads `all` before earlier kernels are done.
template <class Config>
__device__ __forceinline__ void attend_directly(AttentionArguments<Config> all) {
  typedef DirectConfig<Config> C;
  extern __shared__ uint4 shared[];
  // Tells the cluster that this block runs: a block may write to another's shared memory only then.
  if constexpr (C::kParts > 1) arrive_in_cluster();
  const int warp = (int)threadIdx.x / 32;
  if (blockIdx.x < all.tasks) fetch_task<C>(all, blockIdx.x, warp);
  // Not earlier, since loads of the next kernel would delay this kernel's keys and values.
  begin_next_kernel();
  all.wait();

  float* const saved = (float*)shared;
  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const AttentionTask<C> task(all, number);
    const int own_rows =
        all.rows - task.first_row < C::kTileM ? (int)(all.rows - task.first_row) : C::kTileM;
    save_state<C>(attend_to_keys<C>(all, task, warp), saved + warp * C::kSaved, own_rows);
    __syncthreads();
    const auto store = [&](int line, int column, const Merged& merged) {
      const Index row = task.first_row + line;
      all.output.data[all.output.place(task.batch, task.head(row), task.query(row)) + column] =
          C::make_result(merged.result());
    };
    if constexpr (C::kParts == 1) {
      for (int at = (int)threadIdx.x; at < own_rows * C::kValueSize; at += C::kThreads) {
        const int line = at / C::kValueSize, column = at % C::kValueSize;
        if (column < C::kHeadValueSize) store(line, column, merge_warps<C>(saved, line, column));
      }
    } else {
      float* const sent = saved + C::kWarpsN * C::kSaved;
      const int part = (int)task.part;
      wait_for_cluster();  // every block has merged what it received for the previous task
      for (int at = (int)threadIdx.x; at < own_rows * C::kValueSize; at += C::kThreads) {
        const int line = at / C::kValueSize, column = at % C::kValueSize;
        send_to_block<C>(merge_warps<C>(saved, line, column), sent, part, line, column);
      }
      sync_cluster();
      constexpr int kShare = Sent<C>::kShare;
      for (int at = (int)threadIdx.x; at < own_rows * kShare; at += C::kThreads) {
        const int line = at / kShare, column = part * kShare + at % kShare;
        if (column < C::kHeadValueSize)
          store(line, column, merge_blocks<C>(sent, line, at % kShare));
      }
      if (number + gridDim.x < all.tasks) arrive_in_cluster();
    }
    __syncthreads();
  }
}
