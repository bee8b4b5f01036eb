#pragma once

#include <string_view>

// The parts of kernels of attention of few queries, beside those of attention_text.h: warps read
// keys and values straight from memory into the registers that tensor cores take, since the order
// of a head's elements is the same for both sides of a product.
namespace opwright::gpu {

/// `Unit`: what a warp does with 16 keys. kGivenSize and kGivenValueSize are the sizes of heads,
/// kSize and kValueSize those rounded up to 32 and 64. PRODUCT_TYPE is f16 or bf16.
inline constexpr std::string_view kDirectAttention = R"(
__device__ inline void multiply_add(float& s0, float& s1, float& s2, float& s3, unsigned a0,
                                    unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.PRODUCT_TYPE.PRODUCT_TYPE.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn.PRODUCT_TYPEx2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline unsigned word(const uint4& vector, int i) {
  return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
}
// kVector elements of a head of `size`, from `inner` on; zeros where there are none.
template <bool is_vector, int size>
__device__ inline uint4 read_head(const Element* head, int inner, bool is_there) {
  uint4 vector = make_uint4(0u, 0u, 0u, 0u);
  if (!is_there || inner >= size) return vector;
  if (is_vector && size % kVector == 0) return *(const uint4*)(head + inner);
  Pack<Element, kVector> pack;
#pragma unroll
  for (int i = 0; i < kVector; ++i) pack.at[i] = inner + i < size ? head[inner + i] : Element{};
  return *(const uint4*)&pack;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" :: "l"(from));
}
// Has kTileN keys and values from `first` on fetched into the second cache.
__device__ inline void fetch_rows(const RowReader& keys, const RowReader& values, Index first) {
  constexpr int kLine = 128 / sizeof(Element);
  for (int i = (int)threadIdx.x % 32; i < 2 * kTileN; i += 32) {
    const RowReader& reader = i < kTileN ? keys : values;
    const Index row = first + i % kTileN;
    if (row >= reader.count) continue;
#pragma unroll
    for (int at = 0; at < reader.size; at += kLine)
      fetch_line(reader.rows + row * reader.stride + at);
  }
}
struct Unit {
  static constexpr int kRows = 2, kColumns = 4, kOutputs = kValueSize / 4;
  static constexpr int kLanes = 4;  // that have the same queries
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ static int row(int i) { return near() + 8 * i; }
  __device__ static int key(int j) { return j / 2 * 8 + far() * 2 + j % 2; }
  __device__ static int column(int j) { return j / 16 * 64 + far() * 16 + j % 16; }

  uint4 queries[kSize / 32][2], keys[kSize / 32][2], values[kValueSize / 64][4];
  template <bool is_vector>
  __device__ void read_query(int i, const Element* head, bool is_there) {
#pragma unroll
    for (int k = 0; k < kSize / 32; ++k)
      queries[k][i] =
          read_head<is_vector, kGivenSize>(head, k * 32 + far() * kVector, is_there);
  }
  // 16 keys and values, from `first` on.
  template <bool is_vector>
  __device__ void read(const RowReader& key_rows, const RowReader& value_rows, Index first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Index row = first + near() + 8 * i;
#pragma unroll
      for (int k = 0; k < kSize / 32; ++k)
        keys[k][i] = read_head<is_vector, kGivenSize>(
            key_rows.rows + row * key_rows.stride, k * 32 + far() * kVector, row < key_rows.count);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Index row = first + key(i);
#pragma unroll
      for (int n = 0; n < kValueSize / 64; ++n)
        values[n][i] = read_head<is_vector, kGivenValueSize>(
            value_rows.rows + row * value_rows.stride, n * 64 + near() * kVector,
            row < value_rows.count);
    }
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int k = 0; k < kSize / 32; ++k)
#pragma unroll
        for (int half = 0; half < 4; half += 2)
          multiply_add(scores[0][2 * i], scores[0][2 * i + 1], scores[1][2 * i],
                       scores[1][2 * i + 1], word(queries[k][0], half), word(queries[k][1], half),
                       word(queries[k][0], half + 1), word(queries[k][1], half + 1),
                       word(keys[k][i], half), word(keys[k][i], half + 1));
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs], const float (&own)[kRows][kColumns],
                             const Element*) const {
    const unsigned a0 = pair(own[0][0], own[0][1]), a1 = pair(own[1][0], own[1][1]),
                   a2 = pair(own[0][2], own[0][3]), a3 = pair(own[1][2], own[1][3]);
#pragma unroll
    for (int n = 0; n < kValueSize / 64; ++n)
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const unsigned select = t % 2 == 0 ? 0x5410 : 0x7632;
        const int o = n * 16 + t;
        multiply_add(sums[0][o], sums[0][o + 8], sums[1][o], sums[1][o + 8], a0, a1, a2, a3,
                     __byte_perm(word(values[n][0], t / 2), word(values[n][1], t / 2), select),
                     __byte_perm(word(values[n][2], t / 2), word(values[n][3], t / 2), select));
      }
  }
};
)";

