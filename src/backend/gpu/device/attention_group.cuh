// Attention by warpgroups (wgmma). Each warpgroup has 64 of the rows. kCopiers more threads, behind
// those that multiply, copy stages of keys and values. Config has these members in addition to
// those that attention.cuh lists:
//   kHasMaps        one thread lets TMA copy
//   kKeysByHead     each head is a matrix of the map; else heads lie side by side in its rows
//   kValuesByHead   the same for values
//   kTakesTurns     a warpgroup starts its products when another has started its own
//   kBlocksAtOnce   blocks per multiprocessor
//   kHasEpilogue    make_result() does more than store
#pragma once

#include "attention.cuh"
#include "attention_wgmma.cuh"
#include "barriers.cuh"
#include "tma.cuh"

template <class Config>
struct GroupConfig : AttentionConfig<Config, 64, 64> {
  typedef AttentionConfig<Config, 64, 64> Base;
  static constexpr bool kTakesLongestFirst = Config::kCausal != CausalMask::kNone;
  static constexpr int kGroups = Config::kWarpsM / 4;
  // Factor of the scores inside the exponential.
  static constexpr float kScoreFactor = Base::kIsPlain ? Config::kScale * kLog2e : 1.0f;
  // Threads that copy: a warpgroup. With maps, a single one of its threads issues all copies.
  static constexpr int kCopiers = 128;
  // Registers of a thread that copies and of one that multiplies, in multiples of 8. At the start,
  // all threads of a block have equally many.
  static constexpr int kCopyRegisters = Config::kHasMaps ? 24 : 56;
  static constexpr int kLeftRegisters = 65536 / Config::kBlocksAtOnce - kCopyRegisters * kCopiers;
  static constexpr int kMostRegisters = kLeftRegisters / (kGroups * 128) / 8 * 8;
  static constexpr int kRegisters = kMostRegisters < 240 ? kMostRegisters : 240;
};

constexpr int kSwizzled = 64;  // elements of 128 bytes: one row of a swizzled column of blocks

