// How results of 8 or 16 bits come from registers to memory: a warp's 16 rows of kWarpN columns go
// through shared memory, so that rows are stored in vectors.
// Expects the type Output and the constants kPack, kTileN and kWarpN.
#pragma once

static_assert(kWarpN <= 64, "a lane has two columns of a bias");
// Neighbouring rows begin in different banks.
constexpr int kResultRow = kWarpN + 16 / sizeof(Output);
// Stores two neighbours.
template <class Value>
__device__ inline void put_results(Output* to, Value first, Value second) {
  if constexpr (sizeof(Output) == 2)
    *(unsigned*)to = pair<Output>(first, second);
  else
    *(Pack<Output, 2>*)to = {store<Output>(first), store<Output>(second)};
}
// What lies along columns and is the same for all rows: of each kWarpN columns of a tile a lane
// loads two, and hands them to those that need them.
template <class Value>
struct ColumnValues {
  Value values[kTileN / kWarpN][2];
  template <class Read>
  __device__ ColumnValues(Read read, Index first, Index columns) {
#pragma unroll
    for (int part = 0; part < kTileN / kWarpN; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Index column = first + part * kWarpN + (int)threadIdx.x % 32 * 2 + i;
        values[part][i] = read(column < columns ? column : columns - 1);
      }
  }
  // Of column `part` + 2 `pair` + i of the tile, `part` being a multiple of kWarpN.
  __device__ Value at(int part, int pair, int i) const {
    return (Value)__shfl_sync(0xffffffffu, values[part / kWarpN][i], pair);
  }
};
// Rows of a warp from column `column` on. `find(i)` is where row i begins; null: nowhere.
template <class Find>
__device__ inline void store_results(const Output* from, Find find, Index column, Index columns,
                                     bool stores_packs) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 16 * kWarpN; i += 32 * kPack) {
    const int at = i + lane * kPack, in_row = at % kWarpN;
    Output* const to = find(at / kWarpN);
    const Index first = column + in_row;
    if (to == nullptr || first >= columns) continue;
    const Output* const results = from + at / kWarpN * kResultRow + in_row;
    if (stores_packs && first + kPack <= columns) {
      *(Pack<Output, kPack>*)(to + first) = *(const Pack<Output, kPack>*)results;
    } else {
      for (int e = 0; e < kPack; ++e)
        if (first + e < columns) to[first + e] = results[e];
    }
  }
}
