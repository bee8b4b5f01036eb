#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "compile/passes.h"
#include "compile/strided_view.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// The most nodes of a chain, and the most rows whose places are computed.
constexpr size_t kMostMoves = 12;
constexpr int64_t kMostRows = int64_t{1} << 20;

/// A tensor's rows: where each of them, in row-major order, lies among those of the first tensor.
struct MovedRows {
  std::vector<int64_t> shape;  ///< extents but the last, which is that of a row
  std::vector<int64_t> places;

  void transpose(const Ints& permutation) {
    std::vector<int64_t> extents, order(permutation.begin(), permutation.end() - 1);
    for (const int64_t axis : order) extents.push_back(shape[static_cast<size_t>(axis)]);
    const std::vector<int64_t> strides = strides_of_axes();
    take(extents,
         [&](size_t axis, int64_t at) { return at * strides[static_cast<size_t>(order[axis])]; });
  }
  /// Takes `extent` positions of an axis from `start` on, in steps. Positions behind the end begin
  /// again.
  void slice(size_t axis, int64_t start, int64_t step, int64_t extent) {
    std::vector<int64_t> extents = shape;
    extents[axis] = extent;
    const int64_t size = shape[axis];
    const std::vector<int64_t> strides = strides_of_axes();
    take(extents, [&](size_t each, int64_t at) {
      if (each == axis) at = ((start + at * step) % size + size) % size;
      return at * strides[each];
    });
  }

 private:
  std::vector<int64_t> strides_of_axes() const {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return strides;
  }
  template <class Offset>
  void take(const std::vector<int64_t>& extents, const Offset& offset) {
    int64_t count = 1;
    for (const int64_t extent : extents) count *= extent;
    std::vector<int64_t> taken(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, from = 0;
      for (size_t axis = extents.size(); axis-- > 0;) {
        from += offset(axis, rest % extents[axis]);
        rest /= extents[axis];
      }
      taken[static_cast<size_t>(i)] = places[static_cast<size_t>(from)];
    }
    shape = extents, places = std::move(taken);
  }
};

/// The constant starts and steps of all axes of a slice.
struct SliceSteps {
  std::vector<int64_t> starts, steps;
};
std::optional<SliceSteps> slice_steps(const GraphNode& node, SampleMode mode) {
  const auto* op = node.as<Slice>();
  if (op == nullptr || op->params().mode != mode) return std::nullopt;
  const SymShape& in = node.inputs[0]->info.dims;
  const SliceParams& params = op->params();
  const auto starts = integers_of(node, 1, params.start),
             strides = integers_of(node, 3, params.stride);
  const size_t count = params.axes.empty() ? in.size() : params.axes.size();
  if (!starts || !strides || starts->size() != count || strides->size() != count)
    return std::nullopt;
  SliceSteps result{std::vector<int64_t>(in.size(), 0), std::vector<int64_t>(in.size(), 1)};
  for (size_t i = 0; i < count; ++i) {
    size_t axis = i;
    if (!params.axes.empty())
      axis = static_cast<size_t>(params.axes[i] + (params.axes[i] < 0 ? std::ssize(in) : 0));
    if (!(*starts)[i].is_constant() || !(*strides)[i].is_constant()) return std::nullopt;
    result.starts[axis] = (*starts)[i].constant(), result.steps[axis] = (*strides)[i].constant();
  }
  return result;
}

/// The axis along which two slices of one tensor are joined in exchanged order, and the second
/// one's length: what exporters write for a cyclic shift.
struct Roll {
  GraphValue* x = nullptr;
  size_t axis = 0;
  int64_t start = 0;
};
std::optional<Roll> roll_of(const Graph& graph, const GraphNode& node) {
  const auto* join = node.as<Concatenation>();
  if (join == nullptr || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1])
    return std::nullopt;
  const SymShape& dims = node.outputs[0]->info.dims;
  const auto axis =
      static_cast<size_t>(join->params().axis + (join->params().axis < 0 ? std::ssize(dims) : 0));
  Roll roll;
  int64_t starts[2];
  for (size_t i = 0; i < 2; ++i) {
    const GraphNode* part = node.inputs[i]->producer;
    if (part == nullptr || graph.single_user(*node.inputs[i]) != &node) return std::nullopt;
    const auto steps = slice_steps(*part, SampleMode::kSTRICT_BOUNDS);
    if (!steps || (roll.x != nullptr && roll.x != part->inputs[0])) return std::nullopt;
    roll.x = part->inputs[0];
    for (size_t each = 0; each < dims.size(); ++each)
      if (steps->steps[each] != 1 || (each != axis && steps->starts[each] != 0))
        return std::nullopt;
    starts[i] = steps->starts[axis];
  }
  if (!(roll.x->info.dims == dims) || starts[1] != 0 ||
      !(node.inputs[1]->info.dims[axis] == Expr(starts[0])))
    return std::nullopt;
  roll.axis = axis, roll.start = starts[0];
  return roll;
}