// Offset of an element in a swizzled tile. The tile consists of columns of blocks of 8 rows of 128
// bytes. The 16-byte vector i of row r is at i ^ r.
template <int rows>
__device__ inline int swizzled_place(int row, int element) {
  return element / kSwizzled * (kSwizzled * rows) + row * kSwizzled + (element / 8 ^ row) % 8 * 8;
}
// Copies rows of a head from `first` on, with all threads that copy.
template <class C, int size>
__device__ inline void copy_swizzled(typename C::Element* tile, const RowReader<C>& reader,
                                     Index first) {
  constexpr int kVectors = size / C::kVector;
#pragma unroll 4
  for (int at = (int)threadIdx.x - C::kThreads; at < C::kTileN * kVectors; at += C::kCopiers) {
    const int row = at / kVectors, inner = at % kVectors * C::kVector;
    copy_vector<C>(tile + swizzled_place<C::kTileN>(row, inner),
                   reader.rows + (first + row) * reader.stride + inner,
                   first + row < reader.count ? reader.size - inner : 0, reader.is_aligned);
  }
}
// Offset of element k of a tile's rows, in the units of the matrix descriptor (16 bytes).
template <int rows>
__device__ inline constexpr int place_of(int k) {
  return (k / kSwizzled * (rows * 128) + k % kSwizzled * 2) / 16;
}
// Synchronizes the threads of one warpgroup.
__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}
// A ring of stages of keys or of values, which are filled and multiplied in turns. Each stage has
// two barriers: "full" and "empty". The barriers of values lie 16 bytes behind those of keys.
template <class C>
struct Ring {
  unsigned barriers;
  int stage = 0;
  unsigned parity = 0;
  __device__ explicit Ring(unsigned barriers) : barriers(barriers) {}
  __device__ unsigned is_full() const { return barriers + 32 * stage; }
  __device__ unsigned is_empty() const { return barriers + 32 * stage + 8; }
  __device__ void advance() {
    if (++stage == C::kStages) stage = 0, parity ^= 1;
  }
  __device__ void wait_full() const {
    wait(is_full(), parity);
    if (!C::kHasMaps) fence_copies();
  }
  __device__ void wait_empty() const { wait(is_empty(), parity ^ 1); }
  // Releases a stage. Called by warps that have multiplied it.
  __device__ void release() {
    if (threadIdx.x % 32 == 0) arrive(is_empty());
    advance();
  }
};
// Lets warpgroups start their products one after the other.
template <class C>
struct Turns {
  unsigned barriers;
  int group;
  unsigned parity;
  __device__ Turns(unsigned barriers, int group)
      : barriers(barriers), group(group), parity(group == 0 ? 1 : 0) {}
  __device__ void begin() {
    wait(barriers + 8 * group, parity);
    parity ^= 1;
  }
  __device__ void end() const {
    if (threadIdx.x % 32 == 0) arrive(barriers + 8 * (group + 1 == C::kGroups ? 0 : group + 1));
  }
};
// Passes numbers of tasks from the copying thread to the other threads. There are two places for
// numbers. Each has two barriers, which lie behind the numbers.
struct Tasks {
  Index* numbers;
  int place = 0;
  unsigned parity = 0;
  __device__ explicit Tasks(Index* numbers) : numbers(numbers) {}
  __device__ unsigned is_told() const { return shared_address(numbers + 2) + 16 * place; }
  __device__ void advance() { parity ^= place, place ^= 1; }
  __device__ void tell(Index number) {
    wait(is_told() + 8, parity ^ 1);
    numbers[place] = number;
    arrive(is_told());
    advance();
  }
  __device__ Index hear() {
    wait(is_told(), parity);
    const Index number = numbers[place];
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(is_told() + 8);
    advance();
    return number;
  }
};
// Takes the next task that no block has. The first gridDim.x tasks belong to the blocks with the
// same number; a counter hands out the others.
__device__ inline Index next_task(Index tasks, unsigned long long* counter) {
  if (tasks <= (Index)gridDim.x) return tasks;
  const unsigned long long taken = atomicAdd(counter, 1ull);
  return taken < (unsigned long long)(tasks - gridDim.x) ? (Index)(gridDim.x + taken) : tasks;
}
// Resets the counters in the last block.
__device__ inline void end_tasks(Index tasks, unsigned long long* counter,
                                 unsigned long long* ended) {
  if (tasks <= (Index)gridDim.x) return;
  __threadfence();
  if (atomicAdd(ended, 1ull) + 1 != gridDim.x) return;
  atomicExch(counter, 0ull);
  atomicExch(ended, 0ull);
}
// Initializes the barriers. Called by one thread before any thread uses them.
template <class C>
__device__ inline void init_rings(unsigned barriers, unsigned tasks) {
#pragma unroll
  for (int i = 0; i < 2 * C::kStages; ++i) {
    init_barrier(barriers + 16 * i, C::kHasMaps ? 1 : C::kCopiers + C::kCopiers / 32);
    init_barrier(barriers + 16 * i + 8, 4 * C::kGroups);
  }
#pragma unroll
  for (int i = 0; i < C::kGroups; ++i) init_barrier(barriers + 32 * C::kStages + 8 * i, 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    init_barrier(tasks + 16 * i, 1);
    init_barrier(tasks + 16 * i + 8, 4 * C::kGroups + (C::kHasMaps ? 0 : C::kCopiers / 32));
  }
  end_barriers_init();
}
// Keeps the compiler from moving registers that unfinished asynchronous products use.
template <int count>
__device__ inline void keep(float (&numbers)[2][count]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < count; ++j) asm volatile("" : "+f"(numbers[i][j])::"memory");
}
template <class C>
struct GroupUnit {
  static constexpr int kRows = 2, kColumns = C::kTileN / 4, kOutputs = C::kValueSize / 4;
  static constexpr int kNeighbours = 2;  // adjacent columns in a lane
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 4 + 8 * i; }
  __device__ static int column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }
};
// Transposes among the four lanes that share a row. Before, each lane has a pair out of every 8 of
// the row's 32 elements; after, each lane has 8 adjacent elements.
__device__ inline void gather_row(unsigned (&pairs)[4]) {
  const int lane = (int)threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 1 ? pairs[i] : pairs[i + 1], 1);
    if (lane & 1)
      pairs[i] = got;
    else
      pairs[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(0xffffffffu, lane & 2 ? pairs[i] : pairs[i + 2], 2);
    if (lane & 2)
      pairs[i] = got;
    else
      pairs[i + 2] = got;
  }
}
// Starts the products of the queries with a tile of keys.
template <class C>
__device__ inline void multiply_keys(float (&scores)[2][C::kTileN / 4],
                                     const typename C::Element* queries,
                                     const typename C::Element* keys) {
  typedef WarpgroupScores<typename C::Element, C::kTileN> Products;
  const unsigned long long a = describe_matrix<true, C::kTileM>(shared_address(queries)) +
                               (int)threadIdx.x / 128 * (64 * 128 / 16);
  const unsigned long long b = describe_matrix<true, C::kTileN>(shared_address(keys));
  Products::begin(scores, a, b);
#pragma unroll
  for (int k = 16; k < C::kSize; k += 16)
    Products::add(scores, a + place_of<C::kTileM>(k), b + place_of<C::kTileN>(k));
}
// The online softmax of a warpgroup's rows: the largest score of each row, times log2(e), and the
// sums relative to it.
template <class C>
struct GroupState {
  typedef typename C::Element Element;
  typedef GroupUnit<C> Unit;
  float most[2], sum[2], sums[2][Unit::kOutputs];
  unsigned weights[C::kTileN / 16][4];
  __device__ GroupState() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = nothing(), sum[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] = 0.0f;
    }
  }
  // Turns scores into weights. The scores still lack the factor kScoreFactor. The caller must
  // multiply the earlier sums of values by `factors`.
  __device__ void weigh(float (&scores)[2][Unit::kColumns], float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = scores[i][0];
#pragma unroll
      for (int j = 1; j < Unit::kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      const float next = fmaxf(most[i], largest * C::kScoreFactor);
      const float base = next == nothing() ? 0.0f : next;
      factors[i] = power_of_two(most[i] - base);
      most[i] = next;
      float added[2] = {0.0f, 0.0f};
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) {
        scores[i][j] = power_of_two(fmaf(scores[i][j], C::kScoreFactor, -base));
        added[j % 2] += scores[i][j];
      }
      sum[i] = fmaf(sum[i], factors[i], added[0] + added[1]);
    }
  }
  __device__ void rescale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] *= factors[i];
  }
  __device__ void pack(const float (&own)[2][Unit::kColumns]) {
#pragma unroll
    for (int k = 0; k < C::kTileN / 16; ++k) {
      weights[k][0] = pair<Element>(own[0][4 * k], own[0][4 * k + 1]);
      weights[k][1] = pair<Element>(own[1][4 * k], own[1][4 * k + 1]);
      weights[k][2] = pair<Element>(own[0][4 * k + 2], own[0][4 * k + 3]);
      weights[k][3] = pair<Element>(own[1][4 * k + 2], own[1][4 * k + 3]);
    }
  }
  // Starts the products of the weights with a tile of values.
  __device__ void multiply_values(const Element* values) {
    const unsigned long long b = describe_matrix<false, C::kTileN>(shared_address(values));
#pragma unroll
    for (int k = 0; k < C::kTileN / 16; ++k)
      WarpgroupValues<Element, C::kValueSize>::add(sums, weights[k], b + k * (16 * 128 / 16));
  }
  // Adds up the row sums of the lanes that share a row.
  __device__ void add_lanes() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2)
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], distance);
  }
};

