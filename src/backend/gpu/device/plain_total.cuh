// What a reduction has so far: one value.
// Expects the type Value and the function combine().
#pragma once

struct Total {
  Value value;
};
__device__ inline void add(Total& total, Value x) { total.value = combine(total.value, x); }
__device__ inline void merge(Total& total, const Total& other) { add(total, other.value); }
__device__ inline Total exchange(const Total& total, int distance) {
  return Total{__shfl_xor_sync(0xffffffffu, total.value, distance)};
}
__device__ inline Value value_of(const Total& total) { return total.value; }
