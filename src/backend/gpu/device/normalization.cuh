// Normalization: x minus its mean, divided by its standard deviation, times a scale, plus a bias.
//
// A team of kLanes threads normalizes one row, the elements that share a mean. The lanes lie along
// the innermost axis, or the teams do. A team computes the mean, then the squares of the deviations
// from the mean, so that nothing cancels, and then the outputs. The sum of the deviations corrects
// a mean that each thread summed from many elements (Neely, "Comparison of several algorithms for
// computation of means, standard deviations and correlation coefficients", 1966). Elements are read
// once where they fit the registers. Where few rows are long, the team is all threads of a cluster
// of blocks.
//
// Each kernel is a template over a struct that the host writes:
//   Element, Scale, Bias, Output   the types in memory. A result is rounded to Output.
//   Quantized            the type of a quantized result
//   kLanes, kTeams, kIsInner   a team's threads within a block, teams of a block, whether lanes are
//                        neighbours
//   kBlocks, kSharedBytes   blocks of a team, a cluster or 1, and a block's dynamic shared memory
//   kMost, kMostKept     elements of a row at most; elements that a thread may keep in registers
//   kIsRms               whether the mean is taken as 0
//   kEpsilon             what is added to the variance
//   kHasScale, kHasBias  which inputs are present
//   kKeepsAffine         whether all rows share a constant scale and bias. Threads then read theirs
//                        once, before they wait for the previous kernel.
//   kPacksScale, kPacksBias   whether one access loads neighbours of it
//   kStoresResult        whether the result is stored as it is
//   kQuantizes, kIsByte, kLowest   whether it is stored quantized; to bytes, and the lowest one
//   kWritten             bit i: earlier kernels may write input i
// A NormalizationProgram computes a result from what is normalized.
// Expects prelude.cuh.
#pragma once

#include "cluster.cuh"
#include "lane_reductions.cuh"
#include "quantization.cuh"

// `count` elements share a mean. Neighbours of x have neighbours of the scale that are `scale_step`
// apart.
template <class Config>
struct NormalizationArguments {
  const typename Config::Element* x;
  const typename Config::Scale* scale;
  const typename Config::Bias* bias;
  typename Config::Output* y;
  typename Config::Quantized* quantized;
  Index rows, count, scale_step, bias_step;
  float quantum, of_quantum, zero_point;  // of_quantum: 1 / quantum

  __device__ void wait() {
    wait_for_kernels();
    read_anew_if_written<Config::kWritten, 0>(x);
    read_anew_if_written<Config::kWritten, 1>(scale);
    read_anew_if_written<Config::kWritten, 2>(bias);
    begin_next_kernel();
  }
};
// Offsets of a row, or within it.
struct NormalizationPlace {
  Index x, scale, bias;
};

// Scale and bias of `width` neighbours.
template <class Config, int width>
struct NormalizationAffine {
  Pack<typename Config::Scale, width> scale;
  Pack<typename Config::Bias, width> bias;

  template <bool is_packed, class T>
  __device__ static void read(Pack<T, width>& to, const T* from, Index step) {
    if constexpr (is_packed && width > 1)
      to = *(const Pack<T, width>*)from;
    else
#pragma unroll
      for (int q = 0; q < width; ++q) to.at[q] = from[q * step];
  }
  __device__ void read(const NormalizationArguments<Config>& all, Index scale_at, Index bias_at) {
    if constexpr (Config::kHasScale)
      read<Config::kPacksScale>(scale, all.scale + scale_at, all.scale_step);
    if constexpr (Config::kHasBias)
      read<Config::kPacksBias>(bias, all.bias + bias_at, all.bias_step);
  }
  __device__ float apply(float x, int q) const {
    if constexpr (Config::kHasScale) x *= load(scale.at[q]);
    if constexpr (Config::kHasBias) x += load(bias.at[q]);
    return x;
  }
};

