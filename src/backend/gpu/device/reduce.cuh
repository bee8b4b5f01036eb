// Reductions over axes: sums, averages, products and extremes.
//
// A block has teams of kLanes threads, and a team reduces to one output. Where the innermost axis
// is reduced, the lanes are neighbours, else the teams are; either way neighbouring threads read
// neighbouring elements. Outputs that are too few to fill the device are made of parts, and a team
// of another block computes each part.
//
// Each kernel is a template over a struct that the host writes:
//   Element, Output   the types in memory
//   Value             the type in which elements are reduced
//   kReduction        Reduction
//   neutral()         the Value that changes no other one
//   kIsInner          whether the innermost axis is reduced
//   kThreads, kLanes, kMergingLanes   threads of a block, of a team, of a team that merges parts
//   kWidth            elements of an access, where the innermost axis is reduced
// Expects prelude.cuh.
#pragma once

#include "part_counters.cuh"

enum class Reduction { kSum, kAverage, kProduct, kGreatest, kLeast };

template <class Config>
__device__ inline typename Config::Value combine(typename Config::Value x,
                                                 typename Config::Value y) {
  typedef typename Config::Value Value;
  typedef typename Wrapping<Value>::Type Wide;
  // A comparison with NaN is false. So NaN in y wins without a test, and NaN in x wins by x != x.
  if constexpr (Config::kReduction == Reduction::kGreatest) return x > y || x != x ? x : y;
  if constexpr (Config::kReduction == Reduction::kLeast) return x < y || x != x ? x : y;
  if constexpr (Config::kReduction == Reduction::kProduct) return (Value)((Wide)x * (Wide)y);
  return (Value)((Wide)x + (Wide)y);
}

// A running total. That of a sum of floats keeps its rounding errors.
template <class Config>
constexpr bool kIsCompensated = kIsFloat<typename Config::Value> &&
                                (Config::kReduction == Reduction::kSum ||
                                 Config::kReduction == Reduction::kAverage);
template <class Config, bool is_compensated = kIsCompensated<Config>>
struct Total {
  typedef typename Config::Value Value;
  Value all;
  __device__ static Total neutral() { return Total{Config::neutral()}; }
  __device__ void add(Value x) { all = combine<Config>(all, x); }
  __device__ void merge(const Total& other) { add(other.all); }
  __device__ Total exchange(int distance) const {
    return Total{__shfl_xor_sync(0xffffffffu, all, distance)};
  }
  __device__ Value value() const { return all; }
};
// The two-sum of D. E. Knuth (The Art of Computer Programming 2, 4.2.2). `rest` collects the
// rounding errors of the additions.
template <class Config>
struct Total<Config, true> {
  float sum, rest;
  __device__ static Total neutral() { return Total{0.0f, 0.0f}; }
  __device__ void add(float x) {
    const float next = __fadd_rn(sum, x), part = __fsub_rn(next, sum);
    const float lost = __fadd_rn(__fsub_rn(sum, __fsub_rn(next, part)), __fsub_rn(x, part));
    sum = next;
    rest = __fadd_rn(rest, lost);
  }
  __device__ void merge(const Total& other) {
    add(other.sum);
    rest += other.rest;
  }
  __device__ Total exchange(int distance) const {
    return Total{__shfl_xor_sync(0xffffffffu, sum, distance),
                 __shfl_xor_sync(0xffffffffu, rest, distance)};
  }
  // An infinite sum has no valid rest.
  __device__ float value() const { return sum - sum == 0.0f ? sum + rest : sum; }
};

// Each output is made of `count` elements. Outputs in parts: kThreads / kLanes of them are a group,
// and a part has `length` elements.
template <class Config>
struct ReduceArguments {
  const typename Config::Element* x;
  typename Config::Output* y;
  Index outputs, count;
  bool is_aligned;  // whether each row has whole accesses
  Index groups, parts, length;

  __device__ void put(Index output, const Total<Config>& total) const {
    typename Config::Value value = total.value();
    if constexpr (Config::kReduction == Reduction::kAverage) {
      if constexpr (kIsFloat<typename Config::Value>)
        value = __fdiv_rn(value, (float)count);
      else
        value = count == 0 ? 0 : value / (typename Config::Value)count;
    }
    typedef decltype(load(typename Config::Output{})) Result;
    y[output] = store<typename Config::Output>(convert<Result>(value));
  }
};
// Functions of the kernel: where an output's elements begin, and where an element, or an access,
// lies from there.
template <class Output, class Element, class Access>
struct ReducePlaces {
  Output output;
  Element element;
  Access access;
};
template <class Output, class Element, class Access>
ReducePlaces(Output, Element, Access) -> ReducePlaces<Output, Element, Access>;

