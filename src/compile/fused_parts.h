#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/graph.h"
#include "compile/program.h"
#include "operators/pointwise.h"

namespace opwright {

/// Adds the program of a Pointwise node whose inputs are these registers; gives its results'
/// registers. What registers have of values of FP16 and BF16 is more exact than these: what a cast
/// reads, and what it gives, is rounded.
std::vector<int> append_node(ProgramWriter& writer, const GraphNode& node,
                             std::span<const int> registers);

/// Two Pointwise nodes as one.
struct JoinedPrograms {
  PointwiseParams program;
  std::vector<GraphValue*> inputs;
};
/// `second` reads the result of `first`. Nothing where the two have too many operands or operations
/// for one.
std::optional<JoinedPrograms> join_programs(const GraphNode& first, const GraphNode& second);

/// The product and the program that `producer` and `node`, which reads its result, are as two
/// steps. Where the producer has parts itself, its program goes with that of the node. Null where
/// that is too large.
std::shared_ptr<const FusedParts> parts_of(const GraphNode& producer, const GraphNode& node);

}  // namespace opwright
