// The gates of an image's channels from the means of its channels, and the image times its gates.
//
// The kBlocks blocks of a cluster share an image. They are kSlices times kParts: a block has a
// slice of the channels, and a part of the pixels. It
// - adds up its part of its slice, and sends the sums to all blocks,
// - computes its rows of the first product from all sums, and sends them to all blocks,
// - computes the gates of its slice from all of these, and multiplies its part of the slice.
// Its rows of both matrices are on their way to shared memory before the image is there.
//
// The kernel is a template over a struct that the host generates:
//   Element, Weight             stored types of x and y, and of both matrices
//   HiddenBias, GateBias        stored types of the biases; void without one
//   kChannels, kHidden          rows and columns of the second matrix
//   kIsLast                     channels are neighbours in memory; else pixels are
//   kMultiplies                 y is x times the gates; else it is the gates
//   kThreads, kBlocks, kSlices  threads of a block, blocks of a cluster, and slices
//   kSlice                      channels of a slice
//   kKeepsWeights               a block's rows of the matrices have room in shared memory
//   kPixels                     pixels of an image; 0 where they differ
//   hidden(float), gate(float)  the activations
// Expects prelude.cuh.
#pragma once

#include "cluster.cuh"
#include "lane_reductions.cuh"
#include "tile_copies.cuh"

template <class Config>
struct SqueezeArguments {
  const typename Config::Element* x;
  const typename Config::Weight *reduce, *expand;
  const typename Config::HiddenBias* hidden_bias;
  const typename Config::GateBias* gate_bias;
  typename Config::Element* y;
  Index images, pixels;
};

template <class Config>
struct SqueezeLayout {
  typedef typename Config::Element Element;
  typedef typename Config::Weight Weight;
  static constexpr int kParts = Config::kBlocks / Config::kSlices;
  // Rows of the first matrix that a block has.
  static constexpr int kRows = (Config::kHidden + Config::kBlocks - 1) / Config::kBlocks;
  static constexpr int kOfAccess = 16 / (int)sizeof(Element);
  // Elements of x that an access has if its address allows that, and elements of a row of weights.
  static constexpr int kWidth =
      Config::kIsLast && (Config::kSlice % kOfAccess != 0 || Config::kChannels % kOfAccess != 0)
          ? 1
          : kOfAccess;
  static constexpr int width_of_row(int length) {
    return length % (16 / (int)sizeof(Weight)) == 0 ? 16 / (int)sizeof(Weight) : 1;
  }
  // Numbers in shared memory, one behind the other: all sums of each part, the first product's
  // results, the gates of the slice, and what the block's threads add up.
  static constexpr int kSums = 0, kResults = kParts * Config::kChannels;
  static constexpr int kGates = kResults + Config::kHidden;
  static constexpr int kThreadSums = kGates + Config::kSlice;
  static constexpr int kOfThreads = Config::kIsLast ? Config::kThreads * kOfAccess : 0;
  static constexpr int kNumbers =
      (kThreadSums + (kRows < kOfThreads ? kOfThreads : kRows) + 3) / 4 * 4;
  static constexpr int round_up(int count) {
    return (count * (int)sizeof(Weight) + 15) / 16 * 16 / (int)sizeof(Weight);
  }
  static constexpr int kReduceElements = round_up(kRows * Config::kChannels);
};

// What a block has of an image.
template <class Config>
struct SqueezeBlock {
  typedef SqueezeLayout<Config> Layout;
  int rank, part;
  int first_channel, channels;  // of the slice
  int first_row, rows;          // of the first matrix
  __device__ SqueezeBlock() {
    rank = (int)blockIdx.x % Config::kBlocks;
    part = rank / Config::kSlices;
    first_channel = rank % Config::kSlices * Config::kSlice;
    channels = clamp(Config::kChannels - first_channel, Config::kSlice);
    first_row = rank * Layout::kRows;
    rows = clamp(Config::kHidden - first_row, Layout::kRows);
  }
  __device__ static int clamp(int left, int most) {
    return left < 0 ? 0 : left < most ? left : most;
  }
};

// Starts to copy `count` elements to shared memory, in whole vectors.
template <int threads, bool is_aligned, class T>
__device__ inline void copy_weights(T* to, const T* from, int count) {
  constexpr int kVector = 16 / (int)sizeof(T);
  for (int i = (int)threadIdx.x * kVector; i < count; i += threads * kVector)
    copy_vector<is_aligned>(to + i, from + i, count - i);
}
template <int threads, class T>
__device__ inline void copy_weights(T* to, const T* from, int count) {
  if (is_aligned<T, 16 / (int)sizeof(T)>(from))
    copy_weights<threads, true>(to, from, count);
  else
    copy_weights<threads, false>(to, from, count);
}

