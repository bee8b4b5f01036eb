// Computes results of 8 or 16 bits in registers and stores them. A warp's 16 rows of kWarpN columns
// go through shared memory, so that rows are stored in vectors. C has the type Output and the
// constants kPack, kTileN and kWarpN. Expects prelude.cuh.
#pragma once

#include "product_tasks.cuh"

// Padded rows: neighbouring rows begin in different banks.
template <class C>
struct PackedRows {
  static_assert(C::kWarpN <= 64, "a lane has two columns of a bias");
  static constexpr int kLength = C::kWarpN + 16 / sizeof(typename C::Output);
};
// Converts and stores two neighbours.
template <class Output, class Value>
__device__ inline void put_results(Output* to, Value first, Value second) {
  if constexpr (sizeof(Output) == 2)
    *(unsigned*)to = pair<Output>(first, second);
  else
    *(Pack<Output, 2>*)to = {store<Output>(first), store<Output>(second)};
}
// The values of an input that has one value per column, for a tile's columns. A lane loads two of
// each kWarpN columns. Lanes get the values of other columns by shuffles.
template <class C, class Value>
struct ColumnValues {
  Value values[C::kTileN / C::kWarpN][2];
  template <class Read>
  __device__ ColumnValues(Read read, Index first, Index columns) {
#pragma unroll
    for (int part = 0; part < C::kTileN / C::kWarpN; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Index column = first + part * C::kWarpN + (int)threadIdx.x % 32 * 2 + i;
        values[part][i] = read(column < columns ? column : columns - 1);
      }
  }
  // The value of column `part` + 2 `pair` + i of the tile. `part` is a multiple of kWarpN.
  __device__ Value at(int part, int pair, int i) const {
    return (Value)__shfl_sync(0xffffffffu, values[part / C::kWarpN][i], pair);
  }
  __device__ Pack<Value, 2> at(int part, int pair) const {
    return {at(part, pair, 0), at(part, pair, 1)};
  }
};
// Stores the rows of a warp from column `column` on. `find(i, column)` returns where results of row
// i lie from that column on, or null if they are not stored.
template <class C, class Find>
__device__ inline void store_rows(const typename C::Output* from, Find find, Index column,
                                  Index columns, bool stores_packs) {
  const int lane = (int)threadIdx.x % 32;
  // Scattered single results have places of their own, whose computation takes many registers.
  constexpr int kUnrolled = C::kPack == 1 ? 1 : (16 * C::kWarpN - 1) / (32 * C::kPack) + 1;
#pragma unroll kUnrolled
  for (int i = 0; i < 16 * C::kWarpN; i += 32 * C::kPack) {
    const int at = i + lane * C::kPack, in_row = at % C::kWarpN;
    const Index first = column + in_row;
    typename C::Output* const to = find(at / C::kWarpN, first);
    if (to == nullptr || first >= columns) continue;
    const auto pack = *(
        const Pack<typename C::Output, C::kPack>*)(from + at / C::kWarpN * PackedRows<C>::kLength +
                                                   in_row);
    if (stores_packs && first + C::kPack <= columns) {
      *(Pack<typename C::Output, C::kPack>*)to = pack;
    } else {
#pragma unroll
      for (int e = 0; e < C::kPack; ++e)
        if (first + e < columns) to[e] = pack.at[e];
    }
  }
}
// Two neighbours of a row of results, in the tile and in the output.
struct ResultPair {
  static constexpr int count = 2;
  int tile_row, tile_column;
  Index row, column;
};
// The other inputs of a pair of results: values of its columns, and elements of the tensor behind
// the operands (boxes_behind.cuh).
template <class Columns, class Behind>
struct PairInputs {
  Columns columns;
  Behind behind;
};
// Stores the results of a warp's 16 rows and kWarpN columns from (warp_m, warp_n) of the tile on.
// `sums` are their sums in the order of tensor cores, `stored` is shared memory, and `columns` is
// the result of program.columns(). `find(i, column)` returns where results of row i of the 16 lie
// from that column on, or null if they are not stored.
template <class C, class Program, class Columns, class Sum, int count, class Behind, class Find>
__device__ __forceinline__ void store_packed_results(const ProductTask& task,
                                                     const Program& program, const Columns& columns,
                                                     const Sum (&sums)[count], void* stored,
                                                     int warp_m, int warp_n, const Behind& behind,
                                                     Index all_rows, Index all_columns,
                                                     bool stores_packs, const Find& find) {
  typedef typename C::Output Output;
  typedef decltype(load(Output())) Value;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  Output* const results = (Output*)stored + warp * 16 * PackedRows<C>::kLength;
  typename Behind::Pairs pairs_behind(behind);
#pragma unroll
  for (int first_pair = 0; first_pair < C::kWarpN / 2; first_pair += 4) {
    const int pair = first_pair + lane % 4, column = warp_n + 2 * pair;
    pairs_behind.load(warp_m, warp_n, first_pair);
    const auto of_columns = program.read(columns, warp_n, pair);
#pragma unroll
    for (int half = 0; half < 16; half += 8) {
      const int tile_row = warp_m + half + lane / 4;
      const Index row = task.first_row + tile_row;
      const ResultPair at{tile_row, column, row < all_rows ? row : all_rows - 1,
                          task.first_column + column};
      const auto of_rows = pairs_behind.at(tile_row, column, first_pair, half);
      const PairInputs<decltype(of_columns), decltype(of_rows)> inputs{of_columns, of_rows};
      Value values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        values[i] = program.make(task, at, inputs, i, sums[warp_n / 2 + first_pair + half / 4 + i]);
      put_results(results + (half + lane / 4) * PackedRows<C>::kLength + 2 * pair, values[0],
                  values[1]);
    }
  }
  __syncwarp();
  store_rows<C>(results, find, task.first_column + warp_n, all_columns, stores_packs);
  __syncwarp();
}
