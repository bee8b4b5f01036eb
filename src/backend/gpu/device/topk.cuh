// The greatest elements of rows, or the least, in order, with their indices.
//
// Each kernel is a template over a struct that the host writes:
//   Element, Number   the types of elements and of indices in memory
//   Key               NarrowKey or WideKey
//   kIsLeast          whether the least elements are wanted
//   kKept             keys that a thread, or a block's shared memory, keeps
//   kThreads          threads of a block
//   kParts            blocks that share a row, of which only the best element is wanted
// Expects prelude.cuh.
#pragma once

#include "part_counters.cuh"
#include "sort.cuh"
#include "topk_keys.cuh"

// `rows` rows of `length` elements that are `stride` apart.
template <class Config>
struct TopKArguments {
  const typename Config::Element* x;
  typename Config::Element* values;
  typename Config::Number* indices;
  Index rows, length, stride, k;
};
template <class Config>
struct TopKRow {
  typedef typename Config::Key Key;
  const typename Config::Element* from;
  typename Config::Element* values;
  typename Config::Number* indices;
  Index to, stride;

  __device__ TopKRow(const TopKArguments<Config>& all, Index row)
      : values(all.values), indices(all.indices), stride(all.stride) {
    const Index outer = row / stride, rest = row % stride;
    from = all.x + outer * all.length * stride + rest;
    to = outer * all.k * stride + rest;
  }
  __device__ Key operator()(Index i) const {
    const auto value = ordered(load(from[i * stride]));
    return Key::of(Config::kIsLeast ? ~value : value, i);
  }
  __device__ void put(Index place, const Key& key) const {
    const Index index = (Index)key.index();
    values[to + place * stride] = from[index * stride];
    indices[to + place * stride] = (typename Config::Number)index;
  }
};
template <class Key>
__device__ inline Key best_of_lanes(Key best) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Key other = best.from(distance);
    if (best < other) best = other;
  }
  return best;
}

// A thread keeps a row's best keys in order. Most elements are worse than the last of them.
template <class Config>
__device__ inline void find_by_threads(const TopKArguments<Config>& all) {
  typedef typename Config::Key Key;
  constexpr int kKept = Config::kKept;
  for (Index number = first_index(); number < all.rows; number += index_step()) {
    const TopKRow<Config> row(all, number);
    Key best[kKept];
#pragma unroll
    for (int j = 0; j < kKept; ++j) best[j] = Key{};
    for (Index i = 0; i < all.length; ++i) {
      Key key = row(i);
      if (!(best[kKept - 1] < key)) continue;
#pragma unroll
      for (int j = 0; j < kKept; ++j)
        if (best[j] < key) {
          const Key next = best[j];
          best[j] = key, key = next;
        }
    }
#pragma unroll
    for (int j = 0; j < kKept; ++j)
      if (j < all.k) row.put(j, best[j]);
  }
}

// A warp repeatedly takes the greatest key of all lanes.
template <class Config>
__device__ inline void find_by_warps(const TopKArguments<Config>& all) {
  typedef typename Config::Key Key;
  constexpr int kKept = Config::kKept, kWarps = Config::kThreads / 32;
  const int lane = (int)threadIdx.x % 32;
  for (Index number = (Index)blockIdx.x * kWarps + (Index)threadIdx.x / 32; number < all.rows;
       number += (Index)gridDim.x * kWarps) {
    const TopKRow<Config> row(all, number);
    Key keys[kKept];
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const Index i = lane + j * 32;
      keys[j] = i < all.length ? row(i) : Key{};
    }
    for (Index place = 0; place < all.k; ++place) {
      Key best = keys[0];
#pragma unroll
      for (int j = 1; j < kKept; ++j)
        if (best < keys[j]) best = keys[j];
      best = best_of_lanes(best);
      if (lane == 0) row.put(place, best);
#pragma unroll
      for (int j = 0; j < kKept; ++j)
        if (!(keys[j] < best)) keys[j] = Key{};
    }
  }
}

// Sorts keys in a block's shared memory in descending order; their number is a power of 2.
template <int size, class Key>
__device__ inline void sort(Key* keys) {
  sort(keys, size, [](const Key& a, const Key& b) { return b < a; });
}
template <class Config>
__device__ inline void sort_rows(const TopKArguments<Config>& all) {
  typedef typename Config::Key Key;
  constexpr int kThreads = Config::kThreads;
  __shared__ Key keys[Config::kKept];
  for (Index number = (Index)blockIdx.x; number < all.rows; number += (Index)gridDim.x) {
    const TopKRow<Config> row(all, number);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < Config::kKept; i += kThreads)
      keys[i] = i < all.length ? row(i) : Key{};
    sort<Config::kKept>(keys);
    for (Index i = (Index)threadIdx.x; i < all.k; i += kThreads) row.put(i, keys[i]);
  }
}

