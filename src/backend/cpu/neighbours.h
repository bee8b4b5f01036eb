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

  /// Adds the next position, whose four neighbours are a square of a plane with such rows.
  void add_square(int64_t place, int64_t row, const float* along_y, const float* along_x) {
    int64_t* const places = places_ + count_ * 4;
    float* const factors = factors_ + count_++ * 4;
    places[0] = place, places[1] = place + 1, places[2] = place + row, places[3] = place + row + 1;
    factors[0] = along_y[0] * along_x[0], factors[1] = along_y[0] * along_x[1];
    factors[2] = along_y[1] * along_x[0], factors[3] = along_y[1] * along_x[1];
  }

  /// Planes of one tensor, so many elements apart.
  struct Planes {
    int64_t first, apart;
  };
  /// Sets y[to + i] to the weighted sum at position i of x's plane at `from`, for `count` planes.
  template <class Element>
  void blend(const void* x, Planes from, void* y, Planes to, int64_t count) const {
    if constexpr (std::is_same_v<Element, FloatElement>)
      blend_planes(static_cast<const float*>(x) + from.first, from.apart, count, places_, factors_,
                   count_, static_cast<float*>(y) + to.first, to.apart);
    for (int64_t plane = 0; plane < count; ++plane) {
      const int64_t at = from.first + plane * from.apart, target = to.first + plane * to.apart;
      if constexpr (!std::is_same_v<Element, FloatElement>)
        for (int64_t i = 0; i < count_; ++i) put<Element>(x, at, i, i * 4 + 4, y, target);
      // A missing neighbour counts as zero, even where the element at place 0 is NaN or infinity.
      for (int64_t k = 0; k < incomplete_count_; ++k)
        put<Element>(x, at, incomplete_[k].position, incomplete_[k].end, y, target);
    }
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
