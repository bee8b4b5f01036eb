#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/types.h"
#include "compile/passes.h"
#include "compile/single_operation.h"
#include "compile/strided_view.h"
#include "operators/movement.h"
#include "operators/rotary_embedding.h"

namespace opwright {
namespace {

/// A part of a tensor's last axis, with all of the other axes.
struct LastPart {
  GraphValue* whole = nullptr;
  int64_t start = 0, stride = 1, extent = 0;
};
/// The part that the value is. Nothing where it is no such part.
std::optional<LastPart> last_part(const GraphValue* value) {
  const GraphNode* node = value ? value->producer : nullptr;
  if (node == nullptr || node->as<Slice>() == nullptr) return std::nullopt;
  const SymShape &in = node->inputs[0]->info.dims, &out = value->info.dims;
  const std::optional<std::vector<SlicedAxis>> axes = sliced_axes(*node);
  if (in.empty() || !axes) return std::nullopt;
  LastPart part{node->inputs[0], 0, 1, 0};
  for (const auto& [axis, start, stride] : *axes) {
    if (!start.is_constant()) return std::nullopt;
    if (axis + 1 == in.size()) {
      if (!stride.is_constant()) return std::nullopt;
      part.start = start.constant(), part.stride = stride.constant();
    } else if (!(start == Expr(0)) || !(in[axis] == out[axis]) || !(stride == Expr(1))) {
      return std::nullopt;
    }
  }
  if (!out.back().is_constant()) return std::nullopt;
  part.extent = out.back().constant();
  return part;
}

/// The value whose negation the operand is.
GraphValue* negation_of(const GraphValue* value) {
  const std::optional<SingleOperation> op = single_operation(value->producer);
  if (!op) return nullptr;
  if (op->is(UnaryOperation::kNEG)) return op->a.value;
  GraphValue* x = nullptr;
  return factor_of(*op, x) == -1.0 ? x : nullptr;
}

/// The value's producer, if it joins two values along the last axis; else null.
GraphNode* pair_joined(const GraphValue* value) {
  GraphNode* node = value ? value->producer : nullptr;
  const auto* join = node ? node->as<Concatenation>() : nullptr;
  if (join == nullptr || node->inputs.size() != 2) return nullptr;
  const int64_t rank = std::ssize(value->info.dims), axis = join->params().axis;
  return axis == rank - 1 || axis == -1 ? node : nullptr;
}

/// x whose pairs of elements are exchanged, the first one of each result negated.
struct Turned {
  GraphValue* x = nullptr;
  bool interleaved = false;
};
std::optional<Turned> turned(const GraphValue* value) {
  const GraphNode* node = value->producer;
  bool interleaved = false;
  const SymShape& dims = value->info.dims;
  if (node != nullptr && node->as<Reshape>()) {  // [..., pairs, 2] to [..., 2 * pairs]
    const SymShape& pairs = node->inputs[0]->info.dims;
    if (pairs.size() != dims.size() + 1 || !(pairs.back() == Expr(2)) ||
        !std::equal(dims.begin(), dims.end() - 1, pairs.begin()))
      return std::nullopt;
    interleaved = true;
    value = node->inputs[0];
  }
  const GraphNode* join = pair_joined(value);
  if (join == nullptr || dims.empty() || !dims.back().is_constant()) return std::nullopt;
  const int64_t size = dims.back().constant(), half = size / 2;
  const auto part_of = [&](GraphValue* joined) -> GraphValue* {
    if (!interleaved) return joined;  // [..., pairs] to [..., pairs, 1]
    const GraphNode* made = joined->producer;
    if (made == nullptr || !made->as<Reshape>()) return nullptr;
    const SymShape &in = made->inputs[0]->info.dims, &out = joined->info.dims;
    const bool is_added = out.size() == in.size() + 1 && out.back() == Expr(1) &&
                          std::equal(in.begin(), in.end(), out.begin());
    return is_added ? made->inputs[0] : nullptr;
  };
  // The negation may come before or behind the added axis.
  GraphValue* second = negation_of(join->inputs[0]);
  if (second != nullptr) second = part_of(second);
  if (second == nullptr && (second = part_of(join->inputs[0])) != nullptr)
    second = negation_of(second);
  GraphValue* const first = part_of(join->inputs[1]);
  const auto a = last_part(first), b = last_part(second);
  if (!a || !b || a->whole != b->whole || size != 2 * half || a->extent != half ||
      b->extent != half || !(a->whole->info.dims.back() == Expr(size)))
    return std::nullopt;
  const bool fits = interleaved
                        ? a->start == 0 && b->start == 1 && a->stride == 2 && b->stride == 2
                        : a->start == 0 && b->start == half && a->stride == 1 && b->stride == 1;
  return fits ? std::optional(Turned{a->whole, interleaved}) : std::nullopt;
}

/// Cosines or sines of each pair, from tables that have each of them twice.
class Tables {
 public:
  explicit Tables(Graph& graph) : graph_(graph) {}

