// Makes each output element from a window of an input [N, C, spatial...].
//
// Each kernel is a template over a struct that the host writes:
//   Element         the type in memory
//   Value           the type of a loaded element
//   least()         the least Value, which is the maximum of an empty window
//   kAxes           spatial axes
//   kIsChannelsLast whether channels are neighbours in memory
//   kLanes          threads of a window: 1, a warp, or the block
//   kThreads        threads of a block
//   kInside         bit i: all windows are inside the input along axis i
//   kIsRoundedUp    whether windows may reach beyond the padding
// Expects prelude.cuh.
#pragma once

#include "lane_reductions.cuh"

// An axis has `extent` elements in the input, with padding before and behind them, and `count`
// windows, `stride` apart. The `window` elements of a window are `dilation` apart.
struct PoolingAxis {
  Index extent, count, window, stride, dilation, before, behind;
};
template <class Config>
struct PoolingWindows {
  static constexpr int kAxes = Config::kAxes, kLanes = Config::kLanes;
  Index outputs, channels, taps;
  PoolingAxis axes[kAxes];

  // A window: its image and channel, together or channels-last apart, and its first position.
  struct Window {
    Index plane, channel, start[kAxes];
  };
  __device__ Window window(Index at) const {
    Window found;
    found.channel = 0;
    if constexpr (Config::kIsChannelsLast) {
      found.channel = (Index)((UIndex)at % (UIndex)channels);
      at = (Index)((UIndex)at / (UIndex)channels);
    }
    found.plane = find_starts<kAxes - 1>((UIndex)at, found.start);
    return found;
  }
  // Calls take(place in the input, positions along the axes) for a window's elements in the input.
  template <class Take>
  __device__ void visit(const Window& window, const Take& take) const {
    Index position[kAxes];
    if constexpr (kLanes == 1) {
      visit_axis<0>(window, window.plane, position, take);
    } else {
      for (Index tap = (Index)threadIdx.x % kLanes; tap < taps; tap += kLanes) {
        find_positions<kAxes - 1>((UIndex)tap, window, position);
        Index place = window.plane;
        if (find_place<0>(position, place)) take(memory_place(place, window), position);
      }
    }
  }
  // The number of the window's elements in the input or the padding around it.
  __device__ Index padded_count(const Window& window) const {
    if constexpr (Config::kIsRoundedUp)
      return padded_along<0>(window);
    else
      return taps;
  }

 private:
  // Functions of an axis call themselves for the next one. A loop over axes would hide constants
  // from the compiler.
  static constexpr __device__ bool is_inside(int axis) {
    return (Config::kInside >> axis & 1) != 0;
  }
  template <int axis>
  __device__ Index find_starts(UIndex rest, Index (&start)[kAxes]) const {
    if constexpr (axis < 0) {
      return (Index)rest;
    } else {
      const PoolingAxis& along = axes[axis];
      start[axis] = (Index)(rest % (UIndex)along.count) * along.stride - along.before;
      return find_starts<axis - 1>(rest / (UIndex)along.count, start);
    }
  }
  template <int axis>
  __device__ void find_positions(UIndex tap, const Window& window, Index (&position)[kAxes]) const {
    if constexpr (axis >= 0) {
      const PoolingAxis& along = axes[axis];
      position[axis] = window.start[axis] + (Index)(tap % (UIndex)along.window) * along.dilation;
      find_positions<axis - 1>(tap / (UIndex)along.window, window, position);
    }
  }
  // Whether the position is in the input, where it becomes `place`.
  template <int axis>
  __device__ bool find_place(const Index (&position)[kAxes], Index& place) const {
    if constexpr (axis == kAxes) {
      return true;
    } else {
      const Index at = position[axis], extent = axes[axis].extent;
      if (!is_inside(axis) && (at < 0 || at >= extent)) return false;
      place = place * extent + at;
      return find_place<axis + 1>(position, place);
    }
  }
  template <int axis>
  __device__ Index padded_along(const Window& window) const {
    if constexpr (axis == kAxes) {
      return 1;
    } else {
      const PoolingAxis& along = axes[axis];
      const Index begun =
          (along.extent + along.behind - window.start[axis] + along.dilation - 1) / along.dilation;
      return (begun < 1              ? 1
              : begun < along.window ? begun
                                     : along.window) *
             padded_along<axis + 1>(window);
    }
  }
  __device__ Index memory_place(Index place, const Window& window) const {
    return Config::kIsChannelsLast ? place * channels + window.channel : place;
  }
  template <int axis, class Take>
  __device__ void visit_axis(const Window& window, Index place, Index (&position)[kAxes],
                             const Take& take) const {
    if constexpr (axis == kAxes) {
      take(memory_place(place, window), position);
    } else {
      const PoolingAxis& along = axes[axis];
      for (Index k = 0; k < along.window; ++k) {
        const Index at = window.start[axis] + k * along.dilation;
        if (!is_inside(axis) && at < 0) continue;
        if (!is_inside(axis) && at >= along.extent) break;
        position[axis] = at;
        visit_axis<axis + 1>(window, place * along.extent + at, position, take);
      }
    }
  }
};
// Calls reduce(number of an output, its window) in all lanes of the window.
template <class Config, class Reduce>
__device__ inline void each_window(const PoolingWindows<Config>& all, const Reduce& reduce) {
  constexpr int kAtOnce = Config::kThreads / Config::kLanes;
  for (Index at = (Index)blockIdx.x * kAtOnce + (Index)threadIdx.x / Config::kLanes;
       at < all.outputs; at += (Index)gridDim.x * kAtOnce)
    reduce(at, all.window(at));
}

