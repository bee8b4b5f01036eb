// Recurrent layers on tensor cores. Each block keeps the rows of R for its units in registers,
// multiplies the whole state by them, and sends its units' next state to all blocks of the cluster.
// The inputs of kSteps steps are multiplied at once.
//
// Members of Config beside those in recurrence.cuh. kRows is a multiple of 8.
//   kTiles               tiles of a warp; a tile has four units
//   kSteps               steps whose inputs are in shared memory at once
//   kSharedBytes         what a block has of shared memory
//   kKeepsW              whether the rows of W for the block's units are in shared memory, too
//   kSplits              FP32: each product is three products of TF32
//   kRounds              FP32: operands are rounded to TF32
// Expects prelude.cuh.
#pragma once

#include "recurrence_cell.cuh"
#include "recurrence_tile_cluster.cuh"
#include "recurrence_tile_products.cuh"

// A block's shared memory.
template <class C>
struct TileMemory {
  static constexpr int kHeadBytes = 256;
  unsigned barriers;  // two, of 8 bytes
  Index* lengths;     // of the task's rows
  char *states, *inputs;
  float4* sums;  // the sums of multiply_inputs()
  uint4* kept_w;
  static constexpr int kSums = C::kSteps * C::kColumns * C::kTiles * C::kThreads;
  static constexpr int kKeptW = C::kKeepsW ? 2 * C::kPartsX * C::kTiles * C::kThreads : 0;
  static_assert(C::kSharedBytes == kHeadBytes + 2 * C::kStateBytes +
                                       C::kSteps * C::kRows * C::kInputBytes +
                                       16 * (kSums + kKeptW));

  __device__ TileMemory() {
    extern __shared__ uint4 memory[];
    barriers = shared_address(memory), lengths = (Index*)(memory + 2);
    states = (char*)memory + kHeadBytes, inputs = states + 2 * C::kStateBytes;
    sums = (float4*)(inputs + C::kSteps * C::kRows * C::kInputBytes);
    kept_w = (uint4*)(sums + kSums);
  }
};

// The rows that a cluster runs, and a lane's part of the work. In the weights of each of its warp's
// tiles, a lane has slots `low` and low + 2 of one unit. In the sums, it has that unit and one row
// of every eight rows.
template <class C>
struct TileTask {
  Index direction, first;
  int rank;  // of the block in its cluster
  int low, first_unit, first_row;

  __device__ explicit TileTask(const typename C::Arguments& all) {
    const Index number = (Index)blockIdx.x / C::kBlocks;
    direction = number / all.groups, first = number % all.groups * C::kRows;
    rank = (int)((Index)blockIdx.x % C::kBlocks);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    low = lane / 16;
    first_unit = rank * C::kUnits + warp * C::kTiles * 4 + lane / 4 % 4;
    first_row = lane % 4 * 2 + lane / 16;
  }
  __device__ int unit(int tile) const { return first_unit + 4 * tile; }
  __device__ int row(int column) const { return column * 8 + first_row; }
};

template <class C>
__device__ inline void load_r(const typename C::Arguments& all, const TileTask<C>& task,
                              Fragment (&to)[C::kTiles][C::kPartsH]) {
  const TileWeights<C, C::kHidden> r(all.r, task.direction);
#pragma unroll
  for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
    for (int p = 0; p < C::kPartsH; ++p)
      to[t][p] = r.part(C::gate_of_h(task.low), C::gate_of_h(task.low + 2), task.unit(t), p);
}
// W. A part of a tile is read from global memory, or from the block's shared memory if it keeps W.
template <class C>
struct InputWeights {
  TileWeights<C, C::kInput> w;
  const TileTask<C>& task;
  uint4* kept;

  __device__ Fragment read(int tile, int part) const {
    return w.part(C::gate_of_x(task.low), C::gate_of_x(task.low + 2), task.unit(tile), part);
  }
  __device__ uint4* place(int tile, int part) const {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    return kept + ((tile * C::kPartsX + part) * C::kWarps + warp) * 64 + lane;
  }
  __device__ void keep() const {
    for (int t = 0; t < C::kTiles; ++t)
      for (int p = 0; p < C::kPartsX; ++p) {
        const Fragment one = read(t, p);
        uint4* const to = place(t, p);
        to[0] = one.low, to[32] = one.high;
      }
  }
  __device__ Fragment operator()(int tile, int part) const {
    if constexpr (!C::kKeepsW) return read(tile, part);
    const uint4* const from = place(tile, part);
    return {from[0], from[32]};
  }
};

// A lane's values of its units and rows, in registers.
template <class C>
struct TileLane {
  float states[C::kTiles][C::kColumns] = {}, cells[C::kTiles][C::kColumns] = {};
  float biases[C::kTiles][2] = {}, peepholes[C::kTiles][3] = {};

