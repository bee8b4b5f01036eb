#pragma once

#include "compile/builder_config.h"
#include "network/network.h"
#include "plan/plan.h"

namespace opwright {

/// Compiles a network: graph passes, candidates, timing on the device, selection, memory plan.
/// Throws Error naming the layer at fault; the network is not changed and can be compiled again.
/// Safe to call from several threads on different networks.
Plan compile(const Network& network, const BuilderConfig& config);

}  // namespace opwright
