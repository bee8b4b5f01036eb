// Products of recurrence_lanes.cuh: a lane multiplies every 32nd vector of a row of weights.
// Expects prelude.cuh.
#pragma once

#include "recurrence.cuh"

template <class Config>
struct LaneConfig : RecurrentConfig<Config> {
  typedef RecurrentConfig<Config> Base;
  static constexpr int kThreads = 32 * Config::kWarps;
  static constexpr bool kIsCluster = Config::kBlocks > 1;
  static constexpr Index kUnits = (Config::kHidden + Config::kBlocks - 1) / Config::kBlocks;
  static constexpr Index kRow = (Config::kHidden + 3) / 4 * 4;  // floats of a row's state
  static constexpr Index kState = Config::kRows * kRow;
  // States: h before and after a step, which take turns; c of an LSTM; z and the reset state of a
  // GRU that resets first.
  static constexpr int kStates = Base::kIsLstm ? 3 : Base::kResetsFirst ? 4 : 2;
  // Elements of R that a block keeps, padded: W, which follows, is read in aligned vectors.
  static constexpr Index kKeptR = (Base::kGates * kUnits * Config::kHidden + 7) / 8 * 8;
};

// Adds the lane's part of the products of some rows of x with one row of each gate's weights.
template <int width, int gates, int rows, class W, class X>
__device__ inline void multiply_rows(const W* weights, Index gate_stride, const X* const (&x)[rows],
                                     Index length, float (&sums)[gates][rows]) {
#pragma unroll 2
  for (Index k = (int)threadIdx.x % 32 * width; k < length; k += 32 * width) {
    Pack<X, width> values[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) values[r] = *(const Pack<X, width>*)(x[r] + k);
#pragma unroll
    for (int g = 0; g < gates; ++g) {
      const Pack<W, width> row = *(const Pack<W, width>*)(weights + g * gate_stride + k);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float weight = load(row.at[i]);
#pragma unroll
        for (int r = 0; r < rows; ++r) sums[g][r] += weight * load(values[r].at[i]);
      }
    }
  }
}
// Adds up the sums of all lanes. Lane r gets the sums of row r.
template <int gates, int rows>
__device__ inline void collect(float (&sums)[gates][rows], float (&own)[gates]) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < gates; ++g)
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums[g][r];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (r == 0 || lane == r) own[g] = sum;
    }
}
// Copies `count` elements of each gate's weights.
template <int width, int gates, class W>
__device__ inline void keep_rows(W* kept, Index kept_stride, const W* weights, Index gate_stride,
                                 Index count) {
  for (int g = 0; g < gates; ++g)
    for (Index i = (Index)threadIdx.x * width; i < count; i += (Index)blockDim.x * width)
      *(Pack<W, width>*)(kept + g * kept_stride + i) =
          *(const Pack<W, width>*)(weights + g * gate_stride + i);
}

// W or R: a row of `length` elements for each direction, gate and unit.
template <class C, Index length, bool is_kept>
struct LaneWeights {
  typedef typename C::Element Element;
  static constexpr int kWidth = length % C::kVector == 0 ? C::kVector : 1;
  const Element* all;  // in global memory
  Element* kept;       // if is_kept: the rows of the direction and the block's units
  Index direction, first_unit;
  bool has_vectors;  // whether vectors of kWidth elements are aligned

  __device__ LaneWeights(const Element* all, Element* kept, Index direction, Index first_unit)
      : all(all),
        kept(kept),
        direction(direction),
        first_unit(first_unit),
        has_vectors(kWidth == 1 || is_aligned<Element, kWidth>(all)) {}
  __device__ const Element* row(int gate, Index unit) const {
    return all + ((direction * C::kGates + gate) * C::kHidden + unit) * length;
  }
  __device__ void keep(Index units) const {
    constexpr Index kStride = C::kHidden * length, kKeptStride = C::kUnits * length;
    if constexpr (is_kept) {
      const Element* const own = row(0, first_unit);
      if (has_vectors)
        keep_rows<kWidth, C::kGates>(kept, kKeptStride, own, kStride, units * length);
      else
        keep_rows<1, C::kGates>(kept, kKeptStride, own, kStride, units * length);
    }
  }
  // Adds the lane's part of the products of x with gates of a unit.
  template <int first_gate, int gates, class X>
  __device__ void multiply(float (&sums)[gates][C::kRows], Index unit,
                           const X* const (&x)[C::kRows], bool x_has_vectors) const {
    constexpr Index kUnits = is_kept ? C::kUnits : C::kHidden;
    const Element* const rows =
        is_kept ? kept + (first_gate * kUnits + unit - first_unit) * length : row(first_gate, unit);
    if (kWidth == 1 || (x_has_vectors && (is_kept || has_vectors)))
      multiply_rows<kWidth>(rows, kUnits * length, x, length, sums);
    else
      multiply_rows<1>(rows, kUnits * length, x, length, sums);
  }
};
template <class C>
using WeightsW = LaneWeights<C, C::kInput, C::kKeepsW>;
template <class C>
using WeightsR = LaneWeights<C, C::kHidden, C::kKeepsR>;

// The sums of a unit's gates in the lane's row: `gates` gates from `first` on.
template <class C, int first, int gates>
struct GateSums {
  float from_x[gates], from_h[gates];
  const typename C::Element* biases;  // of the unit, gate by gate

  __device__ GateSums(const typename C::Arguments& all, Index direction, Index unit,
                      float (&x_sums)[gates][C::kRows], float (&h_sums)[gates][C::kRows])
      : biases(all.biases + (direction * (2 * C::kGates * C::kHidden) + unit)) {
    collect(x_sums, from_x);
    collect(h_sums, from_h);
  }
  __device__ float bias(int row) const { return load(biases[row * C::kHidden]); }
  __device__ float of_x(int gate) const {
    if constexpr (C::kHasBias) return from_x[gate - first] + bias(gate);
    return from_x[gate - first];
  }
  __device__ float of_h(int gate) const {
    if constexpr (C::kHasBias) return from_h[gate - first] + bias(C::kGates + gate);
    return from_h[gate - first];
  }
  __device__ float of_both(int gate) const {
    const float sum = from_x[gate - first] + from_h[gate - first];
    if constexpr (C::kHasBias) return sum + (bias(gate) + bias(C::kGates + gate));
    return sum;
  }
  __device__ void fill(float (&slots)[4]) const {
#pragma unroll
    for (int slot = 0; slot < C::kSlots; ++slot) {
      const int x = C::gate_of_x(slot), h = C::gate_of_h(slot);
      slots[slot] = h < 0 ? of_x(x) : x < 0 ? of_h(h) : of_both(x);
    }
  }
};
