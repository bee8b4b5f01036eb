// Products by warpgroups (wgmma). The first warps of a block multiply. The last warps copy tiles to
// shared memory: with cp.async (thread_copies.cuh), or one thread with TMA (box_copies.cuh). Beside
// the members in product_tasks.cuh, Config has
//   typedef .. Behind;  // type of the tensor behind the operands (boxes_behind.cuh), or void
//   static constexpr int kWarpGroups;   // warpgroups that multiply a tile
//   static constexpr int kTurns;        // 2: two groups of threads multiply tiles in turns; or 1
//   static constexpr int kCopiers;      // threads that copy
//   static constexpr int kWarpN;        // columns that a warp stores at once
//   static constexpr int kCopyingRegisters, kMultiplyingRegisters;  // of a thread; 0: not changed
//   static constexpr int kStoredBytes;  // shared memory for sums or results that warps store
//   static constexpr bool kHasMaps;     // TMA reads both operands
//   static constexpr bool kIsPacked;    // results are made in registers (packed_results.cuh)
//   static constexpr bool kReadsEarly;  // other inputs of results are read before the products
//   static constexpr bool kPromotes;    // as in product_tensor.cuh
//   template <int adds>
//   static void multiply_matrices(sums, a, b);  // the instruction
// Expects prelude.cuh.
#pragma once

#include "box_copies.cuh"
#include "boxes_behind.cuh"
#include "cluster_sums.cuh"
#include "packed_results.cuh"
#include "product_epilogue.cuh"
#include "thread_copies.cuh"
#include "wgmma.cuh"

// The offset of element k in a tile, in the units of a matrix descriptor (16 bytes).
template <class Element, bool is_along_k, int extent>
__device__ inline constexpr int place_along_k(int k) {
  constexpr int kSwizzled = 128 / sizeof(Element);
  return (is_along_k ? k / kSwizzled * (extent * 128) + k % kSwizzled * (int)sizeof(Element)
                     : k * 128) /
         16;
}
// Synchronizes the threads that multiply one tile.
template <class C>
__device__ inline void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(C::kMultipliers) : "memory");
}
// Keeps the compiler from moving a read of the sum before this call.
__device__ inline void keep_behind(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
__device__ inline void keep_behind(int&) {}
// A thread's sums: kBlocks blocks of 64 rows of its warpgroup, and all columns of the tile.
template <class C>
struct GroupProduct {
  typedef typename C::ElementA ElementA;
  typedef typename C::Sum Sum;
  static constexpr int kBlocks = C::kTileM / (64 * C::kWarpGroups);
  // The distance of blocks of 64 rows, in units of 16 bytes.
  static constexpr int kBlock = (C::kAlongKA ? 64 : C::kTileK) * 128 / 16;
  // Elements along k of an instruction.
  static constexpr int kStep = 32 / sizeof(ElementA);
  Sum sums[kBlocks][C::kTileN / 2];
  Sum of_tile[kBlocks][C::kTileN / 2];  // with kPromotes: the sums of one stage
  __device__ GroupProduct() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < C::kTileN / 2; ++j) sums[i][j] = 0;
  }
  // Starts the products of the tiles at these addresses in shared memory.
  __device__ void add(unsigned a, unsigned b) {
    const int group = (int)threadIdx.x / 128 % C::kWarpGroups;
    const unsigned long long rows =
        describe_matrix<C::kAlongKA, C::kTileK>(a) + group * (kBlocks * kBlock);
    const unsigned long long columns = describe_matrix<C::kAlongKB, C::kTileK>(b);
    begin_products();
#pragma unroll
    for (int k = 0; k < C::kTileK; k += kStep)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const unsigned long long row =
            rows + (place_along_k<ElementA, C::kAlongKA, C::kTileM>(k) + i * kBlock);
        const unsigned long long column =
            columns + place_along_k<ElementA, C::kAlongKB, C::kTileN>(k);
        if constexpr (!C::kPromotes)
          C::template multiply_matrices<1>(sums[i], row, column);
        else if (k == 0)
          C::template multiply_matrices<0>(of_tile[i], row, column);
        else
          C::template multiply_matrices<1>(of_tile[i], row, column);
      }
    end_products();
  }
  // Adds the sums of a stage to those before. Called after the wait for its products.
  __device__ void promote() {
    if constexpr (C::kPromotes)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < C::kTileN / 2; ++j) {
          keep_behind(of_tile[i][j]);
          sums[i][j] += of_tile[i][j];
        }
  }
  // Writes the sums to a tile whose rows are `row_length` apart.
  __device__ void put_all(Sum* to, int row_length) const {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < C::kTileN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const int row = (warp / 4 * kBlocks + i) * 64 + warp % 4 * 16 + lane / 4 + 4 * e;
          *(Pack<Sum, 2>*)(to + row * row_length + 8 * j + lane % 4 * 2) = {sums[i][4 * j + e],
                                                                            sums[i][4 * j + e + 1]};
        }
  }
};
// A warp's 16 rows in block `block` of the product, and kWarpN of their columns from `first` on.
template <class C>
struct GroupPart {
  typedef typename C::Sum Sum;
  const GroupProduct<C>& product;
  int block, first;
  __device__ void put(Sum* to, int row_length, int) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < GroupProduct<C>::kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < C::kTileN / 8; ++j)
        if (i == block && j >= first / 8 && j < (first + C::kWarpN) / 8)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(Pack<Sum, 2>*)(to + (lane / 4 + 4 * e) * row_length + 8 * j - first +
                             lane % 4 * 2) = {product.sums[i][4 * j + e],
                                              product.sums[i][4 * j + e + 1]};
  }
};

