// Boxes and how much of them they share. Rounding must not depend on what the compiler fuses: a box
// at the threshold is dropped or not.
// Expects kCenters: boxes are centres and sizes, else two corners.
#pragma once

struct Box {
  float low_x, low_y, high_x, high_y;
};
__device__ inline float area(const Box& a) {
  return __fmul_rn(__fsub_rn(a.high_x, a.low_x), __fsub_rn(a.high_y, a.low_y));
}
__device__ inline float overlap(const Box& a, const Box& b) {
  const float width =
      __fsub_rn(b.high_x < a.high_x ? b.high_x : a.high_x, a.low_x < b.low_x ? b.low_x : a.low_x);
  const float height =
      __fsub_rn(b.high_y < a.high_y ? b.high_y : a.high_y, a.low_y < b.low_y ? b.low_y : a.low_y);
  if (!(width > 0) || !(height > 0)) return 0;
  const float shared = __fmul_rn(width, height);
  return __fdiv_rn(shared, __fsub_rn(__fadd_rn(area(a), area(b)), shared));
}
template <class T>
__device__ inline Box box_at(const T* at) {
  const float a = load(at[0]), b = load(at[1]), c = load(at[2]), d = load(at[3]);
  if (kCenters)
    return Box{__fsub_rn(a, c / 2), __fsub_rn(b, d / 2), __fadd_rn(a, c / 2), __fadd_rn(b, d / 2)};
  return Box{c < a ? c : a, d < b ? d : b, a < c ? c : a, b < d ? d : b};
}
