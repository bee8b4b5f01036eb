// Fills a tensor with numbers that rise linearly along the axes, or with random numbers.
//
// The kernels are templates over a struct that the host writes:
//   Element       the type in memory
//   Value         the type of a loaded element
//   kWidth        neighbours that one access stores
// for fill_linearly():
//   Sum           the type in which numbers are computed
//   kAxes         axes of the tensor
//   kHasAllSteps  whether each axis has a step, else only the last one
// and for fill_randomly():
//   kIsUniform    whether the numbers are uniform, else normal
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"
#include "philox.cuh"

template <class Config>
struct FillArguments {
  typename Config::Element* y;
  Index count, groups;
};
// Stores pack_of(number of its first element) for each group of kWidth neighbours.
template <class Config, class PackOf>
__device__ inline void fill_groups(const FillArguments<Config>& all, const PackOf& pack_of) {
  typedef typename Config::Element Element;
  constexpr int kWidth = Config::kWidth;
  typedef Pack<Element, kWidth> Elements;
  const bool has_packs = is_aligned<Element, kWidth>(all.y);
  for (Index g = first_index(); g < all.groups; g += index_step()) {
    const Index first = g * kWidth;
    const Elements pack = pack_of(first);
    if (has_packs && first + (kWidth - 1) < all.count) {
      *(Elements*)(all.y + first) = pack;
    } else {
      for (int k = 0; k < kWidth; ++k)
        if (first + k < all.count) all.y[first + k] = pack.at[k];
    }
  }
}
template <class Config, class Number>
__device__ inline typename Config::Element filled(Number number) {
  return store<typename Config::Element>(convert<typename Config::Value>(number));
}

// The number at the origin, and what each step along an axis adds.
template <class Config>
struct LinearFilling {
  static constexpr int kAxes = Config::kAxes;
  typedef typename Config::Sum Sum;
  Index extents[kAxes > 0 ? kAxes : 1];
  Sum origin, steps[kAxes > 0 ? kAxes : 1];

  // Calls itself for the axis before. A loop over axes would hide constants from the compiler.
  template <int axis>
  __device__ Sum at(UIndex number) const {
    if constexpr (axis < 0) {
      return origin;
    } else {
      const Index place = axis == 0 ? (Index)number : split_off(number, extents[axis]);
      const Sum before = at<axis - 1>(number);
      if constexpr (Config::kHasAllSteps || axis + 1 == kAxes)
        return before + (Sum)place * steps[axis];
      else
        return before;
    }
  }
};
// Integers are counted as integers, since a double does not hold all of them.
template <class Config>
__device__ inline void fill_linearly(const FillArguments<Config>& all,
                                     const LinearFilling<Config>& filling) {
  fill_groups(all, [&](Index first) {
    Pack<typename Config::Element, Config::kWidth> pack;
#pragma unroll
    for (int k = 0; k < Config::kWidth; ++k) {
      const auto number = filling.template at<Config::kAxes - 1>((UIndex)(first + k));
      if constexpr (kIsFloat<typename Config::Value>)
        pack.at[k] = filled<Config>((float)number);
      else
        pack.at[k] = filled<Config>(number);
    }
    return pack;
  });
}

// The range of uniform numbers, or the mean and the standard deviation of normal ones.
struct RandomFilling {
  unsigned low_seed, high_seed;
  float alpha, beta;
};
template <class Config>
__device__ inline void fill_randomly(const FillArguments<Config>& all,
                                     const RandomFilling& filling) {
  const float alpha = filling.alpha, beta = filling.beta;
  fill_groups(all, [&](Index first) {
    Pack<typename Config::Element, Config::kWidth> pack;
#pragma unroll
    for (int k = 0; k < Config::kWidth; k += 4) {
      const Philox draw =
          philox((unsigned long long)(first + k) / 4, filling.low_seed, filling.high_seed);
      float values[4];
      if constexpr (Config::kIsUniform) {
        for (int j = 0; j < 4; ++j) values[j] = uniform(draw.words[j], alpha, beta);
      } else {
        normal(draw.words[0], draw.words[1], alpha, beta, values);
        normal(draw.words[2], draw.words[3], alpha, beta, values + 2);
      }
      for (int j = 0; j < 4; ++j) pack.at[k + j] = filled<Config>(values[j]);
    }
    return pack;
  });
}
