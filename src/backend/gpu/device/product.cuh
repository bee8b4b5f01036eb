// Products of tiles that all warps of a block share. Stages of both operands are in shared memory,
// copied by all threads. `Unit` multiplies them: TensorProduct (product_tensor.cuh) on tensor
// cores, or ScalarProduct (product_scalar.cuh). Expects prelude.cuh.
#pragma once

#include "part_counters.cuh"
#include "product_epilogue.cuh"
#include "tile_copies.cuh"

// Padded rows: eight rows below each other begin in different banks.
template <int inner, int outer, int vector>
struct PaddedLayout {
  static constexpr int kLength = inner + vector, kElements = outer * kLength;
  __device__ static int place(int row, int element) { return row * kLength + element; }
};
template <class Config>
struct TileConfig : Config {
  typedef typename Config::ElementA ElementA;
  typedef typename Config::ElementB ElementB;
  static constexpr int kThreads = 32 * Config::kWarpsM * Config::kWarpsN, kCopiers = kThreads;
  static constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are copied at once
  static constexpr int kWarpM = Config::kTileM / Config::kWarpsM;
  static constexpr int kWarpN = Config::kTileN / Config::kWarpsN;
  template <int inner, int outer>
  using Layout = PaddedLayout<inner, outer, kVector>;
  typedef Layout<Config::kAlongKA ? Config::kTileK : Config::kTileM,
                 Config::kAlongKA ? Config::kTileM : Config::kTileK>
      LayoutA;
  typedef Layout<Config::kAlongKB ? Config::kTileK : Config::kTileN,
                 Config::kAlongKB ? Config::kTileN : Config::kTileK>
      LayoutB;
  static constexpr int kRowA = LayoutA::kLength, kRowB = LayoutB::kLength;
  static constexpr int kSizeA = LayoutA::kElements, kSizeB = LayoutB::kElements;
  // A stage is a tile of a, followed by a tile of b.
  static constexpr int kStageBytes = kSizeA * sizeof(ElementA) + kSizeB * sizeof(ElementB);
  __device__ static int copying_thread() { return (int)threadIdx.x; }
};

// The stages of both operands.
template <class C>
struct TileStages {
  char* tiles;
  __device__ typename C::ElementA* a(int stage) const {
    return (typename C::ElementA*)(tiles + stage * C::kStageBytes);
  }
  __device__ typename C::ElementB* b(int stage) const {
    return (typename C::ElementB*)(a(stage) + C::kSizeA);
  }
};
// Starts to copy the constant operands of the first stages, before earlier kernels are done.
template <class C, class A, class B>
__device__ inline void prefetch_tiles(const TileStages<C>& stages,
                                      const ProductReaders<A, B>& readers,
                                      const ProductTask& task) {
#pragma unroll
  for (int stage = 0; stage < C::kStages - 1; ++stage) {
    const Index step = task.first_step + stage;
    if (step >= task.end_step) break;
    if (C::kIsConstantA) readers.a.copy(stages.a(stage), step * C::kTileK);
    if (C::kIsConstantB) readers.b.copy(stages.b(stage), step * C::kTileK);
  }
}
// The loop along k. Copies run kStages - 1 steps ahead of the products.
template <class C, class Product, class A, class B>
__device__ inline void multiply_tiles(Product& product, const TileStages<C>& stages,
                                      const ProductReaders<A, B>& readers, const ProductTask& task,
                                      int warp_m, int warp_n, bool is_prefetched) {
  constexpr int kAhead = C::kStages - 1;
  const auto copy = [&](int stage, Index step, bool is_prefetched) {
    if (step < task.end_step) {
      if (!C::kIsConstantA || !is_prefetched) readers.a.copy(stages.a(stage), step * C::kTileK);
      if (!C::kIsConstantB || !is_prefetched) readers.b.copy(stages.b(stage), step * C::kTileK);
    }
    end_copies();
  };
#pragma unroll
  for (int stage = 0; stage < kAhead; ++stage) copy(stage, task.first_step + stage, is_prefetched);
  int stage = 0;
  for (Index step = task.first_step; step < task.end_step; ++step) {
    wait_for_copies<kAhead - 1>();
    __syncthreads();
    copy(stage == 0 ? C::kStages - 1 : stage - 1, step + kAhead, false);
    product.add(stages.a(stage), stages.b(stage), warp_m, warp_n);
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  __syncthreads();
}
// Merges the parts of a tile in the block that ends last, always in the same order. Returns false
// in all other blocks.
template <class C, class Product, int words>
__device__ inline bool merge_parts(Product& product, const ProductTask& task,
                                   typename C::Sum* scratch,
                                   unsigned long long* const (&counters)[words]) {
  constexpr int kPart = C::kTileM * C::kTileN;
  typename C::Sum* const parts = scratch + task.tile * C::kParts * kPart;
  product.save(parts + task.part * kPart + threadIdx.x, C::kThreads);
  if (!is_last_part<C::kParts>(counters, task.tile)) return false;
  product = Product();
#pragma unroll 1
  for (int i = 0; i < C::kParts; ++i)
    product.add_saved(parts + i * kPart + threadIdx.x, C::kThreads);
  return true;
}

// The kernel. With several parts of k, `scratch` has room for the sums of all tiles and parts, and
// `counters` are those of part_counters.cuh.
template <class Config, template <class> class Unit, class Program, int words>
__device__ __forceinline__ void multiply_by_tiles(const ProductArguments<TileConfig<Config>>& all,
                                                  const Program& program,
                                                  typename Config::Sum* scratch,
                                                  unsigned long long* const (&counters)[words]) {
  typedef TileConfig<Config> C;
  typedef Unit<C> Product;
  static_assert(C::kSharedBytes >= C::kStages * C::kStageBytes &&
                C::kSharedBytes >= C::kWarpsM * C::kWarpsN * 4 * SumRows<C>::kElements);
  extern __shared__ uint4 shared[];
  const TileStages<C> stages{(char*)shared};
  const int warp = (int)threadIdx.x / 32;
  const int warp_m = warp % C::kWarpsM * C::kWarpM, warp_n = warp / C::kWarpsM * C::kWarpN;
  // The sums overwrite the stages.
  typename C::Sum* const sums = (typename C::Sum*)shared + warp * SumRows<C>::kElements;

  for (Index number = blockIdx.x; number < all.tasks; number += gridDim.x) {
    const ProductTask task = find_task(all, number);
    const bool is_first = number == blockIdx.x;
    if (is_first) {
      prefetch_tiles(stages, program.operands(task), task);
      program.prefetch(task);
      program.wait();
    }
    Product product;
    multiply_tiles(product, stages, program.operands(task), task, warp_m, warp_n, is_first);
    begin_next_kernel();
    if constexpr (C::kParts > 1)
      if (!merge_parts<C>(product, task, scratch, counters)) continue;
    store_results(all, task, program, product, sums, all.rows, warp_m, warp_n, NothingBehind());
    __syncthreads();
  }
}