  /// Of [..., size] the elements of one of each pair, [..., size / 2]. Null where the two elements
  /// of a pair may differ.
  GraphValue* of_pairs(GraphValue* value, bool interleaved) {
    const Key key{value, interleaved};
    const auto [found, is_new] = known_.try_emplace(key, nullptr);
    if (!is_new) return found->second;
    GraphValue* const made = make(value, interleaved);
    known_[key] = made;
    return made;
  }

 private:
  using Key = std::pair<GraphValue*, bool>;
  static bool has_pairs(const GraphValue& value, const Expr& size) {
    return !value.info.dims.empty() && value.info.dims.back() == size;
  }

  GraphValue* make(GraphValue* value, bool interleaved) {
    const SymShape& dims = value->info.dims;
    if (dims.empty() || !dims.back().is_constant() || dims.back().constant() % 2 != 0)
      return nullptr;
    if (value->is_constant()) return from_constant(*value, interleaved);
    GraphNode* const node = value->producer;
    if (node == nullptr || node->outputs.size() != 1) return nullptr;
    const Expr size = dims.back();
    SymShape half = dims;
    half.back() = Expr(size.constant() / 2);
    std::vector<GraphValue*> inputs = node->inputs;
    if (const GraphNode* join = pair_joined(value); join && !interleaved)
      return join->inputs[0] == join->inputs[1] ? join->inputs[0] : nullptr;
    if (node->as<Pointwise>()) {
      for (GraphValue*& input : inputs) {
        if (input->info.dims.empty() || input->info.dims.back() == Expr(1)) continue;
        if (!has_pairs(*input, size)) return nullptr;
        input = of_pairs(input, interleaved);
        if (input == nullptr) return nullptr;
      }
    } else if (node->as<Reshape>()) {
      if (interleaved && is_repeated(*node->inputs[0], dims)) {
        inputs = {node->inputs[0]->producer->inputs[0]};  // [..., pairs, 1]
      } else {
        if (!has_pairs(*node->inputs[0], size)) return nullptr;
        inputs[0] = of_pairs(node->inputs[0], interleaved);
        if (inputs[0] == nullptr) return nullptr;
      }
    } else if (const auto* op = node->as<Transpose>()) {
      if (op->params().permutation.back() != std::ssize(dims) - 1) return nullptr;
      inputs[0] = of_pairs(node->inputs[0], interleaved);
      if (inputs[0] == nullptr) return nullptr;
    } else if (const auto* op = node->as<Gather>()) {
      const int64_t rank = std::ssize(node->inputs[0]->info.dims), axis = op->params().axis;
      if (op->params().mode != GatherMode::kDEFAULT || op->params().num_elementwise_dims != 0 ||
          axis == rank - 1 || axis == -1)
        return nullptr;
      inputs[0] = of_pairs(node->inputs[0], interleaved);
      if (inputs[0] == nullptr) return nullptr;
    } else if (only_repeats(*node) && has_pairs(*node->inputs[0], size)) {
      return of_pairs(node->inputs[0], interleaved);  // broadcasting repeats, too
    } else {
      return nullptr;
    }
    TensorInfo info;
    info.dtype = value->info.dtype, info.dims = std::move(half);
    return graph_.insert_before(node, node->op, std::move(inputs), std::move(info), node->name)
        ->outputs[0];
  }

  /// Whether the value is [..., pairs, 2], each element twice, and `dims` are [..., 2 * pairs].
  static bool is_repeated(const GraphValue& value, const SymShape& dims) {
    const SymShape& pairs = value.info.dims;
    const GraphNode* node = value.producer;
    if (node == nullptr || pairs.size() != dims.size() + 1 || !(pairs.back() == Expr(2)) ||
        !std::equal(dims.begin(), dims.end() - 1, pairs.begin()))
      return false;
    const SymShape& in = node->inputs[0]->info.dims;
    return only_repeats(*node) && in.back() == Expr(1) &&
           std::equal(in.begin(), in.end() - 1, pairs.begin());
  }

