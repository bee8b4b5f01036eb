// Copies stretches of rows of several inputs into the rows of one output.
//
// The kernel is a template over a struct that the host writes:
//   Element   an unsigned integer of an element's size
//   Access    an unsigned integer of the size of kWidth elements
//   kWidth    elements that an access moves where pointers and lengths allow it
//   kLanes    threads that copy a stretch
//   kUnroll   accesses of a thread that are in flight at once
//   kThreads  threads of a block
// Expects prelude.cuh.
#pragma once

#include "rows.cuh"

// An input's part of each row: `length` elements, which lie behind `begin` elements of other
// inputs. `group` counts stretches of this input.
template <class Config>
struct Piece {
  const typename Config::Element* from;
  Index length, begin, group;
};
template <class Config, class Access>
__device__ inline void copy_stretch(const typename Config::Element* x, typename Config::Element* y,
                                    Index length) {
  constexpr int kLanes = Config::kLanes, kUnroll = Config::kUnroll;
  const Access* const from = (const Access*)x;
  for (Index i = (Index)threadIdx.x % kLanes; i < length; i += kLanes * kUnroll)
    move_accesses<kLanes, kUnroll>((Access*)y, i, length,
                                   [&](Index at) -> Access { return __ldcs(from + at); });
}
// Rows of y have `total` elements. `piece_of` maps the number of a stretch to its Piece.
template <class Config, class PieceOf>
__device__ inline void concatenate(typename Config::Element* y, Index total, Index stretches,
                                   const PieceOf& piece_of) {
  typedef typename Config::Element Element;
  constexpr int kWidth = Config::kWidth, kAtOnce = Config::kThreads / Config::kLanes;
  constexpr int kChunk = Config::kLanes * Config::kUnroll * kWidth;
  for (Index number = (Index)blockIdx.x * kAtOnce + (Index)threadIdx.x / Config::kLanes;
       number < stretches; number += (Index)gridDim.x * kAtOnce) {
    const Piece<Config> piece = piece_of(number);
    const Index chunks = (piece.length + kChunk - 1) / kChunk;
    const Index row = (Index)((UIndex)piece.group / (UIndex)chunks);
    const Index first = (piece.group - row * chunks) * kChunk;
    const Element* const from = piece.from + (row * piece.length + first);
    Element* const to = y + (row * total + piece.begin + first);
    const Index left = min(piece.length - first, (Index)kChunk);
    if (kWidth > 1 && is_aligned<Element, kWidth>(from) && is_aligned<Element, kWidth>(to) &&
        left % kWidth == 0)
      copy_stretch<Config, typename Config::Access>(from, to, left / kWidth);
    else
      copy_stretch<Config, Element>(from, to, left);
  }
}
