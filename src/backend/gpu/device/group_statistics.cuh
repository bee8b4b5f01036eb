// Mean and factor of each channel, for normalizations of groups of channels over many pixels. Every
// block sums up a part of the pixels of an image. The last block of an image merges the parts.
//
// Sums of squares lose the variance where the mean is large. So each thread sums up differences
// from its first element, and the threads' means and sums of squared deviations are merged (Chan,
// Golub and LeVeque, 1979, "Updating formulae and a pairwise algorithm for computing sample
// variances").
//
// Each kernel is a template over a struct that the host writes:
//   Element, Scale     the types in memory
//   kIsLast            whether the channels of a pixel are neighbours, else the pixels of a channel
//   kChannels, kOfGroup   channels of an image, and of a group
//   kThreads, kParts   threads of a block, and parts of the pixels
//   kEpsilon, kHasScale
// Expects prelude.cuh.
#pragma once

#include "part_counters.cuh"

// Mean of `count` numbers, and the sum of their squared deviations from it.
struct Moments {
  float count, mean, spread;
  __device__ void merge(const Moments& other) {
    if (other.count == 0.0f) return;
    const float all = count + other.count, share = other.count / all, step = other.mean - mean;
    mean = count == 0.0f ? other.mean : mean + step * share;
    spread += other.spread + (count == 0.0f ? 0.0f : step * step * count * share);
    count = all;
  }
};

template <class Config>
struct StatisticsArguments {
  const typename Config::Element* x;
  const typename Config::Scale* scale;
  float *mean, *factor;
  Index pixels, length;  // of an image, and of a part
  Moments* parts;        // [images, kParts, kChannels]
};

// Merges what the threads of a block hold. Thread lane * stride + place holds `entries` moments of
// that place. Lane 0 holds the place's results then.
template <int entries, int threads>
struct MomentsOfThreads {
  Moments at[entries][threads];
  __device__ void merge(int stride, int lanes) {
    const int thread = (int)threadIdx.x, lane = thread / stride;
    for (int count = lanes; count > 1;) {
      const int half = (count + 1) / 2;
      __syncthreads();
      if (lane + half < count) {
#pragma unroll
        for (int e = 0; e < entries; ++e) at[e][thread].merge(at[e][thread + half * stride]);
      }
      count = half;
    }
    __syncthreads();
  }
};

// The moments of `width` neighbours at `from`, and of those `steps` times `step` behind.
template <int width, class Element>
__device__ inline void sum_up(Moments (&moments)[width], const Element* from, Index steps,
                              Index step) {
  float shift[width], sums[width], squares[width];
#pragma unroll
  for (int e = 0; e < width; ++e) {
    shift[e] = steps > 0 ? load(from[e]) : 0.0f;
    sums[e] = squares[e] = 0.0f;
  }
#pragma unroll 4
  for (Index i = 0; i < steps; ++i) {
    const Pack<Element, width> pack = *(const Pack<Element, width>*)(from + i * step);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      const float difference = load(pack.at[e]) - shift[e];
      sums[e] += difference;
      squares[e] = fmaf(difference, difference, squares[e]);
    }
  }
  const float count = (float)steps;
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const float mean = steps > 0 ? sums[e] / count : 0.0f, spread = squares[e] - sums[e] * mean;
    moments[e] = Moments{count, shift[e] + mean, spread < 0.0f ? 0.0f : spread};
  }
}

// How many of the numbers first, first + step, ... lie below `end`.
__device__ inline Index count_steps(Index first, Index end, Index step) {
  return first < end ? (end - first + step - 1) / step : 0;
}

