// Rotary embedding: turns pairs of elements of heads. Each thread turns kPairs pairs of neighbours,
// or copies as many elements of what is not turned.
//
// The kernel is a template over a struct that the host generates:
//   Element        stored type of heads, cosines and sines
//   Position       type of positions; void without them
//   kPairs         pairs of a thread; if it is not 1, twice as many elements divide a head and its
//                  turned part
//   kInterleaved   pairs are neighbours; else they are elements of the two halves
//   kLengthFirst   heads lie in [batch, length, heads, size]; else in [batch, heads, length, size]
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

template <class Config>
struct RotaryArguments {
  typedef typename Config::Element Element;
  const Element *x, *cosines, *sines;
  const typename Config::Position* positions;
  Element* y;
  Index rows;  // heads of all places of the batch
  Index length, heads, size;
  Index turned, turned_heads;  // leading elements of a head, and leading heads
  Index batch_step;            // from a batch's angles or positions to the next one's; 0: shared
  Index table_rows;
};

template <class T>
constexpr bool is_there = true;
template <>
constexpr bool is_there<void> = false;

// Turns the pairs whose elements are x[i] and y[i].
template <class Element, int n>
__device__ inline void turn_pairs(Pack<Element, n>& x, Pack<Element, n>& y,
                                  const Pack<Element, n>& cosines, const Pack<Element, n>& sines) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float a = load(x.at[i]), b = load(y.at[i]);
    const float cosine = load(cosines.at[i]), sine = load(sines.at[i]);
    x.at[i] = store<Element>(cosine * a - sine * b);
    y.at[i] = store<Element>(sine * a + cosine * b);
  }
}

// All threads of the grid share the work. `n` pairs are loaded together.
template <class Config, int n>
__device__ inline void rotate_heads(const RotaryArguments<Config>& all) {
  typedef typename Config::Element Element;
  typedef Pack<Element, n> Elements;
  const Index units = (all.size + 2 * n - 1) / (2 * n), half = all.turned / 2;
  const Index count = all.rows * units;
  for (Index at = first_index(); at < count; at += index_step()) {
    const Index row = at / units, unit = at % units;
    const Index head = Config::kLengthFirst ? row % all.heads : row / all.length % all.heads;
    const Index t = Config::kLengthFirst ? row / all.heads % all.length : row % all.length;
    const Index place = row / (all.heads * all.length) * all.batch_step + t;
    const bool is_turned = head < all.turned_heads && unit * 2 * n < all.turned;
    const bool is_apart = is_turned && !Config::kInterleaved;
    const Index first = row * all.size + unit * (is_apart ? n : 2 * n);
    const Index second = first + (is_apart ? half : (Index)n);
    // A head may have an odd element behind those that are turned.
    const bool has_second = n > 1 || is_turned || unit * 2 + 1 < all.size;
    Elements x = *(const Elements*)(all.x + first), y = {};
    if (has_second) y = *(const Elements*)(all.x + second);
    if (is_turned) {
      Index angle = place;
      if constexpr (is_there<typename Config::Position>)
        angle = find(all.positions[place], all.table_rows);
      Elements cosines = {}, sines = {};
      if (angle >= 0) {
        cosines = *(const Elements*)(all.cosines + angle * half + unit * n);
        sines = *(const Elements*)(all.sines + angle * half + unit * n);
      }
      if constexpr (Config::kInterleaved) {
        Elements even, odd;
#pragma unroll
        for (int i = 0; i < n; ++i) {
          even.at[i] = 2 * i < n ? x.at[2 * i % n] : y.at[2 * i % n];
          odd.at[i] = 2 * i + 1 < n ? x.at[(2 * i + 1) % n] : y.at[(2 * i + 1) % n];
        }
        turn_pairs(even, odd, cosines, sines);
#pragma unroll
        for (int i = 0; i < 2 * n; ++i) {
          const Element turned = i % 2 == 0 ? even.at[i / 2] : odd.at[i / 2];
          if (i < n)
            x.at[i % n] = turned;
          else
            y.at[i % n] = turned;
        }
      } else {
        turn_pairs(x, y, cosines, sines);
      }
    }
    *(Elements*)(all.y + first) = x;
    if (has_second) *(Elements*)(all.y + second) = y;
  }
}

// The kernel.
template <class Config>
__device__ __forceinline__ void rotate(const RotaryArguments<Config>& all) {
  typedef typename Config::Element Element;
  constexpr int n = Config::kPairs;
  const bool is_vector = is_aligned<Element, n>(all.x) && is_aligned<Element, n>(all.cosines) &&
                         is_aligned<Element, n>(all.sines) && is_aligned<Element, n>(all.y);
  if (is_vector)
    rotate_heads<Config, n>(all);
  else
    rotate_heads<Config, 1>(all);
}
