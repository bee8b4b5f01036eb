#pragma once

#include <string>

namespace opwright {

/// Whether stderr is a terminal on which a line can be rewritten.
bool is_terminal();

/// The terminal's width in characters.
int terminal_columns();

/// Replaces the line at the foot of the terminal; an empty line removes it. Only if is_terminal().
void show_status_line(const std::string& line);

/// Removes the status line while something else writes to the terminal, and returns it for
/// show_status_line(). Empty if there is none.
std::string hide_status_line();

/// Writes a line to stderr, above the status line if there is one. Lines of several threads do not
/// mix.
void write_message(const std::string& line);

}  // namespace opwright
