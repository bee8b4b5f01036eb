#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/moved_axes.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// Sides of the square tiles through shared memory.
constexpr int kTile = 32, kLargeTile = 64;
/// Bytes of an access to a tile of smaller elements.
constexpr int kTransposeAccessBytes = 4;
/// A matrix with a smaller side leaves most of a tile empty.
constexpr int64_t kNarrow = 16;
/// Elements from which on more than one tactic is worth timing.
constexpr int64_t kManyTransposed = 1 << 16;

/// One way to run a transposition.
struct Tactic {
  int tile = 0;   ///< 0: row by row
  int width = 1;  ///< elements of an access to a tile
  RowPlan rows;
  std::string name() const {
    if (tile == 0) return rows.name();
    return str("tiles of ", tile, width > 1 ? str(" by ", width) : std::string());
  }
};

/// Merges axes that stay neighbours. Where the last axis stays the last one, rows are copied; else
/// matrices of the input's and the output's last axis are transposed.
class TransposeWriter {
 public:
  TransposeWriter(const Transpose& op, const KernelArgs& args)
      : source_("transpose", args), args_(args), size_(element_size(args.outputs[0].type.dtype)) {
    const SymShape& dims = source_.dims(0);
    const SymShape pitches = row_major_strides(dims);
    std::vector<MovedAxis> moved;
    for (const int64_t axis : op.params().permutation)
      moved.push_back(
          {dims[axis], pitches[axis], args.inputs[0].opt[static_cast<int>(axis)], std::nullopt});
    axes_ = merge(moved);
    for (size_t i = 0; i + 1 < axes_.size(); ++i)
      if (axes_[i].pitch == Expr(1)) matrix_ = static_cast<int>(i);
  }

  Ways<Tactic> tactics() {
    Ways<Tactic> result;
    bool are_rows_worth = true;
    if (matrix_ >= 0) {
      const int64_t narrowest = std::min(axes_[matrix_].typical, axes_.back().typical);
      const bool many = args_.outputs[0].opt.numel() >= kManyTransposed;
      std::vector<std::string> conditions;
      const int width = tile_width(conditions);
      if (width > 1) result.add({kTile * width, width, {}}, narrowest > kTile);
      result.add({kTile, 1, {}}, narrowest >= kNarrow || many);
      if (width == 1) result.add({kLargeTile, 1, {}}, narrowest > kTile && many);
      are_rows_worth = narrowest <= kTile;
    }
    const Ways<RowPlan> plans = row_plans(describe_rows(), args_);
    size_t number = 0;
    for (const RowPlan& plan : plans.listed(true))
      result.add({0, 1, plan}, are_rows_worth && plans.is_worth_timing(number++));
    return result;
  }

  GeneratedKernel write(const Tactic& tactic) {
    source_.set_input_type(0, carrier_type(size_));
    return tactic.tile > 0 ? tiles(tactic) : generate_rows(source_, describe_rows(), tactic.rows);
  }

 private:
  RowMove describe_rows() {
    const MovedAxis& inner = axes_.back();
    RowMove move;
    std::vector<Expr> multiples = {inner.extent};
    for (size_t i = 0; i + 1 < axes_.size(); ++i) {
      move.outer.push_back(axes_[i].extent);
      multiples.push_back(axes_[i].pitch);
    }
    move.length = inner.extent;
    move.typical_length = inner.typical;
    move.element_size = size_;
    if (matrix_ < 0) {
      move.width = vector_width(source_, size_, multiples, move.conditions);
      if (move.width > 1) move.conditions.push_back(alignment_condition(size_, move.width, "in0"));
    }
    move.row = [this, &inner](int) {
      std::string base;
      for (size_t i = 0; i + 1 < axes_.size(); ++i)
        base += str(i > 0 ? " + " : "", "c", i, " * ", source_.value(axes_[i].pitch));
      // Other rows pick the neighbours of a picked element, and find them in the cache, so these
      // loads do not bypass it.
      return str("const Element* const from = (const Element*)(in0 + (", base.empty() ? "0" : base,
                 "));\n", "return [=](Index i) { return ",
                 matrix_ < 0 ? "__ldcs(from + i)" : "from[i * " + source_.value(inner.pitch) + "]",
                 "; };\n");
    };
    return move;
  }

