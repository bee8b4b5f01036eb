// Source and destination of a batch's tokens in an update of a key-value cache.
#pragma once

// Tokens [skipped, count) of a batch are read from place `first` + token of the update and written
// to place `start` + token of the cache.
struct Span {
  Index first, skipped, count, start;
};
// The span for any numbers. It is empty where they lie outside of the cache or the update.
__device__ inline Span span_of(long long start, long long from, long long to, Index tokens,
                               Index room) {
  from = from < 0 ? 0 : from > tokens ? tokens : from;
  to = to < from ? from : to > tokens ? tokens : to;
  if (start >= room || start < -(long long)tokens) return Span{0, 0, 0, 0};
  const long long fits = room - start;
  return Span{(Index)from, start < 0 ? (Index)-start : 0,
              (Index)(to - from < fits ? to - from : fits), (Index)start};
}