// The maximum, the mean, or a blend of both. In Config:
//   kTakesMost, kTakesMean  what is wanted
//   kSkipsPadding           whether the mean is that of the elements in the input
//   kBlend                  the mean's share in a blend
template <class Config>
__device__ inline void pool(const PoolingWindows<Config>& all, const typename Config::Element* x,
                            typename Config::Element* y) {
  typedef typename Config::Value Value;
  typedef typename PoolingWindows<Config>::Window Window;
  constexpr int kLanes = Config::kLanes;
  each_window(all, [&](Index at, const Window& window) {
    Value most = Config::least();
    float sum = 0.0f, mean = 0.0f;
    int met = 0;
    all.visit(window, [&](Index place, const Index(&)[Config::kAxes]) {
      const Value value = load(x[place]);
      if constexpr (Config::kTakesMost) most = Most::of(most, value);
      if constexpr (Config::kTakesMean) sum += value, ++met;
    });
    if constexpr (Config::kTakesMost) most = reduce<Most, kLanes>(most);
    if constexpr (Config::kTakesMean) {
      sum = reduce<Sum, kLanes>(sum);
      if constexpr (Config::kSkipsPadding) {
        met = reduce<Sum, kLanes>(met);
        mean = sum / (float)(met > 0 ? met : 1);
      } else {
        mean = sum / (float)all.padded_count(window);
      }
    }
    if (kLanes > 1 && threadIdx.x % kLanes != 0) return;
    if constexpr (!Config::kTakesMean)
      y[at] = store<typename Config::Element>(most);
    else if constexpr (!Config::kTakesMost)
      y[at] = store<typename Config::Element>(mean);
    else
      y[at] =
          store<typename Config::Element>((1.0f - Config::kBlend) * most + Config::kBlend * mean);
  });
}

// The maximum and its place in the input. In Config:
//   kIsColumnMajor  whether places count the first spatial axis first
template <class Config, class Number>
__device__ inline void pool_with_indices(const PoolingWindows<Config>& all,
                                         const typename Config::Element* x,
                                         typename Config::Element* y, Number* indices) {
  typedef typename Config::Value Value;
  typedef typename PoolingWindows<Config>::Window Window;
  each_window(all, [&](Index at, const Window& window) {
    Index index = -1;
    Value most = Config::least();
    all.visit(window, [&](Index place, const Index(&position)[Config::kAxes]) {
      const Value value = load(x[place]);
      // Once `most` is NaN it stays: the comparison is skipped.
      if (!(index < 0 || (most == most && !(value <= most)))) return;
      most = value, index = place;
      if constexpr (Config::kIsColumnMajor) {
        Index pixels = 1;
        index = 0;
#pragma unroll
        for (int i = Config::kAxes - 1; i >= 0; --i)
          index = index * all.axes[i].extent + position[i], pixels *= all.axes[i].extent;
        index += window.plane * pixels;
      }
    });
    y[at] = store<typename Config::Element>(most);
    indices[at] = index < 0 ? 0 : index;
  });
}

// The p-norm. It uses double precision, in which squares of FP32 do not overflow. In Config:
//   kP  the order of the norm
template <class Config>
__device__ inline void pool_norms(const PoolingWindows<Config>& all,
                                  const typename Config::Element* x, typename Config::Element* y) {
  typedef typename PoolingWindows<Config>::Window Window;
  constexpr double kP = Config::kP;
  each_window(all, [&](Index at, const Window& window) {
    double sum = 0;
    all.visit(window, [&](Index place, const Index(&)[Config::kAxes]) {
      const double value = fabs((double)load(x[place]));
      sum += kP == 1 ? value : kP == 2 ? value * value : pow(value, kP);
    });
    const double norm = kP == 1 ? sum : kP == 2 ? sqrt(sum) : pow(sum, 1.0 / kP);
    y[at] = store<typename Config::Element>((float)norm);
  });
}
