// Attention of few queries. Each warp loads keys and values from global memory directly into the
// registers of tensor core instructions. This works because both operands of a product may use the
// same permuted order of a head's elements. Keys are the rows of the products and queries are the
// columns, since an instruction has 16 rows and 8 columns. Each warp processes 16 keys at a time
// independently. The results of the block's warps, and of the blocks that share the keys, are
// merged at the end.
//
// The blocks that share the keys are either the kParts blocks of a cluster, or with kIsSplit any
// number that the host chooses. Then the block that ends last merges. Config also has
//   kIsSplit   whether the host chooses the number of blocks that share the keys; kParts is 1 then
#pragma once

#include "attention_merging.cuh"
#include "mma.cuh"

template <class Config>
struct DirectConfig : AttentionConfig<Config, 32, 64> {
  typedef AttentionConfig<Config, 32, 64> Base;
  static constexpr int kSavedRow = Base::kValueSize + 4, kSaved = Config::kTileM * kSavedRow;
  // Whether keys that are not allowed can be skipped, since they contribute nothing.
  static constexpr bool kSkipsMasked = Base::kHasAllowed && Config::kMaskExcludes;
  static constexpr bool kHasWholeVectors =
      Config::kHeadSize % Base::kVector == 0 && Config::kHeadValueSize % Base::kVector == 0;
};

__device__ inline uint4 load_vector(const void* from) {
  uint4 vector;
  asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
      : "l"(from));
  return vector;
}
// Reads C::kVector elements of a head of `size` elements, `further` elements behind `from`, which
// is the head's element `inner`. Elements beyond the head are zeros.
template <class C, bool is_vector, int size>
__device__ inline uint4 read_head(const typename C::Element* from, int inner, int further,
                                  bool is_there) {
  typedef typename C::Element Element;
  uint4 vector = make_uint4(0u, 0u, 0u, 0u);
  if (!is_there || inner + further >= size) return vector;
  if constexpr (is_vector) {
    vector = load_vector(from + further);
  } else {
    Pack<Element, C::kVector> pack;
#pragma unroll
    for (int i = 0; i < C::kVector; ++i)
      pack.at[i] = inner + further + i < size ? from[further + i] : Element{};
    vector = *(const uint4*)&pack;
  }
  return vector;
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
    const bool is_key = i < C::kTileN;
    const Index row = first + i % C::kTileN;
    if (row >= keys.count) continue;
    const typename C::Element* const line =
        is_key ? keys.rows + row * keys.stride : values.rows + row * values.stride;
#pragma unroll
    for (int at = 0; at < (is_key ? C::kHeadSize : C::kHeadValueSize); at += kLine)
      fetch_line(line + at);
  }
}
// The operations of a warp on 16 keys.
template <class C>
struct DirectUnit {
  typedef typename C::Element Element;
  static constexpr int kTiles = C::kTileM / 8;  // of eight queries
  static constexpr int kRows = 2 * kTiles, kColumns = 2, kOutputs = C::kValueSize / 8;
  static constexpr int kLanes = 8, kLaneStep = 4;  // lanes that share the same queries
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ static int row(int i) { return i / 2 * 8 + far() * 2 + i % 2; }
  __device__ static int key(int j) { return j * 8 + near(); }
  __device__ static int column(int j) { return j / 8 * 64 + near() * 8 + j % 8; }
  // The lane's first element of queries and keys, and of values.
  __device__ static int key_inner() { return far() * C::kVector; }
  __device__ static int value_inner() { return near() * C::kVector; }

  uint4 queries[C::kSize / 32][kTiles], keys[C::kSize / 32][2], values[C::kValueSize / 64][4];
  // Places of the lane's first elements in the operands. Those of the first tile are known before
  // earlier kernels are done.
  Index query_places[kTiles], key_places[2], value_places[4];

