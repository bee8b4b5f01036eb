#pragma once

#include "opwright/logger.h"

namespace opwright {

/// What Log() speaks through from now on instead of stderr: the logger of a language that has one
/// of its own. It is never destroyed.
void set_default_logger(ILogger* logger);

}  // namespace opwright
