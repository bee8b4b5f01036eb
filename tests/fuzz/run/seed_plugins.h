#pragma once

#include <memory>
#include <vector>

#include "network/operator.h"
#include "plugin/registry/registry.h"

namespace opwright::fuzz {

/// Plugins of every kind that the process has, and seeds are made with. Each reads all bytes of
/// its inputs and writes all bytes of its outputs, as far as it is told that they go; the process
/// ends when one is run with types or formats that it did not accept.
PluginRegistry& seed_registry();

OperatorPtr v2_plugin();
/// y = x + 1; FP32 and FP16, LINEAR and HWC.
OperatorPtr v3_plugin();
/// The same in the memory of x.
OperatorPtr in_place_plugin();
/// Outputs: the first n elements of x, and n (INT32), which x says.
OperatorPtr size_plugin();
/// Inputs: x, and a shape input that says how often its first axis is repeated.
OperatorPtr shape_plugin();
OperatorPtr quick_plugin();
/// A function plugin.
OperatorPtr function_plugin();

}  // namespace opwright::fuzz
