#include <algorithm>
#include <cstring>

#include "circ_pad.h"

// A row (the last axis) of the output is a row of the input, repeated from an offset: copies of
// whole stretches.
void circPadCpu(CircPadShape const& shape, void const* input, void* output, size_t elementSize) {
  int32_t const last = shape.rank - 1;
  int64_t const count = elementsOf(shape.out, shape.rank);
  if (count == 0) return;
  if (shape.rank == 0) {
    std::memcpy(output, input, elementSize);
    return;
  }
  int64_t const width = shape.out[last];
  int64_t const period = shape.in[last];
  int64_t const first = (period - shape.before[last] % period) % period;
  auto* to = static_cast<char*>(output);
  int64_t index[kMaxRank] = {};
  for (int64_t row = 0; row < count / width; ++row) {
    int64_t offset = 0;
    for (int32_t axis = 0; axis < last; ++axis) {
      int64_t const extent = shape.in[axis];
      int64_t const at = (index[axis] + extent - shape.before[axis] % extent) % extent;
      offset = offset * extent + at;
    }
    char const* const from = static_cast<char const*>(input) + offset * period * elementSize;
    int64_t start = first;
    for (int64_t x = 0; x < width;) {
      int64_t const stretch = std::min(period - start, width - x);
      std::memcpy(to, from + start * elementSize, stretch * elementSize);
      to += stretch * elementSize;
      x += stretch;
      start = 0;
    }
    for (int32_t axis = last - 1; axis >= 0 && ++index[axis] == shape.out[axis]; --axis) {
      index[axis] = 0;
    }
  }
}
