// Cumulative sums and products: each element becomes the total of the elements up to it.
//
// The kernels are templates over a struct that the host writes:
//   Element       the type in memory
//   Value         the type of a loaded element
//   kIsProduct    whether elements are multiplied, else added up; for cumulate_lines()
//   kIsExclusive  whether an element does not belong to its own total
//   kIsReversed   whether totals begin at the ends of lines
//   kThreads      threads of a block
// Expects prelude.cuh.
#pragma once

// Integers wrap around, which C++ defines only for unsigned ones.
template <class Value, bool is_product>
struct RunningTotal {
  typedef typename Wrapping<Value>::Type Unsigned;
  Value all = is_product;
  __device__ void take(Value x) {
    all = (Value)(is_product ? (Unsigned)all * (Unsigned)x : (Unsigned)all + (Unsigned)x);
  }
  __device__ Value value() const { return all; }
};

// For floats, `rest` collects the rounding errors: of sums by the two-sum of D. E. Knuth (The Art
// of Computer Programming 2, 4.2.2), of products by the fused multiply-add. An infinite total has
// no valid rest.
template <>
struct RunningTotal<float, true> {
  float all = 1.0f, rest = 0.0f;
  __device__ void take(float x) {
    const float product = __fmul_rn(all, x);
    rest = fmaf(rest, x, fmaf(all, x, -product));
    all = product;
  }
  __device__ float value() const { return rest - rest == 0.0f ? all + rest : all; }
};
template <>
struct RunningTotal<float, false> {
  float all = 0.0f, rest = 0.0f;
  __device__ void take(float x) {
    const float sum = __fadd_rn(all, x), part = __fsub_rn(sum, all);
    const float lost = __fadd_rn(__fsub_rn(all, __fsub_rn(sum, part)), __fsub_rn(x, part));
    rest = __fadd_rn(rest, lost);
    all = sum;
  }
  __device__ float value() const { return rest - rest == 0.0f ? all + rest : all; }
};

// A line has `length` elements, which are `pitch` apart. The lines of x may be those of y.
template <class Config>
struct CumulativeArguments {
  typedef typename Config::Element Element;
  const Element* x;
  Element* y;
  Index lines, length, pitch;

  __device__ Index nth(Index k) const { return Config::kIsReversed ? length - 1 - k : k; }
};
// One thread has each line, so neighbouring threads read neighbours.
template <class Config>
__device__ inline void cumulate_lines(const CumulativeArguments<Config>& all) {
  typedef typename Config::Element Element;
  for (Index line = first_index(); line < all.lines; line += index_step()) {
    const Index first = line / all.pitch * (all.length * all.pitch) + line % all.pitch;
    RunningTotal<typename Config::Value, Config::kIsProduct> total;
    for (Index k = 0; k < all.length; ++k) {
      const Index at = first + all.nth(k) * all.pitch;
      const auto value = load(all.x[at]);
      if constexpr (!Config::kIsExclusive) total.take(value);
      all.y[at] = store<Element>(total.value());
      if constexpr (Config::kIsExclusive) total.take(value);
    }
  }
}
// The sum of the lanes up to the thread's own.
template <class Value>
__device__ inline Value sum_up_to_lane(Value value) {
  typedef typename Wrapping<Value>::Type Unsigned;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Value other = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value = (Value)((Unsigned)value + (Unsigned)other);
  }
  return value;
}
// One block has each line, and takes as many neighbours at once as it has threads.
template <class Config>
__device__ inline void sum_up_lines(const CumulativeArguments<Config>& all) {
  typedef typename Config::Value Value;
  typedef RunningTotal<Value, false> Total;
  constexpr int kWarps = Config::kThreads / 32;
  __shared__ Value sums[kWarps];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  for (Index line = (Index)blockIdx.x; line < all.lines; line += (Index)gridDim.x) {
    Total before;
    for (Index done = 0; done < all.length; done += Config::kThreads) {
      const Index k = done + (Index)threadIdx.x, at = line * all.length + all.nth(k);
      Value sum = 0;
      if (k < all.length) sum = load(all.x[at]);
      sum = sum_up_to_lane(sum);
      Value sum_before = __shfl_up_sync(0xffffffffu, sum, 1);
      if (lane == 0) sum_before = 0;
      __syncthreads();  // the previous sums have been read
      if (lane == 31) sums[warp] = sum;
      __syncthreads();
      Total total = before;
      for (int i = 0; i < kWarps; ++i) {
        if (i == warp) before = total;
        total.take(sums[i]);
      }
      before.take(Config::kIsExclusive ? sum_before : sum);
      if (k < all.length) all.y[at] = store<typename Config::Element>(before.value());
      before = total;
    }
  }
}