  __device__ TileLane(const typename C::Arguments& all, const TileTask<C>& task) {
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t) {
      if (task.unit(t) >= C::kHidden) continue;
      if constexpr (C::kHasBias) add_biases(all, task, t);
      if constexpr (C::kHasPeepholes)
        for (int i = 0; i < 3; ++i)
          peepholes[t][i] =
              load(all.peepholes[(task.direction * 3 + i) * C::kHidden + task.unit(t)]);
      if constexpr (C::kHasInitialH || C::kHasInitialC) load_states(all, task, t);
    }
  }
  // Adds up the biases of the lane's slots for multiply_inputs().
  __device__ void add_biases(const typename C::Arguments& all, const TileTask<C>& task, int t) {
    const typename C::Element* const of_unit =
        all.biases + task.direction * (2 * C::kGates * C::kHidden) + task.unit(t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int x = C::gate_of_x(task.low + 2 * i), h = C::gate_of_h(task.low + 2 * i);
      if (x >= 0) biases[t][i] += load(of_unit[x * C::kHidden]);
      if (h >= 0) biases[t][i] += load(of_unit[(C::kGates + h) * C::kHidden]);
    }
  }
  __device__ void load_states(const typename C::Arguments& all, const TileTask<C>& task, int t) {
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) {
      const Index sequence = task.first + task.row(c);
      if (sequence >= all.batch) continue;
      const Index place = all.place_in_states(task.direction, sequence) + task.unit(t);
      if constexpr (C::kHasInitialH) states[t][c] = load(all.initial_h[place]);
      if constexpr (C::kHasInitialC) cells[t][c] = load(all.initial_c[place]);
    }
  }
};

// Fills the state that the first step reads, and the lengths of rows. Returns the greatest length.
template <class C>
__device__ inline Index begin_states(const typename C::Arguments& all, const TileTask<C>& task,
                                     const StateExchange<C>& exchange, Index* lengths) {
  for (int i = (int)threadIdx.x; i < 2 * C::kStateBytes / 16; i += C::kThreads)
    ((uint4*)exchange.states)[i] = make_uint4(0, 0, 0, 0);
  if (threadIdx.x < C::kRows) {
    const Index sequence = task.first + (Index)threadIdx.x;
    lengths[threadIdx.x] = all.length(sequence < all.batch ? sequence : all.batch - 1);
  }
  __syncthreads();
  Index most = 0;
  for (int r = 0; r < C::kRows; ++r) most = lengths[r] > most ? lengths[r] : most;
  if constexpr (C::kHasInitialH)
    for (int i = (int)threadIdx.x; i < C::kRows * C::kHidden; i += C::kThreads) {
      const int row = i / C::kHidden, unit = i % C::kHidden;
      if (task.first + row < all.batch)
        *exchange.place(exchange.states, row, unit) =
            all.initial_h[all.place_in_states(task.direction, task.first + row) + unit];
    }
  return most;
}

// Starts to copy the inputs of kSteps steps from `first` on. The task has `most` steps.
template <class C>
__device__ inline void copy_inputs(const typename C::Arguments& all, const TileTask<C>& task,
                                   const TileMemory<C>& memory, Index first, Index most) {
  typedef typename C::Element Element;
  constexpr int kPieces = 4 * C::kPartsX;  // pieces of 16 bytes of a row
  const bool has_vectors = C::kInput % C::kVector == 0 && is_aligned<Element, C::kVector>(all.x);
  if (first >= most) return;
  for (int i = (int)threadIdx.x; i < C::kSteps * C::kRows * kPieces; i += C::kThreads) {
    const int line = i / kPieces, piece = i % kPieces, row = line % C::kRows;
    const Index step = first + line / C::kRows, length = memory.lengths[row];
    const Index sequence = task.first + row < all.batch ? task.first + row : all.batch - 1;
    const Index place = step < length ? C::place_in_time(step, length, task.direction) : 0;
    copy_input<C>(memory.inputs + line * C::kInputBytes + piece * 16,
                  all.x + (place * all.batch + sequence) * C::kInput, piece * C::kVector,
                  has_vectors);
  }
  end_copies();
}

// A lane's work in a step. R is in registers. `sums` are the sums of the step's inputs.
template <class C>
struct TileRun {
  typedef typename C::Element Element;
  typedef float Sums[C::kTiles][C::kColumns][4];
  const typename C::Arguments& all;
  const TileTask<C>& task;
  const StateExchange<C>& exchange;
  const Fragment (&r)[C::kTiles][C::kPartsH];
  const Index* const lengths;
  TileLane<C>& lane;

