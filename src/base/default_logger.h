#pragma once

#include "opwright/logger.h"

namespace opwright {

/// Sets the logger that Log() uses instead of stderr, as for a language with a logger of its own.
/// The logger is never destroyed.
void set_default_logger(ILogger* logger);

}  // namespace opwright
