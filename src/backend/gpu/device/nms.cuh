// Non-maximum suppression: a greedy choice per class of each image, a block each. It takes the best
// box that overlaps none taken before. The last block writes the boxes of all blocks.
//
// The kernel is a template over a struct that the host writes:
//   Element, Number      the types of boxes and scores, and of the result's numbers
//   kThreads             threads of a block
//   kCenters             whether boxes are centres and sizes, else two corners
//   kTakesAny            whether all scores but NaN count, else those above least_score
//   kMostRank            boxes of a class that are looked at; 0: all
//   kRoom                elements of each part of the scratch
// Expects prelude.cuh.
#pragma once

#include "part_counters.cuh"

struct Box {
  float low_x, low_y, high_x, high_y;
};
// Rounding must not depend on the compiler's fusion of operations, since a box at the threshold is
// either dropped or not.
__device__ inline float area(const Box& a) {
  return __fmul_rn(__fsub_rn(a.high_x, a.low_x), __fsub_rn(a.high_y, a.low_y));
}
__device__ inline float overlap(const Box& a, const Box& b) {
  const float width =
      __fsub_rn(b.high_x < a.high_x ? b.high_x : a.high_x, a.low_x < b.low_x ? b.low_x : a.low_x);
  const float height =
      __fsub_rn(b.high_y < a.high_y ? b.high_y : a.high_y, a.low_y < b.low_y ? b.low_y : a.low_y);
  if (!(width > 0) || !(height > 0)) return 0;
  const float shared = __fmul_rn(width, height);
  return __fdiv_rn(shared, __fsub_rn(__fadd_rn(area(a), area(b)), shared));
}

// Boxes are [images, boxes, of_box, 4], scores [images, boxes, classes]. of_box: 1, or the classes.
template <class Config>
struct NmsArguments {
  typedef typename Config::Element Element;
  const Element *box_data, *scores;
  typename Config::Number* chosen;  // [total, 3]: image, class, box
  int* total;
  int* scratch;
  Index boxes, classes, of_box, groups, limit;
  float most_overlap, least_score;

  // Whether a box of a group may still be taken.
  __device__ int* open(Index group) const { return scratch + group * boxes; }
  __device__ int* list(Index group) const { return scratch + Config::kRoom + group * boxes; }
  __device__ int* counts() const { return scratch + 2 * Config::kRoom; }
  __device__ float score(Index group, Index i) const {
    return load(scores[(group / classes * boxes + i) * classes + group % classes]);
  }
  __device__ bool counts_at_all(float x) const {
    return Config::kTakesAny ? x == x : x > least_score;
  }
  __device__ Box box(Index group, Index i) const {
    const Index of = of_box == 1 ? 0 : group % classes;
    const Element* const at = box_data + ((group / classes * boxes + i) * of_box + of) * 4;
    const float a = load(at[0]), b = load(at[1]), c = load(at[2]), d = load(at[3]);
    if constexpr (Config::kCenters)
      return Box{__fsub_rn(a, c / 2), __fsub_rn(b, d / 2), __fadd_rn(a, c / 2),
                 __fadd_rn(b, d / 2)};
    return Box{c < a ? c : a, d < b ? d : b, a < c ? c : a, b < d ? d : b};
  }
};

// The first of the best boxes; index -1: there is none.
struct BestBox {
  Index index = -1;
  float score = 0.0f;
  __device__ void take(Index other, float x) {
    if (other >= 0 && (index < 0 || x > score || (x == score && other < index)))
      index = other, score = x;
  }
};
template <class Config>
__device__ inline BestBox find_best_box(const NmsArguments<Config>& all, Index group) {
  constexpr int kWarps = Config::kThreads / 32;
  __shared__ float scores[kWarps];
  __shared__ Index boxes[kWarps];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  BestBox best;
  for (Index i = (Index)threadIdx.x; i < all.boxes; i += Config::kThreads)
    if (all.open(group)[i]) best.take(i, all.score(group, i));
  for (int half = 16; half > 0; half /= 2) {
    const float x = __shfl_xor_sync(0xffffffffu, best.score, half);
    best.take(__shfl_xor_sync(0xffffffffu, best.index, half), x);
  }
  __syncthreads();
  if (lane == 0) scores[warp] = best.score, boxes[warp] = best.index;
  __syncthreads();
  for (int k = 0; k < kWarps; ++k) best.take(boxes[k], scores[k]);
  return best;
}
// The number of boxes of the group that are better.
template <class Config>
__device__ inline Index rank_of(const NmsArguments<Config>& all, Index group, const BestBox& best) {
  Index rank = 0;
  for (Index first = 0; first < all.boxes; first += Config::kThreads) {
    const Index i = first + (Index)threadIdx.x;
    const float x = i < all.boxes ? all.score(group, i) : 0.0f;
    rank += __syncthreads_count(i < all.boxes && all.counts_at_all(x) &&
                                (x > best.score || (x == best.score && i < best.index)));
  }
  return rank;
}

template <class Config>
__device__ inline void suppress(const NmsArguments<Config>& all, unsigned long long* counter) {
  constexpr int kThreads = Config::kThreads;
  const Index thread = (Index)threadIdx.x;
  for (Index group = (Index)blockIdx.x; group < all.groups; group += (Index)gridDim.x) {
    int* const open = all.open(group);
    for (Index i = thread; i < all.boxes; i += kThreads)
      open[i] = all.counts_at_all(all.score(group, i));
    Index taken = 0;
    while (taken < all.limit) {
      const BestBox best = find_best_box(all, group);
      if (best.index < 0) break;
      if constexpr (Config::kMostRank > 0)
        if (rank_of(all, group, best) >= Config::kMostRank) break;
      if (thread == 0) all.list(group)[taken] = (int)best.index;
      ++taken;
      const Box box = all.box(group, best.index);
      for (Index i = thread; i < all.boxes; i += kThreads)
        if (open[i] && (i == best.index || overlap(all.box(group, i), box) > all.most_overlap))
          open[i] = 0;
    }
    if (thread == 0) all.counts()[group] = (int)taken;
  }
  if (!is_last_block(counter)) return;
  Index total = 0;
  for (Index group = 0; group < all.groups; ++group) {
    const Index count = all.counts()[group];
    for (Index k = thread; k < count; k += kThreads) {
      typename Config::Number* const to = all.chosen + (total + k) * 3;
      to[0] = (typename Config::Number)(group / all.classes);
      to[1] = (typename Config::Number)(group % all.classes);
      to[2] = all.list(group)[k];
    }
    total += count;
  }
  if (thread == 0) *all.total = (int)total;
}
