// What is added up, or multiplied, so far.
// Expects prelude.cuh.
#pragma once

// Integers wrap around, which is defined for unsigned ones.
template <class Value, class Unsigned, bool is_product>
struct RunningTotal {
  Value all = is_product;
  __device__ void take(Value x) {
    all = (Value)(is_product ? (Unsigned)all * (Unsigned)x : (Unsigned)all + (Unsigned)x);
  }
  __device__ Value value() const { return all; }
};

// Of floats `rest` collects what is lost to rounding: sums by the two-sum of D. E. Knuth (The Art
// of Computer Programming 2, 4.2.2), products by the fused operation. Of infinities no rest is
// known.
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
