#pragma once

#include <string>

namespace opwright {

/// Whether stderr is a terminal on which a line can be rewritten.
bool is_terminal();

/// Its width in characters.
int terminal_columns();

/// Shows a line at the foot of the terminal in place of the last one; an empty one removes it. Only
/// where is_terminal().
void show_status_line(const std::string& line);

/// Takes the line away while something else writes to the terminal, and returns it: to be given to
/// show_status_line() then. Empty where there is none.
std::string hide_status_line();

/// Writes a line to stderr, above the status line if there is one. Lines of several threads do not
/// mix.
void write_message(const std::string& line);

}  // namespace opwright
