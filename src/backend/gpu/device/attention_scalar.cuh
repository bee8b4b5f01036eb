// The operations of a warp on the tiles of attention_tiles.cuh by multiply-adds: 16 rows and
// C::kWarpN keys. A lane has every fourth row and every eighth key.
#pragma once

template <class C>
struct ScalarUnit {
  typedef typename C::Element Element;
  static constexpr int kRows = 4, kColumns = C::kWarpN / 8, kOutputs = C::kValueSize / 8;
  static constexpr int kLanes = 8, kLaneStep = 1;  // lanes that share the same queries
  static constexpr int kNeighbours = 1;            // adjacent columns in a lane
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 8 + 4 * i; }
  __device__ static int column(int j) { return (int)threadIdx.x % 8 + 8 * j; }

  const Element* queries;
  float* weights;  // 16 rows for each warp
  __device__ ScalarUnit(const Element* queries, float* weights)
      : queries(queries), weights(weights) {}
  __device__ void load_queries() {}
  __device__ static void read(float (&to)[4], const Element* from) {
    const Pack<Element, 4> pack = *(const Pack<Element, 4>*)from;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = load(pack.at[i]);
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns], const Element* keys) const {
#pragma unroll 4
    for (int k = 0; k < C::kSize; k += 4) {
      float of_query[kRows][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) read(of_query[i], queries + row(i) * C::kKeyRow + k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float of_key[4];
        read(of_key, keys + column(j) * C::kKeyRow + k);
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e) scores[i][j] = fmaf(of_query[i][e], of_key[e], scores[i][j]);
      }
    }
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs], const float (&own)[kRows][kColumns],
                             const Element* values) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) weights[row(i) * C::kWarpN + column(j)] = own[i][j];
    __syncwarp();
#pragma unroll 4
    for (int key = 0; key < C::kWarpN; ++key) {
      float weight[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) weight[i] = weights[row(i) * C::kWarpN + key];
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        const float value = load(values[key * C::kValueRow + column(j)]);
#pragma unroll
        for (int i = 0; i < kRows; ++i) sums[i][j] = fmaf(weight[i], value, sums[i][j]);
      }
    }
  }
};
