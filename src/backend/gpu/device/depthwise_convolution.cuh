// Depthwise convolutions, channels last. A thread has kPack neighbouring channels of kPixels pixels
// in a row. A block's weights lie in shared memory by taps, with its bias behind them. Constant
// ones are copied there while the previous kernel ends.
//
// The kernel is a template over a struct that the host writes:
//   Input, Weight, Bias, Output  the types in memory
//   kPack, kPixels               channels and pixels of a thread
//   kLanes, kWorkers             threads of a block with neighbouring channels; with the same ones
//   kLength                      floats of a tap's weights in shared memory
//   kTaps, kRow                  taps of a window, and of its row
//   kStride, kDilation           along a row
//   kChannels                    channels of x
//   kAxes, kIsTransposed         see windows.cuh
//   kHasBias                     whether there is a bias
//   kIsConstant                  whether bias and weights are constants
// Expects prelude.cuh.
#pragma once

#include "windows.cuh"

template <int count, bool is_aligned, class T>
__device__ inline Pack<T, count> read_pack(const T* from) {
  if constexpr (is_aligned) return *(const Pack<T, count>*)from;
  Pack<T, count> pack;
#pragma unroll
  for (int i = 0; i < count; ++i) pack.at[i] = from[i];
  return pack;
}
// The pack, or zeros. It is chosen by words: the compiler splits packs that are chosen by elements
// into registers of an element each.
template <int count, bool is_aligned, class T>
__device__ inline Pack<T, count> read_pack_if(bool is_there, const T* from) {
  constexpr int kWords = sizeof(Pack<T, count>) / 4;
  union Words {
    unsigned words[kWords];
    Pack<T, count> pack;
  } result = {};
  if (is_there) {
    Words read;
    read.pack = read_pack<count, is_aligned>(from);
#pragma unroll
    for (int i = 0; i < kWords; ++i) result.words[i] = read.words[i];
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) asm("" : "+r"(result.words[i]));
  return result.pack;
}
template <int count, class T>
__device__ inline Pack<T, count> read_pack(const T* from) {
  return is_aligned<T, count>(from) ? read_pack<count, true>(from) : read_pack<count, false>(from);
}
template <int count, class T>
__device__ inline void write_pack(T* to, const Pack<T, count>& pack) {
  if (is_aligned<T, count>(to)) {
    *(Pack<T, count>*)to = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = pack.at[i];
}

template <class Config>
struct DepthwiseOperands {
  const typename Config::Input* x;
  const typename Config::Weight* weights;
  const typename Config::Bias* bias;
};
// An image of x has `image` elements. Of a row's `width` pixels, `of_row` threads have kPixels
// each. `groups` threads have the same channels, and `chunks` blocks the same pixels.
template <class Config>
struct DepthwiseArguments {
  Windows<Config> windows;
  Index image, width, of_row, groups, chunks, tasks;
};

// The convolution of one row of x with one row of taps.
template <class Config>
struct DepthwiseRow {
  typedef typename Config::Input Input;
  static constexpr int kPack = Config::kPack, kPixels = Config::kPixels, kRow = Config::kRow;
  static constexpr int kStride = Config::kStride, kDilation = Config::kDilation;
  // A thread loads kAtOnce positions at a time.
  static constexpr int kAtOnce = 8;
  // The tap that multiplies position `at` of a row for pixel `p`; -1 where there is none.
  __device__ static constexpr int tap_of(int at, int p) {
    const int distance = at - p * kStride;
    return distance >= 0 && distance % kDilation == 0 && distance / kDilation < kRow
               ? distance / kDilation
               : -1;
  }
  // The positions that taps use, in their order.
  struct Positions {
    int count, at[kPixels * kRow];
  };
  __device__ static constexpr Positions positions() {
    Positions all{};
    for (int last = -1;;) {
      int next = -1;
      for (int p = 0; p < kPixels; ++p)
        for (int tap = 0; tap < kRow; ++tap) {
          const int at = p * kStride + tap * kDilation;
          if (at > last && (next < 0 || at < next)) next = at;
        }
      if (next < 0) return all;
      all.at[all.count++] = last = next;
    }
  }
  // Adds the products of a row of taps. `x` is the row's beginning, `start` the position at which
  // the first window begins. `is_aligned`: all packs of x are. A branch for each pack would keep
  // the loads from being in flight together.
  template <bool is_aligned>
  __device__ static void add(float (&sums)[kPixels][kPack], const Input* x, Index start,
                             Index length, Index step, const float* weights) {
    constexpr Positions kAll = positions();
#pragma unroll
    for (int first = 0; first < kAll.count; first += kAtOnce) {
      Pack<Input, kPack> packs[kAtOnce];
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        if (first + q >= kAll.count) break;
        const Index at = start + kAll.at[first + q];
        packs[q] = read_pack_if<kPack, is_aligned>((UIndex)at < (UIndex)length, x + at * step);
      }
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q)
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          const int tap = first + q < kAll.count ? tap_of(kAll.at[first + q], p) : -1;
          if (tap < 0) continue;
#pragma unroll
          for (int i = 0; i < kPack; i += 4) {
            const Pack<float, 4> four =
                *(const Pack<float, 4>*)(weights + tap * Config::kLength + i * Config::kLanes);
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[p][i + e] += load(packs[q].at[i + e]) * four.at[e];
          }
        }
    }
  }
};

