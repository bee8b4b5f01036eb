// Attention by warpgroups (wgmma): tiles in shared memory, and what is known of a warpgroup's
// queries. kCopiers threads, behind kThreads that multiply, copy keys and values.
// Expects what attention_tiles.cuh expects, of which kSize and kValueSize are rounded up to 64;
// kCopiers; kHasMaps: one of them lets the copying unit (TMA) do it; kScoreFactor: what scores are
// multiplied by; and the instructions begin_scores(), add_scores() and add_values(), which the
// host's code writes.
#pragma once

#include "approximations.cuh"
#include "attention_tiles.cuh"
#include "barriers.cuh"
#include "wgmma.cuh"

constexpr int kSwizzled = 64;  // neighbours of one row of a column of blocks: 128 bytes

// Columns of blocks of 8 rows of 128 bytes, of which row r has its vector i at i ^ r.
template <int rows>
__device__ inline int swizzled_place(int row, int element) {
  return element / kSwizzled * (kSwizzled * rows) + row * kSwizzled +
         (element / kVector ^ row) % 8 * kVector;
}
// Rows of a head from `first` on, by the threads that copy.
template <int rows, int size>
__device__ inline void copy_rows(Element* tile, const RowReader& reader, Index first) {
  constexpr int kPacks = size / kVector;
#pragma unroll 4
  for (int at = (int)threadIdx.x - kThreads; at < rows * kPacks; at += kCopiers) {
    const int row = at / kPacks, inner = at % kPacks * kVector;
    copy_vector(tile + swizzled_place<rows>(row, inner),
                reader.rows + (first + row) * reader.stride + inner,
                first + row < reader.count ? reader.size - inner : 0, reader.is_aligned);
  }
}
// Where element k of a tile's rows begins, in the units of the description.
template <int rows>
__device__ inline constexpr int place_of(int k) {
  return (k / kSwizzled * (rows * 128) + k % kSwizzled * 2) / 16;
}
// The threads of one warpgroup.
__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}
constexpr int kGroups = kWarpsM / 4;
// Stages of keys, or of values, that are filled and multiplied in turns, each with two barriers:
// those of values lie 16 bytes behind those of keys.
struct Ring {
  unsigned barriers;
  int stage = 0;
  unsigned parity = 0;
  __device__ explicit Ring(unsigned barriers) : barriers(barriers) {}
  __device__ unsigned is_full() const { return barriers + 32 * stage; }
  __device__ unsigned is_empty() const { return barriers + 32 * stage + 8; }
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ void wait_full() const {
    wait(is_full(), parity);
    if (!kHasMaps) fence_copies();
  }
  __device__ void wait_empty() const { wait(is_empty(), parity ^ 1); }
  // By warps that have multiplied it.
  __device__ void release() {
    if (threadIdx.x % 32 == 0) arrive(is_empty());
    advance();
  }
};
// Warpgroups start their products one after the other.
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
    if (threadIdx.x % 32 == 0) arrive(barriers + 8 * (group + 1 == kGroups ? 0 : group + 1));
  }
};
// Numbers of tasks, which the thread that copies tells the others: two places, each with two
// barriers behind the numbers.
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
// The next task that no block has, of more than there are blocks: the first ones are their own.
__device__ inline Index next_task(Index tasks, unsigned long long* counter) {
  if (tasks <= (Index)gridDim.x) return tasks;
  const unsigned long long taken = atomicAdd(counter, 1ull);
  return taken < (unsigned long long)(tasks - gridDim.x) ? (Index)(gridDim.x + taken) : tasks;
}
// The last block leaves the counters as it found them.
__device__ inline void end_tasks(Index tasks, unsigned long long* counter,
                                 unsigned long long* ended) {
  if (tasks <= (Index)gridDim.x) return;
  __threadfence();
  if (atomicAdd(ended, 1ull) + 1 != gridDim.x) return;
  atomicExch(counter, 0ull);
  atomicExch(ended, 0ull);
}
// By one thread, before any other uses them.
__device__ inline void init_rings(unsigned barriers, unsigned tasks) {
#pragma unroll
  for (int i = 0; i < 2 * kStages; ++i) {
    init_barrier(barriers + 16 * i, kHasMaps ? 1 : kCopiers + kCopiers / 32);
    init_barrier(barriers + 16 * i + 8, 4 * kGroups);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) init_barrier(barriers + 32 * kStages + 8 * i, 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    init_barrier(tasks + 16 * i, 1);
    init_barrier(tasks + 16 * i + 8, 4 * kGroups + (kHasMaps ? 0 : kCopiers / 32));
  }
  end_barriers_init();
}
// What products that are not done yet use is not moved.
template <int count>
__device__ inline void keep(float (&numbers)[2][count]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < count; ++j) asm volatile("" : "+f"(numbers[i][j])::"memory");
}
struct Unit {
  static constexpr int kRows = 2, kColumns = kTileN / 4, kOutputs = kValueSize / 4;
  static constexpr int kNeighbours = 2;  // columns side by side
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 4 + 8 * i; }
  __device__ static int column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }
};
// Of 32 neighbours of a row, of which the four lanes of a row have pairs of each 8: 8 neighbours
// for each lane.
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
__device__ inline void multiply_keys(float (&scores)[2][Unit::kColumns], const Element* queries,
                                     const Element* keys) {
  const unsigned long long a = describe_matrix<true, kTileM>(shared_address(queries)) +
                               (int)threadIdx.x / 128 * (64 * 128 / 16);
  const unsigned long long b = describe_matrix<true, kTileN>(shared_address(keys));
  begin_scores(scores, a, b);
#pragma unroll
  for (int k = 16; k < kSize; k += 16)
    add_scores(scores, a + place_of<kTileM>(k), b + place_of<kTileN>(k));
}
// The largest score of each row, in powers of 2, and sums that belong to it.
struct State {
  float most[2], sum[2], sums[2][Unit::kOutputs];
  unsigned weights[kTileN / 16][4];
  __device__ State() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = nothing(), sum[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] = 0.0f;
    }
  }
  // Makes weights of scores, which are to be multiplied by kScoreFactor; what was summed before is
  // to be multiplied by the factors.
  __device__ void weigh(float (&scores)[2][Unit::kColumns], float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = scores[i][0];
#pragma unroll
      for (int j = 1; j < Unit::kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      const float next = fmaxf(most[i], largest * kScoreFactor);
      const float base = next == nothing() ? 0.0f : next;
      factors[i] = power_of_two(most[i] - base);
      most[i] = next;
      float added[2] = {0.0f, 0.0f};
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) {
        scores[i][j] = power_of_two(fmaf(scores[i][j], kScoreFactor, -base));
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
    for (int k = 0; k < kTileN / 16; ++k) {
      weights[k][0] = pair<Element>(own[0][4 * k], own[0][4 * k + 1]);
      weights[k][1] = pair<Element>(own[1][4 * k], own[1][4 * k + 1]);
      weights[k][2] = pair<Element>(own[0][4 * k + 2], own[0][4 * k + 3]);
      weights[k][3] = pair<Element>(own[1][4 * k + 2], own[1][4 * k + 3]);
    }
  }
  // Starts the products of the weights with a tile of values.
  __device__ void multiply_values(const Element* values) {
    const unsigned long long b = describe_matrix<false, kTileN>(shared_address(values));
#pragma unroll
    for (int k = 0; k < kTileN / 16; ++k) add_values(sums, weights[k], b + k * (16 * 128 / 16));
  }
  // Of the lanes that have parts of a row.
  __device__ void add_lanes() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2)
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], distance);
  }
};