  GraphValue* from_constant(const GraphValue& value, bool interleaved) {
    const DataType type = value.info.dtype;
    if (!value.is_fixed() || bits(type) < 8) return nullptr;
    const Shape shape = constant_shape(value.info.dims);
    const int64_t size = shape[shape.rank() - 1], half = size / 2,
                  rows = size > 0 ? shape.numel() / size : 0;
    const auto bytes = static_cast<size_t>(bits(type) / 8);
    const auto* const from = reinterpret_cast<const char*>(value.info.constant.data());
    const auto at = [&](int64_t row, int64_t element) {
      return from + static_cast<size_t>(row * size + element) * bytes;
    };
    const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < half; ++i)
        if (std::memcmp(at(row, i * step), at(row, i * step + other), bytes) != 0) return nullptr;
    Blob data = Blob::make(bytes * static_cast<size_t>(rows * half), [&](void* memory) {
      auto* to = static_cast<char*>(memory);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < half; ++i, to += bytes) std::memcpy(to, at(row, i * step), bytes);
    });
    Shape of_pairs = shape;
    of_pairs[shape.rank() - 1] = half;
    return graph_.add_constant(type, of_pairs, std::move(data), value.name + " of pairs");
  }

  Graph& graph_;
  std::map<Key, GraphValue*> known_;
};

