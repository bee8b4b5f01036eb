// How the blocks of a cluster send each other their units of a state. A barrier in each receiving
// block counts the bytes, including those that the block sends to itself. A block sends only when
// its warps have read the previous state. So a block that has received a whole state may overwrite
// the previous one.
// Expects prelude.cuh.
#pragma once

#include "barriers.cuh"
#include "cluster.cuh"

// States are numbered in the order in which blocks exchange them. State 0 is there from the start.
// Two states are in shared memory at a time. Without a cluster, only __syncthreads() is needed.
template <class C>
struct StateExchange {
  typedef typename C::Element Element;
  static constexpr int kBytes = C::kRows * C::kStateUnits * (int)sizeof(Element);
  char* states;
  unsigned barriers;  // in shared memory: two, of 8 bytes
  int rank;           // of the block in its cluster

  __device__ char* state(Index number) const { return states + number % 2 * C::kStateBytes; }
  __device__ static Element* place(char* state, int row, int unit) {
    const int byte = unit * (int)sizeof(Element);
    return (Element*)(state + (byte / 64 * C::kRows + row) * 64 + byte % 64);
  }
  // Writes a unit of a state. Units from kHidden on are multiplied by zeros. They are 0, because
  // they must not be infinite.
  __device__ void write(Index number, int row, int unit, float value) const {
    *place(state(number), row, unit) = store<Element>(unit < C::kHidden ? value : 0.0f);
  }
  __device__ unsigned barrier(Index number) const { return barriers + (unsigned)(number % 2) * 8; }

  // Called before other blocks send.
  __device__ void begin() const {
    if constexpr (C::kIsCluster) {
      if (threadIdx.x != 0) return;
      init_barrier(barriers, 1);
      init_barrier(barriers + 8, 1);
      end_barriers_init();
      expect(barriers, kBytes);
      expect(barriers + 8, kBytes);
    }
  }
  // Waits for a state. Called before the state is read.
  __device__ void receive(Index number) const {
    if constexpr (C::kIsCluster) {
      if (number == 0) return;
      ::wait(barrier(number), (unsigned)((number - 1) / 2 % 2));
      if (threadIdx.x == 0) expect(barrier(number), kBytes);
    }
  }
  // Sends the block's units of a state. Called after the block has written them.
  __device__ void send(Index number) const {
    __syncthreads();
    if constexpr (C::kIsCluster)
#pragma unroll
      for (int to = (int)threadIdx.x / 32; to < C::kBlocks; to += C::kWarps)
        send_to(to, state(number), barrier(number));
  }
  // A warp sends to one block at a time. Adjacent lanes send adjacent pieces of a row.
  __device__ void send_to(int block, char* state, unsigned barrier) const {
    constexpr int kPieces = C::kUnits / C::kVector;  // pieces of 16 bytes of a row
    const unsigned distance = place_in_block(barrier, block) - barrier;
#pragma unroll
    for (int i = (int)threadIdx.x % 32; i < C::kRows * kPieces; i += 32) {
      const Element* const from =
          place(state, i / kPieces, rank * C::kUnits + i % kPieces * C::kVector);
      const uint4 piece = *(const uint4*)from;
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
          "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(shared_address(from) + distance),
          "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w), "r"(barrier + distance)
          : "memory");
    }
  }
};
