#include "backend/cpu/shape_checks.h"

#include "base/error.h"
#include "base/types.h"

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

void require_countable(std::span<const Shape> shapes) {
  constexpr int64_t kMost = int64_t{1} << 53;
  for (const Shape& shape : shapes) {
    int64_t count = 1;
    for (const int64_t extent : shape) {
      bool fits = extent >= 0;
      if (extent > 0) fits = !__builtin_mul_overflow(count, extent, &count) && count <= kMost;
      require(fits, "the CPU's kernels count up to 2^53 elements; the shape ", shape,
              " is beyond that");
    }
  }
}

void require_filled(const Shape& shape, TensorFormat format) {
  const int block = layout_of(format).block;
  require(block == 1 || (shape.rank() > 1 && shape[1] % block == 0), "the channels of shape ",
          shape, " do not fill whole blocks of the format ", name(format),
          ", which the kernel was chosen for");
}

}  // namespace opwright