/// What warps, and the blocks of a cluster, have found of their keys, and how it is merged: of each
/// row the largest score, the sum and the sums of values. Behind kClusters.
inline constexpr std::string_view kDirectMerging = R"(
constexpr int kSavedRow = kValueSize + 4, kSaved = 16 * kSavedRow;
struct Merged {
  float most, sum = 0.0f, value = 0.0f;
  // The largest of all scores is known before.
  __device__ explicit Merged(float most) : most(most == nothing() ? 0.0f : most) {}
  __device__ void add(float other_most, float other_sum, float other_value) {
    const float factor = power_of_two(other_most - most);
    sum = fmaf(factor, other_sum, sum);
    value = fmaf(factor, other_value, value);
  }
  __device__ float result() const { return sum == 0.0f ? 0.0f : value / sum; }
};
template <class State>
__device__ inline void save_state(const State& state, float* to, int rows) {
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    if (Unit::row(i) >= rows) continue;
    float* const row = to + Unit::row(i) * kSavedRow;
    if (Unit::far() == 0) row[kValueSize] = state.most[i], row[kValueSize + 1] = state.sum[i];
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; ++j) row[Unit::column(j)] = state.sums[i][j];
  }
}
// An element of the block's rows.
__device__ inline Merged merge_warps(const float* saved, int row, int column) {
  float most = nothing();
#pragma unroll
  for (int i = 0; i < kWarpsN; ++i)
    most = fmaxf(most, saved[i * kSaved + row * kSavedRow + kValueSize]);
  Merged merged(most);
#pragma unroll
  for (int i = 0; i < kWarpsN; ++i) {
    const float* const from = saved + i * kSaved + row * kSavedRow;
    merged.add(from[kValueSize], from[kValueSize + 1], from[column]);
  }
  merged.most = most;
  return merged;
}
// Each block merges its share of the columns, of which all send what they have: of a row, the
// largest score and the sum of each block lie behind the values of all.
template <int parts>
struct Sent {
  static constexpr int kShare = kValueSize / parts, kRow = parts * (kShare + 2);
  static constexpr int kMost = parts * kShare, kSum = kMost + parts;
};
__device__ inline void write_block(float* place, int rank, float number) {
  asm volatile("st.shared::cluster.f32 [%0], %1;"
               :: "r"(place_in_block(shared_address(place), rank)), "f"(number) : "memory");
}
template <int parts>
__device__ inline void send_to_block(const Merged& merged, float* sent, int part, int row,
                                     int column) {
  typedef Sent<parts> To;
  const int rank = column / To::kShare;
  float* const to = sent + row * To::kRow;
  write_block(to + part * To::kShare + column % To::kShare, rank, merged.value);
  if (column % To::kShare != 0) return;
  write_block(to + To::kMost + part, rank, merged.most);
  write_block(to + To::kSum + part, rank, merged.sum);
}
template <int parts>
__device__ inline Merged merge_blocks(const float* sent, int row, int column) {
  typedef Sent<parts> From;
  const float* const from = sent + row * From::kRow;
  float largest = nothing();
#pragma unroll
  for (int i = 0; i < parts; ++i) largest = fmaxf(largest, from[From::kMost + i]);
  Merged all(largest);
#pragma unroll
  for (int i = 0; i < parts; ++i)
    all.add(from[From::kMost + i], from[From::kSum + i], from[i * From::kShare + column]);
  return all;
}
)";

}  // namespace opwright::gpu
