#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "compile/agreements.h"
#include "compile/passes.h"
#include "operators/builtin.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Expressions that stand for the same number, and which of these expressions is used.
class Equalities {
 public:
  void add(const Expr& from, const Expr& to) { all_.emplace_back(from, to); }
  Expr operator()(const Expr& expr) const {
    Expr result = expr;
    for (const auto& [from, to] : all_)
      if (result == from) result = to;
    return result;
  }

 private:
  std::vector<std::pair<Expr, Expr>> all_;
};

/// The symbols whose values do not follow from the shapes of inputs.
std::vector<bool> symbols_of_data(const SymbolTable& symbols) {
  std::vector<bool> by_data(static_cast<size_t>(symbols.size()));
  for (int id = 0; id < symbols.size(); ++id)
    by_data[static_cast<size_t>(id)] = symbols[id].kind != Symbol::Kind::kInputExtent;
  return by_data;
}

class Views {
 public:
  Views(Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), by_data_(symbols_of_data(graph.symbols())) {}

  bool has_work() const { return !by_data_.empty(); }

  void add(GraphNode* node) {
    const bool meets_data = std::ranges::any_of(node->inputs, [&](const GraphValue* value) {
      return value != nullptr && (depends_on_data(value->info.dims) ||
                                  std::ranges::any_of(value->info.dims, is_computed));
    });
    if (!meets_data || !is_builtin_operator(node->op->kind()) || node->as<Reshape>()) return;
    Equalities equal;
    for (const Agreements::Agreement& each : Agreements(graph_, *node).find()) {
      const SymShape& dims = node->inputs[static_cast<size_t>(each.input)]->info.dims;
      const Expr own = equal(dims[static_cast<size_t>(each.axis)]), other = equal(each.expected);
      if (own == other) continue;
      if (!own.depends_on(by_data_) && !other.depends_on(by_data_)) {
        if (!each.broadcasts && are_apart(own, other)) add_smaller(own, other, equal);
        continue;
      }
      if (!is_planned_apart(own, other, each.broadcasts)) continue;
      if (own.depends_on(by_data_))
        equal.add(own, other);
      else
        equal.add(other, own);
    }
    bool has_views = false;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i] == nullptr) continue;
      SymShape dims = node->inputs[i]->info.dims;
      std::ranges::transform(dims, dims.begin(), equal);
      if (dims == node->inputs[i]->info.dims) continue;
      set_view(node, i, std::move(dims));
      has_views = true;
    }
    if (has_views) follow(node);
  }

 private:
  bool depends_on_data(const SymShape& dims) const {
    return std::ranges::any_of(dims, [&](const Expr& e) { return e.depends_on(by_data_); });
  }

  static bool is_computed(const Expr& e) { return e.arity() > 0; }

  /// Whether a profile gives two equal extents different typical or largest values. One of the
  /// extents is computed: the bounds of a quotient come from opposite ends of the profile.
  bool are_apart(const Expr& a, const Expr& b) const {
    if (!is_computed(a) && !is_computed(b)) return false;
    const auto differ = [&](const ProfileRanges& each) {
      return each.bounds(a).high != each.bounds(b).high || each.opt(a) != each.opt(b);
    };
    return context_.profiles.empty() ? differ(context_.ranges)
                                     : std::ranges::any_of(context_.profiles, differ);
  }

  void add_smaller(const Expr& a, const Expr& b, Equalities& equal) const {
    if (context_.ranges.bounds(a).high > context_.ranges.bounds(b).high)
      equal.add(a, b);
    else
      equal.add(b, a);
  }

  /// An extent that broadcasts may be 1 in a run, and a view would refuse that run. So the extent
  /// gets a view only where the node cannot be planned otherwise.
  bool is_planned_apart(const Expr& own, const Expr& other, bool broadcasts) const {
    if (!broadcasts || own.is_constant()) return true;
    const int64_t planned = context_.ranges.opt(own);
    return planned != 1 && planned != context_.ranges.opt(other);
  }

  /// Name of the view. A run that refuses the view reports this name.
  static std::string view_name(const GraphNode& node, size_t input, const SymShape& dims) {
    const SymShape& before = node.inputs[input]->info.dims;
    std::string needs;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] == before[axis]) continue;
      needs += str(needs.empty() ? "" : " and ", "extent ", dims[axis].str(), " on axis ", axis);
      if (const GraphValue* const other = source_of(node, input, dims[axis]))
        needs += str(", as ", other->is_constant() ? "weight '" : "'",
                     other->weight.empty() ? other->name : other->weight, "' has it");
    }
    return str(node.name, " view of '", node.inputs[input]->name, "' with ", needs);
  }

  /// Returns another input that has the extent, a weight if there is one.
  static const GraphValue* source_of(const GraphNode& node, size_t input, const Expr& extent) {
    const GraphValue* source = nullptr;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const GraphValue* const other = node.inputs[i];
      if (i == input || other == nullptr ||
          std::ranges::find(other->info.dims, extent) == other->info.dims.end())
        continue;
      if (source == nullptr || (other->is_constant() && !source->is_constant())) source = other;
    }
    return source;
  }

  void set_view(GraphNode* node, size_t input, SymShape dims) {
    GraphValue* const value = node->inputs[input];
    std::string name = view_name(*node, input, dims);
    TensorInfo info;
    info.dtype = value->info.dtype;
    info.dims = std::move(dims);
    GraphNode* const view = graph_.insert_before(node, std::make_shared<Reshape>(), {value},
                                                 std::move(info), std::move(name));
    view->outputs[0]->scale = value->scale;
    graph_.set_input(node, static_cast<int>(input), view->outputs[0]);
  }

  /// Gives the outputs the extents of the views. The readers of an output see its former extents.
  void follow(GraphNode* node) {
    std::vector<OutputInfo> made = Agreements(graph_, *node).infer();
    for (size_t i = 0; i < made.size(); ++i) {
      GraphValue* const output = node->outputs[i];
      if (made[i].dims == output->info.dims) continue;
      SymShape before = std::exchange(output->info.dims, std::move(made[i].dims));
      view_result(graph_, node, output, std::move(before));
    }
  }

  Graph& graph_;
  const PassContext& context_;
  const std::vector<bool> by_data_;
};

