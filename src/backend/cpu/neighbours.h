#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cpu/elements.h"
#include "backend/cpu/resize_tile.h"

namespace opwright {

/// Up to four elements of a plane around each of some positions, with their factors. They are found
/// once and then blended in each channel.
class Neighbours {
 public:
  static constexpr int64_t kMost = 64;

  /// Adds the next position, with those of its four neighbours for which `has(n)` is true.
  template <class Has, class Place, class Factor>
  void add(Has&& has, Place&& place, Factor&& factor) {
    const int64_t first = count_++ * 4;
    int64_t end = first;
    for (int64_t n = 0; n < 4; ++n)
      if (has(n)) places_[end] = place(n), factors_[end++] = factor(n);
    if (end == first + 4) return;
    incomplete_[incomplete_count_++] = {count_ - 1, end};
    for (; end < first + 4; ++end) places_[end] = 0, factors_[end] = 0;
  }

  /// Sets y[to + i] to the weighted sum at position i of x's plane at `from`.
  template <class Element>
  void blend(const void* x, int64_t from, void* y, int64_t to) const {
    if constexpr (std::is_same_v<Element, FloatElement>)
      blend_elements(static_cast<const float*>(x) + from, places_, factors_, 4, count_,
                     static_cast<float*>(y) + to);
    else
      for (int64_t i = 0; i < count_; ++i) put<Element>(x, from, i, i * 4 + 4, y, to);
    // A missing neighbour counts as zero, even where the element at place 0 is NaN or infinity.
    for (int64_t k = 0; k < incomplete_count_; ++k)
      put<Element>(x, from, incomplete_[k].position, incomplete_[k].end, y, to);
  }

 private:
  struct Incomplete {
    int64_t position, end;
  };

  template <class Element>
  void put(const void* x, int64_t from, int64_t i, int64_t end, void* y, int64_t to) const {
    float sum = 0;
    for (int64_t n = i * 4; n < end; ++n)
      sum += factors_[n] * load_element<Element>(x, from + places_[n]);
    store_element<Element>(y, to + i, sum);
  }

  int64_t places_[kMost * 4];
  float factors_[kMost * 4];
  Incomplete incomplete_[kMost];
  int64_t count_ = 0, incomplete_count_ = 0;
};

}  // namespace opwright
