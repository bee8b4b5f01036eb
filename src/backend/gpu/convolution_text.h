#pragma once

#include <string_view>

// Readers of the operands of convolutions, beside those of product_text.h, whose types and
// constants they use, and Windows.
namespace opwright::gpu {

/// `WindowReader`: the elements of windows, of x channels-last (along k: tap by tap the channels)
/// or linear (across k, which goes channel by channel over the taps).
inline constexpr std::string_view kWindowReader = R"(
// Windows are numbered from `first` on, over `count` of them in all; those of an image follow each
// other, and images begin `image` elements apart. Channels begin `channel`, and pixels `pixel`,
// elements apart.
template <class Element, int extent, bool is_along_k>
struct WindowReader {
  static constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
  static constexpr int kStep = kThreads * kVector, kCopies = (kInner * kOuter + kStep - 1) / kStep;
  // The windows that a thread reads: one a copy along k, else those of one vector, for all copies
  // where each has the same.
  static constexpr bool kSame = kStep % extent == 0;
  static constexpr int kWindows = is_along_k ? kCopies : kSame ? kVector : kCopies * kVector;
  Windows windows;
  Index channels, depth, taps, channel, pixel;
  bool is_aligned;
  const Element* images[kWindows];  // null beyond the last window
  Index starts[kWindows][kAxes];

  __device__ WindowReader(const Element* x, const Windows& windows, Index first, Index count,
                          Index image, Index channels, Index taps, Index channel, Index pixel,
                          bool is_aligned)
      : windows(windows), channels(channels), depth(channels * taps), taps(taps), channel(channel),
        pixel(pixel), is_aligned(is_aligned) {
#pragma unroll
    for (int i = 0; i < kWindows; ++i) {
      const int copy = is_along_k ? i : i / kVector;
      const int at = copy * kStep + copying_thread() * kVector;
      const Index number = first + (is_along_k ? at / kInner : at % kInner + i % kVector);
      const bool is_there = number < count;
      const Index of = windows.begin(is_there ? number : 0, starts[i]);
      images[i] = is_there ? x + of * image : nullptr;
    }
  }
  __device__ Element read(int i, Index tap, Index c) const {
    if (images[i] == nullptr) return Element{};
    const Index place = windows.find(starts[i], tap);
    return place < 0 ? Element{} : images[i][place * pixel + c * channel];
  }
  // Taps of a row, with few channels, are neighbours in memory: kVector elements from `position`
  // on, which may go over into further rows.
  __device__ Pack<Element, kVector> read_rows(int i, Index position) const {
    const Index row_length = windows.window[kAxes - 1] * channels;
    const Index end = windows.x[kAxes - 1] * channels;
    const Index first = starts[i][kAxes - 1] * channels;
    const Index row = position / row_length, at = position % row_length;
    const auto find = [&](Index number) {
      return images[i] != nullptr ? windows.find_row(starts[i], number) : (Index)-1;
    };
    Pack<Element, kVector> pack;
    if (row_length >= kVector) {
      // Two rows at most, without branches between the loads.
      const Index places[2] = {find(row), find(row + 1)};
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const bool is_next = at + e >= row_length;
        const Index place = is_next ? places[1] : places[0];
        const Index in_row = first + at + e - (is_next ? row_length : 0);
        const bool is_there = place >= 0 && position + e < depth && (UIndex)in_row < (UIndex)end;
        pack.at[e] = is_there ? images[i][place * channels + in_row] : Element{};
      }
      return pack;
    }
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const Index in_row = first + (at + e) % row_length, place = find(row + (at + e) / row_length);
      const bool is_there = place >= 0 && position + e < depth && (UIndex)in_row < (UIndex)end;
      pack.at[e] = is_there ? images[i][place * channels + in_row] : Element{};
    }
    return pack;
  }
  __device__ void copy(Element* tile, Index k) const {
    if constexpr (is_along_k && kStep % kInner == 0) {
      if (is_aligned) {
        copy_channels(tile, k);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = i * kStep + copying_thread() * kVector;
      if (kInner * kOuter % kStep != 0 && at >= kInner * kOuter) break;
      const int outer = at / kInner, inner = at % kInner;
      Element* const to = tile + TileLayout<kInner, kOuter>::place(outer, inner);
      const Index position = k + (is_along_k ? inner : outer);
      if constexpr (!is_along_k) {
        const Index c = position / taps, tap = position % taps;
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          to[e] = position < depth ? read((kSame ? 0 : i * kVector) + e, tap, c) : Element{};
      } else if (!kIsTransposed && windows.dilation[kAxes - 1] == 1 && pixel == channels) {
        *(Pack<Element, kVector>*)to = read_rows(i, position);
      } else {
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          const Index tap = (position + e) / channels, c = (position + e) % channels;
          to[e] = position + e < depth ? read(i, tap, c) : Element{};
        }
      }
    }
  }
  // Of a vector all elements are channels of one tap, and so are a thread's vectors, which are of
  // windows below each other.
  __device__ void copy_channels(Element* tile, Index k) const {
    const int first = copying_thread() * kVector;
    const int outer = first / kInner, inner = first % kInner;
    const Index position = k + inner, tap = position / channels, c = position % channels;
    Index distance[kAxes];
    windows.reach(tap, distance);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kInner * kOuter % kStep != 0 && first + i * kStep >= kInner * kOuter) break;
      const Index place = images[i] != nullptr && position < depth
                              ? windows.find(starts[i], distance)
                              : (Index)-1;
      copy_vector<true>(
          tile + TileLayout<kInner, kOuter>::place(outer + i * (kStep / kInner), inner),
          place < 0 ? nullptr : images[i] + (place * pixel + c), place < 0 ? 0 : kVector);
    }
  }
};
)";

