#pragma once

#include <functional>
#include <string>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

/// The creators that a plugin library exports by `getCreators` or `getPluginCreators`, after a call
/// of its `setLoggerFinder`; empty if it exports none of these. `symbol` returns the address of an
/// exported function or null. `name` is that of the library, for messages. `tensorrt` is the major
/// version of TensorRT for which it was compiled, or 0.
std::vector<IPluginCreatorInterface*> exported_creators(
    const std::function<void*(const char*)>& symbol, const std::string& name, int tensorrt);

}  // namespace opwright
