#include "base/printable.h"

#include <cstdio>

#include "base/utf8.h"

namespace opwright {

bool steers_terminal(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c ||  // C0, DEL, C1, Arabic letter mark
         c == 0x200e || c == 0x200f ||                         // marks from left or right
         (c >= 0x2028 &&
          c <= 0x202e) ||  // separators of lines and paragraphs, embeddings, overrides
         (c >= 0x2066 && c <= 0x2069) ||  // isolates
         c == 0xfeff;
}

std::string printable(std::string_view text, LineEnds line_ends) {
  std::string shown;
  shown.reserve(text.size());
  const auto escape = [&](const char* format, uint32_t value) {
    char digits[16];
    std::snprintf(digits, sizeof digits, format, value);
    shown += digits;
  };
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      escape("\\x%02x", byte);
      text.remove_prefix(1);
      continue;
    }
    if (const bool is_kept = line_ends == LineEnds::kKeep && (byte == '\n' || byte == '\t');
        is_kept || !steers_terminal(utf8_character(text)))
      shown += text.substr(0, length);
    else if (byte == '\n' || byte == '\t')
      shown += byte == '\n' ? "\\n" : "\\t";
    else
      escape(length == 1 ? "\\x%02x" : "\\u%04x", utf8_character(text));
    text.remove_prefix(length);
  }
  return shown;
}

}  // namespace opwright
