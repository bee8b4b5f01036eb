#include "backend/cpu/reduce_axes.h"

namespace opwright {

ReductionAxes::ReductionAxes(const Axes& extents, const bool* is_reduced) {
  std::vector<Axis> merged;
  for (int i = 0; i < extents.count; ++i) {
    if (extents[i] == 1) continue;
    if (!merged.empty() && merged.back().reduced == is_reduced[i])
      merged.back().extent *= extents[i];
    else
      merged.push_back({extents[i], 0, is_reduced[i]});
  }
  if (merged.empty()) merged.push_back({1, 0, true});
  int64_t stride = 1;
  for (size_t i = merged.size(); i-- > 0;) {
    merged[i].stride = stride;
    stride *= merged[i].extent;
  }
  inner = merged.back();
  merged.pop_back();
  for (const Axis& axis : merged) {
    (axis.reduced ? reduced : kept).push_back(axis);
    if (axis.reduced) rows *= axis.extent;
  }
  count = rows * (inner.reduced ? inner.extent : 1);
}

}  // namespace opwright
