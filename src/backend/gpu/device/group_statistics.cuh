// Mean and factor of each channel, for normalizations of groups of channels over many pixels. Every
// block sums up a part of the pixels of some groups. The last of the blocks that share groups
// merges the parts.
//
// Sums of squares lose the variance where the mean is large. So each thread sums up differences
// from its first element. The threads' means and sums of squared deviations are merged in two
// passes: the mean comes first, then the deviations from it. Neither takes a chain of divisions.
//
// Each kernel is a template over a struct that the host writes:
//   Element, Scale     the types in memory
//   kIsLast            whether the channels of a pixel are neighbours, else the pixels of a channel
//   kChannels, kOfGroup   channels of an image, and of a group
//   kSection           channels whose groups the same block finishes
//   kWidth             elements of an access, where addresses permit that
//   kThreads, kParts   threads of a block, and parts of the pixels
//   kEpsilon, kHasScale
// Expects prelude.cuh.
#pragma once

#include "lane_reductions.cuh"
#include "part_counters.cuh"

// Mean of some numbers, and the sum of their squared deviations from it.
struct alignas(8) Moments {
  float mean, spread;
};
struct CountedMoments {
  float count;
  Moments of;
};

template <class Config>
struct StatisticsArguments {
  const typename Config::Element* x;
  const typename Config::Scale* scale;
  float *mean, *factor;
  // Pixels of an image, and of a part. Linear, elements of a group, and of a part.
  Index extent, length;
  Moments* parts;  // [images, groups, kParts]
};

