#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/graph.h"
#include "compile/program.h"
#include "operators/pointwise.h"

namespace opwright {

/// Adds the program of a Pointwise node whose inputs are these registers. Returns the registers of
/// its results. Registers hold values of FP16 and BF16 more exactly than these types, so the
/// operands and results of casts are rounded.
std::vector<int> append_node(ProgramWriter& writer, const GraphNode& node,
                             std::span<const int> registers);

/// Two Pointwise nodes that became one.
struct JoinedPrograms {
  PointwiseParams program;
  std::vector<GraphValue*> inputs;
};
/// `second` reads the result of `first`. Nothing where the joined program has too many operands or
/// operations.
std::optional<JoinedPrograms> join_programs(const GraphNode& first, const GraphNode& second);

/// The product `producer` and the program `node`, which reads its result, as two steps. If the
/// producer has parts itself, its program joins that of the node. Null where the joined program is
/// too large.
std::shared_ptr<const FusedParts> parts_of(const GraphNode& producer, const GraphNode& node);

}  // namespace opwright
