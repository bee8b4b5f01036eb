#pragma once

#include <vector>

#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/tuner.h"

namespace opwright {

/// The jobs that tune_parts() times for a fused node. The product is timed only with the tactics
/// that were fastest with the program, so that a build compiles few more kernels. The product's own
/// best tactic is among them, or hardly better. There are none where the program's step would take
/// a large part of the fused node's time: what the product saves then is less.
std::vector<TuningJob> jobs_of_parts(const GraphNode& node, const TunedNode& tuned,
                                     const Tuner& tuner, const BuilderConfig& config);

/// Adds options to a fused node that run its parts as two steps. For each combination of types at
/// the node's ports it takes the fastest two tactics with the conversion between them, unless one
/// step of these types is about as fast. The node stays fused where nothing is timed and the timing
/// cache lacks the node or a part. It is no error if a part cannot be run, or the build has no
/// memory for it.
void tune_parts(const GraphNode& node, TunedNode& tuned, Tuner& tuner, const BuilderConfig& config);

}  // namespace opwright
