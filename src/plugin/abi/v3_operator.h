#pragma once

#include <memory>

#include "network/operator.h"
#include "opwright/plugin_v3.h"

namespace opwright {

struct OperatorLoadContext;

/// The operator of an IPluginV3: kind "PluginV3". It keeps a clone of the plugin. It takes
/// `num_inputs` tensors and after them `num_shape_inputs` shape tensors, whose values the plugin
/// gets as expressions. Throws Error when the plugin lacks a part that a build needs or cannot be
/// cloned.
OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs);
/// The same, owning the plugin itself.
OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs);
/// The plugin of an operator of kind "PluginV3", for people who want to look at it; null for other
/// operators.
IPluginV3* plugin_of(const Operator& op);

/// Makes an operator again from what a plan stores.
PlannedOperatorPtr load_plugin_v3(const Attributes& attributes, const OperatorLoadContext& context);

}  // namespace opwright
