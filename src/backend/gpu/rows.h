#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"

namespace opwright::gpu {

/// A division of an output's rows among threads.
struct RowPlan {
  int lanes = 32;  ///< threads along a row, a power of 2
  int unroll = 1;  ///< accesses of a thread to a row that are in flight at once
  int rows = 1;    ///< rows, of one access each, that are in flight at once
  std::string name() const;
  friend bool operator==(const RowPlan&, const RowPlan&) = default;
};
/// Plans for an output of `elements` elements in rows of `length` accesses each.
Ways<RowPlan> row_plans(int64_t length, int64_t elements);

/// Adds the members kLanes, kUnroll and kThreads.
void add_plan(ConfigWriter& config, const RowPlan& plan);

/// KernelTactics::names of all plans.
std::vector<std::string> row_plan_names();

/// A kernel that moves elements into an output row by row. Positions are divided by extents once
/// per row, not per element. Loads and stores bypass the caches unless `row` does otherwise.
struct RowMove {
  /// Extents of the axes that number the rows, outermost first; their positions are `c0`, `c1`, ...
  SymShape outer;
  Expr length;           ///< elements per row
  int element_size = 4;  ///< bytes
  /// Elements that one access moves where the run-time `conditions` hold. The length and the
  /// output's alignment must allow it, too.
  int width = 1;
  std::vector<std::string> conditions;
  int64_t typical_length = 1;  ///< length at the profile's optimum
  /// Statements for row number `row`. They return a function of Index that holds copies of what it
  /// needs. It returns position i of the row as an `Element`. With `width`, an element and a
  /// position are `width` elements. Also called with a width of 1.
  std::function<std::string(int width)> row;
};

/// Declares `out0` with the carrier type of the elements' size.
GeneratedKernel generate_rows(KernelSource& source, const RowMove& move, const RowPlan& plan);
/// row_plans() for the move.
Ways<RowPlan> row_plans(const RowMove& move, const KernelArgs& args);

/// The greatest number of neighbours of that size, up to 16 bytes, that all of `multiples` may be
/// multiples of for some shape. Appends the run-time conditions for that to `conditions`.
int vector_width(KernelSource& source, int element_size, std::span<const Expr> multiples,
                 std::vector<std::string>& conditions);
/// An element of `conditions`: "is_aligned<unsigned, 4>(in0)".
std::string alignment_condition(int element_size, int width, std::string_view pointer);

/// Candidates of a kernel that moves elements of any type. They have the query's types and, where
/// it allows lower precision, that precision in all FP32 ports. Each combination has the tactics
/// that `tactics` names for ports of these types, numbered in that order.
std::vector<Candidate> moving_candidates(
    const CandidateQuery& query,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics);
/// As above, in each of the formats; all ports have the format.
std::vector<Candidate> moving_candidates(
    const CandidateQuery& query, std::span<const TensorFormat> formats,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics);

/// Tactics of an operator whose rows a Writer moves. A Writer is made of the operator and
/// KernelArgs, and has `move()` and `write(plan)`.
template <class Writer, class Op>
Ways<std::string> row_tactics(const Operator& op, const KernelArgs& args) {
  return row_plans(Writer(static_cast<const Op&>(op), args).move(), args).names();
}
template <class Writer, class Op>
std::vector<Candidate> row_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(
      query, [&](const KernelArgs& args) { return row_tactics<Writer, Op>(op, args); });
}
template <class Writer, class Op>
std::optional<GeneratedKernel> generate_row_move(const Operator& op, const KernelArgs& args) {
  Writer writer(static_cast<const Op&>(op), args);
  return writer.write(row_plans(writer.move(), args).at(args.candidate->tactic));
}

}  // namespace opwright::gpu