// The sum over threads whose numbers differ by multiples of `teams`.
template <int lanes, int teams>
__device__ inline float column_sum(float value) {
  if constexpr (lanes > 1) {
    __shared__ float parts[lanes * teams];
    __syncthreads();
    parts[threadIdx.x] = value;
    __syncthreads();
    value = 0.0f;
#pragma unroll
    for (int i = 0; i < lanes; ++i) value += parts[i * teams + (int)threadIdx.x % teams];
  }
  return value;
}
// A cluster's blocks have kSharedBytes of dynamic shared memory: numbers for the sums of the
// blocks, for two sums in turns, and those of the warps. `turn`: 0 or 1, not that of the sum
// before.
template <class Config>
__device__ inline float sum_of_team(float value, int turn) {
  if constexpr (!Config::kIsInner) {
    return column_sum<Config::kLanes, Config::kTeams>(value);
  } else if constexpr (Config::kBlocks == 1) {
    return reduce<Sum, Config::kLanes>(value);
  } else {
    constexpr int kBlocks = Config::kBlocks;
    static_assert((2 * kBlocks + Config::kLanes / 32) * 4 == Config::kSharedBytes);
    extern __shared__ uint4 shared[];
    float* const parts = (float*)shared;
    value = reduce<Sum, Config::kLanes>(value, parts + 2 * kBlocks);
    return sum_in_cluster<kBlocks>(value, parts + turn * kBlocks);
  }
}

template <class Config>
__device__ inline typename Config::Quantized quantize(const NormalizationArguments<Config>& all,
                                                      float x) {
  typedef typename Config::Quantized Quantized;
  x = divide_by(x, all.quantum, all.of_quantum);
  if constexpr (!Config::kIsByte) {
    return store<Quantized>(x);
  } else {
    const float low = (float)Config::kLowest - all.zero_point;
    const float high = (float)(Config::kLowest + 255) - all.zero_point;
    return round_to_byte<Quantized>(round_to_whole(fminf(fmaxf(x, low), high)) + all.zero_point);
  }
}

// What is computed from normalized elements. The host writes the functions.
template <class Wait, class Read, class Make>
struct NormalizationProgram {
  Wait wait;  // (): called when earlier kernels are done
  Read read;  // (Width, place): returns the other inputs of neighbouring elements
  Make make;  // (inputs, i, x): computes the i-th result
};
template <class Wait, class Read, class Make>
NormalizationProgram(Wait, Read, Make) -> NormalizationProgram<Wait, Read, Make>;
template <int width>
struct Width {
  static constexpr int kValue = width;
};
// Stores neighbours from `place` on.
template <int width, class Config, class Program, class Inputs>
__device__ inline void store_normalized(const NormalizationArguments<Config>& all,
                                        const float (&normalized)[width], Index place,
                                        const Program& program, const Inputs& inputs) {
  typedef Pack<typename Config::Output, width> Results;
  Results results;
#pragma unroll
  for (int q = 0; q < width; ++q)
    results.at[q] = store<typename Config::Output>(program.make(inputs, q, normalized[q]));
  if constexpr (Config::kStoresResult) *(Results*)(all.y + place) = results;
  if constexpr (Config::kQuantizes) {
    Pack<typename Config::Quantized, width> quantized;
#pragma unroll
    for (int q = 0; q < width; ++q) quantized.at[q] = quantize(all, load(results.at[q]));
    *(Pack<typename Config::Quantized, width>*)(all.quantized + place) = quantized;
  }
}

// A thread's part of the team that normalizes a row. `row_place` returns the place of a row, and
// `place` that of access number `unit` of a row, with `width` elements.
template <int width, class Config, class RowPlace, class Place, class Program>
struct NormalizationTeam {
  typedef Pack<typename Config::Element, width> Access;
  typedef NormalizationAffine<Config, width> Affine;
  static constexpr int kLanes = Config::kLanes * Config::kBlocks;
  static constexpr long long kUnits = (Config::kMost + width - 1) / width;
  static constexpr long long kUnitsOfLane = (kUnits + kLanes - 1) / kLanes;
  static constexpr bool kKeeps = kUnitsOfLane * width <= Config::kMostKept;
  static constexpr bool kPreloads = kKeeps && Config::kKeepsAffine;
  static constexpr int kKept = kKeeps && kUnitsOfLane > 0 ? (int)kUnitsOfLane : 1;
  // A thread's FP32 sum of so many elements may miss the mean by more than its last bits.
  static constexpr bool kCorrects = !Config::kIsRms && kUnitsOfLane * width > 32;

  const NormalizationArguments<Config>& all;
  const RowPlace& row_place;
  const Place& place;
  // Which of the block's teams, and which of the team's threads.
  const int number =
      Config::kIsInner ? (int)threadIdx.x / Config::kLanes : (int)threadIdx.x % Config::kTeams;
  const int lane =
      (int)(blockIdx.x % Config::kBlocks) * Config::kLanes +
      (Config::kIsInner ? (int)threadIdx.x % Config::kLanes : (int)threadIdx.x / Config::kTeams);
  const Index units = all.count / width;
  Affine affine[kPreloads ? kKept : 1];
  bool is_row;
  NormalizationPlace row;
  float kept[kKept][width];

