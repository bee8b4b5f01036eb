#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace opwright {

/// How printable() treats line ends and tabs.
enum class LineEnds : bool {
  kEscape,  ///< for a name, which must not look like lines of its own
  kKeep,    ///< for a message
};

/// The text with escapes for everything that would steer a terminal or change what is seen: control
/// characters ("\x1b", "\u009b"), marks of writing direction, which reorder text ("\u202e"),
/// separators of lines, and bytes that are not UTF-8 ("\xff").
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscape);

/// Whether printable() escapes this character of Unicode, as it may line ends and tabs.
bool steers_terminal(uint32_t character);

}  // namespace opwright
