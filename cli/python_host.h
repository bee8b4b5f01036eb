#pragma once

namespace opwright::cli {

/// Makes Python known as a language of plugin sources. The interpreter is loaded when the first
/// engine that needs it is, not before: a program without such an engine never maps libpython.
void offer_python();
/// Ends the interpreter if there is one, so that what it printed is seen. All engines are gone.
void finish_python();

}  // namespace opwright::cli
