#pragma once

#include <string>
#include <vector>

namespace opwright::cli {

/// Registers Python as a language of plugin sources. The interpreter is loaded with the first
/// engine that needs it. A program without such an engine never maps libpython.
void offer_python();
/// Ends the interpreter if there is one, so that its output is flushed. All engines must be gone.
void finish_python();
/// Replaces the process by `python -m opwright ARGUMENTS`, and does not return. Throws Error if no
/// interpreter has the package.
[[noreturn]] void become_python(const std::vector<std::string>& arguments);

}  // namespace opwright::cli