// The layout of shared memory.
template <class C>
struct GroupMemory {
  typedef typename C::Element Element;
  static constexpr int kPattern = 1024;  // bytes after which the swizzle pattern of tiles repeats
  static constexpr int kTileElements =
      C::kTileM * C::kSize + C::kStages * C::kTileN * (C::kSize + C::kValueSize);
  // Barriers lie behind the tiles: four per stage, and one for each warpgroup's turn. The numbers
  // of two tasks follow, with two barriers each.
  static constexpr int kBarriers = kPattern + kTileElements * (int)sizeof(Element);
  static constexpr int kNumbers = kBarriers + 32 * C::kStages + (C::kGroups + 1) / 2 * 16;
  Element* queries;
  unsigned barriers;
  Index* numbers;
  __device__ explicit GroupMemory(uint4* shared)
      : queries((Element*)((char*)shared + (0u - shared_address(shared)) % kPattern)),
        barriers(shared_address((char*)shared + kBarriers)),
        numbers((Index*)((char*)shared + kNumbers)) {}
  __device__ Element* keys(int stage) const {
    return queries + C::kTileM * C::kSize + stage * (C::kTileN * C::kSize);
  }
  __device__ Element* values(int stage) const {
    return queries + (C::kTileM + C::kStages * C::kTileN) * C::kSize +
           stage * (C::kTileN * C::kValueSize);
  }
};

