// How the blocks of a cluster hand each other their units of a state: the bytes count for a barrier
// in the block that gets them, its own among them. A block sends when its warps have read the state
// before, so that whoever has all of a state may write over the one before it.
// Expects recurrence_tiles.cuh.
#pragma once

#include "barriers.cuh"
#include "cluster.cuh"

// A warp sends to one block at a time, whole rows of memory together.
__device__ inline void send_state(char* state, int rank, unsigned barrier) {
  constexpr int kPieces = kUnits / kOf16;  // of a row
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int to = (int)threadIdx.x / 32; to < kBlocks; to += kWarps) {
    const unsigned distance = place_in_block(barrier, to) - barrier;
#pragma unroll
    for (int i = lane; i < kRows * kPieces; i += 32) {
      const Element* const from =
          place_in_state(state, i / kPieces, rank * kUnits + i % kPieces * kOf16);
      const uint4 piece = *(const uint4*)from;
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
          "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(shared_address(from) + distance),
          "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w), "r"(barrier + distance)
          : "memory");
    }
  }
}
