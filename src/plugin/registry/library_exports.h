#pragma once

#include <functional>
#include <string>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

/// The creators that a plugin library hands out by `getCreators` or `getPluginCreators`, after its
/// `setLoggerFinder` was called; none where it exports none of these. `symbol` gives the address of
/// an exported function or null, `name` is the library's, for messages.
std::vector<IPluginCreatorInterface*> exported_creators(
    const std::function<void*(const char*)>& symbol, const std::string& name);

}  // namespace opwright
