// `WindowReader`: reads the elements of windows of x. Channels-last windows lie along k, which goes
// tap by tap over the channels. Linear windows lie across k, which goes channel by channel over the
// taps. `Side` is a ProductSide. `Config` has kAxes and kIsTransposed; see windows.cuh.
// Expects prelude.cuh.
#pragma once

#include "tile_copies.cuh"
#include "windows.cuh"

// The tile begins with window `first` of `count` windows. Windows are numbered image by image.
// Images begin `image` elements apart, channels `channel`, and pixels `pixel` elements apart.
template <class Side, class Config>
struct WindowReader {
  typedef typename Side::Element Element;
  static constexpr int kAxes = Config::kAxes;
  static constexpr int kInner = Side::kInner, kOuter = Side::kOuter;
  static constexpr int kExtent = Side::kExtent, kVector = Side::kVector, kThreads = Side::kThreads;
  static constexpr int kStep = kThreads * kVector, kCopies = (kInner * kOuter + kStep - 1) / kStep;
  // The number of windows that a thread reads. Along k it is one per copy. Across k it is one per
  // element of a vector; with kSame all copies read the same windows.
  static constexpr bool kSame = kStep % kExtent == 0;
  static constexpr int kWindows = Side::kAlongK ? kCopies : kSame ? kVector : kCopies * kVector;
  Windows<Config> windows;
  Index channels, depth, taps, channel, pixel;
  bool is_aligned;
  const Element* images[kWindows];  // null beyond the last window
  Index starts[kWindows][kAxes];

  __device__ WindowReader(const Element* x, const Windows<Config>& windows, Index first,
                          Index count, Index image, Index channels, Index taps, Index channel,
                          Index pixel, bool is_aligned)
      : windows(windows),
        channels(channels),
        depth(channels * taps),
        taps(taps),
        channel(channel),
        pixel(pixel),
        is_aligned(is_aligned) {
#pragma unroll
    for (int i = 0; i < kWindows; ++i) {
      const int copy = Side::kAlongK ? i : i / kVector;
      const int at = copy * kStep + Side::thread() * kVector;
      const Index number = first + (Side::kAlongK ? at / kInner : at % kInner + i % kVector);
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
  // Reads kVector elements of a window from `position` on. The taps of a row are neighbours in
  // memory. With few channels, the elements may belong to several rows.
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
      // At most two rows, without branches between the loads.
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
    if constexpr (Side::kAlongK && kStep % kInner == 0) {
      if (is_aligned) {
        copy_channels(tile, k);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = i * kStep + Side::thread() * kVector;
      if (kInner * kOuter % kStep != 0 && at >= kInner * kOuter) break;
      const int outer = at / kInner, inner = at % kInner;
      Element* const to = tile + Side::place(outer, inner);
      const Index position = k + (Side::kAlongK ? inner : outer);
      if constexpr (!Side::kAlongK) {
        const Index c = position / taps, tap = position % taps;
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          to[e] = position < depth ? read((kSame ? 0 : i * kVector) + e, tap, c) : Element{};
      } else if (!Config::kIsTransposed && windows.dilation[kAxes - 1] == 1 && pixel == channels) {
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
  // Copies vectors whose elements are channels of one tap. All of a thread's vectors have the same
  // tap and channels, in windows below each other.
  __device__ void copy_channels(Element* tile, Index k) const {
    const int first = Side::thread() * kVector;
    const int outer = first / kInner, inner = first % kInner;
    const Index position = k + inner, tap = position / channels, c = position % channels;
    Index distance[kAxes];
    windows.reach(tap, distance);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kInner * kOuter % kStep != 0 && first + i * kStep >= kInner * kOuter) break;
      const Index place =
          images[i] != nullptr && position < depth ? windows.find(starts[i], distance) : (Index)-1;
      copy_vector<true>(tile + Side::place(outer + i * (kStep / kInner), inner),
                        place < 0 ? nullptr : images[i] + (place * pixel + c),
                        place < 0 ? 0 : kVector);
    }
  }
};