  __device__ void place_queries(const typename C::Arguments& all, const AttentionTask<C>& task) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const Index row = task.first_row + t * 8 + near();
      query_places[t] =
          row < all.rows
              ? all.query.place(task.batch, task.head(row), task.query(row)) + key_inner()
              : -1;
    }
  }
  // Places 16 keys and values, from `first` on. In place of a key that does not exist there is the
  // last one, whose score is ignored. Values that do not exist are zeros, since their weight 0
  // times infinity is a NaN.
  __device__ void place_keys(const typename C::Arguments& all, const AttentionTask<C>& task,
                             Index first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Index row = first + key(i) < all.keys ? first + key(i) : all.keys - 1;
      key_places[i] = all.key.place(task.batch, task.shared_head, row) + key_inner();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Index row = first + i / 2 * 8 + far() * 2 + i % 2;
      value_places[i] =
          row < all.keys ? all.value.place(task.batch, task.shared_head, row) + value_inner() : -1;
    }
  }
  template <bool is_vector>
  __device__ void read_queries(const Element* data) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const Element* const from = data + query_places[t];
#pragma unroll
      for (int k = 0; k < C::kSize / 32; ++k)
        queries[k][t] =
            read_head<C, is_vector, C::kHeadSize>(from, key_inner(), k * 32, query_places[t] >= 0);
    }
  }
  template <bool is_vector>
  __device__ void read_keys(const Element* key_data, const Element* value_data) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Element* const from = key_data + key_places[i];
#pragma unroll
      for (int k = 0; k < C::kSize / 32; ++k)
        keys[k][i] = read_head<C, is_vector, C::kHeadSize>(from, key_inner(), k * 32, true);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Element* const from = value_data + value_places[i];
#pragma unroll
      for (int n = 0; n < C::kValueSize / 64; ++n)
        values[n][i] = read_head<C, is_vector, C::kHeadValueSize>(from, value_inner(), n * 64,
                                                                  value_places[i] >= 0);
    }
  }
  // Products follow each other in two chains, since each waits for the one before it.
  __device__ void multiply_keys(float (&scores)[kRows][kColumns]) const {
    float chains[2][kRows][kColumns];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) chains[half][i][j] = 0.0f;
#pragma unroll
    for (int k = 0; k < C::kSize / 32; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          float(&own)[kRows][kColumns] = chains[half];
          Mma<Element>::add(own[2 * t][0], own[2 * t + 1][0], own[2 * t][1], own[2 * t + 1][1],
                            word(keys[k][0], 2 * half), word(keys[k][1], 2 * half),
                            word(keys[k][0], 2 * half + 1), word(keys[k][1], 2 * half + 1),
                            word(queries[k][t], 2 * half), word(queries[k][t], 2 * half + 1));
        }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) scores[i][j] = chains[0][i][j] + chains[1][i][j];
  }
  // A lane has weights of the keys near() and near() + 8, while the products with values need those
  // of the keys 2 * far() and the next one, and of the keys that are 8 further.
  __device__ static unsigned exchange(unsigned weights) {
    const int lane = far() * 8 + near() / 2;
    return __byte_perm(__shfl_sync(0xffffffffu, weights, lane),
                       __shfl_sync(0xffffffffu, weights, lane + 4),
                       near() % 2 == 0 ? 0x5410 : 0x7632);
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs],
                             const float (&own)[kRows][kColumns]) const {
    unsigned weights[kTiles][kColumns];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        weights[t][j] = exchange(pair<Element>(own[2 * t][j], own[2 * t + 1][j]));
#pragma unroll
    for (int n = 0; n < C::kValueSize / 64; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned own_values[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          own_values[e] =
              __byte_perm(word(values[n][e / 2 * 2], i), word(values[n][e / 2 * 2 + 1], i),
                          e % 2 == 0 ? 0x5410 : 0x7632);
        const int o = n * 8 + 2 * i;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          Mma<Element>::add(sums[2 * t][o], sums[2 * t + 1][o], sums[2 * t][o + 1],
                            sums[2 * t + 1][o + 1], own_values[0], own_values[1], own_values[2],
                            own_values[3], weights[t][0], weights[t][1]);
      }
  }
};