/// Plans for extents that data decides.
class SizePlans {
 public:
  SizePlans(const SymbolTable& symbols, ProfileRanges& ranges)
      : symbols_(symbols), ranges_(ranges) {}

  void broadcast(const Expr& own, const Expr& expected) {
    const int64_t planned = ranges_.opt(own), wanted = ranges_.opt(expected);
    if (own.op() == ExprOp::kSymbol && planned != 1 && planned != wanted) plan(own, wanted, false);
  }

  /// Grows the planned larger extent, or else shrinks the planned smaller one.
  void order(const Expr& large, const Expr& small) {
    if (ranges_.opt(large) < ranges_.opt(small)) plan(large, ranges_.opt(small), true);
    if (ranges_.opt(large) < ranges_.opt(small)) plan(small, ranges_.opt(large), false);
  }

 private:
  /// The size tensors that occur in the extent. Stops after two.
  std::vector<int> size_symbols(const Expr& extent) const {
    std::vector<int> found;
    const auto hash = [](const Expr& e) { return e.hash(); };
    std::unordered_set<Expr, decltype(hash)> seen(1, hash);
    std::vector<Expr> pending = {extent};
    while (!pending.empty() && found.size() < 2) {
      const Expr next = pending.back();
      pending.pop_back();
      if (next.op() == ExprOp::kSymbol &&
          symbols_[next.symbol_id()].kind == Symbol::Kind::kSizeTensor)
        found.push_back(next.symbol_id());
      for (int i = 0; i < next.arity(); ++i)
        if (seen.insert(next.operand(i)).second) pending.push_back(next.operand(i));
    }
    return found;
  }

  /// Plans for the least size that gives an extent of at least `wanted` (`at_least`), or for the
  /// largest size that gives an extent of at most `wanted`. Extents that follow from one size grow
  /// with that size.
  void plan(const Expr& extent, int64_t wanted, bool at_least) {
    const std::vector<int> found = size_symbols(extent);
    if (found.size() != 1) return;
    const int symbol = found[0];
    const Expr size = Expr::symbol(symbol);
    const ProfileRanges::Bounds range = ranges_.bounds(size);
    const int64_t before = ranges_.opt(size);
    int64_t low = range.low, high = range.high;
    while (low < high) {
      const int64_t middle = low + (high - low + (at_least ? 0 : 1)) / 2;
      ranges_.set_opt(symbol, middle);
      const int64_t planned = ranges_.opt(extent);
      if (at_least)
        (planned >= wanted ? high : low) = planned >= wanted ? middle : middle + 1;
      else
        (planned <= wanted ? low : high) = planned <= wanted ? middle : middle - 1;
    }
    ranges_.set_opt(symbol, low);
    const int64_t planned = ranges_.opt(extent);
    if (at_least ? planned < wanted : planned > wanted) ranges_.set_opt(symbol, before);
  }

  const SymbolTable& symbols_;
  ProfileRanges& ranges_;
};

}  // namespace

void plan_for_layers(const Graph& graph, std::span<ProfileRanges> profiles) {
  const std::vector<bool> by_data = symbols_of_data(graph.symbols());
  if (std::ranges::find(by_data, true) == by_data.end()) return;
  for (const GraphNode* node : graph.nodes()) {
    if (!is_builtin_operator(node->op->kind())) continue;
    const auto extent = [&](const auto& of) -> const Expr& {
      return node->inputs[static_cast<size_t>(of.input)]->info.dims[static_cast<size_t>(of.axis)];
    };
    const auto agreements = Agreements(graph, *node).find();
    const auto bounds = Agreements(graph, *node).find_bounds();
    for (ProfileRanges& ranges : profiles) {
      SizePlans plans(graph.symbols(), ranges);
      for (const Agreements::Agreement& each : agreements)
        if (each.broadcasts) plans.broadcast(extent(each), each.expected);
      for (const Agreements::Bound& each : bounds) plans.order(extent(each), each.least);
    }
  }
}

void agree_extents(Graph& graph, const PassContext& context) {
  Views views(graph, context);
  if (!views.has_work()) return;
  for (GraphNode* node : graph.nodes()) views.add(node);
}

}  // namespace opwright
