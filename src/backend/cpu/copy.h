#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright {

/// Bytes that are worth a thread of their own when they are copied.
constexpr int64_t kCopyGrainBytes = 128 << 10;

/// memcpy of [0, bytes) on several threads. Does nothing where `to` equals `from`.
void parallel_copy(void* to, const void* from, int64_t bytes);
/// Fills `count` elements of 1, 2, 4 or 8 bytes with the element at `value`.
void fill_elements(std::byte* to, const std::byte* value, int element_size, int64_t count);
/// Gathers `count` elements of any size that lie `stride` bytes apart.
void gather_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t stride,
                     int64_t count);
/// Gathers the elements with these indices.
void pick_elements(std::byte* to, const std::byte* from, int64_t element_size, const int64_t* index,
                   int64_t count);
/// Writes each of `count` elements `times` times.
void repeat_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t times,
                     int64_t count);

}  // namespace opwright