// The tiles of keys of a warp. Neighbouring tiles belong to different blocks, and then to different
// warps. So all have about as many keys, also where a mask forbids the last ones.
template <class C>
struct OwnTiles {
  static constexpr int kAtOnce = 4;  // tiles whose mask is read at once
  Index first, step, end;
  __device__ OwnTiles(const typename C::Arguments& all, const AttentionTask<C>& task, Index part,
                      Index parts, int warp)
      : first(warp * parts + part),
        step(C::kWarpsN * parts),
        end((count_most_keys<C>(all, task) + C::kTileN - 1) / C::kTileN) {}

  // Bit i: whether the mask allows some query a key of the tile that is i steps behind `tile`. This
  // may be called before earlier kernels are done, to guess. So it reads the L2 cache: what it
  // reads must not stay in the L1 cache.
  __device__ unsigned find_allowed(const typename C::Arguments& all, const AttentionTask<C>& task,
                                   Index tile) const {
    unsigned found = 0;
    if constexpr (C::kSkipsMasked) {
      static_assert(C::kTileN == 16);
      const AttentionMask<typename C::Allowed>& mask = all.allowed;
      const bool is_one_row = mask.head_step == 0 && mask.query_step == 0;
      const Index left = all.rows - task.first_row;
      const Index rows = is_one_row ? 1 : left < C::kTileM ? left : C::kTileM;
      const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
      for (Index i = 0; i < rows; ++i) {
        const Index row = task.first_row + i;
        const Index place = task.batch * mask.batch_step + task.head(row) * mask.head_step +
                            task.query(row) * mask.query_step;
#pragma unroll
        for (int turn = 0; turn < kAtOnce; turn += 2) {
          const Index key = (tile + (turn + lane / 16) * step) * C::kTileN + lane % 16;
          const bool is_met =
              key < all.keys &&
              __ldcg((const unsigned char*)(mask.data + (place + key * mask.key_step))) != 0;
          const unsigned lanes = __ballot_sync(0xffffffffu, is_met);
          found |= (unsigned)((lanes & 0xffffu) != 0) << turn;
          found |= (unsigned)((lanes >> 16) != 0) << (turn + 1);
        }
      }
    }
    return C::kSkipsMasked ? found : ~0u;
  }
};

// Prefetches a task's first keys and values, and its mask, into the L2 cache while earlier kernels
// end. Those kernels may still change this data. Their changes reach the L2 cache, too, so later
// loads see them. Returns what the mask seems to allow.
template <class C>
__device__ inline unsigned fetch_task(const typename C::Arguments& all,
                                      const AttentionTask<C>& task, const OwnTiles<C>& tiles) {
  const RowReader<C> keys = task.keys(all), values = task.values(all);
  const unsigned guess = tiles.find_allowed(all, task, tiles.first);
  // The number is limited, since a long cache may hardly be filled.
#pragma unroll 1
  for (int turn = 0; turn < OwnTiles<C>::kAtOnce; ++turn) {
    const Index tile = tiles.first + turn * tiles.step;
    if (tile < tiles.end && (guess >> turn & 1) != 0) fetch_rows(keys, values, tile * C::kTileN);
  }
  return guess;
}

// Whether queries, keys and values are read in vectors.
template <class C>
__device__ inline bool reads_vectors(const typename C::Arguments& all) {
  return C::kHasWholeVectors && all.query.template is_aligned_to<C::kVector>() &&
         all.key.template is_aligned_to<C::kVector>() &&
         all.value.template is_aligned_to<C::kVector>();
}

