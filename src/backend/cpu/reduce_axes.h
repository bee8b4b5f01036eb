#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/pointwise_broadcast.h"

namespace opwright {

/// The axes of a reduction in memory order, with neighbours of one kind merged. Either the elements
/// of the innermost axis are reduced, or it is kept and whole rows are combined.
struct ReductionAxes {
  struct Axis {
    int64_t extent, stride;  ///< in elements
    bool reduced;
  };

  std::vector<Axis> kept, reduced;  ///< all axes but the innermost
  Axis inner{1, 1, true};
  int64_t rows = 1;   ///< pieces along the innermost axis that are reduced together
  int64_t count = 1;  ///< elements that are reduced together

  ReductionAxes() = default;
  /// `is_reduced[i]` belongs to extents[i].
  ReductionAxes(const Axes& extents, const bool* is_reduced);

  /// Offset of element `index` of these axes, in row-major order.
  static int64_t offset_of(const std::vector<Axis>& axes, int64_t index) {
    if (axes.empty()) return 0;
    int64_t offset = 0;
    for (size_t i = axes.size() - 1; i > 0; --i) {
      offset += index % axes[i].extent * axes[i].stride;
      index /= axes[i].extent;
    }
    return offset + index * axes[0].stride;  // one axis, the common case, needs no division
  }
};

}  // namespace opwright
