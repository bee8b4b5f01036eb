#include "plugin/model/plugin_operator.h"

#include "base/error.h"
#include "plugin/kernel/stored_ports.h"

namespace opwright {

PlannedOperatorPtr PluginOperator::plan(const KernelArgs& args) const {
  if (!is_compiled()) return configure(args);
  return compiled_.get(args, [&] { return compile(args); });
}

KernelCode PluginOperator::compile(const KernelArgs& args) const {
  fail_with(ErrorCode::kINTERNAL_ERROR, "layer '", args.layer, "': its plugin compiles nothing");
}

void PlannedPlugin::check(const KernelArgs& args) const {
  check_ports(StoredPorts(args, prefix(args.layer)), args);
}

std::vector<PluginRequirement> PlannedPlugin::requirements() const {
  return {{std::string(kind_), identity_.name, identity_.version, identity_.plugin_namespace}};
}

std::string PlannedPlugin::prefix(std::string_view layer) const {
  return str("layer '", layer, "': plugin ", str(identity_), ": ");
}

}  // namespace opwright