/// `WindowBoxes`: channels-last windows along k by the copying unit, behind kBoxCopies. Windows of
/// a tile follow each other as a map of windows has them, from the one that begins at (x, y) on;
/// neighbours along k that are copied at once are channels of one tap.
inline constexpr std::string_view kWindowBoxes = R"(
struct WindowBoxes {
  const TensorMap& map;
  Index channels, taps_of_row, dilation_y, dilation_x, image, y, x;
  __device__ void copy(ElementA* tile, Index k, unsigned barrier) const {
#pragma unroll
    for (int i = 0; i < kTileK; i += kSwizzled) {
      const Index tap = (k + i) / channels, c = (k + i) % channels;
      asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
                   ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                   :: "r"(shared_address(tile + i * kTileM)), "l"(&map), "r"(barrier), "r"((int)c),
                      "r"((int)x), "r"((int)y), "r"((int)image),
                      "h"((unsigned short)(tap % taps_of_row * dilation_x)),
                      "h"((unsigned short)(tap / taps_of_row * dilation_y)) : "memory");
    }
  }
};
)";

/// `PatchReader`: windows of a linear x that lie inside of it, along k: channel by channel the rows
/// of a window, `kPiece` neighbours of which are copied at once. `PieceReader`: the rows of a
/// matrix along k, which begin at multiples of `kRowPiece` elements.
inline constexpr std::string_view kPatchReader = R"(
// Elements that are neighbours in memory, or zeros.
template <int piece, class Element>
__device__ inline void copy_piece(Element* to, const Element* from, bool is_there,
                                  bool is_aligned) {
  constexpr int kBytes = piece * (int)sizeof(Element);
  const int bytes = is_there ? kBytes : 0;
  if (!is_aligned) {
#pragma unroll
    for (int e = 0; e < piece; ++e) to[e] = is_there ? from[e] : Element{};
  } else if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(shared_address(to)), "l"(from), "n"(kBytes), "r"(bytes) : "memory");
  }
}
template <class Element, int extent>
struct PieceReader {
  const Element* rows;
  Index depth, left;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
#pragma unroll
    for (int start = 0; start < kTileK * extent; start += kThreads * kVector) {
      const int at = start + copying_thread() * kVector, inner = at % kTileK, row = at / kTileK;
      if (kTileK * extent % (kThreads * kVector) != 0 && at >= kTileK * extent) break;
      Element* const to = tile + TileLayout<kTileK, extent>::place(row, inner);
#pragma unroll
      for (int p = 0; p < kVector; p += kRowPiece) {
        const Index position = k + inner + p;
        const bool is_there = row < left && position < depth;
        copy_piece<kRowPiece>(to + p, is_there ? rows + row * depth + position : nullptr, is_there,
                              is_aligned);
      }
    }
  }
};
// Windows are numbered as those of WindowReader.
template <class Element, int extent>
struct PatchReader {
  static constexpr int kStep = kThreads * kVector, kElements = kTileK * extent;
  static constexpr int kCopies = (kElements + kStep - 1) / kStep, kPieces = kVector / kPiece;
  // Whether a thread's vectors lie below each other.
  static constexpr bool kSame = kStep % kTileK == 0;
  Windows windows;
  Index depth;
  bool is_aligned;
  const Element* patches[kCopies];  // null beyond the last window

