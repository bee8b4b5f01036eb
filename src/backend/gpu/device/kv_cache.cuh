// Updates of key-value caches [batch, heads, places, size]: writes the tokens of an update behind
// those that are in a cache.
//
// The kernel is a template over a struct that the host writes:
//   Element    an unsigned integer of an element's size
//   Start      the type of the batches' places in the cache
//   End        the type of the ends of their tokens, where the update is packed
//   kIsPacked  whether the update is [tokens, heads, size], where a batch's tokens follow those of
//              the batch before; else it is [batch, heads, tokens, size]
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

// Tokens [skipped, count) of a batch are read from place `first` + token of the update and written
// to place `start` + token of the cache.
struct Span {
  Index first, skipped, count, start;

  __device__ bool has(Index token) const { return token >= skipped && token < count; }
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

// A batch's tokens begin at place `starts[batch]` of the cache. In a packed update they are those
// from number `ends[batch]` up to `ends[batch + 1]`. Heads have `places` places in the cache and
// `room` ones in y, which has `elements` elements. If each batch has `tokens` tokens, these have
// `updated` elements.
template <class Config>
struct KvCacheArguments {
  typedef typename Config::Element Element;
  const Element *cache, *update;
  const typename Config::Start* starts;
  const typename Config::End* ends;
  Element* y;
  Index elements, updated;
  Index heads, places, room, tokens, size;

  __device__ Span span(Index batch) const {
    if constexpr (Config::kIsPacked)
      return span_of(starts[batch], ends[batch], ends[batch + 1], tokens, room);
    else
      return span_of(starts[batch], 0, tokens, tokens, room);
  }
};
// The position of an element in [batch, heads, length, size].
struct CachePosition {
  Index batch, head, place, e;

  __device__ CachePosition(Index number, Index heads, Index length, Index size) {
    UIndex rest = (UIndex)number;
    e = split_off(rest, size), place = split_off(rest, length), head = split_off(rest, heads);
    batch = (Index)rest;
  }
};
// Copies the elements that the update does not write. Places that are new are 0.
template <class Config>
__device__ inline void copy_cache(const KvCacheArguments<Config>& all) {
  for (Index number = first_index(); number < all.elements; number += index_step()) {
    const CachePosition at(number, all.heads, all.room, all.size);
    const Span span = all.span(at.batch);
    if (span.has(at.place - span.start)) continue;
    const Index row = (at.batch * all.heads + at.head) * all.places + at.place;
    all.y[number] = at.place < all.places ? all.cache[row * all.size + at.e] : 0;
  }
}
// All tokens of a packed update may belong to any batch.
template <class Config>
__device__ inline void write_update(const KvCacheArguments<Config>& all) {
  for (Index number = first_index(); number < all.updated; number += index_step()) {
    const CachePosition at(number, all.heads, all.tokens, all.size);
    const Index head = at.batch * all.heads + at.head, token = at.place;
    const Span span = all.span(at.batch);
    if (!span.has(token)) continue;
    const Index row =
        Config::kIsPacked ? (span.first + token) * all.heads + at.head : head * all.tokens + token;
    all.y[(head * all.room + span.start + token) * all.size + at.e] =
        all.update[row * all.size + at.e];
  }
}
// y may be the cache's memory.
template <class Config>
__device__ inline void update_cache(const KvCacheArguments<Config>& all) {
  if ((const void*)all.y != (const void*)all.cache) copy_cache(all);
  write_update(all);
}
