// Local response normalization: divides each element by (bias + factor * sum)^power. The sum is
// that of the squares of a window, which has the element's neighbours along the channels.
//
// The kernel is a template over a struct that the host writes:
//   Element          the type in memory
//   kIsChannelsLast  whether channels are neighbours in memory
//   kPower           LrnPower
//   kWindow          channels of a window that the thread keeps in registers; 0: it reads them one
//                    by one
//   kRun             channels of a thread; 1 where kWindow is 0
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

enum class LrnPower { kHalf, kThreeQuarters, kOne, kAny };

// A run of channels of a pixel is a task. A window has `before` channels before its element and
// `behind` ones behind it.
template <class Config>
struct LrnArguments {
  typedef typename Config::Element Element;
  const Element* x;
  Element* y;
  Index tasks, runs, channels, pixels, elements_of_image;
  Index before, behind;
  float bias, factor, power;

  __device__ Index pitch() const { return Config::kIsChannelsLast ? 1 : pixels; }
  __device__ Element result(float value, float sum) const {
    const float scale = bias + factor * sum;
    if constexpr (Config::kPower == LrnPower::kHalf)
      return store<Element>(value / sqrtf(scale));
    else if constexpr (Config::kPower == LrnPower::kThreeQuarters)
      return store<Element>(value / (sqrtf(scale) * sqrtf(sqrtf(scale))));
    else if constexpr (Config::kPower == LrnPower::kOne)
      return store<Element>(value / scale);
    else
      return store<Element>(value / powf(scale, power));
  }
};

// Loads the channels of kRun windows once. `base` is the place of the pixel's channel 0.
template <class Config>
__device__ inline void normalize_run(const LrnArguments<Config>& all, Index base, Index first) {
  constexpr int kKept = Config::kRun + Config::kWindow - 1;
  const Index pitch = all.pitch();
  float values[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const Index c = first + (k - all.before);
    values[k] = c >= 0 && c < all.channels ? load(all.x[base + c * pitch]) : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < Config::kRun; ++k) {
    if (first + k >= all.channels) break;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Config::kWindow; ++i) sum += values[k + i] * values[k + i];
    all.y[base + (first + k) * pitch] = all.result(values[k + all.before], sum);
  }
}
template <class Config>
__device__ inline void normalize_channel(const LrnArguments<Config>& all, Index base, Index at) {
  const Index pitch = all.pitch(), last = all.channels - 1;
  // Differences are compared, so a window of any size does not overflow.
  const Index begin = at > all.before ? at - all.before : 0;
  const Index end = last - at > all.behind ? at + all.behind : last;
  float sum = 0.0f;
  for (Index c = begin; c <= end; ++c) {
    const float value = load(all.x[base + c * pitch]);
    sum += value * value;
  }
  all.y[base + at * pitch] = all.result(load(all.x[base + at * pitch]), sum);
}
// Neighbouring threads have neighbours of the innermost axis.
template <class Config>
__device__ inline void normalize_channels(const LrnArguments<Config>& all) {
  for (Index task = first_index(); task < all.tasks; task += index_step()) {
    UIndex rest = (UIndex)task;
    Index run, place;
    if constexpr (Config::kIsChannelsLast) {
      run = split_off(rest, all.runs);
      place = split_off(rest, all.pixels) * all.channels;
    } else {
      place = split_off(rest, all.pixels);
      run = split_off(rest, all.runs);
    }
    const Index base = (Index)rest * all.elements_of_image + place;
    if constexpr (Config::kWindow > 0)
      normalize_run(all, base, run * Config::kRun);
    else
      normalize_channel(all, base, run);
  }
}
