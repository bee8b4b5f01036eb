#pragma once

#include <string_view>

// The parts that kernels of attention are put together from. They use the type Element and the
// constants kTileM, kTileN, kWarpsM, kWarpsN, kStages, kSize and kValueSize, the sizes of heads
// rounded up to 16.
namespace opwright::gpu {

/// Tiles in shared memory and how they are copied there.
inline constexpr std::string_view kAttentionTiles = R"(
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kVector = 16 / sizeof(Element);  // neighbours that are copied at once
constexpr int kWarpN = kTileN / kWarpsN;       // keys of a tile that a warp has; of queries it has 16

// So long that eight rows, one below the other, begin in different banks.
constexpr int kKeyRow = kSize + kVector, kValueRow = kValueSize + kVector;
constexpr int kKeyElements = kTileN * kKeyRow, kValueElements = kTileN * kValueRow;
// A stage: a tile of keys, and behind it one of values.
constexpr int kStageElements = kKeyElements + kValueElements;
constexpr int kQueryElements = kTileM * kKeyRow;

__device__ inline float nothing() { return __uint_as_float(0xff800000u); }  // -infinity
// Of kVector elements the first `count`, the others become 0.
__device__ inline void copy_vector(Element* to, const Element* from, int count, bool is_aligned) {
  if (is_aligned) {
    const int bytes = count <= 0 ? 0 : count >= kVector ? 16 : count * (int)sizeof(Element);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) to[i] = i < count ? from[i] : Element{};
}

// Keys or values of one head, `size` elements each, of which `count` are there.
struct RowReader {
  const Element* rows;
  Index stride, count;
  int size;
  bool is_aligned;
  // kTileN rows from `first` on, in rows of `padded` elements and a vector.
  template <int padded>
  __device__ void copy(Element* tile, Index first) const {
    constexpr int kPacks = padded / kVector;
#pragma unroll 4
    for (int at = (int)threadIdx.x; at < kTileN * kPacks; at += kThreads) {
      const int row = at / kPacks, inner = at % kPacks * kVector;
      copy_vector(tile + row * (padded + kVector) + inner, rows + (first + row) * stride + inner,
                  first + row < count ? size - inner : 0, is_aligned);
    }
  }
};
)";

/// `Unit`: what a warp does with tiles, by multiply-adds. A lane has every fourth query and every
/// eighth key.
inline constexpr std::string_view kScalarAttention = R"(
struct Unit {
  static constexpr int kRows = 4, kColumns = kWarpN / 8, kOutputs = kValueSize / 8;
  static constexpr int kLanes = 8;       // that have the same queries
  static constexpr int kNeighbours = 1;  // columns side by side
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 8 + 4 * i; }
  __device__ static int column(int j) { return (int)threadIdx.x % 8 + 8 * j; }

  const Element* queries;
  float* weights;  // of a warp: 16 rows
  __device__ Unit(const Element* queries, float* weights) : queries(queries), weights(weights) {}
  __device__ void load_queries() {}
  __device__ static void read(float (&to)[4], const Element* from) {
    const Pack<Element, 4> pack = *(const Pack<Element, 4>*)from;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = load(pack.at[i]);
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns], const Element* keys) const {
#pragma unroll 4
    for (int k = 0; k < kSize; k += 4) {
      float of_query[kRows][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) read(of_query[i], queries + row(i) * kKeyRow + k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float of_key[4];
        read(of_key, keys + column(j) * kKeyRow + k);
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
      for (int j = 0; j < kColumns; ++j) weights[row(i) * kWarpN + column(j)] = own[i][j];
    __syncwarp();
#pragma unroll 4
    for (int key = 0; key < kWarpN; ++key) {
      float weight[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) weight[i] = weights[row(i) * kWarpN + key];
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        const float value = load(values[key * kValueRow + column(j)]);
#pragma unroll
        for (int i = 0; i < kRows; ++i) sums[i][j] = fmaf(weight[i], value, sums[i][j]);
      }
    }
  }
};
)";

