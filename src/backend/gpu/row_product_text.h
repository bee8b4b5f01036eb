#pragma once

#include <string_view>

// The parts of kernels that multiply a few rows of a with all of b, beside those of product_text.h,
// whose types and constants they use. Nothing is copied to shared memory: a lane has what it reads
// of b in the order that the tensor cores want, because the same order of k serves a and b.
namespace opwright::gpu {

/// MatrixReader, and where a lane's columns lie in a tile.
inline constexpr std::string_view kRowReaders = R"(
constexpr int kWarps = kWarpsM * kWarpsN, kThreads = 32 * kWarps;
constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are read at once
constexpr int kPack = 16 / sizeof(Output);      // neighbours that are stored at once
constexpr int kWarpM = 16, kWarpN = 16;         // what a warp stores at once
constexpr int kStep = 4 * kVector, kSteps = kTileK / kStep;  // along k
constexpr int kRowTiles = kTileM / 8, kColumnTiles = kTileN / 16;
constexpr int kSumRow = kTileN + 4;  // rows of sums begin in different banks

__device__ inline unsigned word(const uint4& vector, int i) {
  return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
}
// What no other block reads does not take the place of what they do.
__device__ inline uint4 read_once(const void* from) {
  uint4 vector;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w) : "l"(from));
  return vector;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" :: "l"(from));
}
// A matrix, `extents` being what is left of it across k, and `depth` along it.
template <class Element, int extent, bool is_along_k>
struct MatrixReader {
  const Element* matrix;
  Index stride, extents, depth;
  bool is_aligned;
  // kVector neighbours, from that row of neighbours on; what is beyond the matrix is 0.
  template <bool is_vector, bool is_once>
  __device__ uint4 read(Index row, Index first) const {
    const Index left = (is_along_k ? depth : extents) - first;
    uint4 vector = make_uint4(0u, 0u, 0u, 0u);
    if (row >= (is_along_k ? extents : depth) || left <= 0) return vector;
    const Element* const from = matrix + row * stride + first;
    if (is_vector) return is_once ? read_once(from) : *(const uint4*)from;
    Pack<Element, kVector> pack;
#pragma unroll
    for (int i = 0; i < kVector; ++i) pack.at[i] = i < left ? from[i] : Element{};
    return *(const uint4*)&pack;
  }
};
)";

/// `Product`: a warp's sums. Columns of b are rows of the instruction, 16 at once, and the rows of
/// a its columns, 8 at once. PRODUCT_TYPE is f16 or bf16.
inline constexpr std::string_view kRowProduct = R"(
__device__ inline void multiply_add(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.PRODUCT_TYPE.PRODUCT_TYPE.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
struct Product {
  float sums[kColumnTiles][kRowTiles][4];
  __device__ Product() {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[t][r][e] = 0.0f;
  }
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  // The column of a tile's row, of the two that a lane has.
  __device__ static int column(int tile, int half) {
    return kAlongKB ? tile * 16 + near() + 8 * half
                    : tile / 4 * 64 + near() * 8 + tile % 4 * 2 + half;
  }
  __device__ void add(const uint4 (&b)[kColumnTiles * 2], const uint4 (&a)[kRowTiles]) {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unsigned columns[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (kAlongKB) {
            columns[e] = word(b[2 * t + e % 2], 2 * k + e / 2);
          } else {
            // Two rows of b give neighbours along k.
            const int row = t / 4 * 8 + k * 4 + e / 2 * 2;
            columns[e] = __byte_perm(word(b[row], t % 4), word(b[row + 1], t % 4),
                                     e % 2 == 0 ? 0x5410 : 0x7632);
          }
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          multiply_add(sums[t][r], columns[0], columns[1], columns[2], columns[3],
                       word(a[r], 2 * k), word(a[r], 2 * k + 1));
      }
  }
  __device__ void save(float* to) const {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[(r * 8 + far() * 2 + e % 2) * kSumRow + column(t, e / 2)] = sums[t][r][e];
  }
};
// 16 columns of the sums of all warps, always in one order.
struct WarpSums {
  const float* sums;
  int first, rows;
  __device__ void put(float* to, int row_length, int) const {
    for (int at = (int)threadIdx.x % 32; at < rows * 16; at += 32) {
      const float* const from = sums + at / 16 * kSumRow + first + at % 16;
      float sum = from[0];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += from[i * (kTileM * kSumRow)];
      to[at / 16 * row_length + at % 16] = sum;
    }
  }
};
)";

/// The loop along k: a warp has every kWarps-th part of kTileK. All that a part needs is on its way
/// at once, with kStages 2 that of the next one, too.
inline constexpr std::string_view kRowLoop = R"(
template <class B>
struct RowPart {
  uint4 columns[kSteps][kColumnTiles * 2], rows[kSteps][kRowTiles];
  template <bool is_vector>
  __device__ void read_columns(const B& b, Index first) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int j = 0; j < kColumnTiles * 2; ++j) {
        const Index k = first + i * kStep + Product::far() * kVector;
        if (kAlongKB)
          columns[i][j] = b.template read<is_vector, true>(Product::near() + 8 * j, k);
        else
          columns[i][j] =
              b.template read<is_vector, true>(k + j % 8, j / 8 * 64 + Product::near() * 8);
      }
  }
  template <bool is_vector, class A>
  __device__ void read_rows(const A& a, Index first) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
        rows[i][r] = a.template read<is_vector, false>(
            Product::near() + 8 * r, first + i * kStep + Product::far() * kVector);
  }
  __device__ void add_to(Product& product) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) product.add(columns[i], rows[i]);
  }
};
// `read_a` gives the rows, once what writes them is done: columns may be there before.
template <bool is_vector, class ReadA, class B>
__device__ inline void multiply_rows(Product& product, const ReadA& read_a, const B& b) {
  constexpr int kAll = kTileK * kWarps;
  RowPart<B> part;
  Index k = (int)threadIdx.x / 32 * kTileK;
  const bool has_part = k < b.depth;
  if (has_part) part.template read_columns<is_vector>(b, k);
  const auto a = read_a();
  if (!has_part) return;
  part.template read_rows<is_vector>(a, k);
  for (; k < a.depth; k += kAll) {
    if (kStages > 1) {
      const RowPart<B> now = part;
      if (k + kAll < a.depth) {
        part.template read_columns<is_vector>(b, k + kAll);
        part.template read_rows<is_vector>(a, k + kAll);
      }
      now.add_to(product);
    } else {
      part.add_to(product);
      if (k + kAll >= a.depth) break;
      part.template read_columns<is_vector>(b, k + kAll);
      part.template read_rows<is_vector>(a, k + kAll);
    }
  }
}
)";

}  // namespace opwright::gpu