  /// The number of neighbours along both sides of the matrix that one access may take.
  int tile_width(std::vector<std::string>& conditions) {
    if (size_ >= kTransposeAccessBytes) return 1;
    std::vector<Expr> multiples;
    Expr pitch = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      if (static_cast<int>(i) != matrix_) multiples.push_back(axes_[i].pitch);
      if (i + 1 < axes_.size()) multiples.push_back(pitch);
      pitch = pitch * axes_[i].extent;
    }
    multiples.push_back(axes_[matrix_].extent);
    multiples.push_back(axes_.back().extent);
    const int most = kTransposeAccessBytes / size_;
    for (const Expr& number : multiples)
      if (number.is_constant() && number.constant() % most != 0) return 1;
    for (const Expr& number : multiples)
      if (!number.is_constant())
        conditions.push_back(str(source_.value(number), " % ", most, " == 0"));
    for (const char* const pointer : {"in0", "out0"})
      conditions.push_back(alignment_condition(size_, most, pointer));
    return most;
  }

  GeneratedKernel tiles(const Tactic& tactic) {
    source_.set_output_type(0, carrier_type(size_));
    const MovedAxis &column = axes_[matrix_], &line = axes_.back();
    SymShape shape, extents, from_pitches, to_pitches;
    for (const MovedAxis& axis : axes_) shape.push_back(axis.extent);
    const SymShape pitches = row_major_strides(shape);
    std::vector<std::string> names;
    for (size_t i = 0; i + 1 < axes_.size(); ++i) {
      if (static_cast<int>(i) == matrix_) continue;
      names.push_back(str("c", i));
      extents.push_back(axes_[i].extent);
      from_pitches.push_back(axes_[i].pitch), to_pitches.push_back(pitches[i]);
    }
    const std::string from = source_.offset(names, from_pitches),
                      to = source_.offset(names, to_pitches);
    for (const auto& [name, axis] : {std::pair("line", &line), std::pair("column", &column)}) {
      names.emplace_back(name);
      extents.push_back(ceil_div(axis->extent, Expr(tactic.tile)));
    }
    const Expr tiles = numel(extents);
    std::string is_by_vector = "false";
    if (tactic.width > 1) {
      std::vector<std::string> conditions;
      tile_width(conditions);
      is_by_vector = joined(conditions, " && ");
    }

    ConfigWriter config;
    config.type("Element", carrier_type(size_));
    config.type("Access", carrier_type(size_ * tactic.width));
    config.number("kSide", tactic.tile), config.number("kWidth", tactic.width);
    config.number("kPadding", tactic.width > 1 ? 1 : std::max(1, kTransposeAccessBytes / size_));
    config.number("kThreads", kThreads);
    source_.add_declarations(include("transpose.cuh") + config.write());
    return source_.finish(
        str("const TransposeArguments<Config> all = {in0, out0, ",
            source_.values({tiles, line.extent, column.extent, line.pitch, pitches[matrix_]}), ", ",
            is_by_vector, "};\ntranspose_tiles(all, [&](Index number) -> TransposeTile {\n",
            source_.decompose("number", names, extents), "return {", from, ", ", to, ", line * ",
            tactic.tile, ", column * ", tactic.tile, "};\n});\n"),
        tiles, kThreads);
  }

  KernelSource source_;
  const KernelArgs& args_;
  const int size_;
  std::vector<MovedAxis> axes_;
  int matrix_ = -1;  ///< index of the axis that is the input's last one, where the output has
                     ///< another last axis
};

std::vector<Candidate> transpose_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) {
    return TransposeWriter(static_cast<const Transpose&>(op), args).tactics().names();
  });
}

std::optional<GeneratedKernel> generate_transpose(const Operator& op, const KernelArgs& args) {
  const auto& transpose = static_cast<const Transpose&>(op);
  const Tactic tactic = TransposeWriter(transpose, args).tactics().at(args.candidate->tactic);
  return TransposeWriter(transpose, args).write(tactic);
}

std::vector<std::string> transpose_tactics() {
  std::vector<std::string> names = row_plan_names();
  for (const int width : {2, 4}) names.push_back(Tactic{kTile * width, width, {}}.name());
  for (const int side : {kTile, kLargeTile}) names.push_back(Tactic{side, 1, {}}.name());
  return names;
}

const RegisteredKernels<Transpose> kTransposeKernels({.candidates = transpose_candidates,
                                                      .generate = generate_transpose,
                                                      .make = nullptr,
                                                      .tactics = transpose_tactics});

}  // namespace
}  // namespace opwright::gpu