// Channels last: a thread has neighbouring channels of every kLanes-th pixel.
template <int width, class Config>
__device__ void sum_channels(const StatisticsArguments<Config>& all, Index image, Index part) {
  constexpr int kSlots = Config::kChannels / width;
  constexpr int kStride = kSlots < Config::kThreads ? kSlots : Config::kThreads;
  constexpr int kLanes = Config::kThreads / kStride;
  __shared__ MomentsOfThreads<width, Config::kThreads> shared;
  const int thread = (int)threadIdx.x, place = thread % kStride, lane = thread / kStride;
  const Index first = part * all.length + lane;
  const Index end = min((part + 1) * all.length, all.pixels);
  Moments* const to = all.parts + (image * Config::kParts + part) * Config::kChannels;
  for (int begin = 0; begin < kSlots; begin += kStride) {
    const int slot = begin + place;
    const bool is_there = lane < kLanes && slot < kSlots;
    Moments moments[width];
    sum_up(moments,
           all.x + (image * all.pixels + first) * Config::kChannels + (is_there ? slot : 0) * width,
           is_there ? count_steps(first, end, kLanes) : 0, (Index)kLanes * Config::kChannels);
#pragma unroll
    for (int e = 0; e < width; ++e) shared.at[e][thread] = moments[e];
    shared.merge(kStride, kLanes);
    if (lane == 0 && slot < kSlots) {
#pragma unroll
      for (int e = 0; e < width; ++e) to[slot * width + e] = shared.at[e][thread];
    }
    __syncthreads();
  }
}

// Linear: a block has one channel.
template <int width, class Config>
__device__ void sum_channel(const StatisticsArguments<Config>& all, Index image, Index channel,
                            Index part) {
  __shared__ MomentsOfThreads<1, Config::kThreads> shared;
  const Index first = part * all.length + (Index)threadIdx.x * width;
  const Index end = min((part + 1) * all.length, all.pixels);
  Moments moments[width];
  sum_up(moments, all.x + (image * Config::kChannels + channel) * all.pixels + first,
         count_steps(first, end, Config::kThreads * width), (Index)Config::kThreads * width);
#pragma unroll
  for (int e = 1; e < width; ++e) moments[0].merge(moments[e]);
  shared.at[0][threadIdx.x] = moments[0];
  shared.merge(1, Config::kThreads);
  if (threadIdx.x == 0)
    all.parts[(image * Config::kParts + part) * Config::kChannels + channel] = shared.at[0][0];
}

// Merges the parts of an image's channels, and then the channels of each group.
template <class Config>
__device__ void merge_parts(const StatisticsArguments<Config>& all, Index image) {
  constexpr int kStride =
      Config::kChannels < Config::kThreads ? Config::kChannels : Config::kThreads;
  constexpr int kLanes = Config::kThreads / kStride;
  __shared__ MomentsOfThreads<1, Config::kThreads> shared;
  __shared__ Moments channels[Config::kChannels];
  const int thread = (int)threadIdx.x, place = thread % kStride, lane = thread / kStride;
  const Moments* const from = all.parts + image * Config::kParts * Config::kChannels;
  for (int begin = 0; begin < Config::kChannels; begin += kStride) {
    const int channel = begin + place;
    Moments moments = {0.0f, 0.0f, 0.0f};
    if (lane < kLanes && channel < Config::kChannels)
      for (int part = lane; part < Config::kParts; part += kLanes)
        moments.merge(from[part * Config::kChannels + channel]);
    shared.at[0][thread] = moments;
    shared.merge(kStride, kLanes);
    if (lane == 0 && channel < Config::kChannels) channels[channel] = shared.at[0][thread];
    __syncthreads();
  }
  for (int channel = thread; channel < Config::kChannels; channel += Config::kThreads) {
    Moments moments = {0.0f, 0.0f, 0.0f};
    const int first = channel / Config::kOfGroup * Config::kOfGroup;
    for (int i = 0; i < Config::kOfGroup; ++i) moments.merge(channels[first + i]);
    float factor = 1.0f / sqrtf(moments.spread / moments.count + Config::kEpsilon);
    if constexpr (Config::kHasScale) factor *= load(all.scale[channel]);
    all.mean[image * Config::kChannels + channel] = moments.mean;
    all.factor[image * Config::kChannels + channel] = factor;
  }
}

// The statistics of all images. The grid has kParts blocks for each image, or for each channel.
template <int width, int bits, class Config, int words>
__device__ void find_statistics(const StatisticsArguments<Config>& all,
                                unsigned long long* const (&counters)[words]) {
  const Index block = blockIdx.x, part = block % Config::kParts, task = block / Config::kParts;
  Index image = task;
  if constexpr (Config::kIsLast) {
    sum_channels<width>(all, task, part);
  } else {
    image = task / Config::kChannels;
    sum_channel<width>(all, image, task % Config::kChannels, part);
  }
  constexpr int kBlocks = Config::kParts * (Config::kIsLast ? 1 : Config::kChannels);
  if (is_last_part<kBlocks, bits>(counters, image)) merge_parts(all, image);
}
