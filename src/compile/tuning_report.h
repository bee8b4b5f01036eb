#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "compile/graph.h"
#include "compile/tuner.h"

namespace opwright {

/// "Convolution", "PluginV3 'circ_pad'".
std::string kind_of(const Operator& op);
/// Who runs it, as messages begin: "plugin 'p' (version 1, namespace '') ", "it ".
std::string who_computes(const GraphNode& node);

/// Adds what conversions cost beside each candidate, `reformats` per option, to what the plan
/// keeps, and logs all of it as a table.
void report_tuning(const GraphNode& node, TunedNode& tuned, int chosen,
                   const std::vector<double>& reformats, const Log& log);

/// Of a node that is run as its parts, by the chosen option: that one, and the fastest as one step.
std::vector<TimedCandidate> fusion_compared(const TunedNode& tuned, const TunedOption& chosen);

}  // namespace opwright