  __device__ PatchReader(const Element* x, const Windows& windows, Index first, Index count,
                         Index image, Index depth, bool is_aligned)
      : windows(windows), depth(depth), is_aligned(is_aligned) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const Index number = first + (i * kStep + copying_thread() * kVector) / kTileK;
      const bool is_there = number < count;
      Index start[kAxes], place = 0;
      const Index of = windows.begin(is_there ? number : 0, start);
#pragma unroll
      for (int axis = 0; axis < kAxes; ++axis) place = place * windows.x[axis] + start[axis];
      patches[i] = is_there ? x + (of * image + place) : nullptr;
    }
  }
  // How far an element of a window lies from its first one.
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
    const int thread = copying_thread() * kVector;
    Index places[kPieces];
    if (kSame) find_pieces(places, k + thread % kTileK);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = i * kStep + thread, inner = at % kTileK;
      if (kElements % kStep != 0 && at >= kElements) break;
      if (!kSame) find_pieces(places, k + inner);
      Element* const to = tile + TileLayout<kTileK, extent>::place(at / kTileK, inner);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const bool is_there = patches[i] != nullptr && k + inner + p * kPiece < depth;
        const Element* const from = is_there ? patches[i] + places[p] : nullptr;
        copy_piece<kPiece>(to + p * kPiece, from, is_there, is_aligned);
      }
    }
  }
};
)";

/// `KernelReader`: the weights of a transposed convolution.
inline constexpr std::string_view kKernelReader = R"(
// [channels, maps, taps] along k, which goes channel by channel over the taps, or [channels, taps,
// maps] across k, which goes tap by tap over the channels. `maps` counts those of all tiles, `left`
// those from the tile's first one on, at which `kernel` points.
template <class Element, int extent, bool is_along_k>
struct KernelReader {
  const Element* kernel;
  Index maps, left, taps, channels;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
    constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
#pragma unroll
    for (int start = 0; start < kInner * kOuter; start += kThreads * kVector) {
      const int at = start + copying_thread() * kVector;
      if (kInner * kOuter % (kThreads * kVector) != 0 && at >= kInner * kOuter) break;
      const int outer = at / kInner, inner = at % kInner;
      Element* const to = tile + TileLayout<kInner, kOuter>::place(outer, inner);
      if constexpr (is_along_k) {
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          const Index position = k + inner + e, c = position / taps, tap = position % taps;
          const bool is_there = outer < left && c < channels;
          to[e] = is_there ? kernel[(c * maps + outer) * taps + tap] : Element{};
        }
      } else {
        const Index position = k + outer, tap = position / channels, c = position % channels;
        const Element* const from = kernel + (c * taps + tap) * maps + inner;
        const Index count = tap < taps ? left - inner : 0;
        if (is_aligned)
          copy_vector<true>(to, from, count);
        else
          copy_vector<false>(to, from, count);
      }
    }
  }
};
)";

}  // namespace opwright::gpu
