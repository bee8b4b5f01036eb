// Products of a few rows: a lane has what it reads of b in the order that tensor cores want,
// because the same order of k serves a and b. MatrixReader, and where a lane's columns lie in a
// tile.
// Expects what product_tiles.cuh expects.
#pragma once

constexpr int kWarps = kWarpsM * kWarpsN, kThreads = 32 * kWarps;
constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are read at once
constexpr int kPack = 16 / sizeof(Output);      // neighbours that are stored at once
constexpr int kWarpM = 16, kWarpN = kTileN < 16 ? kTileN : 16;  // what a warp stores at once
constexpr int kStep = 4 * kVector, kSteps = kTileK / kStep;     // along k
constexpr int kRowTiles = kTileM / 8, kColumnTiles = kTileN / 16;

// What no other block reads does not take the place of what they do.
__device__ inline uint4 read_once(const void* from) {
  uint4 vector;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(from));
  return vector;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
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
