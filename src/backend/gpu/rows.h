#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"

namespace opwright::gpu {

/// How threads share the rows of an output.
struct RowPlan {
  int lanes = 32;  ///< threads along a row, a power of 2
  int unroll = 1;  ///< accesses of a thread to a row that are under way at once
  int rows = 1;    ///< rows, of one access each, that are under way at once
  std::string name() const;
  friend bool operator==(const RowPlan&, const RowPlan&) = default;
};
/// Those for an output with so many elements in rows of `length` accesses each.
Ways<RowPlan> row_plans(int64_t length, int64_t elements);

/// KernelTactics::names of all of them.
std::vector<std::string> row_plan_names();

/// A kernel that moves elements into an output row by row, so that positions are divided by extents
/// once per row, not per element. Loads and stores stream past the caches unless `row` does
/// otherwise.
struct RowMove {
  /// Extents of the axes that number the rows, outermost first; their positions are `c0`, `c1`, ...
  SymShape outer;
  Expr length;           ///< elements per row
  int element_size = 4;  ///< bytes
  /// Elements that are moved in one access where the run-time `conditions` hold, beside those of
  /// the length and the output's alignment.
  int width = 1;
  std::vector<std::string> conditions;
  int64_t typical_length = 1;  ///< at the profile's optimum
  /// Statements for row number `row` that define `fetch(i)`, a function of Index that gives what
  /// lies at position i of the row as an `Element`: `width` elements, of which one is position 0,
  /// the next 1, ... Called with 1, too.
  std::function<std::string(int width)> row;
};

/// `out0` is declared as carriers of the elements' size.
GeneratedKernel generate_rows(KernelSource& source, const RowMove& move, const RowPlan& plan);
/// row_plans() for the move.
Ways<RowPlan> row_plans(const RowMove& move, const KernelArgs& args);

/// The most neighbours of that size, at most 16 bytes of them, that all of the numbers may be
/// multiples of for some shape. Appends to `conditions` what that takes at run time.
int vector_width(KernelSource& source, int element_size, std::span<const Expr> multiples,
                 std::vector<std::string>& conditions);
/// "is_aligned<unsigned, 4>(in0)", which `conditions` are made of.
std::string alignment_condition(int element_size, int width, std::string_view pointer);

/// The types of the query and, where it allows lower precision, those that all FP32 ports have
/// instead, since moving works on any type; each with the tactics that `tactics` names for ports of
/// these types, numbered in that order.
std::vector<Candidate> moving_candidates(
    const CandidateQuery& query,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics);
/// The same in each of the formats, which all ports have.
std::vector<Candidate> moving_candidates(
    const CandidateQuery& query, std::span<const TensorFormat> formats,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics);

/// Candidates and kernel of an operator whose rows a Writer moves: made of the operator and
/// KernelArgs, it has `move()` and `write(plan)`.
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
