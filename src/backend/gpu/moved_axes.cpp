#include "backend/gpu/moved_axes.h"

namespace opwright::gpu {

std::vector<MovedAxis> merge(const std::vector<MovedAxis>& axes) {
  std::vector<MovedAxis> merged;
  for (const MovedAxis& axis : axes) {
    if (!axis.sampling && axis.extent == Expr(1)) continue;
    if (!merged.empty() && !axis.sampling && merged.back().pitch == axis.extent * axis.pitch &&
        (!merged.back().sampling ||
         (merged.back().sampling->keeps_runs && axis.pitch == Expr(1)))) {
      MovedAxis& outer = merged.back();
      outer.extent = outer.extent * axis.extent;
      outer.typical *= axis.typical;
      outer.pitch = axis.pitch;
      if (outer.sampling) {
        outer.sampling->start = outer.sampling->start * axis.extent;
        outer.sampling->extent = outer.sampling->extent * axis.extent;
      }
      continue;
    }
    merged.push_back(axis);
  }
  if (merged.empty()) merged.push_back({1, 1, 1, std::nullopt});
  return merged;
}

}  // namespace opwright::gpu
