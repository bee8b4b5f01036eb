// The epilogue: computes results from a warp's sums and stores them. 16 rows of sums at a time go
// through shared memory. A lane then has kPack neighbours of a row. It reads the other inputs of
// these results, and stores the results at once.
// Expects prelude.cuh.
#pragma once

#include "product_tasks.cuh"

// kPack neighbouring results of a row.
template <class C>
struct ResultPack {
  typedef typename C::Output Output;
  const typename C::Sum* sums;
  int tile_row, tile_column;  // in the tile
  Index row, column, place;   // `place` is an offset in the output
  bool is_there;              // whether the results are stored
  int count;                  // neighbours that are inside of the row
  bool is_whole;              // whether all kPack are inside of the row and may be stored at once

  __device__ ResultPack(const ProductArguments<C>& all, const ProductTask& task, Index end_row,
                        int tile_row, int tile_column, const typename C::Sum* sums)
      : sums(sums), tile_row(tile_row), tile_column(tile_column) {
    row = task.first_row + tile_row, column = task.first_column + tile_column;
    place = all.find(task, row, column);
    is_there = row < end_row && column < all.columns;
    if (C::Places::kHasGaps) is_there = is_there && place >= 0;
    count = all.columns - column < C::kPack ? (int)(all.columns - column) : C::kPack;
    is_whole = all.stores_packs && count == C::kPack;
  }
  // Reads `count` neighbours of another tensor from `from` on.
  template <class T>
  __device__ Pack<T, C::kPack> read(const T* from) const {
    Pack<T, C::kPack> pack = {};
    if (is_whole && is_aligned<T, C::kPack>(from)) {
      pack = *(const Pack<T, C::kPack>*)from;
    } else {
#pragma unroll
      for (int i = 0; i < C::kPack; ++i)
        if (i < count) pack.at[i] = from[i];
    }
    return pack;
  }
  __device__ void store_to(Output* output, const Pack<Output, C::kPack>& results) const {
    if (is_whole) {
      *(Pack<Output, C::kPack>*)(output + place) = results;
    } else {
#pragma unroll
      for (int i = 0; i < C::kPack; ++i)
        if (i < count) output[place + i] = results.at[i];
    }
  }
};
// Rows of a warp's sums in shared memory.
template <class C>
struct SumRows {
  static constexpr int kRows = 16, kPadding = 4, kLength = C::kWarpN + kPadding;
  static constexpr int kElements = kRows * kLength;
};
template <class C, class Program, class Inputs>
__device__ __forceinline__ void store_pack(const ProductArguments<C>& all, const ProductTask& task,
                                           const Program& program, const ResultPack<C>& pack,
                                           const Inputs& inputs) {
  Pack<typename C::Output, C::kPack> results;
#pragma unroll
  for (int i = 0; i < C::kPack; ++i)
    results.at[i] = store<typename C::Output>(program.make(task, pack, inputs, i, pack.sums[i]));
  pack.store_to(all.output, results);
}
// Stores the results of the warp's kWarpM rows and kWarpN columns from (warp_m, warp_n) of the tile
// on, as far as rows are before `end_row`. `sums` is shared memory for SumRows. `behind` reads the
// tensor that goes through the stages behind the operands (boxes_behind.cuh), or is NothingBehind.
template <class C, class Product, class Program, class Behind>
__device__ __forceinline__ void store_results(const ProductArguments<C>& all,
                                              const ProductTask& task, const Program& program,
                                              const Product& product, typename C::Sum* sums,
                                              Index end_row, int warp_m, int warp_n,
                                              const Behind& behind) {
  typedef SumRows<C> Rows;
  // With a fused program the loop is not unrolled: compiling the program for each of a thread's
  // sums takes long.
  constexpr int kParts = C::kWarpM / Rows::kRows, kUnrolled = C::kHasProgram ? 1 : kParts;
#pragma unroll kUnrolled
  for (int part = 0; part < kParts; ++part) {
    __syncwarp();
    product.put(sums, Rows::kLength, part);
    __syncwarp();
    for (int at = (int)threadIdx.x % 32 * C::kPack; at < Rows::kRows * C::kWarpN;
         at += 32 * C::kPack) {
      const int row = at / C::kWarpN, column = at % C::kWarpN;
      const ResultPack<C> pack(all, task, end_row, warp_m + Rows::kRows * part + row,
                               warp_n + column, sums + row * Rows::kLength + column);
      if (!pack.is_there) continue;
      store_pack(all, task, program, pack, program.read(task, pack, behind));
    }
  }
}
