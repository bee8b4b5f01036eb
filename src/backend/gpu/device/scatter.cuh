// Puts updates into a copy of data, in their order. Only one thread writes an element, however the
// work is shared, so all runs give the same bits.
//
// Each kernel is a template over a struct that the host writes:
//   Element      the type in memory
//   kScattering  Scattering
//   kHasData     whether there is data to copy, else elements without updates are 0
//   kThreads     threads of a block
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

enum class Scattering { kReplace, kSum, kProduct, kLeast, kGreatest };

// An update has `length` elements. The output has `total`.
template <class Config>
struct ScatterArguments {
  typedef typename Config::Element Element;
  const Element *data, *updates;
  Element* y;
  Index total, count, length;

  __device__ Element first(Index i) const {
    if constexpr (Config::kHasData) return data[i];
    return Element{};
  }
  __device__ void put(Index i, Index update) const {
    if constexpr (Config::kScattering == Scattering::kReplace)
      y[i] = updates[update];
    else
      y[i] = store<Element>(combine(load(y[i]), load(updates[update])));
  }
  template <class Value>
  __device__ static Value combine(Value a, Value b) {
    typedef typename Wrapping<Value>::Type Wide;
    constexpr Scattering kScattering = Config::kScattering;
    if constexpr (kScattering == Scattering::kLeast || kScattering == Scattering::kGreatest) {
      if (a != a) return a;
      if (b != b) return b;
      return (kScattering == Scattering::kLeast ? a < b : a > b) ? a : b;
    }
    return (Value)(kScattering == Scattering::kSum ? (Wide)a + (Wide)b : (Wide)a * (Wide)b);
  }
};

// A line along the axis: its first elements in the data and in the indices, and whether it has
// indices. Along the axis, data and indices have `extent` and `updates` elements, `step` and
// `update_step` apart.
struct ScatterLine {
  Index to, from;
  bool has_indices;
};
struct ScatterAxis {
  Index extent, step, updates, update_step;
};
// A thread takes a line. `total` is the number of lines.
template <class Config, class Number, class Line>
__device__ inline void scatter_lines(const ScatterArguments<Config>& all, const Number* indices,
                                     const ScatterAxis& axis, const Line& line_of) {
  for (Index number = first_index(); number < all.total; number += index_step()) {
    const ScatterLine line = line_of(number);
    for (Index k = 0; k < axis.extent; ++k)
      all.y[line.to + k * axis.step] = all.data[line.to + k * axis.step];
    if (!line.has_indices) continue;
    for (Index k = 0; k < axis.updates; ++k) {
      const Index at = line.from + k * axis.update_step, found = find(indices[at], axis.extent);
      if (found >= 0) all.put(line.to + found * axis.step, at);
    }
  }
}

// A block has a part of the output. It picks the updates that overlap its part. `place` returns
// where an update begins in the output; negative: nowhere.
template <class Config, class Place>
__device__ inline void scatter_parts(const ScatterArguments<Config>& all, const Place& place_of) {
  constexpr int kThreads = Config::kThreads;
  const Index part = (all.total + (Index)gridDim.x - 1) / (Index)gridDim.x;
  const Index begin = (Index)blockIdx.x * part;
  const Index end = begin + part < all.total ? begin + part : all.total;
  const int thread = (int)threadIdx.x;
#pragma unroll 4
  for (Index i = begin + thread; i < end; i += kThreads) all.y[i] = all.first(i);
  __shared__ Index places[kThreads], numbers[kThreads];
  __shared__ Ranks ranks;
  for (Index first = 0; first < all.count; first += kThreads) {
    const Index update = first + thread;
    Index place = -1;
    if (update < all.count) {
      place = place_of(update);
      if (place + all.length <= begin || place >= end) place = -1;
    }
    if (__syncthreads_or(place >= 0) == 0) continue;
    Index met = 0;
    const Index rank = rank_of<kThreads>(place >= 0, met, ranks);
    if (place >= 0) places[rank] = place, numbers[rank] = update;
    __syncthreads();
    // The same thread always has the same element of the part.
    for (int k = 0; k < met; ++k) {
      const Index start = places[k], low = start > begin ? start : begin;
      const Index high = start + all.length < end ? start + all.length : end;
      const int skew = (int)((low - begin) % kThreads);
      for (Index i = low + (thread - skew + kThreads) % kThreads; i < high; i += kThreads)
        all.put(i, numbers[k] * all.length + (i - start));
    }
  }
}
