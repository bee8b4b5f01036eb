// The layout of tiles in shared memory for warpgroups, and the ring of stages. Copying threads fill
// the stages, multiplying threads empty them. Expects prelude.cuh.
#pragma once

#include "barriers.cuh"
#include "product_tasks.cuh"

// The swizzle of 128 bytes. A tile consists of columns of blocks. A block has 8 rows of 128 bytes;
// row r has its vector i at place i ^ r. `swizzled` neighbours of a row lie in one column of
// blocks.
template <int inner, int outer, int vector, int swizzled>
struct SwizzledLayout {
  __device__ static int place(int row, int element) {
    return element / swizzled * (swizzled * outer) + row * swizzled +
           (element / vector ^ row) % 8 * vector + element % vector;
  }
};
template <class Config>
struct GroupConfig : Config {
  typedef typename Config::ElementA ElementA;
  static constexpr int kMultipliers = 128 * Config::kWarpGroups;  // threads that multiply a tile
  static constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are copied at once
  static constexpr int kSwizzled = 128 / sizeof(ElementA);
  static constexpr int kWarpM = 16, kPattern = 1024;  // bytes after which the swizzle repeats
  static constexpr int kSizeA = Config::kTileM * Config::kTileK;
  static constexpr int kSizeB = Config::kTileN * Config::kTileK;
  // A stage is a tile of a, followed by a tile of b.
  static constexpr int kStageBytes = (kSizeA + kSizeB) * (int)sizeof(ElementA);
  template <int inner, int outer>
  using Layout = SwizzledLayout<inner, outer, kVector, kSwizzled>;
  // The number of a thread among those that copy, which follow those that multiply.
  __device__ static int copying_thread() {
    return (int)threadIdx.x - Config::kTurns * kMultipliers;
  }
};

// The ring of stages. Each stage has two barriers: is_full() ends a phase when the stage is copied,
// is_empty() when the stage is multiplied.
template <class C>
struct Ring {
  char* tiles;
  unsigned barriers;
  int stage = 0;
  unsigned parity = 0;
  int prefetched = 0;  // stages whose constant operands are copied ahead

  __device__ Ring(char* tiles, char* barriers) : tiles(tiles), barriers(shared_address(barriers)) {}
  // Called by one thread, before any other thread uses the ring.
  __device__ void init() const {
    constexpr int kCopies = C::kHasMaps ? 1 : C::kCopiers + C::kCopiers / 32;
    constexpr int kProducts = C::kMultipliers / 32;
#pragma unroll
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(barriers + 16 * i, kCopies);
      init_barrier(barriers + 16 * i + 8, kProducts);
    }
#pragma unroll
    for (int i = 0; i < C::kTurns && C::kTurns > 1; ++i)
      init_barrier(barriers + 16 * C::kStages + 8 * i, kProducts);
    end_barriers_init();
  }
  __device__ unsigned is_full() const { return barriers + 16 * stage; }
  __device__ unsigned is_empty() const { return barriers + 16 * stage + 8; }
  __device__ char* tile_a() const { return tiles + stage * C::kStageBytes; }
  __device__ char* tile_b() const { return tile_a() + C::kSizeA * sizeof(typename C::ElementA); }
  __device__ void advance() {
    if (++stage == C::kStages) stage = 0, parity ^= 1;
  }
  // Waits until the other group has found all stages of the previous tile full. A barrier's parity
  // does not tell a phase from the one two phases before, so a group must not wait ahead. Group
  // turn % 2 multiplies tile `turn` of a block.
  __device__ void begin_turn(int turn) const {
    if (turn > 0)
      wait(barriers + 16 * C::kStages + 8 * ((turn - 1) % 2), (unsigned)(turn - 1) / 2 % 2);
  }
  __device__ void end_turn(int turn) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers + 16 * C::kStages + 8 * (turn % 2));
  }
  // Skips stages that the other group multiplies.
  __device__ void skip(Index count) {
    parity ^= (unsigned)((stage + count) / C::kStages & 1);
    stage = (int)((stage + count) % C::kStages);
  }
};