__device__ constexpr int common_divisor(int a, int b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

// Which elements the threads of a block sum up, in accesses of `width`. Channels last, a thread has
// a slot, neighbouring channels, of every kLanes-th pixel. Linear, a group lies in one piece: it is
// an image of one slot. A unit is what one access has of one group.
template <int width, class Config>
struct StatisticsLayout {
  static constexpr bool kIsLast = Config::kIsLast;
  static constexpr int kUnit = kIsLast ? common_divisor(width, Config::kOfGroup) : width;
  static constexpr int kUnitsOfSlot = width / kUnit;
  static constexpr int kUnitsOfGroup = kIsLast ? Config::kOfGroup / kUnit : 1;
  static constexpr int kGroups = kIsLast ? Config::kSection / Config::kOfGroup : 1;
  static constexpr int kSlots = kIsLast ? Config::kSection / width : 1;
  static constexpr int kStride = kSlots < Config::kThreads ? kSlots : Config::kThreads;
  static constexpr int kRounds = (kSlots + kStride - 1) / kStride;
  static constexpr int kLanes = Config::kThreads / kStride;
  // Elements from a pixel to the next.
  static constexpr Index kPixel = kIsLast ? Config::kChannels : width;
  // Moments of a lane in shared memory. An odd number spreads lanes over the banks.
  static constexpr int kPitch = kStride < 8 ? kStride : kStride | 1;
  static constexpr int kMoments = kRounds * kUnitsOfSlot * kLanes * kPitch;
  __device__ static int place(int unit, int lane) {
    const int slot = unit / kUnitsOfSlot, entry = unit % kUnitsOfSlot;
    return ((slot / kStride * kUnitsOfSlot + entry) * kLanes + lane) * kPitch + slot % kStride;
  }
};

// Accesses that a thread has in flight.
constexpr int kAccessesAtOnce = 4;

// The moments of each of `units` units of `width` neighbours at `from`, and of those `steps` times
// `step` behind.
template <int width, int units, class Element>
__device__ inline void sum_up(Moments (&moments)[units], const Element* from, Index steps,
                              Index step) {
  constexpr int kUnit = width / units;
  typedef Pack<Element, width> Neighbours;
  float shift[units] = {}, sums[width] = {}, squares[width] = {};
#pragma unroll 1
  for (Index i = 0; i < steps; i += kAccessesAtOnce) {
    Neighbours several[kAccessesAtOnce];
#pragma unroll
    for (int j = 0; j < kAccessesAtOnce; ++j)
      if (i + j < steps) several[j] = *(const Neighbours*)(from + (i + j) * step);
    if (i == 0) {
#pragma unroll
      for (int u = 0; u < units; ++u) shift[u] = load(several[0].at[u * kUnit]);
    }
#pragma unroll
    for (int j = 0; j < kAccessesAtOnce; ++j) {
      if (i + j >= steps) break;
#pragma unroll
      for (int e = 0; e < width; ++e) {
        const float difference = load(several[j].at[e]) - shift[e / kUnit];
        sums[e] += difference;
        squares[e] = fmaf(difference, difference, squares[e]);
      }
    }
  }
  const float share = steps > 0 ? 1.0f / ((float)steps * kUnit) : 0.0f;
#pragma unroll
  for (int u = 0; u < units; ++u) {
    float sum = 0.0f, spread = 0.0f;
#pragma unroll
    for (int e = u * kUnit; e < (u + 1) * kUnit; ++e) sum += sums[e], spread += squares[e];
    spread -= sum * (sum * share);
    moments[u] = Moments{shift[u] + sum * share, spread < 0.0f ? 0.0f : spread};
  }
}

// The largest power of two up to a warp that is at most `x`.
__device__ constexpr int lanes_up_to(int x) {
  return x >= 32 ? 32 : x >= 2 ? 2 * lanes_up_to(x / 2) : 1;
}

// Merges the moments at(group, 0), at(group, 1), ... at(group, number - 1) of each group, which
// have `total` elements. A team of neighbouring threads has a group. Its first one calls
// put(group, moments).
template <int groups, int number, int threads, class At, class Put>
__device__ inline void merge_groups(float total, const At& at, const Put& put) {
  constexpr int kLanes = lanes_up_to(threads / groups), kTeams = threads / kLanes;
  // A thread reads several moments at once, and keeps them for the second pass.
  constexpr int kTurns = (number + kLanes - 1) / kLanes, kKept = kTurns < 12 ? kTurns : 12;
  constexpr int kRounds = (kTurns + kKept - 1) / kKept;
  const int lane = (int)threadIdx.x % kLanes, team = (int)threadIdx.x / kLanes;
  const float share = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll 1
  for (int begin = 0; begin < groups; begin += kTeams) {
    // Teams without a group take part in their warp's exchanges.
    const int group = begin + team < groups ? begin + team : groups - 1;
    CountedMoments kept[kKept];
    const auto read = [&](int round) {
#pragma unroll
      for (int j = 0; j < kKept; ++j) {
        const int i = lane + (round * kKept + j) * kLanes;
        kept[j] = i < number ? at(group, i) : CountedMoments{};
      }
    };
    float first = 0.0f, sum = 0.0f, spread = 0.0f;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      read(round);
      if (round == 0) first = __shfl_sync(0xffffffffu, kept[0].of.mean, 0, kLanes);
#pragma unroll
      for (int j = 0; j < kKept; ++j) sum = fmaf(kept[j].count, kept[j].of.mean - first, sum);
    }
    const float mean = first + reduce<Sum, kLanes>(sum) * share;
#pragma unroll 1
    for (int round = kRounds; round-- > 0;) {
      if (round + 1 < kRounds) read(round);
#pragma unroll
      for (int j = 0; j < kKept; ++j) {
        const float difference = kept[j].of.mean - mean;
        spread += fmaf(kept[j].count * difference, difference, kept[j].of.spread);
      }
    }
    spread = reduce<Sum, kLanes>(spread);
    if (lane == 0 && begin + team < groups) put(group, Moments{mean, spread});
  }
}

// A block's shared memory, which accesses of any width share.
template <class Config>
struct StatisticsMemory {
  static constexpr int kWide = StatisticsLayout<Config::kWidth, Config>::kMoments;
  static constexpr int kNarrow = StatisticsLayout<1, Config>::kMoments;
  static constexpr int kGroups = Config::kSection / Config::kOfGroup;
  Moments moments[kWide > kNarrow ? kWide : kNarrow];
  float mean[kGroups], factor[kGroups];  // the results of a section's groups
};
template <class Config>
__device__ inline StatisticsMemory<Config>& shared_memory() {
  __shared__ StatisticsMemory<Config> all;
  return all;
}

