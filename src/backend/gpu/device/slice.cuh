// Maps an index beyond the extent to an index within it.
#pragma once

__device__ inline Index clamp(Index at, Index extent) {
  return at < 0 ? 0 : at < extent ? at : extent - 1;
}
__device__ inline Index wrap(Index at, Index extent) {
  if ((UIndex)at < (UIndex)extent) return at;
  at %= extent;
  return at < 0 ? at + extent : at;
}
__device__ inline Index reflect(Index at, Index extent) {
  if ((UIndex)at < (UIndex)extent) return at;
  if (extent == 1) return 0;
  const Index period = 2 * (extent - 1);
  at %= period;
  if (at < 0) at += period;
  return at < extent ? at : period - at;
}
template <class Element, class T>
__device__ inline Element repeat(T value) {
  union {
    Element all;
    T each[sizeof(Element) / sizeof(T)];
  } result;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Element) / sizeof(T)); ++i) result.each[i] = value;
  return result.all;
}
