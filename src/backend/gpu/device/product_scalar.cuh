// A warp's sums, by multiply-adds. A lane has every fourth row and every eighth column.
// kStepsOfPart: a large sum loses the digits of small addends. So a long sum is taken in parts of
// kStepsOfPart steps, whose sums are added to a total. 0: the sum is taken in one.
// Expects prelude.cuh.
#pragma once

// Integers wrap around.
__device__ inline float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ inline int multiply_add(int a, int b, int sum) {
  return (int)((unsigned)a * (unsigned)b + (unsigned)sum);
}
__device__ inline long long multiply_add(long long a, long long b, long long sum) {
  return (long long)((unsigned long long)a * (unsigned long long)b + (unsigned long long)sum);
}
template <class C>
struct ScalarProduct {
  typedef typename C::ElementA ElementA;
  typedef typename C::ElementB ElementB;
  typedef typename C::Sum Sum;
  static constexpr int kRows = C::kWarpM / 4, kColumns = C::kWarpN / 8;
  static constexpr bool kHasParts = C::kStepsOfPart > 0;
  Sum sums[kRows][kColumns];
  Sum totals[kHasParts ? kRows : 1][kHasParts ? kColumns : 1];  // of the previous parts
  int steps = 0;
  __device__ ScalarProduct() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        sums[i][j] = 0;
        if constexpr (kHasParts) totals[i][j] = 0;
      }
  }
  __device__ Sum sum(int i, int j) const {
    if constexpr (kHasParts) return totals[i][j] + sums[i][j];
    return sums[i][j];
  }
  template <bool is_along_k, int row_length, class Element>
  __device__ static void read(Sum (&to)[4], const Element* tile, int position, int k) {
    if (is_along_k) {
      const Pack<Element, 4> pack = *(const Pack<Element, 4>*)(tile + position * row_length + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = load(pack.at[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = load(tile[(k + i) * row_length + position]);
    }
  }
  // Adds the products of a stage. The warp's rows begin at `m`, its columns at `n`.
  __device__ void add(const ElementA* a, const ElementB* b, int m, int n) {
    const int lane = (int)threadIdx.x % 32;
    if constexpr (kHasParts) {
      if (steps++ == C::kStepsOfPart) {
        steps = 1;
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int j = 0; j < kColumns; ++j) totals[i][j] += sums[i][j], sums[i][j] = 0;
      }
    }
#pragma unroll
    for (int k = 0; k < C::kTileK; k += 4) {
      Sum columns[kColumns][4];
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        read<C::kAlongKB, C::kRowB>(columns[j], b, n + lane % 8 + 8 * j, k);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        Sum row[4];
        read<C::kAlongKA, C::kRowA>(row, a, m + lane / 8 + 4 * i, k);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j] = multiply_add(row[e], columns[j][e], sums[i][j]);
      }
    }
  }
  // save() stores a thread's sums `threads` elements apart. add_saved() adds sums stored in this
  // way.
  __device__ void save(Sum* to, int threads) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) to[(i * kColumns + j) * threads] = sum(i, j);
  }
  __device__ void add_saved(const Sum* from, int threads) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        sums[i][j] = multiply_add((Sum)1, __ldcg(from + (i * kColumns + j) * threads), sums[i][j]);
  }
  // Writes rows 16 * part to 16 * part + 15.
  __device__ void put(Sum* to, int row_length, int part) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (i / 4 == part)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          to[(lane / 8 + 4 * (i % 4)) * row_length + lane % 8 + 8 * j] = sum(i, j);
  }
};
