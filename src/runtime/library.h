#pragma once

namespace opwright {

/// Makes all operators loadable. Called by everything that needs them; only the first call works.
void initialize_library();

}  // namespace opwright
