#pragma once

#include <memory>

#include "network/operator.h"
#include "plugin/model/function_plugin.h"
#include "plugin/model/plugin_model.h"

namespace opwright {

struct OperatorLoadContext;

/// The operator of a function plugin: kind "FunctionPlugin". In mode kCompiled, plans store its
/// CompiledKernel.
OperatorPtr make_function_operator(std::shared_ptr<const FunctionPlugin> definition,
                                   FieldValues attributes, FunctionMode mode);
/// Makes a configured plugin again from its stored form in a plan.
PluginModelPtr load_function_plugin(const Attributes& attributes,
                                    const OperatorLoadContext& context);
}  // namespace opwright