// With kTurns 2, each of two groups of threads multiplies every other tile.
template <class C>
struct Turns {
  int tiles = 0, own = 0;
  __device__ Turns() {
    if (C::kTurns > 1) own = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 / 4, 0);
  }
  // Returns false if the next tile belongs to the other group. Then skips its `stages` stages.
  __device__ bool begin(Ring<C>& ring, Index stages) {
    if constexpr (C::kTurns > 1) {
      const int turn = tiles++;
      if (turn % 2 != own) {
        ring.skip(stages);
        return false;
      }
      ring.begin_turn(turn);
    }
    return true;
  }
  // Called when the group has found all stages of its tile full.
  __device__ void end(const Ring<C>& ring) const {
    if (C::kTurns > 1) ring.end_turn(tiles - 1);
  }
};
// The loop along k. The products of one step still run when those of the next step begin. With
// kPromotes a warpgroup waits for each step's products and adds up their sums, while the other
// warpgroups multiply. Returns the barrier of the last stage if its products still run, else 0.
template <class C>
__device__ inline unsigned multiply_tiles(GroupProduct<C>& product, Ring<C>& ring,
                                          const ProductTask& task) {
  unsigned before = 0;
  for (Index step = task.first_step; step < task.end_step; ++step) {
    wait(ring.is_full(), ring.parity);
    if (!C::kHasMaps) fence_copies();
    product.add(shared_address(ring.tile_a()), shared_address(ring.tile_b()));
    if constexpr (C::kPromotes) {
      wait_for_products<0>();
      if (threadIdx.x % 32 == 0) arrive(ring.is_empty());
      product.promote();
      ring.advance();
      continue;
    }
    if (step > task.first_step) {
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

// The tensor maps of the operands and of the tensor behind them, for TMA. Null: TMA does not read
// the tensor.
struct GroupMaps {
  const TensorMap *a, *b, *behind;
};
// A block's shared memory: the stages, room for what warps store, and the barriers.
template <class C>
struct GroupMemory {
  char* tiles;
  // The swizzle depends on the address, so the stages are aligned to kPattern bytes.
  __device__ explicit GroupMemory(uint4* memory)
      : tiles((char*)memory + (0u - shared_address(memory)) % C::kPattern) {}
  __device__ char* stored() const { return tiles + C::kStages * C::kStageBytes; }
  __device__ char* barriers() const { return stored() + C::kStoredBytes; }
  // The warp's room for sums.
  __device__ typename C::Sum* sums() const {
    return (typename C::Sum*)stored() + (int)threadIdx.x / 32 * SumRows<C>::kElements;
  }
};

template <class C, class A, class B>
__device__ inline void prefetch_tiles(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                      const ProductTask& task) {
  if constexpr (C::kHasMaps)
    prefetch_boxes(ring, readers, task);
  else
    prefetch_by_threads(ring, readers, task);
}
template <class C, class A, class B>
__device__ inline void copy_tiles(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                  const ProductTask& task) {
  if constexpr (C::kHasMaps)
    copy_boxes(ring, readers, task);
  else
    copy_by_threads(ring, readers, task);
}
// The work of the copying warps.
template <class C, class Program>
__device__ __forceinline__ void copy_for_groups(const ProductArguments<C>& all,
                                                const Program& program, const GroupMaps& maps,
                                                Ring<C>& ring) {
  if constexpr (C::kCopyingRegisters > 0)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(C::kCopyingRegisters));
  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const ProductTask task = find_task(all, number);
    if (number == blockIdx.x) {
      prefetch_tiles(ring, program.operands(task), task);
      program.prefetch(task);
      program.wait();
    }
    copy_tiles(ring, program.operands(task), task);
    if constexpr (BoxesBehind<C>::kStages > 0) BoxesBehind<C>::copy(ring, *maps.behind, task);
    begin_next_kernel();
    // The multiplying warps sync the cluster twice in store_cluster_sums(), too.
    if constexpr (C::kParts > 1) sync_cluster(), sync_cluster();
  }
}
// Stores the results of a tile whose sums are in the registers of the block's warps.
template <class C, class Program, class Columns>
__device__ __forceinline__ void store_own_sums(const ProductArguments<C>& all,
                                               const ProductTask& task, const Program& program,
                                               const Columns& columns,
                                               const GroupProduct<C>& product,
                                               const GroupMemory<C>& memory,
                                               const BoxesBehind<C>& behind) {
  constexpr int kBlocks = GroupProduct<C>::kBlocks;
  const int warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
#pragma unroll
    for (int warp_n = 0; warp_n < C::kTileN; warp_n += C::kWarpN) {
      const int warp_m = (warp / 4 % C::kWarpGroups * kBlocks + block) * 64 + warp % 4 * 16;
      if constexpr (C::kIsPacked) {
        const auto find = [&](int i, Index column) {
          const Index row = task.first_row + warp_m + i, place = all.find(task, row, column);
          const bool is_there = row < all.rows && (!C::Places::kHasGaps || place >= 0);
          return is_there ? all.output + place : nullptr;
        };
        store_packed_results<C>(task, program, columns, product.sums[block], memory.stored(),
                                warp_m, warp_n, behind, all.rows, all.columns, all.stores_packs,
                                find);
      } else {
        store_results(all, task, program, GroupPart<C>{product, block, warp_n}, memory.sums(),
                      all.rows, warp_m, warp_n, behind);
      }
    }
}
// With kParts > 1, each block of a cluster multiplies one part of k. The warps of all blocks share
// the tile's pieces of 16 rows and kWarpN columns. A warp adds up the blocks' sums of its pieces.
template <class C>
struct ClusterPiece {
  static constexpr int kInRow = C::kTileN / C::kWarpN, kPieces = C::kTileM / 16 * kInRow;
  static constexpr int kWarps = C::kMultipliers / 32;
  // Packs of a piece that a lane has.
  static constexpr int kPacks = (16 * C::kWarpN + 32 * C::kPack - 1) / (32 * C::kPack);
  int number;
  __device__ bool is_there() const { return number < kPieces; }
  __device__ int warp_m() const { return number / kInRow * 16; }
  __device__ int warp_n() const { return number % kInRow * C::kWarpN; }
  __device__ ClusterPart<C> part(const char* tiles) const {
    return {shared_address(tiles) + (warp_m() * ClusterPart<C>::kSumRow + warp_n()) * 4};
  }
  // Calls `use(i, pack)` with each of a lane's packs that is inside of the output.
  template <class Use>
  __device__ void for_each_pack(const ProductArguments<C>& all, const ProductTask& task,
                                const typename C::Sum* sums, const Use& use) const {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = ((int)threadIdx.x % 32 + 32 * i) * C::kPack;
      if (at >= 16 * C::kWarpN) continue;
      const int row = at / C::kWarpN, column = at % C::kWarpN;
      const ResultPack<C> pack(all, task, all.rows, warp_m() + row, warp_n() + column,
                               sums + row * SumRows<C>::kLength + column);
      if (pack.is_there) use(i, pack);
    }
  }
};
// Adds up the sums of a cluster's blocks, and stores the results. A block writes its sums over its
// stages, where the warps of all blocks read them.
template <class C, class Program>
__device__ __forceinline__ void store_cluster_sums(const ProductArguments<C>& all,
                                                   const ProductTask& task, const Program& program,
                                                   const GroupMemory<C>& memory, Ring<C>& ring) {
  typedef ClusterPiece<C> Piece;
  const Piece first{(int)task.part * Piece::kWarps + (int)threadIdx.x / 32};
  const auto share_sums = [&] {
    GroupProduct<C> product;
    end_products(multiply_tiles(product, ring, task));
    sync_multipliers<C>();  // all warps have read the tiles
    product.put_all((typename C::Sum*)memory.tiles, ClusterPart<C>::kSumRow);
    sync_cluster();
  };
  if constexpr (!C::kReadsEarly) {
    share_sums();
    for (Piece piece = first; piece.is_there(); piece.number += C::kParts * Piece::kWarps)
      store_results(all, task, program, piece.part(memory.tiles), memory.sums(), all.rows,
                    piece.warp_m(), piece.warp_n(), NothingBehind());
    // Until here other blocks may still read this block's sums.
    sync_cluster();
  } else {
    // A warp has at most one piece.
    typedef decltype(program.read(task, *(const ResultPack<C>*)nullptr, NothingBehind())) Inputs;
    Inputs inputs[Piece::kPacks];
    if (first.is_there())
      first.for_each_pack(all, task, memory.sums(), [&](int i, const ResultPack<C>& pack) {
        inputs[i] = program.read(task, pack, NothingBehind());
      });
    share_sums();
    if (first.is_there()) {
      __syncwarp();
      first.part(memory.tiles).put(memory.sums(), SumRows<C>::kLength, 0);
      __syncwarp();
      arrive_in_cluster();
      first.for_each_pack(all, task, memory.sums(), [&](int i, const ResultPack<C>& pack) {
        store_pack(all, task, program, pack, inputs[i]);
      });
    } else {
      arrive_in_cluster();
    }
    wait_for_cluster();
  }
}
// The work of the multiplying warps.
template <class C, class Program>
__device__ __forceinline__ void multiply_for_groups(const ProductArguments<C>& all,
                                                    const Program& program,
                                                    const GroupMemory<C>& memory, Ring<C>& ring) {
  if constexpr (C::kMultiplyingRegisters > 0)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kMultiplyingRegisters));
  program.wait();
  Turns<C> turns;
  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const ProductTask task = find_task(all, number);
    if (!turns.begin(ring, task.end_step - task.first_step + BoxesBehind<C>::kStages)) continue;
    if constexpr (C::kParts > 1) {
      store_cluster_sums(all, task, program, memory, ring);
    } else {
      const auto columns = program.columns(task);
      GroupProduct<C> product;
      const unsigned last_stage = multiply_tiles(product, ring, task);
      const BoxesBehind<C> behind(ring);
      turns.end(ring);
      end_products(last_stage);
      store_own_sums(all, task, program, columns, product, memory, behind);
      behind.release();
    }
  }
}
// The kernel.
template <class Config, class Program>
__device__ __forceinline__ void multiply_by_groups(const ProductArguments<GroupConfig<Config>>& all,
                                                   const Program& program, const GroupMaps& maps) {
  typedef GroupConfig<Config> C;
  extern __shared__ uint4 shared[];
  const GroupMemory<C> memory(shared);
  Ring<C> ring(memory.tiles, memory.barriers());
  if (threadIdx.x == 0) ring.init();
  if (C::kHasMaps && threadIdx.x == 32) {
    prefetch_map(*maps.a);
    prefetch_map(*maps.b);
    if (BoxesBehind<C>::kStages > 0) prefetch_map(*maps.behind);
  }
  __syncthreads();
  if ((int)threadIdx.x / 32 >= C::kTurns * C::kMultipliers / 32)
    copy_for_groups(all, program, maps, ring);
  else
    multiply_for_groups(all, program, memory, ring);
}