// Sums up a part of the groups of a task, which begins at `x`. put(group, moments) gets them.
template <int width, class Config, class Put>
__device__ inline void sum_groups(const typename Config::Element* x, Index first, Index end,
                                  const Put& put) {
  typedef StatisticsLayout<width, Config> Layout;
  constexpr int kStride = Layout::kStride, kLanes = Layout::kLanes, kUnits = Layout::kUnitsOfSlot;
  Moments* const shared = shared_memory<Config>().moments;
  const int thread = (int)threadIdx.x, lane = thread / kStride, place = thread % kStride;
  const Index count = first < end ? end - first : 0, turns = count / kLanes, rest = count % kLanes;
#pragma unroll
  for (int begin = 0; begin < Layout::kSlots; begin += kStride) {
    const int slot = begin + place;
    if (lane >= kLanes || slot >= Layout::kSlots) continue;
    Moments moments[kUnits];
    sum_up<width>(moments, x + (first + lane) * Layout::kPixel + slot * width,
                  turns + (lane < rest ? 1 : 0), kLanes * Layout::kPixel);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) shared[Layout::place(slot * kUnits + u, lane)] = moments[u];
  }
  __syncthreads();
  constexpr int kOfGroup = Layout::kUnitsOfGroup;
  merge_groups<Layout::kGroups, kLanes * kOfGroup, Config::kThreads>(
      (float)count * (Layout::kUnit * kOfGroup),
      [&](int group, int i) {
        const int of = i / kOfGroup;
        const float steps = (float)(turns + (of < rest ? 1 : 0));
        return CountedMoments{steps * Layout::kUnit,
                              shared[Layout::place(group * kOfGroup + i % kOfGroup, of)]};
      },
      put);
}

// The statistics of all images. The grid has kParts blocks for each section, or for each group.
template <int width, int bits, class Config, int words>
__device__ void find_statistics(const StatisticsArguments<Config>& all,
                                unsigned long long* const (&counters)[words]) {
  constexpr bool kIsLast = Config::kIsLast;
  constexpr int kParts = Config::kParts, kOfGroup = Config::kOfGroup;
  constexpr int kSections = Config::kChannels / Config::kSection;
  constexpr int kGroups = Config::kSection / kOfGroup, kGroupsOfBlock = kIsLast ? kGroups : 1;
  const Index block = blockIdx.x, part = block % kParts, task = block / kParts;
  const Index extent = kIsLast ? all.extent : all.extent / width;
  const Index length = kIsLast ? all.length : all.length / width;
  const Index begin =
      kIsLast ? task / kSections * extent * Config::kChannels + task % kSections * Config::kSection
              : task * all.extent;
  const Index first = part * length, end = first + length < extent ? first + length : extent;
  const Index section = kIsLast ? task : task / kGroups;
  StatisticsMemory<Config>& results = shared_memory<Config>();
  const float of_group = (float)all.extent * (kIsLast ? kOfGroup : 1);
  const auto finish = [&](int group, const Moments& moments) {
    results.mean[group] = moments.mean;
    results.factor[group] = 1.0f / sqrtf(moments.spread / of_group + Config::kEpsilon);
  };
  // Channels whose results this block stores.
  constexpr int kStored = kParts == 1 ? kGroupsOfBlock * kOfGroup : Config::kSection;
  const Index channel = kParts == 1 ? task * kStored : section * kStored;
  constexpr int kRounds = (kStored + Config::kThreads - 1) / Config::kThreads;
  if constexpr (kParts == 1) {
    sum_groups<width, Config>(all.x + begin, first, end, finish);
  } else {
    sum_groups<width, Config>(all.x + begin, first, end, [&](int group, const Moments& moments) {
      all.parts[(task * kGroupsOfBlock + group) * kParts + part] = moments;
    });
    constexpr int kBlocks = kParts * (kIsLast ? 1 : kGroups);
    if (!is_last_part<kBlocks, bits>(counters, section)) return;
  }
  float scales[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int i = (int)threadIdx.x + round * Config::kThreads;
    scales[round] = 1.0f;
    if constexpr (Config::kHasScale)
      if (i < kStored) scales[round] = load(all.scale[(channel + i) % Config::kChannels]);
  }
  if constexpr (kParts > 1) {
    const Moments* const parts = all.parts + section * kGroups * kParts;
    merge_groups<kGroups, kParts, Config::kThreads>(
        of_group,
        [&](int group, int i) {
          const Index left = all.extent - i * all.length;
          const Index count = left < 0 ? 0 : left < all.length ? left : all.length;
          return CountedMoments{(float)count * (kIsLast ? kOfGroup : 1), parts[group * kParts + i]};
        },
        finish);
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int i = (int)threadIdx.x + round * Config::kThreads;
    if (i >= kStored) break;
    all.mean[channel + i] = results.mean[i / kOfGroup];
    all.factor[channel + i] = results.factor[i / kOfGroup] * scales[round];
  }
}
