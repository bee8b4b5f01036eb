#include <algorithm>

#include "backend/candidates.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/moved_axes.h"
#include "backend/cuda/rows.h"
#include "base/error.h"
#include "operators/movement.h"

namespace opwright::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;
/// Sides of the square tiles through shared memory.
constexpr int kTiles[] = {32, 64};
/// A matrix with a side below this leaves most of a tile empty.
constexpr int64_t kNarrow = 16;
/// Elements from which on more than one way is worth trying.
constexpr int64_t kManyElements = 1 << 16;

/// One way to run a transposition.
struct Tactic {
  int tile = 0;  ///< 0: row by row
  RowPlan rows;
  std::string name() const { return tile > 0 ? str("tiles of ", tile) : rows.name(); }
};

/// Axes that stay neighbours are one. Where the last one stays the last one, rows are copied; else
/// matrices of the input's and the output's last axis are transposed.
class Writer {
 public:
  Writer(const Transpose& op, const KernelArgs& args)
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

  std::vector<Tactic> tactics() {
    std::vector<Tactic> result;
    if (matrix_ >= 0) {
      const int64_t narrowest = std::min(axes_[matrix_].typical, axes_.back().typical);
      const bool many = args_.outputs[0].opt.numel() >= kManyElements;
      if (narrowest >= kNarrow || many) result.push_back({kTiles[0], {}});
      if (narrowest > kWarp && many) result.push_back({kTiles[1], {}});
      if (narrowest > kWarp) return result;
    }
    for (const RowPlan& plan : row_plans(describe_rows(), args_)) result.push_back({0, plan});
    return result;
  }

  GeneratedKernel write(const Tactic& tactic) {
    source_.set_input_type(0, carrier_type(size_));
    return tactic.tile > 0 ? tiles(tactic.tile)
                           : generate_rows(source_, describe_rows(), tactic.rows);
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
      // The neighbours of an element that is picked are picked, too, but from the cache.
      return str("const Element* const from = (const Element*)(in0 + (", base.empty() ? "0" : base,
                 "));\n", "const auto fetch = [&](Index i) { return ",
                 matrix_ < 0 ? "__ldcs(from + i)" : "from[i * " + source_.value(inner.pitch) + "]",
                 "; };\n");
    };
    return move;
  }

  /// A block reads a tile along the input's last axis and writes it along the output's.
  GeneratedKernel tiles(int side) {
    source_.set_output_type(0, carrier_type(size_));
    const MovedAxis &column = axes_[matrix_], &line = axes_.back();
    SymShape extents, from_pitches, to_pitches;
    std::vector<std::string> names;
    SymShape shape;
    for (const MovedAxis& axis : axes_) shape.push_back(axis.extent);
    const SymShape pitches = row_major_strides(shape);
    for (size_t i = 0; i + 1 < axes_.size(); ++i) {
      if (static_cast<int>(i) == matrix_) continue;
      names.push_back(str("c", i));
      extents.push_back(axes_[i].extent);
      from_pitches.push_back(axes_[i].pitch);
      to_pitches.push_back(pitches[i]);
    }
    for (const auto& [name, axis] : {std::pair("lines", &line), std::pair("columns", &column)}) {
      names.emplace_back(name);
      extents.push_back(ceil_div(axis->extent, Expr(side)));
    }
    const Expr tiles = numel(extents);
    const std::string lines = source_.value(line.extent), columns = source_.value(column.extent);
    const std::string line_pitch = source_.value(line.pitch),
                      column_pitch = source_.value(pitches[matrix_]);
    // So that a warp that reads a column of the tile finds each element in another bank.
    const int padding = std::max(1, 4 / size_);
    const std::span<const std::string> batch = std::span(names).first(names.size() - 2);

    std::string text =
        str("__shared__ ", carrier_type(size_), " tile[", side, "][", side + padding, "];\n",
            "const int lane = (int)threadIdx.x % ", kWarp, ", warp = (int)threadIdx.x / ", kWarp,
            ";\nfor (Index number = blockIdx.x; number < ", source_.value(tiles),
            "; number += gridDim.x) {\n", source_.decompose("number", names, extents));
    text += str("const Index line = lines * ", side, ", column = columns * ", side, ";\n");
    text += str("const auto* const from = in0 + (", source_.offset(batch, from_pitches),
                " + line * ", line_pitch, " + column);\n");
    text += str("auto* const to = out0 + (", source_.offset(batch, to_pitches), " + column * ",
                column_pitch, " + line);\n");
    const auto each = [&](std::string_view rows, std::string_view count, std::string_view across,
                          std::string_view most, std::string_view statement) {
      text += str("#pragma unroll\nfor (int r = 0; r < ", side, "; r += ", kThreads / kWarp,
                  ") {\n#pragma unroll\nfor (int c = 0; c < ", side, "; c += ", kWarp,
                  ") {\nconst int y = r + warp, x = c + lane;\nif (", rows, " + y < ", count,
                  " && ", across, " + x < ", most, ") ", statement, "\n}\n}\n");
    };
    each("line", lines, "column", columns,
         str("tile[y][x] = __ldcs(from + (y * ", line_pitch, " + x));"));
    text += "__syncthreads();\n";
    each("column", columns, "line", lines,
         str("__stcs(to + (y * ", column_pitch, " + x), tile[x][y]);"));
    text += "__syncthreads();\n}\n";
    return source_.finish(text, tiles, kThreads);
  }

  KernelSource source_;
  const KernelArgs& args_;
  const int size_;
  std::vector<MovedAxis> axes_;
  int matrix_ = -1;  ///< the axis that is the input's last one, where that is another than here
};

std::vector<Candidate> candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) {
    std::vector<std::string> names;
    for (const Tactic& tactic : Writer(static_cast<const Transpose&>(op), args).tactics())
      names.push_back(tactic.name());
    return names;
  });
}

std::optional<GeneratedKernel> generate(const Operator& op, const KernelArgs& args) {
  Writer writer(static_cast<const Transpose&>(op), args);
  return writer.write(writer.tactics().at(args.candidate->tactic));
}

}  // namespace

KernelEntry transpose_kernels() { return {candidates, generate, nullptr}; }

}  // namespace opwright::cuda
