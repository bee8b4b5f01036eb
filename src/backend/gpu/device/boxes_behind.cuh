// The tensor behind the operands: an input of the results that has the output's layout, with
// elements of Config's type Behind. TMA copies its part of a tile to the stages that follow those
// of the operands. With Behind void there is no such tensor, and it takes no stages.
// Expects prelude.cuh.
#pragma once

#include "mma.cuh"
#include "tma.cuh"
#include "warpgroup_ring.cuh"

template <class C, class Behind = typename C::Behind>
struct BoxesBehind {
  // Elements of a vector of 16 bytes, and of a row of 128 bytes in a column of blocks.
  static constexpr int kVector = 16 / sizeof(Behind), kSwizzled = 128 / sizeof(Behind);
  static constexpr int kBoxBytes = C::kTileM * 128, kBoxes = C::kTileN / kSwizzled;
  static constexpr int kBoxesOfStage = C::kStageBytes / kBoxBytes;
  static constexpr int kStages = (kBoxes + kBoxesOfStage - 1) / kBoxesOfStage;
  static_assert(kStages < C::kStages, "others have stages, too");
  Ring<C>& ring;
  const int first;

  // Called by the copying threads.
  __device__ static void copy(Ring<C>& ring, const TensorMap& map, const ProductTask& task) {
    if (C::copying_thread() != 0) return;
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
      const int count = kBoxes - box < kBoxesOfStage ? kBoxes - box : kBoxesOfStage;
      wait(ring.is_empty(), ring.parity ^ 1);
      expect(ring.is_full(), count * kBoxBytes);
#pragma unroll
      for (int i = 0; i < count; ++i)
        copy_box(ring.tile_a() + i * kBoxBytes, map, task.first_column + (box + i) * kSwizzled,
                 task.first_row, 0, ring.is_full());
      ring.advance();
    }
  }
  // Waits for the stages. Called by the multiplying threads.
  __device__ explicit BoxesBehind(Ring<C>& ring) : ring(ring), first(ring.stage) {
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
      wait(ring.is_full(), ring.parity);
      ring.advance();
    }
  }
  __device__ int stage(int box) const {
    const int stage = first + box / kBoxesOfStage;
    return stage < C::kStages ? stage : stage - C::kStages;
  }
  // Loads 16 rows of 16 columns from (row, column) on. A lane gets two pairs of columns, each of
  // rows lane / 4 and lane / 4 + 8.
  __device__ void load(unsigned (&to)[2][2], int row, int column) const {
    const int lane = (int)threadIdx.x % 32, box = column / kSwizzled;
    const Behind* const from = (const Behind*)(ring.tiles + stage(box) * C::kStageBytes +
                                               box % kBoxesOfStage * kBoxBytes) +
                               (row + lane % 16) * kSwizzled;
    // A lane addresses one of two neighbouring vectors, at its swizzled place.
    const int vector = (lane / 16 ^ lane % 8) * kVector ^ column % kSwizzled;
    load_matrices<false>(to[0][0], to[0][1], to[1][0], to[1][1], from + vector);
  }
  // Returns the address of an element of the tile. Elements up to the end of its vector are
  // contiguous.
  __device__ const Behind* find(int row, int column) const {
    const int box = column / kSwizzled, in_row = column % kSwizzled;
    return (const Behind*)(ring.tiles + stage(box) * C::kStageBytes +
                           box % kBoxesOfStage * kBoxBytes) +
           row * kSwizzled + (in_row / kVector ^ row) % 8 * kVector + in_row % kVector;
  }
  // A lane's elements for pairs of neighbouring results (packed_results.cuh).
  struct Pairs {
    static constexpr bool kLoadsMatrices = sizeof(Behind) == 2;
    const BoxesBehind& boxes;
    unsigned words[2][2];  // pairs of two neighbouring groups of four, each in two rows 8 apart
    __device__ explicit Pairs(const BoxesBehind& boxes) : boxes(boxes) {}
    __device__ void load(int warp_m, int warp_n, int first_pair) {
      if constexpr (kLoadsMatrices)
        if (first_pair % 8 == 0) boxes.load(words, warp_m, warp_n + 2 * first_pair);
    }
    __device__ Pack<Behind, 2> at(int tile_row, int tile_column, int first_pair, int half) const {
      if constexpr (kLoadsMatrices)
        return *(const Pack<Behind, 2>*)&words[first_pair / 4 % 2][half / 8];
      else
        return *(const Pack<Behind, 2>*)boxes.find(tile_row, tile_column);
    }
  };
  // Releases the stages. Called by a warp that has read all of its elements.
  __device__ void release() const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage)
      arrive(ring.barriers + 16 * stage(box) + 8);
  }
};
template <class C>
struct BoxesBehind<C, void> : NothingBehind {
  static constexpr int kStages = 0;
  __device__ explicit BoxesBehind(Ring<C>&) {}
  __device__ void release() const {}
};
