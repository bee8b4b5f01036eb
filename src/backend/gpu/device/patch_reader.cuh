// `PatchReader`: reads windows of a linear x along k. All windows lie inside of x. k goes channel
// by channel over the rows of a window, and kPiece neighbours of a row are copied at once.
// `PieceReader`: reads rows of a matrix along k, which begin at multiples of kPiece elements.
// `Side` is a ProductSide. `Config` has kAxes and kIsTransposed; see windows.cuh.
// Expects prelude.cuh.
#pragma once

#include "copies.cuh"
#include "windows.cuh"

// Copies contiguous elements, or writes zeros.
template <int piece, class Element>
__device__ inline void copy_piece(Element* to, const Element* from, bool is_there,
                                  bool is_aligned) {
  constexpr int kBytes = piece * (int)sizeof(Element);
  const int bytes = is_there ? kBytes : 0;
  if (!is_aligned) {
#pragma unroll
    for (int e = 0; e < piece; ++e) to[e] = is_there ? from[e] : Element{};
  } else if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}
template <class Side, int kPiece>
struct PieceReader {
  typedef typename Side::Element Element;
  static constexpr int kTileK = Side::kTileK, kExtent = Side::kExtent, kVector = Side::kVector,
                       kThreads = Side::kThreads;
  const Element* rows;
  Index depth, left;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
#pragma unroll
    for (int start = 0; start < kTileK * kExtent; start += kThreads * kVector) {
      const int at = start + Side::thread() * kVector, inner = at % kTileK, row = at / kTileK;
      if (kTileK * kExtent % (kThreads * kVector) != 0 && at >= kTileK * kExtent) break;
      Element* const to = tile + Side::place(row, inner);
#pragma unroll
      for (int p = 0; p < kVector; p += kPiece) {
        const Index position = k + inner + p;
        const bool is_there = row < left && position < depth;
        copy_piece<kPiece>(to + p, is_there ? rows + row * depth + position : nullptr, is_there,
                           is_aligned);
      }
    }
  }
};
// Windows are numbered as in WindowReader.
template <class Side, class Config, int kPiece>
struct PatchReader {
  typedef typename Side::Element Element;
  static constexpr int kAxes = Config::kAxes;
  static constexpr int kTileK = Side::kTileK, kExtent = Side::kExtent, kVector = Side::kVector,
                       kThreads = Side::kThreads;
  static constexpr int kStep = kThreads * kVector, kElements = kTileK * kExtent;
  static constexpr int kCopies = (kElements + kStep - 1) / kStep, kPieces = kVector / kPiece;
  // Whether all of a thread's vectors have the same position along k.
  static constexpr bool kSame = kStep % kTileK == 0;
  Windows<Config> windows;
  Index depth;
  bool is_aligned;
  const Element* patches[kCopies];  // null beyond the last window

  __device__ PatchReader(const Element* x, const Windows<Config>& windows, Index first, Index count,
                         Index image, Index depth, bool is_aligned)
      : windows(windows), depth(depth), is_aligned(is_aligned) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const Index number = first + (i * kStep + Side::thread() * kVector) / kTileK;
      const bool is_there = number < count;
      Index start[kAxes], place = 0;
      const Index of = windows.begin(is_there ? number : 0, start);
#pragma unroll
      for (int axis = 0; axis < kAxes; ++axis) place = place * windows.x[axis] + start[axis];
      patches[i] = is_there ? x + (of * image + place) : nullptr;
    }
  }
  // The offset of an element of a window from the window's first element.
  __device__ Index find(Index position) const {
    UIndex rest = (UIndex)position;
    Index place = 0, step = 1;
#pragma unroll
    for (int axis = kAxes - 1; axis >= 0; --axis) {
      place += (Index)(rest % (UIndex)windows.window[axis]) * step;
      rest /= (UIndex)windows.window[axis];
      step *= windows.x[axis];
    }
    return place + (Index)rest * step;
  }
  __device__ void find_pieces(Index (&places)[kPieces], Index position) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) places[p] = find(position + p * kPiece);
  }
  __device__ void copy(Element* tile, Index k) const {
    const int thread = Side::thread() * kVector;
    Index places[kPieces];
    if (kSame) find_pieces(places, k + thread % kTileK);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = i * kStep + thread, inner = at % kTileK;
      if (kElements % kStep != 0 && at >= kElements) break;
      if (!kSame) find_pieces(places, k + inner);
      Element* const to = tile + Side::place(at / kTileK, inner);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const bool is_there = patches[i] != nullptr && k + inner + p * kPiece < depth;
        const Element* const from = is_there ? patches[i] + places[p] : nullptr;
        copy_piece<kPiece>(to + p * kPiece, from, is_there, is_aligned);
      }
    }
  }
};
