#include "plugin/plugin_operators.h"

#include "network/operator_registry.h"
#include "plugin/compiled_kernel.h"
#include "plugin/quick.h"
#include "plugin/v2_operator.h"
#include "plugin/v3_operator.h"

namespace opwright {

void register_plugin_operators() {
  register_operator_kind("PluginV2", load_plugin_v2);
  register_operator_kind("PluginV3", load_plugin_v3);
  register_operator_kind("QuickPlugin", load_quick_plugin);
  register_operator_kind("CompiledKernel", load_compiled_kernel);
}

}  // namespace opwright