template <class Config, int lanes>
struct ReduceTeam {
  static constexpr int kTeams = Config::kThreads / lanes;
  static constexpr bool kIsInner = Config::kIsInner;
  int number = (int)threadIdx.x, lane = (int)threadIdx.x;
  __device__ ReduceTeam() {
    if constexpr (kIsInner)
      number /= lanes, lane %= lanes;
    else
      number %= kTeams, lane /= kTeams;
  }
  template <int threads>
  __device__ static void join_warp(Total<Config>& total) {
#pragma unroll
    for (int half = threads / 2; half > 0; half /= 2) total.merge(total.exchange(half));
  }
  // Merges the team's totals into that of lane 0.
  __device__ void join(Total<Config>& total) const {
    if constexpr (lanes > 1 && !kIsInner) {
      __shared__ Total<Config> totals[Config::kThreads];
      __syncthreads();
      totals[threadIdx.x] = total;
      __syncthreads();
      for (int half = lanes / 2; half > 0; half /= 2) {
        if (lane < half) totals[threadIdx.x].merge(totals[threadIdx.x + half * kTeams]);
        __syncthreads();
      }
      total = totals[threadIdx.x];
    }
    if constexpr (lanes > 1 && kIsInner) join_warp < lanes<32 ? lanes : 32>(total);
    if constexpr (lanes > 32 && kIsInner) {
      __shared__ Total<Config> totals[lanes / 32];
      __syncthreads();
      if (lane % 32 == 0) totals[lane / 32] = total;
      __syncthreads();
      if (lane < 32) {
        total = lane < lanes / 32 ? totals[lane] : Total<Config>::neutral();
        join_warp<32>(total);
      }
    }
  }
};

// Reduces the elements from `begin` to `end` of an output.
template <class Config, class Places>
__device__ inline Total<Config> reduce_elements(const ReduceArguments<Config>& all,
                                                const Places& places, Index output, int lane,
                                                Index begin, Index end) {
  typedef Pack<typename Config::Element, Config::kWidth> Access;
  constexpr int kWidth = Config::kWidth;
  Total<Config> total = Total<Config>::neutral();
  const typename Config::Element* const from = all.x + places.output(output);
  if constexpr (Config::kIsInner) {
    const Index accesses = (all.is_aligned ? end : begin) / kWidth;
#pragma unroll 4
    for (Index i = begin / kWidth + lane; i < accesses; i += Config::kLanes) {
      const Access access = *(const Access*)(from + places.access(i));
      typename Config::Value values[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = load(access.at[k]);
        // Adds in pairs, which rounds less often.
#pragma unroll
      for (int half = kWidth / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; ++k) values[k] = combine<Config>(values[k], values[k + half]);
      total.add(values[0]);
    }
    begin = accesses * kWidth;
  }
#pragma unroll 4
  for (Index i = begin + lane; i < end; i += Config::kLanes)
    total.add(load(from[places.element(i)]));
  return total;
}

template <class Config, class Places>
__device__ inline void reduce_outputs(const ReduceArguments<Config>& all, const Places& places) {
  const ReduceTeam<Config, Config::kLanes> team;
  for (Index first = (Index)blockIdx.x * team.kTeams; first < all.outputs;
       first += (Index)gridDim.x * team.kTeams) {
    const Index output = first + team.number;
    Total<Config> total = Total<Config>::neutral();
    if (output < all.outputs) total = reduce_elements(all, places, output, team.lane, 0, all.count);
    team.join(total);
    if (team.lane == 0 && output < all.outputs) all.put(output, total);
  }
}

// The block that ends last merges the parts, always in the same order. `scratch` has a total for
// each part of each output.
template <class Config, class Places>
__device__ inline void reduce_parts(const ReduceArguments<Config>& all, const Places& places,
                                    Total<Config>* scratch, unsigned long long* counter) {
  const ReduceTeam<Config, Config::kLanes> team;
  const Index parts = all.parts, count = all.count;
  // All threads of a block run the same rounds, since they wait for each other.
  for (Index task = blockIdx.x; task < all.groups * parts; task += gridDim.x) {
    const Index part = task % parts, begin = part * all.length;
    const Index end = begin >= count               ? begin
                      : begin + all.length < count ? begin + all.length
                                                   : count;
    const Index output = task / parts * team.kTeams + team.number;
    Total<Config> total = Total<Config>::neutral();
    if (output < all.outputs) total = reduce_elements(all, places, output, team.lane, begin, end);
    team.join(total);
    if (team.lane != 0 || output >= all.outputs) continue;
    if (parts > 1)
      scratch[part * all.outputs + output] = total;
    else
      all.put(output, total);
  }
  if (parts == 1 || !is_last_block(counter)) return;
  const ReduceTeam<Config, Config::kMergingLanes> merging;
  for (Index first = 0; first < all.outputs; first += merging.kTeams) {
    const Index output = first + merging.number;
    Total<Config> total = Total<Config>::neutral();
    if (output < all.outputs)
#pragma unroll 4
      for (Index i = merging.lane; i < parts; i += Config::kMergingLanes)
        total.merge(scratch[i * all.outputs + output]);
    merging.join(total);
    if (merging.lane == 0 && output < all.outputs) all.put(output, total);
  }
}
