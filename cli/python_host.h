#pragma once

#include <string>
#include <vector>

namespace opwright::cli {

/// Makes Python known as a language of plugin sources. The interpreter is loaded when the first
/// engine that needs it is, not before: a program without such an engine never maps libpython.
void offer_python();
/// Ends the interpreter if there is one, so that what it printed is seen. All engines are gone.
void finish_python();
/// Becomes `python -m opwright ARGUMENTS`, and does not return. Throws Error where no interpreter
/// has the package.
[[noreturn]] void become_python(const std::vector<std::string>& arguments);

}  // namespace opwright::cli
