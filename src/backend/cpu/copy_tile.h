#pragma once

#include <cstdint>

namespace opwright {

/// Each of `count` elements twice.
void repeat_twice(const uint32_t* from, int64_t count, uint32_t* to);
/// `count` elements of which each is the second behind the one before.
void every_second(const uint32_t* from, int64_t count, uint32_t* to);

}  // namespace opwright