/// Joins moves of rows that are cyclic shifts and transpositions, as around the windows of a Swin
/// transformer, into one choice of rows.
class RowJoining {
 public:
  RowJoining(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  void visit(GraphNode* last) {
    if (moves_rows(*last) == nullptr || last->as<Reshape>()) return;
    // The chain ends where nothing, or something else, moves rows behind it.
    for (const GraphValue* at = last->outputs[0];;) {
      const GraphNode* user = graph_.single_user(*at);
      if (user == nullptr || user->outputs.size() != 1 || moves_rows(*user) == nullptr) break;
      if (!user->as<Reshape>()) return;
      at = user->outputs[0];
    }
    std::vector<const GraphNode*> chain;
    GraphValue* x = nullptr;
    int shifts = 0, moves = 0;
    for (const GraphNode* node = last; node != nullptr && chain.size() < kMostMoves;) {
      GraphValue* const before = moves_rows(*node);
      if (before == nullptr) break;
      chain.push_back(node), x = before;
      moves += node->as<Reshape>() ? 0 : 1;
      shifts += node->as<Slice>() || node->as<Concatenation>() ? 1 : 0;
      node = graph_.use_count(*x) == uses_in(*node) && !graph_.is_kept(*x) ? x->producer : nullptr;
    }
    while (!chain.empty() && chain.back()->as<Reshape>()) chain.pop_back();
    if (chain.empty() || moves < 2 || shifts == 0) return;
    x = moves_rows(*chain.back());
    replace(last, chain, x);
  }

 private:
  static int uses_in(const GraphNode& node) { return node.as<Concatenation>() ? 2 : 1; }

  /// The tensor whose rows the node moves. Null where it does something else.
  GraphValue* moves_rows(const GraphNode& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] == nullptr)
      return nullptr;
    const SymShape& out = node.outputs[0]->info.dims;
    if (out.size() < 2 || !is_constant(out)) return nullptr;
    GraphValue* x = node.inputs[0];
    if (const auto* op = node.as<Transpose>()) {
      if (op->params().permutation.back() != std::ssize(out) - 1) return nullptr;
    } else if (node.as<Concatenation>()) {
      const std::optional<Roll> roll = roll_of(graph_, node);
      if (!roll || roll->axis + 1 == out.size()) return nullptr;
      x = roll->x;
    } else if (node.as<Slice>()) {
      const auto steps = slice_steps(node, SampleMode::kWRAP);
      if (!steps || steps->starts.back() != 0 || steps->steps.back() != 1) return nullptr;
    } else if (!node.as<Reshape>()) {
      return nullptr;
    }
    const SymShape& in = x->info.dims;
    return in.size() >= 2 && is_constant(in) && in.back() == out.back() ? x : nullptr;
  }

  void replace(GraphNode* last, const std::vector<const GraphNode*>& chain, GraphValue* x) {
    const Shape shape = constant_shape(x->info.dims);
    const int64_t width = shape[shape.rank() - 1], rows = shape.numel(0, shape.rank() - 1);
    if (rows < 1 || rows > kMostRows || width < 1) return;
    MovedRows moved;
    for (int i = 0; i + 1 < shape.rank(); ++i) moved.shape.push_back(shape[i]);
    for (int64_t i = 0; i < rows; ++i) moved.places.push_back(i);
    for (size_t i = chain.size(); i-- > 0;) apply(*chain[i], moved);
    const auto count = std::ssize(moved.places);
    // Sequences of a batch mostly move alike.
    int64_t batch = count == rows ? shape[0] : 1;
    const int64_t each = rows / batch;
    for (int64_t at = 0; at < count && batch > 1; ++at)
      if (moved.places[static_cast<size_t>(at)] !=
          moved.places[static_cast<size_t>(at % each)] + at / each * each)
        batch = 1;
    const int64_t taken = count / batch;
    std::vector<int32_t> indices;
    for (int64_t i = 0; i < taken; ++i)
      indices.push_back(static_cast<int32_t>(moved.places[static_cast<size_t>(i)]));
    GraphValue* const places = graph_.add_constant(
        DataType::kINT32, Shape{taken},
        Blob::copy(indices.data(), indices.size() * sizeof(int32_t)), last->name + " rows");
    const DataType type = x->info.dtype;
    TensorInfo info;
    info.dtype = type, info.dims = {Expr(batch), Expr(rows / batch), Expr(width)};
    GraphValue* const source = graph_
                                   .insert_before(last, std::make_shared<Reshape>(), {x},
                                                  std::move(info), last->name + " before")
                                   ->outputs[0];
    GatherParams params;
    params.axis = 1;
    TensorInfo result;
    result.dtype = type, result.dims = {Expr(batch), Expr(taken), Expr(width)};
    const std::vector<GraphValue*> inputs = {source, places};
    auto op = std::make_shared<Gather>(params);
    GraphNode* const gather = graph_.insert_before(last, op, inputs, std::move(result), last->name);
    // If it cannot run, nothing reads it and it is removed.
    if (!context_.can_run(*op, *gather, inputs)) return;
    for (const GraphNode* node : chain)
      if (node != last) join(*node, *gather);
    graph_.replace(last, std::make_shared<Reshape>(), {gather->outputs[0]});
  }

  void apply(const GraphNode& node, MovedRows& moved) const {
    const SymShape& out = node.outputs[0]->info.dims;
    if (const auto* op = node.as<Transpose>()) {
      moved.transpose(op->params().permutation);
    } else if (node.as<Reshape>()) {
      moved.shape.clear();
      for (size_t i = 0; i + 1 < out.size(); ++i) moved.shape.push_back(out[i].constant());
    } else if (node.as<Concatenation>()) {
      const Roll roll = *roll_of(graph_, node);
      moved.slice(roll.axis, roll.start, 1, moved.shape[roll.axis]);
    } else {
      const SliceSteps steps = *slice_steps(node, SampleMode::kWRAP);
      for (size_t axis = 0; axis + 1 < out.size(); ++axis)
        moved.slice(axis, steps.starts[axis], steps.steps[axis], out[axis].constant());
    }
  }

  Graph& graph_;
  const PassContext& context_;
};

}  // namespace

void join_row_moves(Graph& graph, const PassContext& context) {
  RowJoining joining(graph, context);
  for (GraphNode* node : graph.nodes()) joining.visit(node);
}

}  // namespace opwright
