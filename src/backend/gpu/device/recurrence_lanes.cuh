// Recurrent layers without tensor cores. A warp computes one unit at a time and adds up the unit's
// gates over its lanes. Lane r gets the sums of the task's row r. States are in shared memory, long
// ones in global memory. The blocks of a cluster divide the units. They keep the weights of their
// units in shared memory if there is room, and wait for each other once a step.
//
// Members of Config beside those in recurrence.cuh:
//   kIsShared            without a cluster: whether the block's states are in shared memory
//   kSharedBytes         with a cluster: what a block has of shared memory
//   kKeepsR, kKeepsW     which weights the blocks of a cluster keep in shared memory
// Expects prelude.cuh.
#pragma once

#include "cluster.cuh"
#include "recurrence_cell.cuh"
#include "recurrence_lane_products.cuh"

// A block's units, its states in FP32, and the weights that it keeps, which follow the states.
template <class C>
struct LaneBlock {
  typedef typename C::Element Element;
  Index first_unit, end_unit;
  float* states;
  static constexpr Index kKeptW = C::kGates * C::kUnits * C::kInput;
  static_assert(!C::kIsCluster ||
                C::kSharedBytes == 4LL * C::kStates * C::kState +
                                       (Index)sizeof(Element) * ((C::kKeepsR ? C::kKeptR : 0) +
                                                                 (C::kKeepsW ? kKeptW : 0)));

  __device__ explicit LaneBlock(float* scratch) : states(find_states(scratch)) {
    const Index first = (Index)blockIdx.x % C::kBlocks * C::kUnits, end = first + C::kUnits;
    first_unit = first < C::kHidden ? first : C::kHidden;
    end_unit = end < C::kHidden ? end : C::kHidden;
  }
  __device__ static float* find_states(float* scratch) {
    if constexpr (C::kIsCluster) {
      extern __shared__ uint4 memory[];
      return (float*)memory;
    } else if constexpr (C::kIsShared) {
      constexpr Index kPacks = C::kStates * C::kState / 4;
      __shared__ Pack<float, 4> packs[kPacks > 0 ? kPacks : 1];
      return (float*)packs;
    } else {
      return scratch + (Index)blockIdx.x * (C::kStates * C::kState);
    }
  }
  __device__ float* state(Index i) const { return states + i * C::kState; }
  __device__ Element* kept_r() const { return (Element*)state(C::kStates); }
  __device__ Element* kept_w() const { return kept_r() + C::kKeptR; }
};

// The task's rows. Rows beyond the batch repeat its last sequence.
template <class C>
struct LaneTask {
  Index direction, first;
  Index sequences[C::kRows], lengths[C::kRows], most = 0;
  Index own, length = 0;  // the sequence of the lane's row, and its length
  bool has_row;

  __device__ LaneTask(const typename C::Arguments& all, Index number)
      : direction(number / all.groups), first(number % all.groups * C::kRows) {
    const int lane = (int)threadIdx.x % 32;
    own = sequence(all, lane);
    has_row = lane < C::kRows && first + lane < all.batch;
#pragma unroll
    for (int r = 0; r < C::kRows; ++r) {
      sequences[r] = sequence(all, r);
      lengths[r] = all.length(sequences[r]);
      if (lengths[r] > most) most = lengths[r];
      if (lane == r) length = lengths[r];
    }
  }
  __device__ Index sequence(const typename C::Arguments& all, Index row) const {
    return first + row < all.batch ? first + row : all.batch - 1;
  }
};

