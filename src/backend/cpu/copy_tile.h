#pragma once

#include <cstdint>

namespace opwright {

/// Writes each of `count` elements twice.
void repeat_twice(const uint32_t* from, int64_t count, uint32_t* to);
/// Copies every second element, `count` of them.
void every_second(const uint32_t* from, int64_t count, uint32_t* to);

}  // namespace opwright
