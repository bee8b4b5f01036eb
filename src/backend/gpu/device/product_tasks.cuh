// A stack of products [rows, k] x [k, columns], the tiles of it that blocks compute, and the
// arguments of a kernel of products.
//
// Each kernel is a template over a struct that the host writes:
//   struct Config {
//     typedef .. ElementA, ElementB, Sum, Output;
//     static constexpr int kTileM, kTileN, kTileK;  // a block's tile; elements of k in one step
//     static constexpr int kWarpsM, kWarpsN;        // warps that divide the tile's rows, columns
//     static constexpr int kStages;                 // stages of operands in flight
//     static constexpr int kParts;                  // parts of k; each has a block of its own
//     static constexpr bool kAlongKA, kAlongKB;     // neighbours in memory are neighbours along k
//     static constexpr bool kIsConstantA, kIsConstantB;  // no earlier kernel writes the operand
//     static constexpr bool kHasProgram;  // a fused program computes the results
//     typedef .. Places;           // where results lie: RowPlaces, or of scattered_places.cuh
//     static constexpr int kPack;  // neighbours of a row of results that are stored at once
//     ...                                 // more constants, which the unit names
//   };
// Expects prelude.cuh.
#pragma once

template <class Config>
struct ProductArguments;

// A tile of one of the products, or a part of it along k.
struct ProductTask {
  Index tile, part, batch, first_row, first_column, first_step, end_step;
  Index first;  // the offset of the batch in the output
};
// The results of a row are neighbours in the output.
struct RowPlaces {
  static constexpr bool kHasGaps = false;
  static constexpr int kPhases = 1;
  template <class Config>
  __device__ Index find(const ProductArguments<Config>& all, const ProductTask& task, Index row,
                        Index column) const {
    return task.first + row * all.row_stride + column;
  }
};

template <class Config>
struct ProductArguments {
  typename Config::Output* output;
  Index rows, columns, steps;  // a step has kTileK elements along k
  Index tiles_m, tiles_n;
  Index tasks;                     // parts of tiles of all products
  Index row_stride, batch_stride;  // of the output
  bool stores_packs;               // kPack neighbours of the output may be stored at once
  typename Config::Places places;

  // The place of a result in the output. Negative where the result is not stored.
  __device__ Index find(const ProductTask& task, Index row, Index column) const {
    return places.find(*this, task, row, column);
  }
};

// Functions that the host writes for a kernel. They capture the kernel's parameters. `read` takes
// (task, pack, behind), or (columns, warp_n, pair) in packed_results.cuh.
template <class Operands, class Prefetch, class Wait, class Columns, class Read, class Make>
struct ProductProgram {
  Operands operands;  // (task): returns ProductReaders
  Prefetch prefetch;  // (task): prefetches other inputs of the tile's results
  Wait wait;          // (): waits until earlier kernels are done
  Columns columns;    // (task): returns ColumnValues (packed_results.cuh)
  Read read;          // returns the other inputs of neighbouring results
  Make make;          // (task, pack, inputs, i, sum): computes the i-th of these results
};
template <class Operands, class Prefetch, class Wait, class Columns, class Read, class Make>
ProductProgram(Operands, Prefetch, Wait, Columns, Read, Make)
    -> ProductProgram<Operands, Prefetch, Wait, Columns, Read, Make>;

template <class A, class B>
struct ProductReaders {
  A a;
  B b;
};
template <class A, class B>
ProductReaders(A, B) -> ProductReaders<A, B>;

// Consecutive tiles lie below each other, up to kGroupedRows of them: neighbouring blocks read the
// same columns of b. Batches that are phases of the same rows follow each other tile by tile:
// neighbouring blocks read the same rows of a.
template <class Config>
__device__ inline ProductTask find_task(const ProductArguments<Config>& all, Index number) {
  constexpr int kGroupedRows = 8, kParts = Config::kParts, kPhases = Config::Places::kPhases;
  ProductTask task;
  task.tile = number / kParts, task.part = number % kParts;
  const Index length = (all.steps + (kParts - 1)) / kParts;
  task.first_step = task.part * length;
  task.end_step = task.first_step + length < all.steps ? task.first_step + length : all.steps;
  const Index in_phases = task.tile / kPhases;
  const Index stack = in_phases / (all.tiles_m * all.tiles_n);
  const Index tile = in_phases % (all.tiles_m * all.tiles_n);
  task.batch = stack * kPhases + task.tile % kPhases;
  const Index group = tile / (kGroupedRows * all.tiles_n) * kGroupedRows;
  const Index in_group = tile % (kGroupedRows * all.tiles_n);
  const Index height = all.tiles_m - group < kGroupedRows ? all.tiles_m - group : kGroupedRows;
  task.first_row = (group + in_group % height) * Config::kTileM;
  task.first_column = in_group / height * Config::kTileN;
  task.first = stack * all.batch_stride;
  return task;
}

// The operand whose tiles a reader copies: rows of a, or columns of b. C defines the layout of
// tiles in shared memory, and which threads copy.
template <class C, class T, int extent, bool is_along_k>
struct ProductSide {
  typedef T Element;
  static constexpr bool kAlongK = is_along_k;
  static constexpr int kExtent = extent, kTileK = C::kTileK;
  static constexpr int kVector = C::kVector;    // neighbours that are copied at once
  static constexpr int kThreads = C::kCopiers;  // threads that copy
  static constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
  __device__ static int thread() { return C::copying_thread(); }
  // The place of an element in shared memory. A tile has kOuter rows of kInner elements.
  __device__ static int place(int row, int element) {
    return C::template Layout<kInner, kOuter>::place(row, element);
  }
};
template <class C>
using SideA = ProductSide<C, typename C::ElementA, C::kTileM, C::kAlongKA>;
template <class C>
using SideB = ProductSide<C, typename C::ElementB, C::kTileN, C::kAlongKB>;

// Prefetches the tile's columns of a constant input of the results into the L2 cache, with the
// threads that copy.
template <class C, class T>
__device__ inline void prefetch_columns(const T* from, Index first, Index columns) {
  constexpr int kLine = 128 / sizeof(T);
  const int offset = C::copying_thread() * kLine;
  if (offset < C::kTileN + kLine && first + offset < columns)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + first + offset));
}
// Stands for BoxesBehind (boxes_behind.cuh) if no tensor goes through the stages behind the
// operands.
struct NothingBehind {
  struct Pairs {
    __device__ explicit Pairs(const NothingBehind&) {}
    __device__ void load(int, int, int) {}
    __device__ NothingBehind at(int, int, int, int) const { return {}; }
  };
};