// The place of a unit of a row, in a block's state and in the tensors of states (`outer`).
template <class C>
struct StatePlace {
  Index row, unit, sequence, outer;
  __device__ StatePlace(const typename C::Arguments& all, const LaneTask<C>& task, Index i) {
    constexpr Index kWidth = C::kHidden > 0 ? C::kHidden : 1;
    row = i / kWidth, unit = i % kWidth, sequence = task.sequence(all, row);
    outer = all.place_in_states(task.direction, sequence) + unit;
  }
  __device__ float& in(float* state) const { return state[row * C::kRow + unit]; }
};
template <class C>
__device__ inline void load_states(const typename C::Arguments& all, const LaneTask<C>& task,
                                   const LaneBlock<C>& block) {
  __syncthreads();
  for (Index i = (Index)threadIdx.x; i < C::kRows * C::kHidden; i += C::kThreads) {
    const StatePlace<C> place(all, task, i);
    float h = 0.0f, c = 0.0f;
    if constexpr (C::kHasInitialH) h = load(all.initial_h[place.outer]);
    if constexpr (C::kHasInitialC) c = load(all.initial_c[place.outer]);
    place.in(block.state(0)) = h;
    if constexpr (C::kIsLstm) place.in(block.state(2)) = c;
  }
}
// Stores the last states of the block's units, and zeros in y behind the ends of sequences.
template <class C>
__device__ inline void store_states(const typename C::Arguments& all, const LaneTask<C>& task,
                                    const LaneBlock<C>& block) {
  typedef typename C::Element Element;
  for (Index i = (Index)threadIdx.x; i < C::kRows * C::kHidden; i += C::kThreads) {
    const StatePlace<C> place(all, task, i);
    const bool is_there = task.first + place.row < all.batch;
    if (!is_there || place.unit < block.first_unit || place.unit >= block.end_unit) continue;
    all.last_h[place.outer] = store<Element>(place.in(block.state(task.most % 2)));
    if constexpr (C::kIsLstm) all.last_c[place.outer] = store<Element>(place.in(block.state(2)));
    if constexpr (C::kHasLengths)
      for (Index step = all.length(place.sequence); step < all.steps; ++step)
        all.y[all.place_in_y(step, task.direction, place.sequence) + place.unit] =
            store<Element>(0.0f);
  }
}

// A step of a task. Each lane has one row.
template <class C>
struct LaneStep {
  typedef typename C::Element Element;
  const typename C::Arguments& all;
  const LaneTask<C>& task;
  const LaneBlock<C>& block;
  const WeightsW<C>& w;
  const WeightsR<C>& r;
  const Index number;
  const float* const before;  // the states h before and after the step
  float* const behind;
  const Element* x[C::kRows];
  bool x_has_vectors;

  __device__ LaneStep(const typename C::Arguments& all, const LaneTask<C>& task,
                      const LaneBlock<C>& block, const WeightsW<C>& w, const WeightsR<C>& r,
                      Index number)
      : all(all),
        task(task),
        block(block),
        w(w),
        r(r),
        number(number),
        before(block.state(number % 2)),
        behind(block.state((number + 1) % 2)),
        x_has_vectors(is_aligned<Element, WeightsW<C>::kWidth>(all.x)) {
#pragma unroll
    for (int i = 0; i < C::kRows; ++i)
      x[i] = all.x + (place_in_time(task.lengths[i]) * all.batch + task.sequences[i]) * C::kInput;
  }
  __device__ Index place_in_time(Index length) const {
    return number < length ? C::place_in_time(number, length, task.direction) : 0;
  }
  __device__ static int warp() { return (int)threadIdx.x / 32; }
  __device__ static Index place(Index unit) { return (int)threadIdx.x % 32 * C::kRow + unit; }

  template <int first, int gates>
  __device__ void multiply_x(float (&sums)[gates][C::kRows], Index unit) const {
    w.template multiply<first>(sums, unit, x, x_has_vectors);
  }
  // Returns the sums of a unit's gates from `first` on. x_sums is the part that x adds.
  template <int first, int gates>
  __device__ GateSums<C, first, gates> multiply_h(float (&x_sums)[gates][C::kRows], Index unit,
                                                  const float* state) const {
    const float* rows[C::kRows];
#pragma unroll
    for (int i = 0; i < C::kRows; ++i) rows[i] = state + i * C::kRow;
    float h_sums[gates][C::kRows] = {};
    r.template multiply<first>(h_sums, unit, rows, true);
    return GateSums<C, first, gates>(all, task.direction, unit, x_sums, h_sums);
  }
  template <int first, int gates>
  __device__ GateSums<C, first, gates> multiply(Index unit, const float* state) const {
    float x_sums[gates][C::kRows] = {};
    multiply_x<first>(x_sums, unit);
    return multiply_h<first>(x_sums, unit, state);
  }