class RotaryRewriting {
 public:
  RotaryRewriting(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  void visit(GraphNode* node) {
    const std::optional<SingleOperation> sum = single_operation(node);
    if (!sum || !sum->is(ElementWiseOperation::kSUM) || sum->type != DataType::kFLOAT) return;
    for (const auto& [plain, exchanged] : {std::pair(sum->a, sum->b), std::pair(sum->b, sum->a)})
      if (try_replace(node, plain, exchanged)) return;
  }

 private:
  bool try_replace(GraphNode* node, const Operand& plain, const Operand& exchanged) {
    const std::optional<SingleOperation> by_cosine = made_by(plain), by_sine = made_by(exchanged);
    if (!by_cosine || !by_sine || !by_cosine->is(ElementWiseOperation::kPROD) ||
        !by_sine->is(ElementWiseOperation::kPROD))
      return false;
    for (const auto& [turned_x, sines] :
         {std::pair(by_sine->a, by_sine->b), std::pair(by_sine->b, by_sine->a)}) {
      if (!turned_x.value || !sines.value) continue;
      const std::optional<Turned> found = turned(turned_x.value);
      if (!found) continue;
      for (const auto& [x, cosines] :
           {std::pair(by_cosine->a, by_cosine->b), std::pair(by_cosine->b, by_cosine->a)})
        if (x.value == found->x && cosines.value &&
            replace(node, {plain.value, exchanged.value, turned_x.value}, *found, cosines.value,
                    sines.value))
          return true;
    }
    return false;
  }

  /// The angles of a table, [batch or 1, length, pairs], for x of [batch, length, heads, size] with
  /// `length_first`, else of [batch, heads, length, size]. Null where the table has another shape.
  GraphValue* angles(GraphNode* before, GraphValue* table, const SymShape& x, bool length_first,
                     bool interleaved) {
    SymShape dims = table->info.dims;
    if (dims.size() > 4 || dims.empty() || !(dims.back() == x[3])) return nullptr;
    GraphValue* const pairs = tables_.of_pairs(table, interleaved);
    if (pairs == nullptr) return nullptr;
    dims = pairs->info.dims;
    if (dims.size() > 4) return nullptr;
    dims.insert(dims.begin(), 4 - dims.size(), Expr(1));
    const size_t length_axis = length_first ? 1 : 2, heads_axis = length_first ? 2 : 1;
    if (!(dims[heads_axis] == Expr(1)) || !(dims[length_axis] == x[length_axis]) ||
        !(dims[0] == Expr(1) || dims[0] == x[0]))
      return nullptr;
    const SymShape wanted = {dims[0], dims[length_axis], dims[3]};
    if (pairs->info.dims == wanted) return pairs;
    // Embeddings of queries and keys share their tables.
    GraphValue*& known = angles_[{pairs, length_first}];
    if (known != nullptr) return known;
    if (pairs->is_constant() && is_constant(wanted))
      return known = graph_.reshape_constant(*pairs, constant_shape(wanted));
    TensorInfo info;
    info.dtype = pairs->info.dtype, info.dims = wanted;
    return known = graph_
                       .insert_before(before, std::make_shared<Reshape>(), {pairs}, std::move(info),
                                      before->name + " angles")
                       ->outputs[0];
  }

  bool replace(GraphNode* node, std::initializer_list<const GraphValue*> between,
               const Turned& found, GraphValue* cosines, GraphValue* sines) {
    GraphValue* x = found.x;
    const DataType type = x->info.dtype;
    if (x->info.dims.size() != 4 || !is_floating(type) ||
        !(node->outputs[0]->info.dims == x->info.dims))
      return false;
    for (const GraphValue* value : between)
      if (value->info.dtype != type) return false;
    if (node->outputs[0]->info.dtype != type || cosines->info.dtype != type ||
        sines->info.dtype != type)
      return false;
    RotaryEmbeddingParams params;
    params.interleaved = found.interleaved;
    GraphValue *of_cosines = nullptr, *of_sines = nullptr;
    for (const bool length_first : {false, true}) {
      of_cosines = angles(node, cosines, x->info.dims, length_first, found.interleaved);
      of_sines = of_cosines == nullptr
                     ? nullptr
                     : angles(node, sines, x->info.dims, length_first, found.interleaved);
      params.sequence_first = length_first;
      if (of_sines != nullptr) break;
    }
    if (of_sines == nullptr) return false;
    GraphNode* last = node;
    take_rest(x, last, params);
    // Turns heads before they are transposed, so that the transposition can become part of the
    // attention.
    const GraphNode* move = x->producer;
    const auto* transposed = move ? move->as<Transpose>() : nullptr;
    const bool is_moved = transposed && transposed->params().permutation == Ints{0, 2, 1, 3};
    if (is_moved) x = move->inputs[0], params.sequence_first = !params.sequence_first;
    const std::vector<GraphValue*> inputs = {x, of_cosines, of_sines};
    auto op = std::make_shared<RotaryEmbedding>(params);
    TensorInfo info;
    info.dtype = type, info.dims = x->info.dims;
    GraphNode* const made = graph_.insert_before(last, op, inputs, std::move(info), node->name);
    // If it cannot run, nothing reads it and it is removed.
    if (!context_.can_run(*op, *made, inputs)) return false;
    if (is_moved)
      graph_.replace(last, std::make_shared<Transpose>(TransposeParams{{0, 2, 1, 3}}),
                     {made->outputs[0]});
    else
      graph_.replace(last, std::move(op), inputs);
    return true;
  }

  /// Where x is the leading part of heads and the others are joined behind the result, unchanged,
  /// takes whole heads.
  void take_rest(GraphValue*& x, GraphNode*& last, RotaryEmbeddingParams& params) const {
    const auto leading = last_part(x);
    if (!leading || leading->start != 0 || leading->stride != 1) return;
    GraphNode* const join = pair_joined_user(*last->outputs[0]);
    if (join == nullptr || join->inputs[0] != last->outputs[0]) return;
    const auto rest = last_part(join->inputs[1]);
    const Expr& size = leading->whole->info.dims.back();
    if (!rest || rest->whole != leading->whole || rest->start != leading->extent ||
        rest->stride != 1 || !(Expr(rest->start + rest->extent) == size))
      return;
    params.rotary_embedding_dim = leading->extent;
    x = leading->whole, last = join;
  }
  GraphNode* pair_joined_user(const GraphValue& value) const {
    const GraphNode* user = graph_.single_user(value);
    return user != nullptr && user->outputs.size() == 1 ? pair_joined(user->outputs[0]) : nullptr;
  }

  Graph& graph_;
  const PassContext& context_;
  Tables tables_{graph_};
  std::map<std::pair<GraphValue*, bool>, GraphValue*> angles_;  ///< reshaped tables
};

}  // namespace

void recognize_rotary_embedding(Graph& graph, const PassContext& context) {
  RotaryRewriting rewriting(graph, context);
  for (GraphNode* node : graph.nodes())
    if (node->as<Pointwise>()) rewriting.visit(node);
}

}  // namespace opwright
