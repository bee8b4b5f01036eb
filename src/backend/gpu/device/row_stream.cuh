// Products of a few rows of a with all of b, by persistent blocks. Columns are copied to shared
// memory long before they are multiplied, while earlier kernels run. A warp multiplies a part of
// every column, kWarpDepth elements along k. It has stages of its own and refills them by itself.
// Beside the members in product_tasks.cuh, Config has
//   static constexpr int kMatrices;     // 1: b; 2: b and a second matrix, with tiles of both
//   static constexpr int kSumRows;      // rows of a
//   static constexpr Index kDepth;      // elements along k
//   static constexpr int kTilesAtOnce;  // tiles whose sums are in shared memory at once
//   static constexpr bool kNormalizes;  // rows of a are normalized first, with kEpsilon
// Expects prelude.cuh.
#pragma once

#include "barriers.cuh"
#include "mma.cuh"
#include "row_readers.cuh"
#include "row_sums.cuh"

template <class Config>
struct StreamConfig : RowConfig<Config> {
  typedef RowConfig<Config> Base;
  static constexpr int kWarpDepth = Config::kDepth / Base::kWarps;
  static constexpr int kItems = kWarpDepth / Config::kTileK;  // stages of a tile
  // Elements of a row of a stage. The row ends with a gap of kStep elements: rows that lanes read
  // at once lie in different banks.
  static constexpr int kStageRow = Config::kTileK + Base::kStep;
  static constexpr int kStageElements = Config::kTileN * kStageRow;
  // With kKeepsRows the gaps hold the rows of a, kStep elements each. Else there are not enough
  // gaps, or a row's part is not whole vectors of all lanes.
  static constexpr int kGaps = Config::kStages * Config::kTileN;
  static constexpr int kRowGaps = kWarpDepth / Base::kStep;
  static constexpr bool kKeepsRows =
      kWarpDepth % (32 * Base::kVector) == 0 && Config::kSumRows * kRowGaps <= kGaps;
  // Vectors of a row that a lane keeps.
  static constexpr int kOwnVectors = kKeepsRows ? kWarpDepth / (32 * Base::kVector) : 1;
  static_assert(kKeepsRows || !Config::kNormalizes, "rows that are kept can be normalized");
};
template <class C>
struct StreamProduct {
  typedef typename C::ElementA ElementA;
  typedef typename C::ElementB ElementB;
  // Two sets of sums, for alternate instructions: an instruction waits for the one before with the
  // same sums.
  float sums[2][C::kRowTiles][4];
  __device__ StreamProduct() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][r][e] = 0.0f;
  }
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ void add(const ElementB* stage, const uint4 (&rows)[C::kSteps][C::kRowTiles]) {
    const ElementB* const from = stage + near() * C::kStageRow + far() * C::kVector;
#pragma unroll
    for (int i = 0; i < C::kSteps; ++i) {
      const uint4 low = *(const uint4*)(from + i * C::kStep);
      uint4 high = make_uint4(0u, 0u, 0u, 0u);
      if (C::kTileN > 8) high = *(const uint4*)(from + 8 * C::kStageRow + i * C::kStep);
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r)
          Mma<ElementA>::add(sums[k][r][0], sums[k][r][1], sums[k][r][2], sums[k][r][3],
                             word(low, 2 * k), word(high, 2 * k), word(low, 2 * k + 1),
                             word(high, 2 * k + 1), word(rows[i][r], 2 * k),
                             word(rows[i][r], 2 * k + 1));
    }
  }
  __device__ void save(float* to) const {
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = r * 8 + far() * 2 + e % 2, column = near() + e / 2 * 8;
        if (row < C::kSumRows && column < C::kTileN)
          to[row * C::kSumRow + column] = sums[0][r][e] + sums[1][r][e];
      }
  }
};
template <class Reader>
__device__ inline uint4 read_vector(const Reader& reader, Index row, Index k) {
  return reader.is_aligned ? reader.template read<true, false>(row, k)
                           : reader.template read<false, false>(row, k);
}
// Constant operands beside b: the second matrix, and the factors (`scale`) of normalized rows. Null
// if absent.
template <class C>
struct StreamConstants {
  const typename C::ElementB* matrix;
  const typename C::ElementA* scale;
  bool is_matrix_aligned, is_scale_aligned;
};
template <class C>
using ScaleSide = ProductSide<C, typename C::ElementA, 1, true>;
// The tiles of columns that a block multiplies: every gridDim.x-th. `items` is the number of stages
// that these tiles fill.
template <class C, class A>
struct ColumnStream {
  typedef typename C::ElementA ElementA;
  typedef typename C::ElementB ElementB;
  typedef StreamProduct<C> Product;
  const ElementB *columns, *others;
  Index count;
  bool is_aligned;
  ElementB* stages;
  unsigned barriers;
  Index tiles, items, item = 0;
  uint4 scale[C::kOwnVectors];
  template <class B>
  __device__ ColumnStream(const B& b, const StreamConstants<C>& constants, Index count,
                          ElementB* all_stages, void* all_barriers)
      : count(count), is_aligned(b.is_aligned) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    columns = others = b.matrix + warp * C::kWarpDepth;
    if (C::kMatrices > 1) {
      others = constants.matrix + warp * C::kWarpDepth;
      is_aligned = is_aligned && constants.is_matrix_aligned;
    }
    stages = all_stages + warp * (C::kStages * C::kStageElements);
    barriers = shared_address(all_barriers) + warp * (C::kStages * 8);
    const Index all_tiles = (count + C::kTileN - 1) / C::kTileN;
    tiles = (all_tiles - (Index)blockIdx.x + (Index)gridDim.x - 1) / (Index)gridDim.x;
    items = tiles * (C::kMatrices * C::kItems);
    if (lane < C::kStages) init_barrier(barriers + 8 * lane, 1);
    end_barriers_init();
    __syncwarp();
    for (Index i = 0; i < C::kStages; ++i) copy(i);
  }
  __device__ void copy(Index item) const {
    if (item >= items) return;
    const int lane = (int)threadIdx.x % 32, stage = (int)(item % C::kStages);
    const Index number = item / C::kItems;
    const ElementB* const matrix = number % C::kMatrices == 0 ? columns : others;
    const Index first = ((Index)blockIdx.x + number / C::kMatrices * (Index)gridDim.x) * C::kTileN;
    const int there = count - first < C::kTileN ? (int)(count - first) : C::kTileN;
    const ElementB* const from = matrix + first * C::kDepth + item % C::kItems * C::kTileK;
    ElementB* const to = stages + stage * C::kStageElements;
    const unsigned barrier = barriers + 8 * stage;
    constexpr int kBytes = C::kTileK * (int)sizeof(ElementB);
    if (!is_aligned) {
      for (int at = lane; at < there * C::kTileK; at += 32)
        to[at / C::kTileK * C::kStageRow + at % C::kTileK] =
            from[(Index)(at / C::kTileK) * C::kDepth + at % C::kTileK];
      __syncwarp();
      if (lane == 0) arrive(barrier);
      return;
    }
    if (lane == 0) expect(barrier, there * kBytes);
    __syncwarp();
    if (lane < there)
      copy_once(to + lane * C::kStageRow, from + (Index)lane * C::kDepth, kBytes, barrier);
  }
  __device__ static int own(int vector) {
    return ((int)threadIdx.x % 32 + 32 * vector) * C::kVector;
  }
  // Reads the factors of the lane's elements of a normalized row.
  template <class Scale>
  __device__ void read_scale(const Scale& from) {
#pragma unroll
    for (int i = 0; i < C::kOwnVectors; ++i)
      scale[i] = read_vector(from, 0, (int)threadIdx.x / 32 * C::kWarpDepth + own(i));
  }
  __device__ ElementA* gap(int number) const {
    return (ElementA*)stages + number / C::kTileN * C::kStageElements +
           number % C::kTileN * C::kStageRow + C::kTileK;
  }
  // Keeps the rows of a in the gaps. Called when the kernel that writes a is done. `squares` is
  // shared memory for one number per warp and row.
  __device__ void keep_rows(const A& a, float* squares) {
    if (!C::kKeepsRows) return;
    const int warp = (int)threadIdx.x / 32;
    uint4 rows[C::kSumRows][C::kOwnVectors];
#pragma unroll
    for (int row = 0; row < C::kSumRows; ++row)
#pragma unroll
      for (int i = 0; i < C::kOwnVectors; ++i)
        rows[row][i] = read_vector(a, row, warp * C::kWarpDepth + own(i));
    if (C::kNormalizes) normalize(rows, squares);
#pragma unroll
    for (int row = 0; row < C::kSumRows; ++row)
#pragma unroll
      for (int i = 0; i < C::kOwnVectors; ++i)
        *(uint4*)(gap(row * C::kRowGaps + own(i) / C::kStep) + own(i) % C::kStep) = rows[row][i];
    __syncwarp();
  }
  __device__ void normalize(uint4 (&rows)[C::kSumRows][C::kOwnVectors], float* squares) const {
    typedef Pack<ElementA, C::kVector> Vector;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int row = 0; row < C::kSumRows; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < C::kOwnVectors; ++i) {
        const Vector& vector = *(const Vector*)&rows[row][i];
#pragma unroll
        for (int e = 0; e < C::kVector; ++e)
          sum = fmaf(load(vector.at[e]), load(vector.at[e]), sum);
      }
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == 0) squares[warp * C::kSumRows + row] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < C::kSumRows; ++row) {
      float sum = squares[row];
#pragma unroll
      for (int i = 1; i < C::kWarps; ++i) sum += squares[i * C::kSumRows + row];
      const float factor = 1.0f / sqrtf(sum / (float)C::kDepth + C::kEpsilon);
#pragma unroll
      for (int i = 0; i < C::kOwnVectors; ++i) {
        Vector& vector = *(Vector*)&rows[row][i];
        const Vector& by = *(const Vector*)&scale[i];
#pragma unroll
        for (int e = 0; e < C::kVector; ++e)
          vector.at[e] = store<ElementA>(load(vector.at[e]) * factor * load(by.at[e]));
      }
    }
  }
  // Returns elements of the lane's row of a. With kKeepsRows, lanes beyond the last row get
  // elements of row 0. Their sums are never read.
  __device__ uint4 row_vector(const A& a, int tile, int step) const {
    const int row = Product::near() + 8 * tile, inner = Product::far() * C::kVector;
    if (C::kKeepsRows)
      return *(const uint4*)(gap((row < C::kSumRows ? row : 0) * C::kRowGaps + step) + inner);
    return read_vector(a, row, (int)threadIdx.x / 32 * C::kWarpDepth + step * C::kStep + inner);
  }
  // Multiplies the next tile of one matrix.
  __device__ void multiply(Product& product, const A& a) {
#pragma unroll 1
    for (int part = 0; part < C::kItems; ++part) {
      uint4 rows[C::kSteps][C::kRowTiles];
#pragma unroll
      for (int i = 0; i < C::kSteps; ++i)
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r) rows[i][r] = row_vector(a, r, part * C::kSteps + i);
      const int stage = (int)(item % C::kStages);
      wait(barriers + 8 * stage, (unsigned)(item / C::kStages) & 1u);
      product.add(stages + stage * C::kStageElements, rows);
      __syncwarp();
      copy(item + C::kStages);
      ++item;
    }
  }
};
// The kernel.
template <class Config, class Program>
__device__ __forceinline__ void multiply_row_stream(
    const ProductArguments<StreamConfig<Config>>& all, const Program& program,
    const StreamConstants<StreamConfig<Config>>& constants) {
  typedef StreamConfig<Config> C;
  typedef WarpSums<C> Sums;
  typedef decltype(program.operands(ProductTask()).a) A;
  constexpr int kTileSums = C::kMatrices * Sums::kMatrixSums;
  extern __shared__ uint4 shared[];
  typename C::ElementB* const stages = (typename C::ElementB*)shared;
  float* const sums = (float*)(stages + C::kWarps * C::kStages * C::kStageElements);
  float* const barriers = sums + C::kTilesAtOnce * kTileSums;
  float* const squares = barriers + 2 * C::kWarps * C::kStages;
  const int warp = (int)threadIdx.x / 32;
  ColumnStream<C, A> stream(program.operands(ProductTask()).b, constants, all.columns, stages,
                            barriers);
  begin_next_kernel();
  if (C::kNormalizes)
    stream.read_scale(
        MatrixReader<ScaleSide<C>>{constants.scale, 0, 1, C::kDepth, constants.is_scale_aligned});
  program.wait();
  const A a = program.operands(ProductTask()).a;
  stream.keep_rows(a, squares);
  for (Index done = 0; done < stream.tiles; done += C::kTilesAtOnce) {
    const Index left = stream.tiles - done;
    const int now = left < C::kTilesAtOnce ? (int)left : C::kTilesAtOnce;
    for (int tile = 0; tile < now * C::kMatrices; ++tile) {
      StreamProduct<C> product;
      stream.multiply(product, a);
      product.save(sums + (tile * C::kWarps + warp) * C::kSumSize);
    }
    __syncthreads();
    for (int piece = warp; piece < now; piece += C::kWarps) {
      ProductTask task = {};
      task.first_column = ((Index)blockIdx.x + (done + piece) * (Index)gridDim.x) * C::kTileN;
      // The totals overwrite the sums of the first warp.
      float* const own = sums + piece * kTileSums;
      store_results(all, task, program, Sums{own, 0, (int)all.rows}, own, all.rows, 0, 0,
                    NothingBehind());
    }
    if (done + C::kTilesAtOnce < stream.tiles) __syncthreads();
  }
}