// Starts to copy the block's rows of both matrices. They are constant, so the kernel calls it
// before it waits for earlier kernels.
template <class Config>
__device__ inline void copy_squeeze_weights(const typename Config::Weight* reduce,
                                            const typename Config::Weight* expand) {
  typedef SqueezeLayout<Config> Layout;
  typedef typename Config::Weight Weight;
  extern __shared__ uint4 shared[];
  if constexpr (Config::kBlocks > 1) arrive_in_cluster_early();
  if constexpr (Config::kKeepsWeights) {
    const SqueezeBlock<Config> block;
    Weight* const kept = (Weight*)((float*)shared + Layout::kNumbers);
    copy_weights<Config::kThreads>(kept, reduce + (Index)block.first_row * Config::kChannels,
                                   block.rows * Config::kChannels);
    copy_weights<Config::kThreads>(kept + Layout::kReduceElements,
                                   expand + (Index)block.first_channel * Config::kHidden,
                                   block.channels * Config::kHidden);
    end_copies();
  }
}

// A lane's part of the product of a row of weights and numbers in shared memory.
template <int lanes, int width, class T>
__device__ inline float multiply_row(const T* row, const float* numbers, int count, int lane) {
  float sum = 0.0f;
#pragma unroll 4
  for (int i = lane * width; i < count; i += lanes * width) {
    const auto weights = *(const Pack<T, width>*)(row + i);
#pragma unroll
    for (int e = 0; e < width; ++e) sum += load(weights.at[e]) * numbers[i + e];
  }
  return sum;
}
// Passes each of `count` rows' products to `use(row, product)` in the first of the `lanes` threads
// that share the row.
template <int threads, int lanes, int length, int width, class T, class Use>
__device__ inline void multiply_matrix(const T* matrix, int count, const float* numbers,
                                       const Use& use) {
  const int lane = (int)threadIdx.x % lanes;
  for (int first = 0; first < count; first += threads / lanes) {
    const int row = first + (int)threadIdx.x / lanes;
    float sum = 0.0f;
    if (row < count)
      sum = multiply_row<lanes, width>(matrix + (Index)row * length, numbers, length, lane);
    sum = reduce<Sum, lanes>(sum);
    if (row < count) use(row, sum, lane);
  }
}
template <int threads, int lanes, int length, int width, class T, class Use>
__device__ inline void multiply_weights(const T* matrix, int count, const float* numbers,
                                        const Use& use) {
  if (width > 1 && is_aligned<T, width>(matrix))
    multiply_matrix<threads, lanes, length, width>(matrix, count, numbers, use);
  else
    multiply_matrix<threads, lanes, length, 1>(matrix, count, numbers, use);
}

template <class Config, int width>
struct SqueezedImage {
  typedef SqueezeLayout<Config> Layout;
  typedef typename Config::Element Element;
  typedef Pack<Element, width> Elements;
  // Channels-last: vectors of a slice's channels, those that are read at once, and pixels that are
  // read at once.
  static constexpr int kVectors = Config::kIsLast ? Config::kSlice / width : 1;
  static constexpr int kAtOnce = kVectors < Config::kThreads ? kVectors : Config::kThreads;
  static constexpr int kLanes = Config::kThreads / kAtOnce;
  // Neighbouring threads that add up a channel's sums of all lanes.
  static constexpr int kAdders = 8;
  // Vectors that a thread keeps until it multiplies them; 0: it reads them again.
  static constexpr int kOfLane =
      (Config::kPixels + Layout::kParts * kLanes - 1) / (Layout::kParts * kLanes);
  static constexpr int kKept = Config::kIsLast && Config::kMultiplies &&
                                       kVectors <= Config::kThreads &&
                                       kOfLane * (int)sizeof(Elements) <= 64
                                   ? kOfLane
                                   : 0;

  Elements kept[kKept > 0 ? kKept : 1];
  const Element* x;
  Element* y;
  Index pixels, first_pixel, end_pixel;
  const SqueezeBlock<Config>& block;

