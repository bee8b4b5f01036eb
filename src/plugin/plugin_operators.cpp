#include "plugin/plugin_operators.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "network/operator_registry.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/model/function_model.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

namespace {

using Loader = PlannedOperatorPtr (*)(const Attributes&, const OperatorLoadContext&);

template <PluginModelPtr (*load)(const Attributes&, const OperatorLoadContext&)>
PlannedOperatorPtr load_plugin(const Attributes& attributes, const OperatorLoadContext& context) {
  return std::make_shared<PlannedPlugin>(load(attributes, context), context.layer);
}

constexpr std::pair<std::string_view, Loader> kKinds[] = {
    {"PluginV2", load_plugin<load_plugin_v2>},
    {"PluginV3", load_plugin<load_plugin_v3>},
    {"FunctionPlugin", load_plugin<load_function_plugin>},
    {"CompiledKernel", load_compiled_kernel},
};

[[maybe_unused]] const bool are_plugins_registered = [] {
  for (const auto& [kind, load] : kKinds) register_operator_kind(std::string(kind), load);
  return true;
}();

}  // namespace

bool is_plugin_kind(std::string_view kind) {
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](const auto& entry) { return entry.first == kind; });
}

std::string_view shown_kind(std::string_view kind, const Attributes& attributes) {
  const AttributeValue* value = kind == "CompiledKernel" ? find(attributes, "launch") : nullptr;
  const auto* launch = value != nullptr ? std::get_if<KernelLaunch>(value) : nullptr;
  return launch == nullptr || launch->layer_kind.empty() ? kind : launch->layer_kind;
}

}  // namespace opwright
