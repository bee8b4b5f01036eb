// Puts updates into a copy of data, in their order. Only one thread writes an element, however the
// work is shared, so all runs give the same bits.
//
// Each kernel is a template over a struct that the host writes:
//   Element      the type in memory
//   kScattering  Scattering
//   kHasData     whether there is data to copy, else elements without updates are 0
//   kThreads     threads of a block
//   kPartElements   elements of the output that a block of scatter_parts() has
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

// The updates that overlap a block's part of the output, in their order. A thread looks at
// kOfThread updates at once, one in kThreads. Where more are met than the list has room for, it has
// half of them at a time.
template <class Config>
struct ScatterList {
  static constexpr int kWarp = 32, kWarps = Config::kThreads / kWarp;
  static constexpr int kOfThread = sizeof(Index) == 4 ? 16 : 8;
  static constexpr int kLookedAt = kOfThread * Config::kThreads, kRoom = kLookedAt / 2;
  static constexpr int kCounts = kOfThread * kWarps, kChunks = kCounts / kWarp;

  Index places[kRoom], numbers[kRoom];
  int counts[kCounts], sums[kChunks];

  // Counts the thread's updates at places that are not negative. Returns the block's sum, and in
  // `before` for each update those of other warps before it. All threads of the block call this.
  __device__ int count(const Index (&found)[kOfThread], int (&before)[kOfThread]) {
    const int lane = (int)threadIdx.x % kWarp, warp = (int)threadIdx.x / kWarp;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const unsigned met = __ballot_sync(~0u, found[i] >= 0);
      if (lane == 0) counts[i * kWarps + warp] = __popc(met);
    }
    __syncthreads();
    if (warp < kChunks) {  // turns counts into sums of those before in their chunk
      const int own = counts[(int)threadIdx.x];
      int sum = own;
#pragma unroll
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const int other = __shfl_up_sync(~0u, sum, distance);
        if (lane >= distance) sum += other;
      }
      counts[(int)threadIdx.x] = sum - own;
      if (lane == kWarp - 1) sums[warp] = sum;
    }
    __syncthreads();
    int all = 0;
#pragma unroll
    for (int chunk = 0, i = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (; i < (chunk + 1) * kOfThread / kChunks; ++i)
        before[i] = all + counts[i * kWarps + warp];
      all += sums[chunk];
    }
    return all;
  }

  // Lists the updates first + i * kThreads + thread, for i from `begin` to before `end`. `base` is
  // the number of those before them.
  __device__ void fill(Index first, const Index (&found)[kOfThread], const int (&before)[kOfThread],
                       int begin, int end, int base) {
    const unsigned mask = (1u << ((int)threadIdx.x % kWarp)) - 1u;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      if (i < begin || i >= end) continue;
      const unsigned met = __ballot_sync(~0u, found[i] >= 0);
      if (found[i] < 0) continue;
      const int rank = before[i] - base + __popc(met & mask);
      places[rank] = found[i];
      numbers[rank] = first + i * Config::kThreads + (int)threadIdx.x;
    }
    __syncthreads();
  }
};

// A block's part of the output, in packs of `width` elements in the registers of its threads. Each
// warp has a stretch of the part and puts the updates there that overlap it. `width` divides the
// length of updates, so that an update has all elements of a pack or none.
template <int width, class Config>
struct ScatterPart {
  typedef typename Config::Element Element;
  typedef Pack<Element, width> Elements;
  static constexpr int kPacks = Config::kPartElements / (Config::kThreads * width);
  typedef ScatterList<Config> List;
  static constexpr int kWarp = 32, kStretch = kPacks * kWarp * width;
  /// Updates whose elements a thread loads at once.
  static constexpr int kBatch = kPacks >= 8 ? 1 : kPacks >= 4 ? 2 : 4;

  const ScatterArguments<Config>& all;
  const int lane;
  const Index begin, from;  // of the block's part, and of the warp's stretch
  Elements own[kPacks];     // of the thread

  __device__ explicit ScatterPart(const ScatterArguments<Config>& arguments)
      : all(arguments),
        lane((int)threadIdx.x % kWarp),
        begin((Index)blockIdx.x * Config::kPartElements),
        from(begin + (Index)((int)threadIdx.x / kWarp * kStretch)) {}

  // Where a pack begins in the output.
  __device__ Index at(int pack) const { return from + (pack * kWarp + lane) * width; }

