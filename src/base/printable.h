#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace opwright {

/// What becomes of line ends and tabs in printable().
enum class LineEnds : bool {
  kEscape,  ///< for a name, which must not look like lines of ours
  kKeep,    ///< for a message
};

/// The text as terminals may show it: what would steer them or change what is seen stands as an
/// escape. Those are control characters ("\x1b", "\u009b"), marks of writing direction, which
/// reorder text ("\u202e"), separators of lines, and bytes that are not UTF-8 ("\xff").
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

/// Whether printable() escapes a character of Unicode, line ends and tabs among them.
bool steers_terminal(uint32_t character);

}  // namespace opwright
