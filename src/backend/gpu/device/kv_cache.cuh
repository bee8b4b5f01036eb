// Where the tokens of a batch come from and go to.
#pragma once

// Tokens [skipped, count) of a batch, from `first` on in the update, go to place `start` + token.
struct Span {
  Index first, skipped, count, start;
};
// Nothing is where the numbers, which may be any, do not lie in the cache or the update.
__device__ inline Span span_of(long long start, long long from, long long to, Index tokens,
                               Index room) {
  from = from < 0 ? 0 : from > tokens ? tokens : from;
  to = to < from ? from : to > tokens ? tokens : to;
  if (start >= room || start < -(long long)tokens) return Span{0, 0, 0, 0};
  const long long fits = room - start;
  return Span{(Index)from, start < 0 ? (Index)-start : 0,
              (Index)(to - from < fits ? to - from : fits), (Index)start};
}