// Copies keys or values from `first` on into `tile`, the ring's next stage.
template <class C, int size, bool is_by_head>
__device__ inline void copy_stage(Ring<C>& ring, typename C::Element* tile,
                                  const RowReader<C>& reader, const TensorMap* map,
                                  const AttentionOperand<const typename C::Element>& operand,
                                  const AttentionTask<C>& task, Index first) {
  ring.wait_empty();
  if constexpr (C::kHasMaps) {
    expect(ring.is_full(), C::kTileN * size * 2);
#pragma unroll
    for (int i = 0; i < size; i += kSwizzled)
      copy_box(tile + i * C::kTileN, *map,
               is_by_head ? i : operand.offset + task.shared_head * operand.head_step + i, first,
               is_by_head ? task.head_number : task.batch, ring.is_full());
  } else {
    copy_swizzled<C, size>(tile, reader, first);
    arrive_behind_copies(ring.is_full());
  }
  ring.advance();
}

// The work of the threads that copy: one task after the other, until no task is left.
template <class C>
__device__ inline void copy_tasks(const typename C::Arguments& all, const GroupMemory<C>& memory,
                                  const TensorMap* key_map, const TensorMap* value_map,
                                  unsigned long long* counter, unsigned long long* ended) {
  Ring<C> key_ring(memory.barriers), value_ring(memory.barriers + 16);
  Tasks others(memory.numbers);
  const bool is_first = threadIdx.x == C::kThreads;
  for (Index number = blockIdx.x; number < all.tasks;) {
    Index next = all.tasks;
    if (is_first) next = next_task(all.tasks, counter);
    const AttentionTask<C> task(all, number);
    const RowReader<C> keys = task.keys(all), values = task.values(all);
    const TileRange<C> tiles(all, task);
    for (Index tile = tiles.first; tile < tiles.end; ++tile) {
      copy_stage<C, C::kSize, C::kKeysByHead>(key_ring, memory.keys(key_ring.stage), keys, key_map,
                                              all.key, task, tile * C::kTileN);
      copy_stage<C, C::kValueSize, C::kValuesByHead>(value_ring, memory.values(value_ring.stage),
                                                     values, value_map, all.value, task,
                                                     tile * C::kTileN);
    }
    if constexpr (C::kHasMaps) {
      others.tell(next);
    } else {
      // A place for a number becomes free only when this warp has read it, too.
      Tasks own = others;
      if (is_first) own.tell(next);
      __syncwarp();
      next = others.hear();
    }
    number = next;
  }
  if (is_first) end_tasks(all.tasks, counter, ended);
}

