#pragma once

#include <vector>

#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/tuner.h"

namespace opwright {

/// What tune_parts() has timed of a fused node. Of the product only the tactics that were fastest
/// with the program, so that a build compiles few more: its own best is among them, or close.
std::vector<TuningJob> jobs_of_parts(const GraphNode& node, const TunedNode& tuned,
                                     const BuilderConfig& config);

/// Gives a fused node as further options its parts as two steps: for each combination of types at
/// its ports the fastest two tactics with the conversion between them, unless one step of these
/// types is about as fast. Where nothing is timed, and the timing cache lacks the node or a part,
/// it stays fused. A part that cannot be run, or that the build has no memory for, is no error.
void tune_parts(const GraphNode& node, TunedNode& tuned, Tuner& tuner, const BuilderConfig& config);

}  // namespace opwright