  __device__ void read() {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      own[p] = Elements{};
      if constexpr (Config::kHasData) {
        if (at(p) < all.total) own[p] = *(const Elements*)(all.data + at(p));
      }
    }
  }
  __device__ void write() const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (at(p) < all.total) *(Elements*)(all.y + at(p)) = own[p];
  }

  // Where the thread's updates, one in kThreads from `first` on, begin; -1 for those that miss the
  // block's part.
  template <class Place>
  __device__ void look(Index first, const Place& place_of, Index (&found)[List::kOfThread]) const {
#pragma unroll
    for (int i = 0; i < List::kOfThread; ++i) {
      const Index update = first + i * Config::kThreads + (int)threadIdx.x;
      found[i] = update < all.count ? place_of(update) : (Index)-1;
    }
#pragma unroll
    for (int i = 0; i < List::kOfThread; ++i)
      if (found[i] + all.length <= begin || found[i] >= begin + Config::kPartElements)
        found[i] = -1;
  }

  __device__ void change(Elements& pack, const Elements& update) const {
#pragma unroll
    for (int e = 0; e < width; ++e) {
      if constexpr (Config::kScattering == Scattering::kReplace)
        pack.at[e] = update.at[e];
      else
        pack.at[e] = store<Element>(all.combine(load(pack.at[e]), load(update.at[e])));
    }
  }

  // Puts the listed updates into the warp's stretch, kBatch at a time.
  __device__ void put(const List& list, int size) {
    for (int base = 0; base < size; base += kWarp) {
      const int mine = base + lane;
      const Index place = mine < size ? list.places[mine] : all.total;
      const Index number = mine < size ? list.numbers[mine] : 0;
      unsigned met =
          __ballot_sync(~0u, mine < size && place < from + kStretch && place + all.length > from);
      while (met != 0) {
        Index starts[kBatch];
        Elements updates[kBatch][kPacks];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const int source = met != 0 ? __ffs((int)met) - 1 : 0;
          const Index start = __shfl_sync(~0u, place, source);
          const Index update = __shfl_sync(~0u, number, source);
          starts[b] = met != 0 ? start : all.total;
          met &= met - 1;
#pragma unroll
          for (int p = 0; p < kPacks; ++p)
            if (has(starts[b], at(p)))
              updates[b][p] =
                  *(const Elements*)(all.updates + (update * all.length + (at(p) - start)));
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int p = 0; p < kPacks; ++p)
            if (has(starts[b], at(p))) change(own[p], updates[b][p]);
        }
      }
    }
  }
  // Whether an update that begins at `start` has the pack at `place`.
  __device__ bool has(Index start, Index place) const {
    return place >= start && place < start + all.length && place < all.total;
  }
};

template <int width, class Config, class Place>
__device__ inline void scatter_part(const ScatterArguments<Config>& all, const Place& place_of,
                                    ScatterList<Config>& list) {
  typedef ScatterList<Config> List;
  ScatterPart<width, Config> part(all);
  part.read();
  constexpr int kHalf = List::kOfThread / 2;
  Index found[List::kOfThread];
  int before[List::kOfThread];
  for (Index first = 0; first < all.count; first += List::kLookedAt) {
    part.look(first, place_of, found);
    const int met = list.count(found, before);
    if (met <= List::kRoom) {
      list.fill(first, found, before, 0, List::kOfThread, 0);
      part.put(list, met);
      continue;
    }
    __shared__ int first_half;
    if (threadIdx.x == 0) first_half = before[kHalf];
    __syncthreads();
    list.fill(first, found, before, 0, kHalf, 0);
    part.put(list, first_half);
    __syncthreads();
    list.fill(first, found, before, kHalf, List::kOfThread, first_half);
    part.put(list, met - first_half);
  }
  part.write();
}

// The grid has a block for each kPartElements elements of the output. `place` returns where an
// update begins in the output; negative: nowhere. `has_packs` is whether packs of `width` elements
// are aligned everywhere.
template <int width, class Config, class Place>
__device__ inline void scatter_parts(const ScatterArguments<Config>& all, bool has_packs,
                                     const Place& place_of) {
  __shared__ ScatterList<Config> list;
  if (width == 1 || has_packs)
    scatter_part<width>(all, place_of, list);
  else
    scatter_part<1>(all, place_of, list);
}
