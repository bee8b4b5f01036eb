#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright {

/// Bytes that are worth a thread of their own when they are copied.
constexpr int64_t kCopyGrainBytes = 128 << 10;

/// memcpy of [0, bytes) on several threads; nothing where that is one place.
void parallel_copy(void* to, const void* from, int64_t bytes);
/// Fills `count` elements of 1, 2, 4 or 8 bytes with the element at `value`.
void fill_elements(std::byte* to, const std::byte* value, int element_size, int64_t count);
/// Copies `count` elements of any size that lie `stride` bytes apart next to each other.
void gather_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t stride,
                     int64_t count);
/// Copies the elements with these indices next to each other.
void pick_elements(std::byte* to, const std::byte* from, int64_t element_size, const int64_t* index,
                   int64_t count);
/// Writes each of `count` elements `times` times.
void repeat_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t times,
                     int64_t count);

}  // namespace opwright
