// Products by warpgroups (wgmma), behind which some warps copy tiles.
// Expects what product_tiles.cuh expects, and the constants kWarpGroups, of those that multiply;
// kThreads, those that copy, which are behind them; kTurns, how many tiles are multiplied by
// threads of their own; kHasMaps: the threads that copy let the copying unit (TMA) do it; kWarpN,
// the columns that a warp stores at once; kPromotes: tensor cores keep some 14 bits of a sum of FP8
// (DeepSeek-V3, 2024, section 3.3.2), so that those of a tile are added up in FP32; and the
// instruction multiply_matrices(), which the host's code writes.
#pragma once

#include "barriers.cuh"
#include "wgmma.cuh"

// How tiles lie in shared memory, and who copies them: the warps behind those that multiply.
constexpr int kMultipliers = 128 * kWarpGroups;    // threads that multiply a tile
constexpr int kVector = 16 / sizeof(ElementA);     // neighbours that are copied at once
constexpr int kPack = 16 / sizeof(Output);         // neighbours that are stored at once
constexpr int kSwizzled = 128 / sizeof(ElementA);  // neighbours of one row of a column of blocks
constexpr int kWarpM = 16;

__device__ inline int copying_thread() { return (int)threadIdx.x - kTurns * kMultipliers; }
__device__ inline void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kMultipliers) : "memory");
}
// Columns of blocks of 8 rows of 128 bytes, of which row r has its vector i at i ^ r.
template <int inner, int outer>
struct TileLayout {
  static constexpr int kElements = inner * outer;
  __device__ static int place(int row, int element) {
    return element / kSwizzled * (kSwizzled * outer) + row * kSwizzled +
           (element / kVector ^ row) % 8 * kVector + element % kVector;
  }
};
constexpr int kSizeA = kTileM * kTileK, kSizeB = kTileN * kTileK;
// A stage: a tile of a, and behind it one of b.
constexpr int kStageBytes = (kSizeA + kSizeB) * (int)sizeof(ElementA);

// Where element k of a tile's rows begins, in the units of the description.
template <bool is_along_k, int extent>
__device__ inline constexpr int place_along_k(int k) {
  return (is_along_k ? k / kSwizzled * (extent * 128) + k % kSwizzled * (int)sizeof(ElementA)
                     : k * 128) /
         16;
}
// The sum is not read before what comes before this.
__device__ inline void keep_behind(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
__device__ inline void keep_behind(int&) {}
// The sums of a warpgroup's threads.
struct Product {
  static constexpr int kBlocks = kTileM / (64 * kWarpGroups);
  // Of 64 rows, in the same units.
  static constexpr int kBlock = (kAlongKA ? 64 : kTileK) * 128 / 16;
  // Elements along k of an instruction.
  static constexpr int kStep = 32 / sizeof(ElementA);
  Sum sums[kBlocks][kTileN / 2];
  Sum of_tile[kBlocks][kTileN / 2];  // where they are promoted
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 2; ++j) sums[i][j] = 0;
  }
  // Starts products of the tiles at these addresses in shared memory.
  __device__ void add(unsigned a, unsigned b) {
    const int group = (int)threadIdx.x / 128 % kWarpGroups;
    const unsigned long long rows =
        describe_matrix<kAlongKA, kTileK>(a) + group * (kBlocks * kBlock);
    const unsigned long long columns = describe_matrix<kAlongKB, kTileK>(b);
    begin_products();
#pragma unroll
    for (int k = 0; k < kTileK; k += kStep)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const unsigned long long row = rows + (place_along_k<kAlongKA, kTileM>(k) + i * kBlock);
        const unsigned long long column = columns + place_along_k<kAlongKB, kTileN>(k);
        if constexpr (!kPromotes)
          multiply_matrices<1>(sums[i], row, column);
        else if (k == 0)
          multiply_matrices<0>(of_tile[i], row, column);
        else
          multiply_matrices<1>(of_tile[i], row, column);
      }
    end_products();
  }
  // Behind the wait for the products.
  __device__ void promote() {
    if constexpr (kPromotes)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kTileN / 2; ++j) {
          keep_behind(of_tile[i][j]);
          sums[i][j] += of_tile[i][j];
        }
  }
  // Puts the sums into a tile of rows of that length.
  __device__ void put_all(Sum* to, int row_length) const {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const int row = (warp / 4 * kBlocks + i) * 64 + warp % 4 * 16 + lane / 4 + 4 * e;
          *(Pack<Sum, 2>*)(to + row * row_length + 8 * j + lane % 4 * 2) = {sums[i][4 * j + e],
                                                                            sums[i][4 * j + e + 1]};
        }
  }
};
// The 16 rows of a warp in one of the product's blocks, and kWarpN columns of them.
struct ProductPart {
  const Product& product;
  int block, first;
  __device__ void put(Sum* to, int row_length, int) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < Product::kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
        if (i == block && j >= first / 8 && j < (first + kWarpN) / 8)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(Pack<Sum, 2>*)(to + (lane / 4 + 4 * e) * row_length + 8 * j - first +
                             lane % 4 * 2) = {product.sums[i][4 * j + e],
                                              product.sums[i][4 * j + e + 1]};
  }
};

