// The operations of a warp on the tiles of attention_tiles.cuh by tensor cores: 16 rows and
// C::kWarpN keys.
#pragma once

#include "mma.cuh"

template <class C>
struct TensorUnit {
  typedef typename C::Element Element;
  static constexpr int kRows = 2, kColumns = C::kWarpN / 4, kOutputs = C::kValueSize / 4;
  static constexpr int kLanes = 4, kLaneStep = 1;  // lanes that share the same queries
  static constexpr int kNeighbours = 2;            // adjacent columns in a lane
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 4 + 8 * i; }
  __device__ static int column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }

  // Queries stay in registers where the sums leave enough of them.
  static constexpr bool kKeeps = C::kSize <= 128 && C::kValueSize <= 128;
  unsigned kept[kKeeps ? C::kSize / 16 : 1][4];
  const Element* queries;
  __device__ TensorUnit(const Element* queries, float*) : queries(queries) {}
  __device__ static void multiply_add(float& s0, float& s1, float& s2, float& s3,
                                      const unsigned (&a)[4], unsigned b0, unsigned b1) {
    Mma<Element>::add(s0, s1, s2, s3, a[0], a[1], a[2], a[3], b0, b1);
  }
  __device__ static int near() { return (int)threadIdx.x % 8; }
  __device__ static int middle() { return (int)threadIdx.x % 32 / 8 % 2 * 8; }
  __device__ static int far() { return (int)threadIdx.x % 32 / 16 * 8; }
  __device__ void load_query(unsigned (&to)[4], int k) const {
    load_matrices<false>(to[0], to[1], to[2], to[3],
                         queries + (near() + middle()) * C::kKeyRow + k + far());
  }
  __device__ void load_queries() {
    if (!kKeeps) return;
#pragma unroll
    for (int k = 0; k < C::kSize; k += 16) load_query(kept[kKeeps ? k / 16 : 0], k);
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns], const Element* keys) const {
#pragma unroll
    for (int k = 0; k < C::kSize; k += 16) {
      unsigned query[4];
      if (!kKeeps) load_query(query, k);
      if (kKeeps)
#pragma unroll
        for (int i = 0; i < 4; ++i) query[i] = kept[kKeeps ? k / 16 : 0][i];
#pragma unroll
      for (int n = 0; n < C::kWarpN; n += 16) {
        unsigned key[4];
        load_matrices<false>(key[0], key[1], key[2], key[3],
                             keys + (n + near() + far()) * C::kKeyRow + k + middle());
        const int j = n / 4;
        multiply_add(scores[0][j], scores[0][j + 1], scores[1][j], scores[1][j + 1], query, key[0],
                     key[1]);
        multiply_add(scores[0][j + 2], scores[0][j + 3], scores[1][j + 2], scores[1][j + 3], query,
                     key[2], key[3]);
      }
    }
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs], const float (&own)[kRows][kColumns],
                             const Element* values) const {
#pragma unroll
    for (int k = 0; k < C::kWarpN; k += 16) {
      const int j = k / 4;
      const unsigned weight[4] = {
          pair<Element>(own[0][j], own[0][j + 1]), pair<Element>(own[1][j], own[1][j + 1]),
          pair<Element>(own[0][j + 2], own[0][j + 3]), pair<Element>(own[1][j + 2], own[1][j + 3])};
#pragma unroll
      for (int n = 0; n < C::kValueSize; n += 16) {
        unsigned value[4];
        load_matrices<true>(value[0], value[1], value[2], value[3],
                            values + (k + near() + middle()) * C::kValueRow + n + far());
        const int o = n / 4;
        multiply_add(sums[0][o], sums[0][o + 1], sums[1][o], sums[1][o + 1], weight, value[0],
                     value[1]);
        multiply_add(sums[0][o + 2], sums[0][o + 3], sums[1][o + 2], sums[1][o + 3], weight,
                     value[2], value[3]);
      }
    }
  }
};