// Computes a warp's result over its tiles of keys. `unit` has the places of the queries and of the
// first tile. That is read beside the mask where `guess` says that the mask allows it.
template <class C>
__device__ inline AttentionState<DirectUnit<C>> attend_to_keys(
    const typename C::Arguments& all, const AttentionTask<C>& task, const OwnTiles<C>& tiles,
    const RowLimits<C, DirectUnit<C>>& limits, DirectUnit<C>& unit, bool has_vectors,
    unsigned guess) {
  typedef DirectUnit<C> Unit;
  AttentionState<Unit> state;
  // Only the loads exist in two versions. Two versions of the whole loop would spill registers.
  if (__builtin_expect(has_vectors, 1))
    unit.template read_queries<true>(all.query.data);
  else
    unit.template read_queries<false>(all.query.data);
  // Bit i: whether the tile i turns from `turn` 0 on has keys that the mask allows. Before the mask
  // is read, that is a guess.
  unsigned allowed = guess;
  bool is_sure = !C::kSkipsMasked;
  int turn = 0;
  for (Index tile = tiles.first; tile < tiles.end;) {
    const bool has_read = (allowed >> turn & 1) != 0;
    typename RowLimits<C, Unit>::Terms terms[Unit::kRows][Unit::kColumns];
    if (has_read) {
      if (__builtin_expect(has_vectors, 1))
        unit.template read_keys<true>(all.key.data, all.value.data);
      else
        unit.template read_keys<false>(all.key.data, all.value.data);
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) {
          const Index key = tile * C::kTileN + Unit::key(j);
          terms[i][j] = limits.terms(all, i, key, key < limits.counts[i]);
        }
    }
    if (!is_sure) {
      allowed = tiles.find_allowed(all, task, tile);
      is_sure = true;
      if (!has_read) continue;  // now the mask is known
    }
    if (has_read && (allowed >> turn & 1) != 0) {
      float scores[Unit::kRows][Unit::kColumns];
      unit.multiply_keys(scores);
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) {
          const Index key = tile * C::kTileN + Unit::key(j);
          scores[i][j] = limits.score(terms[i][j], key < limits.counts[i], scores[i][j]);
        }
      state.add(scores, unit);
    }
    tile += tiles.step;
    unit.place_keys(all, task, tile * C::kTileN);
    if (C::kSkipsMasked && ++turn == OwnTiles<C>::kAtOnce) {
      // The next tile is as the last one, probably.
      allowed = allowed >> (turn - 1) & 1;
      is_sure = false, turn = 0;
    }
  }
  state.add_lanes();
  return state;
}

// Stores four neighbours of a result.
template <class C>
__device__ inline void store_merged(const typename C::Arguments& all, const AttentionTask<C>& task,
                                    const Merged& merged, int line, int column) {
  typedef typename C::Output Output;
  const Index row = task.first_row + line;
  Output* const to = all.output.row(task.batch, task.head(row), task.query(row)) + column;
  const float factor = merged.sum == 0.0f ? 0.0f : 1.0f / merged.sum;
  const float results[4] = {merged.value.x, merged.value.y, merged.value.z, merged.value.w};
  Pack<Output, 4> pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) pack.at[i] = C::make_result(results[i] * factor);
  if (C::kHeadValueSize % 4 == 0 && all.output.template is_aligned_to<4>()) {
    *(Pack<Output, 4>*)to = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < C::kHeadValueSize) to[i] = pack.at[i];
}