// The stages, and the loop over tiles along k of those that multiply.
// Stages that are filled and multiplied in turns, with two barriers each.
struct Ring {
  char* tiles;
  unsigned barriers;
  int stage = 0;
  unsigned parity = 0;
  int prefetched = 0;  // stages that have what is constant

  __device__ Ring(char* tiles, char* barriers) : tiles(tiles), barriers(shared_address(barriers)) {}
  // By one thread, before any other uses it.
  __device__ void init() const {
    constexpr int kCopies = kHasMaps ? 1 : kThreads + kThreads / 32;
    constexpr int kProducts = kMultipliers / 32;
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      init_barrier(barriers + 16 * i, kCopies);
      init_barrier(barriers + 16 * i + 8, kProducts);
    }
#pragma unroll
    for (int i = 0; i < kTurns && kTurns > 1; ++i)
      init_barrier(barriers + 16 * kStages + 8 * i, kProducts);
    end_barriers_init();
  }
  __device__ unsigned is_full() const { return barriers + 16 * stage; }
  __device__ unsigned is_empty() const { return barriers + 16 * stage + 8; }
  __device__ char* tile_a() const { return tiles + stage * kStageBytes; }
  __device__ char* tile_b() const { return tile_a() + kSizeA * sizeof(ElementA); }
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  // Those that multiply a tile wait until those of the one before have found all of their stages
  // full: a phase is not told from the one two before. Tile `turn` of a block is that of group
  // `turn % 2`.
  __device__ void begin_turn(int turn) const {
    if (turn > 0)
      wait(barriers + 16 * kStages + 8 * ((turn - 1) % 2), (unsigned)(turn - 1) / 2 % 2);
  }
  __device__ void end_turn(int turn) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers + 16 * kStages + 8 * (turn % 2));
  }
  // Over stages that are for others.
  __device__ void skip(Index count) {
    parity ^= (unsigned)((stage + count) / kStages & 1);
    stage = (int)((stage + count) % kStages);
  }
};
// Products of one step run while the next one's begin, but where threads add them up: then other
// warpgroups multiply meanwhile. Gives the barrier of the last stage, if its products still run.
__device__ inline unsigned multiply_tiles(Product& product, Ring& ring, Index first, Index end) {
  unsigned before = 0;
  for (Index step = first; step < end; ++step) {
    wait(ring.is_full(), ring.parity);
    if (!kHasMaps) fence_copies();
    product.add(shared_address(ring.tile_a()), shared_address(ring.tile_b()));
    if constexpr (kPromotes) {
      wait_for_products<0>();
      if (threadIdx.x % 32 == 0) arrive(ring.is_empty());
      product.promote();
      ring.advance();
      continue;
    }
    if (step > first) {
      wait_for_products<1>();
      if (threadIdx.x % 32 == 0) arrive(before);
    }
    before = ring.is_empty();
    ring.advance();
  }
  return before;
}
__device__ inline void end_products(unsigned last_stage) {
  wait_for_products<0>();
  if (last_stage != 0 && threadIdx.x % 32 == 0) arrive(last_stage);
}