// Stores a warp's rows: with vectors where the rows are aligned, else as other kernels do.
template <class C>
__device__ inline void store_group_rows(const typename C::Arguments& all,
                                        const AttentionTask<C>& task, const GroupState<C>& state,
                                        int warp_m) {
  typedef typename C::Element Element;
  typedef typename C::Output Output;
  typedef GroupUnit<C> Unit;
  if (!all.output.template is_aligned_to<C::kVector>()) {
    store_rows<C, Unit>(all, task, state, warp_m);
    return;
  }
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    const Index row = task.first_row + warp_m + Unit::row(i);
    Output* const to = all.output.row(task.batch, task.head(row), task.query(row));
    const float factor = state.sum[i] == 0.0f ? 0.0f : 1.0f / state.sum[i];
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; j += 8) {
      unsigned pairs[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        pairs[e] =
            pair<Element>(state.sums[i][j + 2 * e] * factor, state.sums[i][j + 2 * e + 1] * factor);
      gather_row(pairs);
      const int column = 4 * j + (int)threadIdx.x % 4 * 8;
      if (row >= all.rows || column >= C::kHeadValueSize) continue;
      if constexpr (C::kHasEpilogue) {
        const Pack<Element, C::kVector> own = *(const Pack<Element, C::kVector>*)pairs;
        Pack<Output, C::kVector> results;
#pragma unroll
        for (int e = 0; e < C::kVector; ++e) results.at[e] = C::make_result(load(own.at[e]));
        *(Pack<Output, C::kVector>*)(to + column) = results;
      } else {
        *(uint4*)(to + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }
}

// The work of the threads that multiply. The products of one tile's weights and values overlap with
// the products of the next tile's keys and with the softmax of their scores.
template <class C>
__device__ inline void multiply_tasks(const typename C::Arguments& all,
                                      const GroupMemory<C>& memory, int warp) {
  typedef GroupUnit<C> Unit;
  const int warp_m = warp * 16, group = warp / 4;
  Ring<C> key_ring(memory.barriers), value_ring(memory.barriers + 16);
  Tasks others(memory.numbers);
  Turns<C> turns(memory.barriers + 32 * C::kStages, group);
  const auto copy_queries_of = [&](Index number) {
    if (number >= all.tasks) return;
    const AttentionTask<C> task(all, number);
    copy_queries<C, 64, 128>(
        all, task, memory.queries, group * 64, (int)threadIdx.x % 128,
        [](int line, int inner) { return swizzled_place<C::kTileM>(line, inner); });
  };

  Index number = blockIdx.x;
  copy_queries_of(number);
  while (number < all.tasks) {
    const AttentionTask<C> task(all, number);
    const TileRange<C> tiles(all, task);
    const RowLimits<C, Unit> limits(all, task, warp_m);
    wait_for_copies<0>();
    fence_copies();
    sync_group(group);
    float scores[2][Unit::kColumns], factors[2];
    // Applies scale, cap and masks to the scores of a tile of keys, before the softmax.
    const auto judge = [&](Index tile) {
      const Index end = (tile + 1) * C::kTileN;
      const bool is_whole = end <= limits.counts[0] && end <= limits.counts[1];
      if (C::kIsPlain && is_whole) return;
#pragma unroll
      for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Unit::kColumns; ++j) {
          const Index key = tile * C::kTileN + Unit::column(j);
          const bool is_there = is_whole || key < limits.counts[i];
          if constexpr (C::kIsPlain)
            scores[i][j] = is_there ? scores[i][j] : nothing();
          else
            scores[i][j] = limits.score(all, i, key, is_there, scores[i][j]);
        }
    };
    GroupState<C> state;
    // The next task's queries are copied once this task's products with keys are done.
    Index next;
    const auto copy_next = [&] {
      next = others.hear();
      sync_group(group);
      copy_queries_of(next);
    };
    if (tiles.first >= tiles.end) copy_next();
    if (tiles.first < tiles.end) {
      key_ring.wait_full();
      if constexpr (C::kTakesTurns) turns.begin();
      begin_products();
      multiply_keys<C>(scores, memory.queries, memory.keys(key_ring.stage));
      end_products();
      if constexpr (C::kTakesTurns) turns.end();
      wait_for_products<0>();
      keep(scores);
      key_ring.release();
      judge(tiles.first);
      state.weigh(scores, factors);
      state.pack(scores);
      for (Index tile = tiles.first + 1; tile < tiles.end; ++tile) {
        key_ring.wait_full();
        value_ring.wait_full();
        if constexpr (C::kTakesTurns) turns.begin();
        keep(scores);
        keep(state.sums);
        begin_products();
        multiply_keys<C>(scores, memory.queries, memory.keys(key_ring.stage));
        end_products();
        state.multiply_values(memory.values(value_ring.stage));
        end_products();
        if constexpr (C::kTakesTurns) turns.end();
        wait_for_products<1>();
        keep(scores);
        key_ring.release();
        judge(tile);
        state.weigh(scores, factors);
        wait_for_products<0>();
        keep(state.sums);
        value_ring.release();
        state.rescale(factors);
        state.pack(scores);
      }
      copy_next();
      value_ring.wait_full();
      keep(state.sums);
      begin_products();
      state.multiply_values(memory.values(value_ring.stage));
      end_products();
      wait_for_products<0>();
      keep(state.sums);
      value_ring.release();
    }
    state.add_lanes();
    store_group_rows<C>(all, task, state, warp_m);
    number = next;
  }
}

// The kernel. Its blocks take tasks from `counter`. `counter` and `ended` are 0 before and after.
template <class Config>
__device__ __forceinline__ void attend_by_groups(AttentionArguments<Config> all,
                                                 const TensorMap* key_map,
                                                 const TensorMap* value_map,
                                                 unsigned long long* counter,
                                                 unsigned long long* ended) {
  typedef GroupConfig<Config> C;
  extern __shared__ uint4 shared[];
  const GroupMemory<C> memory(shared);
  if (threadIdx.x == 0) init_rings<C>(memory.barriers, shared_address(memory.numbers + 2));
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
  if (warp >= C::kWarpsM) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(C::kCopyRegisters));
    all.wait();
    if (!C::kHasMaps || threadIdx.x == C::kThreads)
      copy_tasks<C>(all, memory, key_map, value_map, counter, ended);
    begin_next_kernel();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kRegisters));
    all.wait();
    multiply_tasks<C>(all, memory, warp);
  }
}
