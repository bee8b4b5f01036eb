// The key that so many of a row's keys below `bound` are not less than, digit by digit: how many
// have each value of a digit tells in which the key lies, and once all keys with the digits so far
// are taken the others do not matter.
// Expects the type Key.
#pragma once

struct Selection {
  unsigned counts[256];
  unsigned digit, rest, is_done;
};
template <class ReadKey>
__device__ inline Key select(const ReadKey& key_at, Index length, bool is_bounded, Key bound,
                             unsigned wanted, Selection& shared) {
  Key found = {};
  int known = 0;
  while (known < Key::kDigits) {
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x) shared.counts[i] = 0;
    __syncthreads();
    for (Index i = (Index)threadIdx.x; i < length; i += (Index)blockDim.x) {
      const Key key = key_at(i);
      bool belongs = !is_bounded || key < bound;
      belongs = belongs && key.has_digits_of(found, known);
      if (belongs) atomicAdd(&shared.counts[key.digit(known)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned rest = wanted;
      int digit = 255;
      while (digit > 0 && shared.counts[digit] < rest) rest -= shared.counts[digit--];
      shared.digit = (unsigned)digit, shared.rest = rest;
      shared.is_done = shared.counts[digit] == rest;
    }
    __syncthreads();
    found.set(known++, shared.digit);
    wanted = shared.rest;
    if (shared.is_done) break;
  }
  return found;  // the least key with these digits
}
