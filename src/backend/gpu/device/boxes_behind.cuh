// A tensor of the type Behind that lies as the output does and goes into it: its part of a tile
// takes the stages behind those of the products.
// Expects box_copies.cuh and the type Behind.
#pragma once

#include "mma.cuh"
#include "tma.cuh"

// Neighbours that are copied at once, and of one row of a column of blocks.
constexpr int kVectorBehind = 16 / sizeof(Behind), kSwizzledBehind = 128 / sizeof(Behind);
constexpr int kBoxBytes = kTileM * 128, kBoxes = kTileN / kSwizzledBehind;
constexpr int kBoxesOfStage = kStageBytes / kBoxBytes;
constexpr int kStagesBehind = (kBoxes + kBoxesOfStage - 1) / kBoxesOfStage;
static_assert(kStagesBehind < kStages, "others have stages, too");
__device__ inline void copy_boxes_behind(Ring& ring, const TensorMap& map, Index row,
                                         Index column) {
  if (!is_copying_thread()) return;
#pragma unroll
  for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
    const int count = kBoxes - box < kBoxesOfStage ? kBoxes - box : kBoxesOfStage;
    wait(ring.is_empty(), ring.parity ^ 1);
    expect(ring.is_full(), count * kBoxBytes);
#pragma unroll
    for (int i = 0; i < count; ++i)
      copy_box(ring.tile_a() + i * kBoxBytes, map, column + (box + i) * kSwizzledBehind, row, 0,
               ring.is_full());
    ring.advance();
  }
}
struct BoxesBehind {
  Ring& ring;
  const int first;
  __device__ explicit BoxesBehind(Ring& ring) : ring(ring), first(ring.stage) {
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
      wait(ring.is_full(), ring.parity);
      ring.advance();
    }
  }
  __device__ int stage(int box) const {
    const int stage = first + box / kBoxesOfStage;
    return stage < kStages ? stage : stage - kStages;
  }
  // 16 rows of 16 columns from there on: of the lane's two pairs of columns what rows lane / 4 and
  // lane / 4 + 8 have.
  __device__ void load(unsigned (&to)[2][2], int row, int column) const {
    const int lane = (int)threadIdx.x % 32, box = column / kSwizzledBehind;
    const Behind* const from =
        (const Behind*)(ring.tiles + stage(box) * kStageBytes + box % kBoxesOfStage * kBoxBytes) +
        (row + lane % 16) * kSwizzledBehind;
    // The column's vector is one of two neighbours.
    const int vector = (lane / 16 ^ lane % 8) * kVectorBehind ^ column % kSwizzledBehind;
    load_matrices<false>(to[0][0], to[0][1], to[1][0], to[1][1], from + vector);
  }
  // Neighbours from that place of the tile on, which are copied at once.
  __device__ const Behind* find(int row, int column) const {
    const int box = column / kSwizzledBehind, in_row = column % kSwizzledBehind;
    return (const Behind*)(ring.tiles + stage(box) * kStageBytes +
                           box % kBoxesOfStage * kBoxBytes) +
           row * kSwizzledBehind + (in_row / kVectorBehind ^ row) % 8 * kVectorBehind +
           in_row % kVectorBehind;
  }
  // By warps that have read all of theirs.
  __device__ void release() const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage)
      arrive(ring.barriers + 16 * stage(box) + 8);
  }
};
