// Products of a few rows of a with all of b. Operands go from global memory to registers, not
// through shared memory.
// Expects prelude.cuh.
#pragma once

#include "mma.cuh"
#include "row_readers.cuh"
#include "row_sums.cuh"

// A warp's sums. An instruction's tile has 16 columns of b as its rows, and 8 rows of a as its
// columns.
template <class C>
struct RowProduct {
  typedef typename C::ElementA ElementA;
  float sums[C::kColumnTiles][C::kRowTiles][4];
  __device__ RowProduct() {
#pragma unroll
    for (int t = 0; t < C::kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[t][r][e] = 0.0f;
  }
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  // The column of b in row near() + 8 * half of an instruction's tile. A lane has both halves.
  __device__ static int column(int tile, int half) {
    return C::kAlongKB ? tile * 16 + near() + 8 * half
                       : tile / 4 * 64 + near() * 8 + tile % 4 * 2 + half;
  }
  __device__ void add(const uint4 (&b)[C::kColumnTiles * 2], const uint4 (&a)[C::kRowTiles]) {
#pragma unroll
    for (int t = 0; t < C::kColumnTiles; ++t)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unsigned columns[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (C::kAlongKB) {
            columns[e] = word(b[2 * t + e % 2], 2 * k + e / 2);
          } else {
            // Joins elements of two rows of b, which are neighbours along k.
            const int row = t / 4 * 8 + k * 4 + e / 2 * 2;
            columns[e] = __byte_perm(word(b[row], t % 4), word(b[row + 1], t % 4),
                                     e % 2 == 0 ? 0x5410 : 0x7632);
          }
        }
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r)
          Mma<ElementA>::add(sums[t][r][0], sums[t][r][1], sums[t][r][2], sums[t][r][3], columns[0],
                             columns[1], columns[2], columns[3], word(a[r], 2 * k),
                             word(a[r], 2 * k + 1));
      }
  }
  __device__ void save(float* to) const {
#pragma unroll
    for (int t = 0; t < C::kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[(r * 8 + far() * 2 + e % 2) * C::kSumRow + column(t, e / 2)] = sums[t][r][e];
  }
};

// A part of the loop along k. A warp has every kWarps-th part of kTileK elements. All loads of a
// part are in flight at once. With kStages 2, the loads of the next part are in flight, too.
template <class C, class B>
struct RowPart {
  typedef RowProduct<C> Product;
  uint4 columns[C::kSteps][C::kColumnTiles * 2], rows[C::kSteps][C::kRowTiles];
  template <bool is_vector>
  __device__ void read_columns(const B& b, Index first) {
#pragma unroll
    for (int i = 0; i < C::kSteps; ++i)
#pragma unroll
      for (int j = 0; j < C::kColumnTiles * 2; ++j) {
        const Index k = first + i * C::kStep + Product::far() * C::kVector;
        if (C::kAlongKB)
          columns[i][j] = b.template read<is_vector, true>(Product::near() + 8 * j, k);
        else
          columns[i][j] =
              b.template read<is_vector, true>(k + j % 8, j / 8 * 64 + Product::near() * 8);
      }
  }
  template <bool is_vector, class A>
  __device__ void read_rows(const A& a, Index first) {
#pragma unroll
    for (int i = 0; i < C::kSteps; ++i)
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
        rows[i][r] = a.template read<is_vector, false>(
            Product::near() + 8 * r, first + i * C::kStep + Product::far() * C::kVector);
  }
  __device__ void add_to(Product& product) const {
#pragma unroll
    for (int i = 0; i < C::kSteps; ++i) product.add(columns[i], rows[i]);
  }
};
// The loop along k. `read_a` waits for the kernel that writes a, and returns the reader of a. The
// first columns of b are read before that, because b may be constant.
template <class C, bool is_vector, class ReadA, class B>
__device__ inline void multiply_rows(RowProduct<C>& product, const ReadA& read_a, const B& b) {
  constexpr int kAll = C::kTileK * C::kWarps;
  RowPart<C, B> part;
  Index k = (int)threadIdx.x / 32 * C::kTileK;
  const bool has_part = k < b.depth;
  if (has_part) part.template read_columns<is_vector>(b, k);
  const auto a = read_a();
  if (!has_part) return;
  part.template read_rows<is_vector>(a, k);
  for (; k < a.depth; k += kAll) {
    if (C::kStages > 1) {
      const RowPart<C, B> now = part;
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

// The kernel.
template <class Config, class Program>
__device__ __forceinline__ void multiply_few_rows(const ProductArguments<RowConfig<Config>>& all,
                                                  const Program& program) {
  typedef RowConfig<Config> C;
  constexpr int kPieces = C::kTileN / 16;  // pieces of 16 columns, which warps store
  begin_next_kernel();
  extern __shared__ uint4 shared[];
  const int warp = (int)threadIdx.x / 32;
  float* const stored = (float*)shared + warp * SumRows<C>::kElements;
  float* const sums = (float*)shared + kPieces * SumRows<C>::kElements;
  if (!C::kIsConstantB) program.wait();
  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const ProductTask task = find_task(all, number);
    const Index left = all.rows - task.first_row;
    const auto readers = program.operands(task);
    const auto read_a = [&] {
      if (C::kIsConstantB) program.wait();
      program.prefetch(task);
      return program.operands(task).a;
    };
    {
      RowProduct<C> product;
      if (readers.a.is_aligned && readers.b.is_aligned)
        multiply_rows<C, true>(product, read_a, readers.b);
      else
        multiply_rows<C, false>(product, read_a, readers.b);
      product.save(sums + warp * C::kSumSize);
    }
    __syncthreads();
    for (int piece = warp; piece < kPieces; piece += C::kWarps) {
      const int rows = left < C::kTileM ? (int)left : C::kTileM;
      store_results(all, task, program, WarpSums<C>{sums, 16 * piece, rows}, stored,
                    task.first_row + rows, 0, 16 * piece, NothingBehind());
    }
    __syncthreads();
  }
}
