// A sum that keeps what rounding loses.
#pragma once

// The two-sum of D. E. Knuth (The Art of Computer Programming 2, 4.2.2): `rest` collects what the
// sums lose to rounding.
struct Total {
  float sum, rest;
};
__device__ inline Total neutral() { return Total{0.0f, 0.0f}; }
__device__ inline float combine(float x, float y) { return x + y; }
__device__ inline void add(Total& total, float x) {
  const float sum = __fadd_rn(total.sum, x), part = __fsub_rn(sum, total.sum);
  const float lost = __fadd_rn(__fsub_rn(total.sum, __fsub_rn(sum, part)), __fsub_rn(x, part));
  total.sum = sum;
  total.rest = __fadd_rn(total.rest, lost);
}
__device__ inline void merge(Total& total, const Total& other) {
  add(total, other.sum);
  total.rest += other.rest;
}
__device__ inline Total exchange(const Total& total, int distance) {
  return Total{__shfl_xor_sync(0xffffffffu, total.sum, distance),
               __shfl_xor_sync(0xffffffffu, total.rest, distance)};
}
// Of infinities no rest is known.
__device__ inline float value_of(const Total& total) {
  return total.sum - total.sum == 0.0f ? total.sum + total.rest : total.sum;
}