  // Reads the scale and bias that all rows share.
  __device__ void preload() {
    if constexpr (kPreloads)
#pragma unroll
      for (int j = 0; j < kKept; ++j) {
        const Index unit = lane + j * kLanes;
        if (unit >= units) continue;
        const NormalizationPlace at = place(unit);
        affine[j].read(all, at.scale, at.bias);
      }
  }
  __device__ void begin(Index of_row) {
    is_row = of_row < all.rows;
    row = row_place(is_row ? of_row : 0);
  }
  __device__ void read(float (&v)[width], Index unit) const {
    const Access access = *(const Access*)(all.x + (row.x + place(unit).x));
#pragma unroll
    for (int q = 0; q < width; ++q) v[q] = load(access.at[q]);
  }
  // Calls take(values, unit, j) for each of the lane's accesses.
  template <class Take>
  __device__ void each(bool is_first, const Take& take) {
    if constexpr (kKeeps) {
#pragma unroll
      for (int j = 0; j < kKept; ++j) {
        const Index unit = lane + j * kLanes;
        if (is_row && unit < units) {
          if (is_first) read(kept[j], unit);
          take(kept[j], unit, j);
        }
      }
    } else {
#pragma unroll 4
      for (Index unit = lane; is_row && unit < units; unit += kLanes) {
        float v[width];
        read(v, unit);
        take(v, unit, 0);
      }
    }
  }
  __device__ float mean() {
    if constexpr (Config::kIsRms) return 0.0f;
    float sum = 0.0f;
    each(true, [&](const float(&v)[width], Index, int) {
#pragma unroll
      for (int q = 0; q < width; ++q) sum += v[q];
    });
    return sum_of_team<Config>(sum, 0) / (float)all.count;
  }
  // Corrects the mean.
  __device__ float variance(float& mean) {
    float squares = 0.0f, deviations = 0.0f;
    each(Config::kIsRms, [&](const float(&v)[width], Index, int) {
#pragma unroll
      for (int q = 0; q < width; ++q) {
        const float deviation = Config::kIsRms ? v[q] : v[q] - mean;
        squares += deviation * deviation;
        if constexpr (kCorrects) deviations += deviation;
      }
    });
    float variance = sum_of_team<Config>(squares, 1) / (float)all.count;
    if constexpr (kCorrects) {
      const float missed = sum_of_team<Config>(deviations, 0) / (float)all.count;
      mean += missed;
      variance -= missed * missed;
    }
    // The next row's first sum takes the same parts as this row's last one.
    if constexpr (Config::kBlocks > 1 && (Config::kIsRms || kCorrects)) sync_cluster();
    return variance;
  }
  __device__ void write(float mean, float factor, const Program& program) {
    each(false, [&](const float(&v)[width], Index unit, int j) {
      const NormalizationPlace at = place(unit);
      Affine own;
      if constexpr (kPreloads)
        own = affine[j];
      else
        own.read(all, row.scale + at.scale, row.bias + at.bias);
      float results[width];
#pragma unroll
      for (int q = 0; q < width; ++q) {
        const float deviation = Config::kIsRms ? v[q] : v[q] - mean;
        results[q] = own.apply(deviation * factor, q);
      }
      const Index to = row.x + at.x;
      store_normalized(all, results, to, program, program.read(Width<width>(), to));
    });
  }
};

template <int width, class Config, class RowPlace, class Place, class Program>
__device__ inline void normalize(NormalizationArguments<Config> all, const RowPlace& row_place,
                                 const Place& place, const Program& program) {
  constexpr int kBlocks = Config::kBlocks, kTeams = Config::kTeams;
  NormalizationTeam<width, Config, RowPlace, Place, Program> team{all, row_place, place};
  team.preload();
  // Before a block of the cluster begins, others cannot write its shared memory.
  if constexpr (kBlocks > 1) sync_cluster();
  all.wait();
  program.wait();
  // All threads run the same rounds, since they wait for each other.
  for (Index first = (Index)(blockIdx.x / kBlocks) * kTeams; first < all.rows;
       first += (Index)(gridDim.x / kBlocks) * kTeams) {
    team.begin(first + team.number);
    float mean = team.mean();
    const float variance = team.variance(mean);
    team.write(mean, 1.0f / sqrtf(variance + Config::kEpsilon), program);
  }
  // Others may still write the parts of a block that has no rows left.
  if constexpr (kBlocks > 1) sync_cluster();
}
