// Moves elements into an output row by row.
//
// The kernel is a template over a struct that the host writes:
//   kLanes    threads along a row
//   kUnroll   accesses of a thread to a row that are in flight at once
//   kRows     rows, of one access each, that are in flight at once; 1: several accesses to one row
//   kWidth    elements that the widest access moves
//   kThreads  threads of a block
// Expects prelude.cuh.
#pragma once

// Threads share the rows in groups. A group has a row, or one of the `chunks` of a long row, which
// has `length` elements. `group` and `lane` are the thread's.
template <class Config>
struct RowArguments {
  static constexpr int kAtOnce = Config::kThreads / Config::kLanes;
  static constexpr int kGroups = kAtOnce * Config::kRows;
  Index groups, chunks, length;
  Index group = (Index)blockIdx.x * kGroups + (Index)threadIdx.x / Config::kLanes;
  Index lane = (Index)threadIdx.x % Config::kLanes;
};
// Moves accesses to a row, `lanes` apart, from number `first` on. All loads of a thread are in
// flight before it waits for one.
template <int lanes, int unroll, class Access, class Fetch>
__device__ inline void move_accesses(Access* to, Index first, Index length, const Fetch& fetch) {
  Access loaded[unroll];
#pragma unroll
  for (int k = 0; k < unroll; ++k) {
    const Index i = first + k * lanes;
    if (i < length) loaded[k] = fetch(i);
  }
#pragma unroll
  for (int k = 0; k < unroll; ++k) {
    const Index i = first + k * lanes;
    if (i < length) __stcs(to + i, loaded[k]);
  }
}
// `row_of` maps a row's number to a function that fetches an access to the row by its number.
template <class Config, class Access, class Element, class RowOf>
__device__ inline void move_rows(const RowArguments<Config>& all, Element* y, const RowOf& row_of) {
  constexpr int kLanes = Config::kLanes, kRows = Config::kRows;
  constexpr int kWidth = sizeof(Access) / sizeof(Element), kAtOnce = RowArguments<Config>::kAtOnce;
  const Index length = all.length / kWidth, step = (Index)gridDim.x * RowArguments<Config>::kGroups;
  for (Index group = all.group; group < all.groups; group += step) {
    if constexpr (kRows > 1) {
      for (Index i = all.lane; i < length; i += kLanes) {
        Access loaded[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Index row = group + r * kAtOnce;
          if (row < all.groups) loaded[r] = row_of(row)(i);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Index row = group + r * kAtOnce;
          if (row < all.groups) __stcs((Access*)(y + row * all.length) + i, loaded[r]);
        }
      }
    } else {
      constexpr int kSpan = kLanes * Config::kUnroll, kRepeats = Config::kWidth / kWidth;
      const Index row = (Index)((UIndex)group / (UIndex)all.chunks);
      Index first = all.lane + (group - row * all.chunks) * (kSpan * kRepeats);
      const auto fetch = row_of(row);
      Access* const to = (Access*)(y + row * all.length);
      for (int repeat = 0; repeat < kRepeats; ++repeat, first += kSpan)
        move_accesses<kLanes, Config::kUnroll>(to, first, length, fetch);
    }
  }
}
