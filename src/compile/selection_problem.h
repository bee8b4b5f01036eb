#pragma once

#include <vector>

#include "compile/graph.h"
#include "compile/selection.h"
#include "compile/tuner.h"
#include "network/network.h"

namespace opwright {

/// The options of nodes, `tuned`, as a problem of selection. The network's inputs come before the
/// nodes and its outputs behind them, each with its one type. `tuner` compiles and
/// times conversions. `direct_io`: as BuilderFlag::kDIRECT_IO says. `progress` hears of the
/// conversions that were compiled.
SelectionProblem make_selection_problem(const Graph& graph, const Network& network,
                                        const std::vector<GraphNode*>& nodes,
                                        const std::vector<TunedNode>& tuned, Tuner& tuner,
                                        bool direct_io, const Tuner::CompileProgress& progress);

}  // namespace opwright