/// `Unit` on tensor cores, by instructions of 16 x 8 x 16 that NVIDIA's GPUs have since 8.0.
/// PRODUCT_TYPE is f16 or bf16.
inline constexpr std::string_view kTensorAttention = R"(
__device__ inline void multiply_add(float& s0, float& s1, float& s2, float& s3,
                                    const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.PRODUCT_TYPE.PRODUCT_TYPE.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn.PRODUCT_TYPEx2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
struct Unit {
  static constexpr int kRows = 2, kColumns = kWarpN / 4, kOutputs = kValueSize / 4;
  static constexpr int kLanes = 4;       // that have the same queries
  static constexpr int kNeighbours = 2;  // columns side by side
  __device__ static int row(int i) { return (int)threadIdx.x % 32 / 4 + 8 * i; }
  __device__ static int column(int j) {
    return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2;
  }

  // Queries stay in registers where these are not needed for sums.
  static constexpr bool kKeeps = kSize <= 128 && kValueSize <= 128;
  unsigned kept[kKeeps ? kSize / 16 : 1][4];
  const Element* queries;
  __device__ Unit(const Element* queries, float*) : queries(queries) {}
  __device__ static int near() { return (int)threadIdx.x % 8; }
  __device__ static int middle() { return (int)threadIdx.x % 32 / 8 % 2 * 8; }
  __device__ static int far() { return (int)threadIdx.x % 32 / 16 * 8; }
  __device__ void load_query(unsigned (&to)[4], int k) const {
    load_matrices<false>(to[0], to[1], to[2], to[3],
                         queries + (near() + middle()) * kKeyRow + k + far());
  }
  __device__ void load_queries() {
    if (!kKeeps) return;
#pragma unroll
    for (int k = 0; k < kSize; k += 16) load_query(kept[kKeeps ? k / 16 : 0], k);
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns], const Element* keys) const {
#pragma unroll
    for (int k = 0; k < kSize; k += 16) {
      unsigned query[4];
      if (!kKeeps) load_query(query, k);
      if (kKeeps)
#pragma unroll
        for (int i = 0; i < 4; ++i) query[i] = kept[kKeeps ? k / 16 : 0][i];
#pragma unroll
      for (int n = 0; n < kWarpN; n += 16) {
        unsigned key[4];
        load_matrices<false>(key[0], key[1], key[2], key[3],
                             keys + (n + near() + far()) * kKeyRow + k + middle());
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
    for (int k = 0; k < kWarpN; k += 16) {
      const int j = k / 4;
      const unsigned weight[4] = {pair(own[0][j], own[0][j + 1]), pair(own[1][j], own[1][j + 1]),
                                  pair(own[0][j + 2], own[0][j + 3]),
                                  pair(own[1][j + 2], own[1][j + 3])};
#pragma unroll
      for (int n = 0; n < kValueSize; n += 16) {
        unsigned value[4];
        load_matrices<true>(value[0], value[1], value[2], value[3],
                            values + (k + near() + middle()) * kValueRow + n + far());
        const int o = n / 4;
        multiply_add(sums[0][o], sums[0][o + 1], sums[1][o], sums[1][o + 1], weight, value[0],
                     value[1]);
        multiply_add(sums[0][o + 2], sums[0][o + 3], sums[1][o + 2], sums[1][o + 3], weight,
                     value[2], value[3]);
      }
    }
  }
};
)";

/// What is known of a warp's queries: the largest score, in powers of 2, and sums that belong to
/// it.
inline constexpr std::string_view kAttentionState = R"(
struct State {
  float most[Unit::kRows], sum[Unit::kRows], sums[Unit::kRows][Unit::kOutputs];
  __device__ State() {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      most[i] = nothing(), sum[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] = 0.0f;
    }
  }
  // Raises the largest score of a row, and gives what scores are subtracted from: never infinity.
  __device__ float raise(int i, float score) {
    const float next = fmaxf(most[i], score), base = next == nothing() ? 0.0f : next;
    const float factor = power_of_two(most[i] - base);
    most[i] = next;
    sum[i] *= factor;
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] *= factor;
    return base;
  }
  // Takes the scores, which become weights.
  __device__ void add(float (&scores)[Unit::kRows][Unit::kColumns], const Unit& unit,
                      const Element* values) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      float largest = scores[i][0];
#pragma unroll
      for (int j = 1; j < Unit::kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
#pragma unroll
      for (int distance = 1; distance < Unit::kLanes; distance *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      const float base = raise(i, largest);
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) {
        scores[i][j] = power_of_two(scores[i][j] - base);
        sum[i] += scores[i][j];
      }
    }
    unit.add_values(sums, scores, values);
  }
  // Of the lanes that have parts of a row.
  __device__ void add_lanes() {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
      for (int distance = 1; distance < Unit::kLanes; distance *= 2)
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], distance);
  }
  // Puts each number `threads` elements behind the one before, and takes what was put so.
  __device__ void save(float* to, int threads) const {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      *to = most[i], to += threads;
      *to = sum[i], to += threads;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j, to += threads) *to = sums[i][j];
    }
  }
  template <bool is_global>
  __device__ static float saved(const float* from) { return is_global ? __ldcg(from) : *from; }
  template <bool is_global>
  __device__ void add_saved(const float* from, int threads) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      const float score = saved<is_global>(from);
      const float factor = power_of_two(score - raise(i, score));
      from += threads;
      sum[i] = fmaf(saved<is_global>(from), factor, sum[i]), from += threads;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j, from += threads)
        sums[i][j] = fmaf(saved<is_global>(from), factor, sums[i][j]);
    }
  }
};
constexpr int kStateSize = Unit::kRows * (2 + Unit::kOutputs);  // numbers of a lane
)";

}  // namespace opwright::gpu
