// A few rows of a times all of b, by blocks that stay: columns come to shared memory long before
// they are multiplied, while kernels before are at work. A warp has every column's part of
// kWarpDepth elements along k, and stages of its own, which it has filled again by itself. With
// kMatrices 2 a tile is one of each matrix.
// Expects what row_readers.cuh and row_sums.cuh expect; kDepth, the elements along k; kSumRows, the
// rows of a; kNormalizes: rows are normalized first, with kEpsilon.
#pragma once

#include "barriers.cuh"
#include "mma.cuh"
#include "row_readers.cuh"
#include "row_sums.cuh"

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
          Mma<ElementA>::add(sums[k][r][0], sums[k][r][1], sums[k][r][2], sums[k][r][3],
                             word(low, 2 * k), word(high, 2 * k), word(low, 2 * k + 1),
                             word(high, 2 * k + 1), word(rows[i][r], 2 * k),
                             word(rows[i][r], 2 * k + 1));
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
        to[at / kTileK * kStageRow + at % kTileK] =
            from[(Index)(at / kTileK) * kDepth + at % kTileK];
      __syncwarp();
      if (lane == 0) arrive(barrier);
      return;
    }
    if (lane == 0) expect(barrier, there * kBytes);
    __syncwarp();
    if (lane < there)
      copy_once(to + lane * kStageRow, from + (Index)lane * kDepth, kBytes, barrier);
  }
  __device__ static int own(int vector) { return ((int)threadIdx.x % 32 + 32 * vector) * kVector; }
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
