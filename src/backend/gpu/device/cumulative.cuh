// The running total of a cumulative sum or product.
// Expects prelude.cuh.
#pragma once

// Integers wrap around, which C++ defines only for unsigned ones.
template <class Value, class Unsigned, bool is_product>
struct RunningTotal {
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
struct RunningTotal<float, float, true> {
  float all = 1.0f, rest = 0.0f;
  __device__ void take(float x) {
    const float product = __fmul_rn(all, x);
    rest = fmaf(rest, x, fmaf(all, x, -product));
    all = product;
  }
  __device__ float value() const { return rest - rest == 0.0f ? all + rest : all; }
};
template <>
struct RunningTotal<float, float, false> {
  float all = 0.0f, rest = 0.0f;
  __device__ void take(float x) {
    const float sum = __fadd_rn(all, x), part = __fsub_rn(sum, all);
    const float lost = __fadd_rn(__fsub_rn(all, __fsub_rn(sum, part)), __fsub_rn(x, part));
    rest = __fadd_rn(rest, lost);
    all = sum;
  }
  __device__ float value() const { return rest - rest == 0.0f ? all + rest : all; }
};