  // Stores `value` as the unit's state after the step, which is state number `next`. If the
  // sequence has ended, the state does not change.
  __device__ void finish(int t, int c, Index step, Index next, float value, float cell) const {
    const int unit = task.unit(t), row = task.row(c);
    const Index sequence = task.first + row, length = lengths[row];
    if (step < length) {
      lane.states[t][c] = value;
      if constexpr (C::kIsLstm) lane.cells[t][c] = cell;
      const Index place = C::place_in_time(step, length, task.direction);
      if (unit < C::kHidden && sequence < all.batch)
        all.y[all.place_in_y(place, task.direction, sequence) + unit] = store<Element>(value);
    }
    exchange.write(next, row, unit, lane.states[t][c]);
  }
  __device__ void run_step(Index step, Sums& sums) const {
    exchange.receive(step);
    multiply_state<C, true, true>(sums, exchange.state(step), r);
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        float slots[4], cell = lane.cells[t][c];
        exchange_slots(sums[t][c], slots);
        const float value =
            next_state<C>(slots, lane.peepholes[t], lane.states[t][c], cell, task.direction);
        finish(t, c, step, step + 1, value, cell);
      }
    exchange.send(step + 1);
  }
  // The step of a GRU that resets first. Blocks exchange the reset state as a state of its own.
  __device__ void run_step_in_two(Index step, Sums& sums) const {
    float z[C::kTiles][C::kColumns];
    exchange.receive(2 * step);
    multiply_state<C, true, false>(sums, exchange.state(2 * step), r);
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        float slots[4];
        exchange_slots(sums[t][c], slots);
        z[t][c] = activate_f<C>(slots[0], task.direction);
        const float reset = lane.states[t][c] * activate_f<C>(slots[1], task.direction);
        exchange.write(2 * step + 1, task.row(c), task.unit(t), reset);
      }
    exchange.send(2 * step + 1);
    exchange.receive(2 * step + 1);
    multiply_state<C, false, true>(sums, exchange.state(2 * step + 1), r);
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        float slots[4];
        exchange_slots(sums[t][c], slots);
        finish(t, c, step, 2 * step + 2,
               mix_states<C>(z[t][c], slots[2], lane.states[t][c], task.direction), 0.0f);
      }
    exchange.send(2 * step + 2);
  }
  // Stores the last states, and zeros in y behind the ends of sequences.
  __device__ void store_last() const {
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        const int unit = task.unit(t), row = task.row(c);
        const Index sequence = task.first + row;
        if (unit >= C::kHidden || sequence >= all.batch) continue;
        const Index place = all.place_in_states(task.direction, sequence) + unit;
        all.last_h[place] = store<Element>(lane.states[t][c]);
        if constexpr (C::kIsLstm) all.last_c[place] = store<Element>(lane.cells[t][c]);
        if constexpr (C::kHasLengths)
          for (Index step = lengths[row]; step < all.steps; ++step)
            all.y[all.place_in_y(step, task.direction, sequence) + unit] = store<Element>(0.0f);
      }
  }
};

// The kernel. It starts while earlier kernels run, and loads the weights that they do not write
// before it waits for them.
template <class Config>
__device__ __forceinline__ void run_by_tiles(RecurrentArguments<Config> all) {
  typedef TileConfig<Config> C;
  constexpr bool kAwaitsW = (C::kWritten >> 1 & 1) != 0, kAwaitsR = (C::kWritten >> 2 & 1) != 0;
  const auto wait = [&] {
    all.wait();
    begin_next_kernel();
  };
  if constexpr (kAwaitsR) wait();
  const TileMemory<C> memory;
  const TileTask<C> task(all);
  Fragment r[C::kTiles][C::kPartsH];
  load_r<C>(all, task, r);
  if constexpr (kAwaitsW && !kAwaitsR) wait();
  const InputWeights<C> w = {{all.w, task.direction}, task, memory.kept_w};
  if constexpr (C::kKeepsW) w.keep();
  if constexpr (!kAwaitsW && !kAwaitsR) wait();

  const StateExchange<C> exchange = {memory.states, memory.barriers, task.rank};
  exchange.begin();
  const Index most = begin_states<C>(all, task, exchange, memory.lengths);
  TileLane<C> lane(all, task);
  const TileRun<C> run = {all, task, exchange, r, memory.lengths, lane};
  copy_inputs<C>(all, task, memory, 0, most);
  if constexpr (C::kIsCluster) sync_cluster();
  for (Index first = 0; first < most; first += C::kSteps) {
    wait_for_copies<0>();
    __syncthreads();
    multiply_inputs<C>(memory.sums, memory.inputs, w, lane.biases);
    __syncthreads();
    copy_inputs<C>(all, task, memory, first + C::kSteps, most);
#pragma unroll 1
    for (int i = 0; i < C::kSteps && first + i < most; ++i) {
      typename TileRun<C>::Sums sums;
      load_sums<C>(sums, memory.sums, i);
      if constexpr (C::kResetsFirst)
        run.run_step_in_two(first + i, sums);
      else
        run.run_step(first + i, sums);
    }
  }
  // A block must not end before it has received all that other blocks send to it.
  wait_for_copies<0>();
  exchange.receive(C::kResetsFirst ? 2 * most : most);
  if constexpr (C::kIsCluster) sync_cluster();
  run.store_last();
}