  __device__ SqueezedImage(const SqueezeArguments<Config>& all, const SqueezeBlock<Config>& of,
                           Index image)
      : pixels(all.pixels), block(of) {
    // Linear, a part ends with a whole access.
    constexpr int kStep = Config::kIsLast ? 1 : width;
    const Index length = (pixels + Layout::kParts * kStep - 1) / (Layout::kParts * kStep) * kStep;
    first_pixel = of.part * length < pixels ? of.part * length : pixels;
    end_pixel = first_pixel + length < pixels ? first_pixel + length : pixels;
    const Index begin = image * Config::kChannels * pixels +
                        of.first_channel * (Config::kIsLast ? (Index)1 : pixels);
    x = all.x + begin, y = all.y + begin;
  }

  // Channels-last: calls use(channel, lane, pass) for the thread's vector in each pass.
  template <class Use>
  __device__ void each_vector(const Use& use) {
    const int at = (int)threadIdx.x % kAtOnce, lane = (int)threadIdx.x / kAtOnce;
    for (int first = 0; first < kVectors; first += kAtOnce)
      use((first + at) * width, lane, first * width);
  }
  // Calls use(pixel, number) for the lane's pixels. Only where vectors are kept the number is known
  // to the compiler.
  template <class Use>
  __device__ void each_pixel(int channel, int lane, const Use& use) {
    if (lane >= kLanes || channel >= block.channels) return;
    if constexpr (kKept > 0) {
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        const Index pixel = first_pixel + lane + i * kLanes;
        if (pixel < end_pixel) use(pixel, i);
      }
    } else {
#pragma unroll 8
      for (Index pixel = first_pixel + lane; pixel < end_pixel; pixel += kLanes) use(pixel, 0);
    }
  }

  // Writes the sums of the slice's channels to `sums`.
  __device__ void add_up(float* thread_sums, float* sums) {
    if constexpr (Config::kIsLast) {
      each_vector([&](int channel, int lane, int first) {
        float mine[width] = {};
        each_pixel(channel, lane, [&](Index pixel, int number) {
          const Elements elements = *(const Elements*)(x + pixel * Config::kChannels + channel);
          if constexpr (kKept > 0) kept[number] = elements;
#pragma unroll
          for (int e = 0; e < width; ++e) mine[e] += load(elements.at[e]);
        });
        __syncthreads();
        if (lane < kLanes)
#pragma unroll
          for (int e = 0; e < width; ++e)
            thread_sums[lane * kAtOnce * width + channel - first + e] = mine[e];
        __syncthreads();
        const int adder = (int)threadIdx.x % kAdders;
        for (int begin = 0; begin < kAtOnce * width; begin += Config::kThreads / kAdders) {
          const int at = begin + (int)threadIdx.x / kAdders;
          float sum = 0.0f;
          if (at < kAtOnce * width)
            for (int i = adder; i < kLanes; i += kAdders)
              sum += thread_sums[i * kAtOnce * width + at];
          sum = reduce<Sum, kAdders>(sum);
          if (adder == 0 && at < kAtOnce * width && first + at < block.channels)
            sums[first + at] = sum;
        }
      });
    } else {
      for (int channel = (int)threadIdx.x / 32; channel < block.channels;
           channel += Config::kThreads / 32) {
        float sum = 0.0f;
#pragma unroll 4
        for (Index pixel = first_pixel + (int)threadIdx.x % 32 * width; pixel < end_pixel;
             pixel += 32 * width) {
          const Elements elements = *(const Elements*)(x + channel * pixels + pixel);
#pragma unroll
          for (int e = 0; e < width; ++e) sum += load(elements.at[e]);
        }
        sum = reduce<Sum, 32>(sum);
        if (threadIdx.x % 32 == 0) sums[channel] = sum;
      }
    }
  }

  template <class Gate>
  __device__ void store_product(Index at, Elements elements, const Gate& gate) const {
#pragma unroll
    for (int e = 0; e < width; ++e) elements.at[e] = store<Element>(load(elements.at[e]) * gate(e));
    *(Elements*)(y + at) = elements;
  }
  __device__ void multiply(const float* gates) {
    if constexpr (Config::kIsLast) {
      each_vector([&](int channel, int lane, int) {
        float mine[width];
#pragma unroll
        for (int e = 0; e < width; ++e)
          mine[e] = channel + e < Config::kSlice ? gates[channel + e] : 0.0f;
        each_pixel(channel, lane, [&](Index pixel, int number) {
          const Index at = pixel * Config::kChannels + channel;
          const auto gate = [&](int e) { return mine[e]; };
          if constexpr (kKept > 0)
            store_product(at, kept[number], gate);
          else
            store_product(at, *(const Elements*)(x + at), gate);
        });
      });
    } else {
      for (int channel = (int)threadIdx.x / 32; channel < block.channels;
           channel += Config::kThreads / 32)
#pragma unroll 4
        for (Index pixel = first_pixel + (int)threadIdx.x % 32 * width; pixel < end_pixel;
             pixel += 32 * width) {
          const Index at = channel * pixels + pixel;
          store_product(at, *(const Elements*)(x + at), [&](int) { return gates[channel]; });
        }
    }
  }
};