// Where the weight of a lane's i-th channel lies among those of a tap. A thread reads four floats
// at once, and its neighbours the next ones, so that all come from different banks.
template <class Config>
__device__ inline unsigned weight_place(unsigned lane, unsigned i) {
  return (i / 4 * Config::kLanes + lane) * 4 + i % 4;
}
template <class Config>
__device__ inline unsigned weight_place(unsigned channel) {
  return weight_place<Config>(channel / Config::kPack, channel % Config::kPack);
}

// Copies the weights and the bias of a block's channels to shared memory.
template <class Config>
__device__ inline void copy_weights(const DepthwiseOperands<Config>& operands, Index first_channel,
                                    int count, float* to) {
  constexpr int kPack = Config::kPack, kTaps = Config::kTaps, kLength = Config::kLength;
  constexpr int kThreads = Config::kLanes * Config::kWorkers;
#pragma unroll 4
  for (unsigned i = threadIdx.x * kPack; i < (unsigned)count * kTaps; i += kThreads * kPack) {
    const auto pack = read_pack<kPack>(operands.weights + first_channel * kTaps + i);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      to[(i + e) % kTaps * kLength + weight_place<Config>((i + e) / kTaps)] = load(pack.at[e]);
  }
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < (unsigned)count; i += kThreads)
    to[kTaps * kLength + weight_place<Config>(i)] =
        Config::kHasBias ? load(operands.bias[first_channel + i]) : 0.0f;
}

// Adds the products of all rows of taps. `x` is the first pixel of the image, `start` where the
// first window begins.
template <class Config, bool is_aligned>
__device__ inline void add_rows(float (&sums)[Config::kPixels][Config::kPack],
                                const Windows<Config>& windows, const Index (&start)[Config::kAxes],
                                const typename Config::Input* x, const float* weights) {
  constexpr int kTaps = Config::kTaps, kRow = Config::kRow;
  // Rows with code of their own.
  constexpr int kUnroll = is_aligned && kTaps <= 49 ? kTaps / kRow : 1;
#pragma unroll kUnroll
  for (int line = 0; line < kTaps / kRow; ++line) {
    const Index place = windows.find_row(start, line);
    if (place >= 0)
      DepthwiseRow<Config>::template add<is_aligned>(
          sums, x + place * Config::kChannels, start[Config::kAxes - 1],
          windows.x[Config::kAxes - 1], Config::kChannels, weights + line * kRow * Config::kLength);
  }
}

// Functions that the host writes. They capture the kernel's parameters.
template <class Operands, class Wait, class Read, class Make>
struct DepthwiseProgram {
  Operands operands;  // (): returns DepthwiseOperands
  Wait wait;          // (): waits for earlier kernels
  Read read;  // (at, channel): returns other inputs of kPack neighbours from element number `at` on
  Make make;  // (inputs, at, i, sum): computes the i-th result of these neighbours
};
template <class Operands, class Wait, class Read, class Make>
DepthwiseProgram(Operands, Wait, Read, Make) -> DepthwiseProgram<Operands, Wait, Read, Make>;

template <class Config, class Program>
__device__ inline void convolve_depthwise(const DepthwiseArguments<Config>& all,
                                          const Program& program, typename Config::Output* y) {
  typedef typename Config::Output Output;
  constexpr int kLanes = Config::kLanes, kPack = Config::kPack, kPixels = Config::kPixels;
  constexpr int kTaps = Config::kTaps, kLength = Config::kLength;
  constexpr Index kChannels = Config::kChannels;
  alignas(16) __shared__ float weights[(kTaps + 1) * kLength];
  const int lane = (int)threadIdx.x % kLanes, worker = (int)threadIdx.x / kLanes;
  Index loaded = -1;
  for (Index task = blockIdx.x; task < all.tasks; task += gridDim.x) {
    const bool is_first = task == blockIdx.x;
    const Index first_channel = task % all.chunks * (kLanes * kPack);
    const int count = kChannels - first_channel < kLanes * kPack ? (int)(kChannels - first_channel)
                                                                 : kLanes * kPack;
    if (!Config::kIsConstant && is_first) program.wait();
    if (first_channel != loaded) {
      if (!is_first) __syncthreads();
      copy_weights<Config>(program.operands(), first_channel, count, weights);
      __syncthreads();
      loaded = first_channel;
    }
    if (Config::kIsConstant && is_first) program.wait();
    const Index group = task / all.chunks * Config::kWorkers + worker;
    if (group >= all.groups || lane * kPack >= count) continue;
    const Index channel = first_channel + lane * kPack;
    const Index row = group / all.of_row, first = group % all.of_row * kPixels;
    Index start[Config::kAxes];
    const Index image = all.windows.begin(row * all.width + first, start);
    const auto* const from = program.operands().x + image * all.image + channel;
    float sums[kPixels][kPack];
#pragma unroll
    for (int p = 0; p < kPixels; ++p)
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        sums[p][i] = weights[kTaps * kLength + weight_place<Config>(lane, i)];
    // Packs of all pixels are aligned as those of the first one.
    if (is_aligned<typename Config::Input, kPack>(from))
      add_rows<Config, true>(sums, all.windows, start, from, weights + lane * 4);
    else
      add_rows<Config, false>(sums, all.windows, start, from, weights + lane * 4);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      if (first + p >= all.width) continue;
      const Index at = (row * all.width + first + p) * kChannels + channel;
      const auto inputs = program.read(at, channel);
      Pack<Output, kPack> results;
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        results.at[i] = store<Output>(program.make(inputs, at, i, sums[p][i]));
      write_pack(y + at, results);
    }
  }
}
