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
constexpr int kWarpM = 16, kWarpN = kTileN < 16 ? kTileN : 16;  // what a warp stores at once
constexpr int kStep = 4 * kVector, kSteps = kTileK / kStep;  // along k
constexpr int kRowTiles = kTileM / 8, kColumnTiles = kTileN / 16;

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

/// Columns of b are rows of the instruction, 16 at once, and the rows of a its columns, 8 at once.
/// PRODUCT_TYPE is f16 or bf16.
inline constexpr std::string_view kRowInstruction = R"(
__device__ inline void multiply_add(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.PRODUCT_TYPE.PRODUCT_TYPE.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
)";

/// `Product`: a warp's sums.
inline constexpr std::string_view kRowProduct = R"(
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
)";

/// `WarpSums`: what the epilogue reads.
inline constexpr std::string_view kRowSums = R"(
// kWarpN columns of the sums of all warps, kSumSize apart, always in one order; those of a second
// matrix lie kMatrixSums behind.
constexpr int kMatrixSums = kWarps * kSumSize;
struct WarpSums {
  const float* sums;
  int first, rows;
  __device__ void put(float* to, int row_length, int) const {
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix)
      for (int at = (int)threadIdx.x % 32; at < rows * kWarpN; at += 32) {
        const float* const from =
            sums + matrix * kMatrixSums + at / kWarpN * kSumRow + first + at % kWarpN;
        float sum = from[0];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) sum += from[i * kSumSize];
        to[matrix * kMatrixSums + at / kWarpN * row_length + at % kWarpN] = sum;
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

/// Instead of kRowProduct and kRowLoop, for blocks that stay: columns come to shared memory long
/// before they are multiplied, while kernels before are at work. A warp has every column's part of
/// kWarpDepth elements along k, and stages of its own, which it has filled again by itself. With
/// kMatrices 2 a tile is one of each matrix. Behind kBarriers.
inline constexpr std::string_view kRowStream = R"(
constexpr int kWarpDepth = kDepth / kWarps, kParts = kWarpDepth / kTileK;
// Rows of a stage: two that lanes read at once lie in different banks.
constexpr int kStageRow = kTileK + kStep, kStageElements = kTileN * kStageRow;
// The gaps behind them have kStep elements of a row of a each, where there are as many.
constexpr int kGaps = kStages * kTileN, kRowGaps = kWarpDepth / kStep;
constexpr bool kKeepsRows = kWarpDepth % (32 * kVector) == 0 && kSumRows * kRowGaps <= kGaps;
constexpr int kOwnVectors = kKeepsRows ? kWarpDepth / (32 * kVector) : 1;  // of a row, of a lane
static_assert(kKeepsRows || !kNormalizes, "rows that are kept can be normalized");
struct Product {
  // Of every other step each: instructions wait for those before with the same sums.
  float sums[2][kRowTiles][4];
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][r][e] = 0.0f;
  }
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ void add(const ElementB* stage, const uint4 (&rows)[kSteps][kRowTiles]) {
    const ElementB* const from = stage + near() * kStageRow + far() * kVector;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint4 low = *(const uint4*)(from + i * kStep);
      uint4 high = make_uint4(0u, 0u, 0u, 0u);
      if (kTileN > 8) high = *(const uint4*)(from + 8 * kStageRow + i * kStep);
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          multiply_add(sums[k][r], word(low, 2 * k), word(high, 2 * k), word(low, 2 * k + 1),
                       word(high, 2 * k + 1), word(rows[i][r], 2 * k), word(rows[i][r], 2 * k + 1));
    }
  }
  __device__ void save(float* to) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = r * 8 + far() * 2 + e % 2, column = near() + e / 2 * 8;
        if (row < kSumRows && column < kTileN)
          to[row * kSumRow + column] = sums[0][r][e] + sums[1][r][e];
      }
  }
};
template <class Reader>
__device__ inline uint4 read_vector(const Reader& reader, Index row, Index k) {
  return reader.is_aligned ? reader.template read<true, false>(row, k)
                           : reader.template read<false, false>(row, k);
}
// The block's tiles of columns are every gridDim.x-th; `items` are the stages of all.
template <class A>
struct ColumnStream {
  const ElementB *columns, *others;
  Index count;
  bool is_aligned;
  ElementB* stages;
  unsigned barriers;
  Index tiles, items, item = 0;
  uint4 scale[kOwnVectors];
  __device__ ColumnStream(const ElementB* matrix, const ElementB* other, Index count,
                          bool is_aligned, void* shared, void* all_barriers)
      : count(count), is_aligned(is_aligned) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    columns = matrix + warp * kWarpDepth;
    others = other + warp * kWarpDepth;
    stages = (ElementB*)shared + warp * (kStages * kStageElements);
    barriers = shared_address(all_barriers) + warp * (kStages * 8);
    const Index all_tiles = (count + kTileN - 1) / kTileN;
    tiles = (all_tiles - (Index)blockIdx.x + (Index)gridDim.x - 1) / (Index)gridDim.x;
    items = tiles * (kMatrices * kParts);
    if (lane < kStages) init_barrier(barriers + 8 * lane, 1);
    end_barriers_init();
    __syncwarp();
    for (Index i = 0; i < kStages; ++i) copy(i);
  }
  __device__ void copy(Index item) const {
    if (item >= items) return;
    const int lane = (int)threadIdx.x % 32, stage = (int)(item % kStages);
    const Index number = item / kParts;
    const ElementB* const matrix = number % kMatrices == 0 ? columns : others;
    const Index first = ((Index)blockIdx.x + number / kMatrices * (Index)gridDim.x) * kTileN;
    const int there = count - first < kTileN ? (int)(count - first) : kTileN;
    const ElementB* const from = matrix + first * kDepth + item % kParts * kTileK;
    ElementB* const to = stages + stage * kStageElements;
    const unsigned barrier = barriers + 8 * stage;
    constexpr int kBytes = kTileK * (int)sizeof(ElementB);
    if (!is_aligned) {
      for (int at = lane; at < there * kTileK; at += 32)
        to[at / kTileK * kStageRow + at % kTileK] = from[(Index)(at / kTileK) * kDepth + at % kTileK];
      __syncwarp();
      if (lane == 0) arrive(barrier);
      return;
    }
    if (lane == 0) expect(barrier, there * kBytes);
    __syncwarp();
    if (lane < there)
      copy_once(to + lane * kStageRow, from + (Index)lane * kDepth, kBytes, barrier);
  }
  __device__ static int own(int vector) {
    return ((int)threadIdx.x % 32 + 32 * vector) * kVector;
  }
  // What each element of a row is multiplied by, of a constant.
  template <class Scale>
  __device__ void read_scale(const Scale& from) {
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i)
      scale[i] = read_vector(from, 0, (int)threadIdx.x / 32 * kWarpDepth + own(i));
  }
  __device__ ElementA* gap(int number) const {
    return (ElementA*)stages + number / kTileN * kStageElements + number % kTileN * kStageRow +
           kTileK;
  }
  // Once what writes them is done. `squares` is shared memory for a number of each warp and row.
  __device__ void keep_rows(const A& a, float* squares) {
    if (!kKeepsRows) return;
    const int warp = (int)threadIdx.x / 32;
    uint4 rows[kSumRows][kOwnVectors];
#pragma unroll
    for (int row = 0; row < kSumRows; ++row)
#pragma unroll
      for (int i = 0; i < kOwnVectors; ++i)
        rows[row][i] = read_vector(a, row, warp * kWarpDepth + own(i));
    if (kNormalizes) normalize(rows, squares);
#pragma unroll
    for (int row = 0; row < kSumRows; ++row)
#pragma unroll
      for (int i = 0; i < kOwnVectors; ++i)
        *(uint4*)(gap(row * kRowGaps + own(i) / kStep) + own(i) % kStep) = rows[row][i];
    __syncwarp();
  }
  __device__ void normalize(uint4 (&rows)[kSumRows][kOwnVectors], float* squares) const {
    typedef Pack<ElementA, kVector> Vector;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int row = 0; row < kSumRows; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kOwnVectors; ++i) {
        const Vector& vector = *(const Vector*)&rows[row][i];
#pragma unroll
        for (int e = 0; e < kVector; ++e) sum = fmaf(load(vector.at[e]), load(vector.at[e]), sum);
      }
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == 0) squares[warp * kSumRows + row] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < kSumRows; ++row) {
      float sum = squares[row];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += squares[i * kSumRows + row];
      const float factor = 1.0f / sqrtf(sum / (float)kDepth + kEpsilon);
#pragma unroll
      for (int i = 0; i < kOwnVectors; ++i) {
        Vector& vector = *(Vector*)&rows[row][i];
        const Vector& by = *(const Vector*)&scale[i];
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          vector.at[e] = store<ElementA>(load(vector.at[e]) * factor * load(by.at[e]));
      }
    }
  }
  // Elements of the lane's row, or of another where there are fewer: nobody reads those sums.
  __device__ uint4 row_vector(const A& a, int tile, int step) const {
    const int row = Product::near() + 8 * tile, inner = Product::far() * kVector;
    if (kKeepsRows)
      return *(const uint4*)(gap((row < kSumRows ? row : 0) * kRowGaps + step) + inner);
    return read_vector(a, row, (int)threadIdx.x / 32 * kWarpDepth + step * kStep + inner);
  }
  // The next tile of a matrix.
  __device__ void multiply(Product& product, const A& a) {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      uint4 rows[kSteps][kRowTiles];
#pragma unroll
      for (int i = 0; i < kSteps; ++i)
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) rows[i][r] = row_vector(a, r, part * kSteps + i);
      const int stage = (int)(item % kStages);
      wait(barriers + 8 * stage, (unsigned)(item / kStages) & 1u);
      product.add(stages + stage * kStageElements, rows);
      __syncwarp();
      copy(item + kStages);
      ++item;
    }
  }
};
)";

}  // namespace opwright::gpu
