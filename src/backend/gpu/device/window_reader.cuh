// `WindowReader`: the elements of windows, of x channels-last (along k: tap by tap the channels) or
// linear (across k, which goes channel by channel over the taps).
// Expects windows.cuh and tile_copies.cuh.
#pragma once

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
      : windows(windows),
        channels(channels),
        depth(channels * taps),
        taps(taps),
        channel(channel),
        pixel(pixel),
        is_aligned(is_aligned) {
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
      const Index place =
          images[i] != nullptr && position < depth ? windows.find(starts[i], distance) : (Index)-1;
      copy_vector<true>(
          tile + TileLayout<kInner, kOuter>::place(outer + i * (kStep / kInner), inner),
          place < 0 ? nullptr : images[i] + (place * pixel + c), place < 0 ? 0 : kVector);
    }
  }
};
