#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "compile/graph.h"
#include "compile/tuner.h"

namespace opwright {

/// "Convolution", "PluginV3 'circ_pad'".
std::string kind_of(const Operator& op);
/// Who runs the node, as messages begin: "plugin 'p' (version 1, namespace '') ", "it ".
std::string who_computes(const GraphNode& node);

/// Adds the costs of conversions, `reformats` per option, to the plan's record of each candidate,
/// and logs the record as a table.
void report_tuning(const GraphNode& node, TunedNode& tuned, int chosen,
                   const std::vector<double>& reformats, const Log& log);

/// For a node that the chosen option runs as its parts: that option and the fastest one as one
/// step.
std::vector<TimedCandidate> fusion_compared(const TunedNode& tuned, const TunedOption& chosen);

}  // namespace opwright