// Finds the key of rank `wanted` among a row's keys below `bound`, counted from the greatest, by
// radix selection. Counting the keys with each value of a digit tells the next digit of that key.
// The search ends early once all keys with the digits so far are wanted.
struct Selection {
  unsigned counts[256];
  unsigned digit, rest, is_done;
};
template <class Config>
__device__ inline typename Config::Key select(const TopKRow<Config>& row, Index length,
                                              bool is_bounded, typename Config::Key bound,
                                              unsigned wanted, Selection& shared) {
  typedef typename Config::Key Key;
  Key found = {};
  int known = 0;
  while (known < Key::kDigits) {
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x) shared.counts[i] = 0;
    __syncthreads();
    for (Index i = (Index)threadIdx.x; i < length; i += (Index)blockDim.x) {
      const Key key = row(i);
      bool belongs = !is_bounded || key < bound;
      belongs = belongs && key.has_digits_of(found, known);
      if (belongs) atomicAdd(&shared.counts[key.digit(known)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned rest = wanted;
      int digit = 255;
      while (digit > 0 && shared.counts[digit] < rest) rest -= shared.counts[digit--];
      shared.digit = (unsigned)digit, shared.rest = rest;
      shared.is_done = shared.counts[digit] == rest;
    }
    __syncthreads();
    found.set(known++, shared.digit);
    wanted = shared.rest;
    if (shared.is_done) break;
  }
  return found;  // the least key with these digits
}
// A block takes as many keys at a time as its shared memory sorts, each time those below the last
// key before.
template <class Config>
__device__ inline void select_rows(const TopKArguments<Config>& all) {
  typedef typename Config::Key Key;
  constexpr int kThreads = Config::kThreads, kKept = Config::kKept;
  __shared__ Selection selection;
  __shared__ unsigned taken;
  __shared__ Key keys[kKept];
  for (Index number = (Index)blockIdx.x; number < all.rows; number += (Index)gridDim.x) {
    const TopKRow<Config> row(all, number);
    Key bound = {};
    for (Index done = 0; done < all.k; done += kKept) {
      const Index wanted = all.k - done < kKept ? all.k - done : kKept;
      const Key least = select(row, all.length, done > 0, bound, (unsigned)wanted, selection);
      if (threadIdx.x == 0) taken = 0;
      for (int i = (int)threadIdx.x; i < kKept; i += kThreads) keys[i] = Key{};
      __syncthreads();
      for (Index i = (Index)threadIdx.x; i < all.length; i += kThreads) {
        const Key key = row(i);
        if (!(key < least) && (done == 0 || key < bound)) keys[atomicAdd(&taken, 1u)] = key;
      }
      sort<kKept>(keys);
      for (Index i = (Index)threadIdx.x; i < wanted; i += kThreads) row.put(done + i, keys[i]);
      bound = keys[wanted - 1];
      __syncthreads();
    }
  }
}

// Finds the greatest key of a row. Several blocks have parts of the row; the block that ends last
// combines their keys. `scratch` has a key for each part of each row.
template <class Config, int words>
__device__ inline void find_best(const TopKArguments<Config>& all, typename Config::Key* scratch,
                                 Word* const (&counters)[words]) {
  typedef typename Config::Key Key;
  constexpr int kThreads = Config::kThreads, kWarps = kThreads / 32, kParts = Config::kParts;
  __shared__ Key found[kWarps];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  for (Index task = (Index)blockIdx.x; task < all.rows * kParts; task += (Index)gridDim.x) {
    const Index number = task / kParts, part = task % kParts;
    const TopKRow<Config> row(all, number);
    Key best = {};
#pragma unroll 8
    for (Index i = part * kThreads + (Index)threadIdx.x; i < all.length; i += kParts * kThreads) {
      const Key key = row(i);
      if (best < key) best = key;
    }
    best = best_of_lanes(best);
    if (lane == 0) found[warp] = best;
    __syncthreads();
    if (warp == 0) best = best_of_lanes(lane < kWarps ? found[lane] : Key{});
    if constexpr (kParts > 1) {
      if (threadIdx.x == 0) scratch[task] = best;
      if (!is_last_part<kParts, 8>(counters, number)) continue;
      if (warp == 0) {
        best = Key{};
        if (lane < kParts) {
          const Word* const other = (const Word*)(scratch + number * kParts + lane);
#pragma unroll
          for (int i = 0; i < (int)(sizeof(Key) / sizeof(Word)); ++i)
            ((Word*)&best)[i] = __ldcg(other + i);
        }
        best = best_of_lanes(best);
      }
    }
    if (threadIdx.x == 0) row.put(0, best);
    __syncthreads();
  }
}
