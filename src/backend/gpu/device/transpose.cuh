// Transposes matrices in square tiles. A block reads a tile along the lines of x and writes it
// along the lines of y.
//
// The kernel is a template over a struct that the host writes:
//   Element   an unsigned integer of an element's size
//   Access    an unsigned integer of the size of kWidth elements
//   kSide     elements along a side of a tile
//   kWidth    neighbours that an access takes where `is_by_vector`; they are neighbours in y, too
//   kPadding  elements between rows of the tile, so that a warp that reads a column accesses
//             different banks
//   kThreads  threads of a block
// Expects prelude.cuh.
#pragma once

// A matrix of x has `lines` lines of `columns` elements, which are `line_pitch` apart. Its columns
// are `column_pitch` apart in y.
template <class Config>
struct TransposeArguments {
  const typename Config::Element* x;
  typename Config::Element* y;
  Index tiles, lines, columns, line_pitch, column_pitch;
  bool is_by_vector;
};
// The first elements of a tile's matrix in x and y, and the tile's first line and column.
struct TransposeTile {
  Index from, to, line, column;
};
// Calls visit(number, y, x) for each access of the thread to a tile. Warps go over the tile's rows,
// from `row` on, and lanes across them, with `width` elements each.
template <class Config, int width, class Visit>
__device__ inline void each_access(Index row, Index rows, Index column, Index columns,
                                   const Visit& visit) {
  constexpr int kWarps = Config::kThreads / 32, kAcross = Config::kSide / (32 * width);
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < Config::kSide / kWarps; ++r) {
#pragma unroll
    for (int c = 0; c < kAcross; ++c) {
      const int y = r * kWarps + warp, x = (c * 32 + lane) * width;
      if (row + y < rows && column + x < columns) visit(r * kAcross + c, y, x);
    }
  }
}
template <class Config, int width>
struct TileAccess {
  typedef typename Config::Element Element;
  union Type {
    typename Config::Access all;
    Element each[width];
  };
  __device__ static Type load(const Element* from) {
    Type access;
    access.all = __ldcs((const typename Config::Access*)from);
    return access;
  }
  __device__ static void store(Element* to, const Type& access) {
    __stcs((typename Config::Access*)to, access.all);
  }
};
template <class Config>
struct TileAccess<Config, 1> {
  typedef typename Config::Element Element;
  struct Type {
    Element each[1];
  };
  __device__ static Type load(const Element* from) { return {{__ldcs(from)}}; }
  __device__ static void store(Element* to, const Type& access) { __stcs(to, access.each[0]); }
};
template <class Config, int width>
__device__ inline void load_tile(
    const TransposeArguments<Config>& all, const TransposeTile& at,
    typename Config::Element (*tile)[Config::kSide + Config::kPadding]) {
  typedef TileAccess<Config, width> Access;
  const typename Config::Element* const from =
      all.x + (at.from + at.line * all.line_pitch + at.column);
  // All loads of a thread are in flight before it waits for one.
  typename Access::Type loaded[Config::kSide * Config::kSide / Config::kThreads / width];
  each_access<Config, width>(at.line, all.lines, at.column, all.columns,
                             [&](int number, int y, int x) {
                               loaded[number] = Access::load(from + (y * all.line_pitch + x));
                             });
  each_access<Config, width>(at.line, all.lines, at.column, all.columns,
                             [&](int number, int y, int x) {
#pragma unroll
                               for (int k = 0; k < width; ++k)
                                 tile[y][x + k] = loaded[number].each[k];
                             });
}
template <class Config, int width>
__device__ inline void store_tile(
    const TransposeArguments<Config>& all, const TransposeTile& at,
    typename Config::Element (*tile)[Config::kSide + Config::kPadding]) {
  typedef TileAccess<Config, width> Access;
  typename Config::Element* const to = all.y + (at.to + at.column * all.column_pitch + at.line);
  each_access<Config, width>(at.column, all.columns, at.line, all.lines, [&](int, int y, int x) {
    typename Access::Type access;
#pragma unroll
    for (int k = 0; k < width; ++k) access.each[k] = tile[x + k][y];
    Access::store(to + (y * all.column_pitch + x), access);
  });
}
// `tile_of` maps a number to a TransposeTile.
template <class Config, class TileOf>
__device__ inline void transpose_tiles(const TransposeArguments<Config>& all,
                                       const TileOf& tile_of) {
  constexpr int kWidth = Config::kWidth;
  __shared__ typename Config::Element tile[Config::kSide][Config::kSide + Config::kPadding];
  for (Index number = (Index)blockIdx.x; number < all.tiles; number += (Index)gridDim.x) {
    const TransposeTile at = tile_of(number);
    if (kWidth > 1 && !all.is_by_vector)
      load_tile<Config, 1>(all, at, tile);
    else
      load_tile<Config, kWidth>(all, at, tile);
    __syncthreads();
    if (kWidth > 1 && !all.is_by_vector)
      store_tile<Config, 1>(all, at, tile);
    else
      store_tile<Config, kWidth>(all, at, tile);
    __syncthreads();
  }
}