  // Stores `value` as the unit's state after the step. If the sequence has ended, the state does
  // not change.
  __device__ void finish(Index unit, float value) const {
    const bool is_there = number < task.length;
    const float next = is_there ? value : before[place(unit)];
    if (is_there)
      all.y[all.place_in_y(place_in_time(task.length), task.direction, task.own) + unit] =
          store<Element>(value);
    if constexpr (C::kIsCluster)
      store_in_cluster<C::kBlocks>(behind + place(unit), next);
    else
      behind[place(unit)] = next;
  }
  __device__ void finish(Index unit, const GateSums<C, 0, C::kGates>& sums) const {
    if (!task.has_row) return;
    float slots[4], peepholes[3], cell = 0.0f;
    float* const cells = block.state(2);
    sums.fill(slots);
    if constexpr (C::kHasPeepholes)
      for (int i = 0; i < 3; ++i)
        peepholes[i] = load(all.peepholes[(task.direction * 3 + i) * C::kHidden + unit]);
    if constexpr (C::kIsLstm) cell = cells[place(unit)];
    const float value = next_state<C>(slots, peepholes, before[place(unit)], cell, task.direction);
    if constexpr (C::kIsLstm)
      if (number < task.length) cells[place(unit)] = cell;
    finish(unit, value);
  }

  __device__ void run() const {
    for (Index unit = warp(); unit < C::kHidden; unit += C::kWarps)
      finish(unit, multiply<0, C::kGates>(unit, before));
    __syncthreads();
  }
  // The step of a GRU that resets first.
  __device__ void run_in_two() const {
    float* const z = block.state(2);
    float* const reset = block.state(3);
    for (Index unit = warp(); unit < C::kHidden; unit += C::kWarps) {
      const auto sums = multiply<0, 2>(unit, before);
      if (!task.has_row) continue;
      z[place(unit)] = activate_f<C>(sums.of_both(0), task.direction);
      reset[place(unit)] = before[place(unit)] * activate_f<C>(sums.of_both(1), task.direction);
    }
    __syncthreads();
    for (Index unit = warp(); unit < C::kHidden; unit += C::kWarps) {
      const auto sums = multiply<2, 1>(unit, reset);
      if (!task.has_row) continue;
      finish(unit,
             mix_states<C>(z[place(unit)], sums.of_both(2), before[place(unit)], task.direction));
    }
    __syncthreads();
  }
  // Multiplies the inputs before it waits for the other blocks' states.
  __device__ void run_in_cluster() const {
    constexpr int kTurns = (int)((C::kUnits + C::kWarps - 1) / C::kWarps);
    const Index first = block.first_unit + warp();
    float x_sums[kTurns][C::kGates][C::kRows] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const Index unit = first + turn * C::kWarps;
      if (unit < block.end_unit) multiply_x<0>(x_sums[turn], unit);
    }
    wait_for_cluster();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const Index unit = first + turn * C::kWarps;
      if (unit < block.end_unit) finish(unit, multiply_h<0>(x_sums[turn], unit, before));
    }
    arrive_in_cluster();
  }
};

// The kernel. `scratch` has room for the states of all blocks if they are in global memory.
template <class Config>
__device__ __forceinline__ void run_by_lanes(const RecurrentArguments<Config>& all,
                                             float* scratch) {
  typedef LaneConfig<Config> C;
  const LaneBlock<C> block(scratch);
  Index kept_direction = -1;
  for (Index number = (Index)blockIdx.x / C::kBlocks; number < all.tasks;
       number += (Index)gridDim.x / C::kBlocks) {
    const LaneTask<C> task(all, number);
    const WeightsW<C> w(all.w, block.kept_w(), task.direction, block.first_unit);
    const WeightsR<C> r(all.r, block.kept_r(), task.direction, block.first_unit);
    load_states<C>(all, task, block);
    if (task.direction != kept_direction) {
      r.keep(block.end_unit - block.first_unit);
      w.keep(block.end_unit - block.first_unit);
      kept_direction = task.direction;
    }
    __syncthreads();
    if constexpr (C::kIsCluster) arrive_in_cluster();
    for (Index number = 0; number < task.most; ++number) {
      const LaneStep<C> step(all, task, block, w, r, number);
      if constexpr (C::kResetsFirst)
        step.run_in_two();
      else if constexpr (C::kIsCluster)
        step.run_in_cluster();
      else
        step.run();
    }
    if constexpr (C::kIsCluster) wait_for_cluster();
    store_states<C>(all, task, block);
  }
}