template <class T>
__device__ inline float bias_of(const T* bias, int row) {
  return load(bias[row]);
}
__device__ inline float bias_of(const void*, int) { return 0.0f; }

// Sends `count` numbers to `place` in all blocks. Neighbours go together.
template <int threads, int blocks>
__device__ inline void send_in_cluster(float* place, const float* numbers, int count) {
  for (int i = (int)threadIdx.x; i < count * blocks; i += threads) {
    const int rank = i / count, at = i % count;
    if constexpr (blocks == 1)
      place[at] = numbers[at];
    else
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(
                       place_in_block(shared_address(place + at), rank)),
                   "f"(numbers[at])
                   : "memory");
  }
}
template <int blocks>
__device__ inline void sync_blocks() {
  if constexpr (blocks > 1)
    sync_cluster();
  else
    __syncthreads();
}

template <class Config, int width>
__device__ inline void squeeze_and_excite(const SqueezeArguments<Config>& all) {
  typedef SqueezeLayout<Config> Layout;
  typedef typename Config::Weight Weight;
  constexpr int kThreads = Config::kThreads, kBlocks = Config::kBlocks;
  constexpr int kLanes = 32, kGateLanes = 8;
  extern __shared__ uint4 shared[];
  float* const numbers = (float*)shared;
  float *const sums = numbers + Layout::kSums, *const results = numbers + Layout::kResults;
  float *const gates = numbers + Layout::kGates, *const thread_sums = numbers + Layout::kThreadSums;
  const SqueezeBlock<Config> block;
  const Weight* const kept = (const Weight*)(numbers + Layout::kNumbers);
  const Weight* const reduce_rows =
      Config::kKeepsWeights ? kept : all.reduce + (Index)block.first_row * Config::kChannels;
  const Weight* const expand_rows = Config::kKeepsWeights
                                        ? kept + Layout::kReduceElements
                                        : all.expand + (Index)block.first_channel * Config::kHidden;
  // Other blocks' shared memory can be written only once these blocks run.
  if constexpr (kBlocks > 1) wait_for_cluster();
  for (Index image = blockIdx.x / kBlocks; image < all.images; image += gridDim.x / kBlocks) {
    SqueezedImage<Config, width> part(all, block, image);
    part.add_up(thread_sums, gates);
    __syncthreads();
    send_in_cluster<kThreads, kBlocks>(sums + block.part * Config::kChannels + block.first_channel,
                                       gates, block.channels);
    if constexpr (Config::kKeepsWeights) wait_for_copies<0>();
    sync_blocks<kBlocks>();

    if constexpr (Layout::kParts > 1) {
      for (int i = (int)threadIdx.x; i < Config::kChannels; i += kThreads)
#pragma unroll
        for (int p = 1; p < Layout::kParts; ++p) sums[i] += sums[p * Config::kChannels + i];
      __syncthreads();
    }
    const float of_sum = 1.0f / (float)all.pixels;
    multiply_weights<kThreads, kLanes, Config::kChannels, Layout::width_of_row(Config::kChannels)>(
        reduce_rows, block.rows, sums, [&](int row, float sum, int lane) {
          const float y = sum * of_sum + bias_of(all.hidden_bias, block.first_row + row);
          if (lane == 0) thread_sums[row] = Config::hidden(y);
        });
    __syncthreads();
    send_in_cluster<kThreads, kBlocks>(results + block.first_row, thread_sums, block.rows);
    sync_blocks<kBlocks>();

    multiply_weights<kThreads, kGateLanes, Config::kHidden, Layout::width_of_row(Config::kHidden)>(
        expand_rows, block.channels, results, [&](int row, float sum, int lane) {
          const float y = sum + bias_of(all.gate_bias, block.first_channel + row);
          if (lane == 0) gates[row] = Config::gate(y);
        });
    __syncthreads();
    if constexpr (Config::kMultiplies) {
      part.multiply(gates);
    } else if (block.part == 0) {
      typename Config::Element* const to = all.y + image * Config::kChannels + block.first_channel;
      for (int i = (int)threadIdx.x; i < block.channels; i += kThreads)
        to[i] = store<typename Config::Element>(gates[i]);
    }
    __syncthreads();
  }
}
