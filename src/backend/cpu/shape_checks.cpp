#include "backend/cpu/shape_checks.h"

#include "base/error.h"

namespace opwright {

void require_broadcast(int index, const Shape& shape, const Shape& target) {
  const int missing = target.rank() - shape.rank();
  bool fits = missing >= 0;
  for (int i = 0; fits && i < shape.rank(); ++i)
    fits = shape[i] == target[i + missing] || shape[i] == 1;
  require(fits, "input ", index, " of shape ", shape, " does not broadcast to ", target,
          ": give the network inputs shapes that fit each other");
}

void require_equal_extent(int axis, const Shape& first, int index, const Shape& shape) {
  require(axis < first.rank() && axis < shape.rank() && first[axis] == shape[axis], "inputs 0 and ",
          index, " of shapes ", first, " and ", shape, " must agree in extent ", axis,
          ": give the network inputs shapes that fit each other");
}

}  // namespace opwright
