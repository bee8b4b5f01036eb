#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace opwright {

/// Bytes of the UTF-8 sequence at the beginning of `text`, which is not empty; 0 if there is none.
size_t utf8_length(std::string_view text);

/// The character of the UTF-8 sequence at the beginning of `text`, which must have one.
uint32_t utf8_character(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace opwright
