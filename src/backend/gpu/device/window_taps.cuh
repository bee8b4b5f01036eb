// Taps of a window that are counted.
// Expects the type Index.
#pragma once

// Elements of a window, so far apart, that begin before a distance.
__device__ inline Index taps_before(Index distance, Index dilation, Index window) {
  const Index count = (distance + dilation - 1) / dilation;
  return count < 1 ? 1 : count < window ? count : window;
}