// The kernel. It reads `all` before earlier kernels are done. `parts` blocks share the keys. With
// kIsSplit, `scratch` has room for kTileM rows of kSavedRow numbers of each block, and `counters`
// are those of part_counters.cuh.
template <class Config, int words>
__device__ __forceinline__ void attend_directly(AttentionArguments<Config> all, Index parts,
                                                float* scratch,
                                                unsigned long long* const (&counters)[words]) {
  typedef DirectConfig<Config> C;
  constexpr int kRowVectors = C::kValueSize / 4;
  extern __shared__ uint4 shared[];
  const int warp = (int)threadIdx.x / 32;
  float* const saved = (float*)shared;
  float* const sent = saved + C::kWarpsN * C::kSaved;
  const auto count_rows = [&](const AttentionTask<C>& task) {
    const Index left = all.rows - task.first_row;
    return left < C::kTileM ? (int)left : C::kTileM;
  };
  const auto expect_task = [&](Index block) {
    expect(Sent<C>::barrier(sent), Sent<C>::bytes(count_rows(AttentionTask<C>(all, block))));
  };
  // Tells the cluster that this block runs: a block may write to another's shared memory only then.
  if constexpr (C::kParts > 1) {
    if (threadIdx.x == 0) {
      init_barrier(Sent<C>::barrier(sent), 1);
      end_barriers_init();
      if (blockIdx.x < all.tasks) expect_task(blockIdx.x);
    }
    arrive_in_cluster_early();
  }
  const bool has_vectors = reads_vectors<C>(all);
  bool is_first = true;
  unsigned parity = 0;
  for (Index block = blockIdx.x; block < all.tasks; block += gridDim.x) {
    const AttentionTask<C> task(all, C::kIsSplit ? block / parts : block);
    const Index part = C::kIsSplit ? block % parts : task.part;
    const OwnTiles<C> tiles(all, task, part, parts, warp);
    const RowLimits<C, DirectUnit<C>> limits(all, task, 0);
    DirectUnit<C> unit;
    unit.place_queries(all, task);
    unit.place_keys(all, task, tiles.first * C::kTileN);
    const int own_rows = count_rows(task);
    unsigned guess = 0;
    if (is_first) {
      guess = fetch_task<C>(all, task, tiles);
      // Not earlier, since loads of the next kernel would delay this kernel's keys and values.
      begin_next_kernel();
      all.wait();
      is_first = false;
    }
    save_state<C>(attend_to_keys<C>(all, task, tiles, limits, unit, has_vectors, guess),
                  saved + warp * C::kSaved, own_rows);
    __syncthreads();
    const auto for_rows = [&](int vectors, const auto& action) {
      for (int at = (int)threadIdx.x; at < own_rows * vectors; at += C::kThreads)
        action(at / vectors, at % vectors * 4);
    };
    const auto store = [&](const Merged& merged, int line, int column) {
      if (column < C::kHeadValueSize) store_merged<C>(all, task, merged, line, column);
    };
    if constexpr (C::kParts > 1) {
      wait_for_cluster();  // every block runs, and has merged what it received for the last task
      for_rows(kRowVectors, [&](int line, int column) {
        send_to_block<C>(merge_warps<C>(saved, line, column), sent, (int)part, line, column);
      });
      wait(Sent<C>::barrier(sent), parity);
      parity ^= 1;
      constexpr int kShare = Sent<C>::kShare;
      for_rows(kShare / 4, [&](int line, int column) {
        store(merge_blocks<C>(sent, line, column), line, (int)part * kShare + column);
      });
      if (block + gridDim.x < all.tasks) {
        __syncthreads();
        if (threadIdx.x == 0) expect_task(block + gridDim.x);
        arrive_in_cluster();
      }
    } else {
      const bool is_whole = !C::kIsSplit || parts == 1;
      float* const of_task = scratch + (block - part) * C::kSaved;
      for_rows(kRowVectors, [&](int line, int column) {
        const Merged merged = merge_warps<C>(saved, line, column);
        if (is_whole)
          store(merged, line, column);
        else
          save_merged<C>(merged, of_task + part * C::kSaved, line, column);
      });
      if constexpr (C::kIsSplit)
        if (!is_whole && is_last_of<C::kCounterBits>(counters, task.number, (int)parts))
          for_rows(kRowVectors, [&](int line, int column) {
            store(merge_saved<C>(of_task, parts, line, column), line, column);
          });
    }
    __syncthreads();
  }
  if (is_first) {
    begin_next_kernel();
    all.wait();
  }
}
