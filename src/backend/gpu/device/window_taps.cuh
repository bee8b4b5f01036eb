// Counts taps of a window.
// Expects the type Index.
#pragma once

// The number of a window's elements, `dilation` apart, that begin before `distance`; at least 1.
__device__ inline Index taps_before(Index distance, Index dilation, Index window) {
  const Index count = (distance + dilation - 1) / dilation;
  return count < 1 ? 1 : count < window ? count : window;
}
