// Softmax, or its logarithm. kLanes threads compute a row.
//
// The kernel is a template over a struct that the host writes:
//   Element            the type in memory
//   kThreads, kLanes   threads of a block, and of a row
//   kKept              elements of a row that a thread keeps in registers, all of its own; 0: none
//   kIsLogarithm       whether the result is the logarithm
// Expects prelude.cuh.
#pragma once

#include "lane_reductions.cuh"

// `rows` rows of `length` elements that are `stride` apart.
template <class Config>
struct SoftmaxArguments {
  const typename Config::Element* x;
  typename Config::Element* y;
  Index rows, length, stride;
};

template <class Config>
__device__ inline void softmax_rows(const SoftmaxArguments<Config>& all) {
  typedef typename Config::Element Element;
  constexpr int kLanes = Config::kLanes, kRows = Config::kThreads / kLanes, kKept = Config::kKept;
  constexpr bool kKeeps = kKept > 0;
  // The kept values become the exponentials, which are then not computed twice.
  constexpr bool kKeepsPower = kKeeps && !Config::kIsLogarithm;
  const Index length = all.length, stride = all.stride;
  const int lane = (int)threadIdx.x % kLanes;
  for (Index row = (Index)blockIdx.x * kRows + (Index)threadIdx.x / kLanes; row < all.rows;
       row += (Index)gridDim.x * kRows) {
    const Index first = row / stride * (length * stride) + row % stride;
    const Element* const from = all.x + first;
    Element* const to = all.y + first;
    float kept[kKeeps ? kKept : 1];
    // Calls take(x, i) for each of the thread's elements.
    const auto each = [&](bool is_first, const auto& take) {
      if constexpr (kKeeps) {
#pragma unroll
        for (int k = 0; k < kKept; ++k) {
          const Index i = lane + k * kLanes;
          if (i < length) {
            if (is_first) kept[k] = load(from[i * stride]);
            take(kept[k], i);
          }
        }
      } else {
        for (Index i = lane; i < length; i += kLanes) {
          float x = load(from[i * stride]);
          take(x, i);
        }
      }
    };
    float largest = __uint_as_float(0xff800000u), sum = 0.0f, lost = 0.0f;
    each(true, [&](float& x, Index) { largest = fmaxf(largest, x); });
    largest = reduce<Largest, kLanes>(largest);
    each(false, [&](float& x, Index) {
      const float power = expf(x - largest);
      if constexpr (kKeepsPower) x = power;
      if constexpr (kKeeps) {
        sum += power;
      } else {
        // In long rows, the rounding error of each addition goes into the next one (W. Kahan,
        // "Further remarks on reducing truncation errors", 1965).
        const float part = __fsub_rn(power, lost), next = __fadd_rn(sum, part);
        lost = __fsub_rn(__fsub_rn(next, sum), part);
        sum = next;
      }
    });
    sum = reduce<Sum, kLanes>(sum);
    const float total = Config::kIsLogarithm ? logf(sum) : 1.0f / sum;
    each(false, [&](float& x, Index i) {
      const float result = Config::kIsLogarithm ? x - largest - total
                           : kKeepsPower        ? x * total
                                                : expf(x - largest) * total;
      to[i * stride] = store<Element>(result);
    });
  }
}
