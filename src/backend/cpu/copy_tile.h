#pragma once

#include <cstdint>

namespace opwright {

/// Writes each of `count` elements twice.
void repeat_twice(const uint32_t* from, int64_t count, uint32_t* to);
/// Copies every second element, `count` of them.
void every_second(const uint32_t* from, int64_t count, uint32_t* to);

/// Elements of even places go to `even` and those of odd places to `odd`: `count` of each in every
/// row. Strides are in elements.
void split_pairs(const uint32_t* from, int64_t stride, int64_t rows, int64_t count, uint32_t* even,
                 uint32_t* odd, int64_t to_stride);

}  // namespace opwright
