#include <algorithm>

#include "base/error.h"
#include "compile/passes.h"
#include "operators/builtin.h"
#include "operators/infer.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// What an operator says of extents while it infers once more.
class Agreements final : public InferContext, public ExtentListener {
 public:
  struct Agreement {
    int input, axis;
    Expr expected;
    bool broadcasts;
  };

  Agreements(const Graph& graph, const GraphNode& node) : graph_(graph), node_(node) {
    for (const GraphValue* value : node.inputs)
      infos_.push_back(value != nullptr ? &value->info : nullptr);
    inputs = infos_;
    layer = node.name;
  }

  std::vector<Agreement> find() {
    node_.op->infer(*this);
    return std::move(found_);
  }

  Expr declare_size_tensor(int output, const Expr&, const Expr&) override {
    const auto at = static_cast<size_t>(output);
    const int id = at < node_.size_symbols.size() ? node_.size_symbols[at] : -1;
    return id < 0 ? Expr(0) : Expr::symbol(id);
  }
  bool is_non_negative(int symbol) const override {
    return symbol >= 0 && symbol < graph_.symbols().size() &&
           graph_.symbols()[symbol].kind != Symbol::Kind::kInputValue;
  }
  const SymbolTable* symbols() const override { return &graph_.symbols(); }
  void agree(int input, int axis, const Expr& expected, bool broadcasts) const override {
    found_.push_back({input, axis, expected, broadcasts});
  }

 private:
  const Graph& graph_;
  const GraphNode& node_;
  std::vector<const TensorInfo*> infos_;
  mutable std::vector<Agreement> found_;
};

/// Expressions that stand for the same number, and the one of them that is used.
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

  bool has_work() const {
    return std::ranges::any_of(by_data_, [](bool is_by_data) { return is_by_data; });
  }

  void add(GraphNode* node) {
    const bool meets_data = std::ranges::any_of(node->inputs, [&](const GraphValue* value) {
      return value != nullptr && depends_on_data(value->info.dims);
    });
    if (!meets_data || !is_builtin_operator(node->op->kind())) return;
    Equalities equal;
    for (const Agreements::Agreement& each : Agreements(graph_, *node).find()) {
      const SymShape& dims = node->inputs[static_cast<size_t>(each.input)]->info.dims;
      const Expr own = equal(dims[static_cast<size_t>(each.axis)]), other = equal(each.expected);
      if (own == other || !is_planned_apart(own, other, each.broadcasts)) continue;
      if (own.depends_on(by_data_))
        equal.add(own, other);
      else if (other.depends_on(by_data_))
        equal.add(other, own);
    }
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i] == nullptr) continue;
      SymShape dims = node->inputs[i]->info.dims;
      std::ranges::transform(dims, dims.begin(), equal);
      if (dims != node->inputs[i]->info.dims) set_view(node, static_cast<int>(i), std::move(dims));
    }
  }

 private:
  bool depends_on_data(const SymShape& dims) const {
    return std::ranges::any_of(dims, [&](const Expr& e) { return e.depends_on(by_data_); });
  }

  /// An extent that broadcasts may be 1 in a run, which a view would refuse: it gets one only where
  /// nothing can be planned otherwise.
  bool is_planned_apart(const Expr& own, const Expr& other, bool broadcasts) const {
    if (!broadcasts || own.is_constant()) return true;
    const int64_t planned = context_.ranges.opt(own);
    return planned != 1 && planned != context_.ranges.opt(other);
  }

  void set_view(GraphNode* node, int input, SymShape dims) {
    GraphValue* const value = node->inputs[static_cast<size_t>(input)];
    TensorInfo info;
    info.dtype = value->info.dtype;
    info.dims = std::move(dims);
    GraphNode* const view = graph_.insert_before(node, std::make_shared<Reshape>(), {value},
                                                 std::move(info), node->name + " view");
    view->outputs[0]->scale = value->scale;
    graph_.set_input(node, input, view->outputs[0]);
  }

  Graph& graph_;
  const PassContext& context_;
  const std::vector<bool> by_data_;
};

/// The size tensor that an extent is, or -1.
int size_symbol(const Expr& extent, const SymbolTable& symbols) {
  if (extent.op() != ExprOp::kSymbol) return -1;
  const int id = extent.symbol_id();
  return symbols[id].kind == Symbol::Kind::kSizeTensor ? id : -1;
}

}  // namespace

void plan_for_broadcasts(const Graph& graph, std::span<ProfileRanges> profiles) {
  const std::vector<bool> by_data = symbols_of_data(graph.symbols());
  if (std::ranges::find(by_data, true) == by_data.end()) return;
  for (const GraphNode* node : graph.nodes()) {
    if (!is_builtin_operator(node->op->kind())) continue;
    for (const Agreements::Agreement& each : Agreements(graph, *node).find()) {
      if (!each.broadcasts) continue;
      const GraphValue& value = *node->inputs[static_cast<size_t>(each.input)];
      const Expr& own = value.info.dims[static_cast<size_t>(each.axis)];
      const int symbol = size_symbol(own, graph.symbols());
      if (symbol < 0) continue;
      for (ProfileRanges& ranges : profiles) {
        const int64_t planned = ranges.opt(own), wanted = ranges.opt(each.expected);
        if (planned != 1 && planned != wanted) ranges.set_opt(symbol, wanted);
      }
    }
  }
}

void agree_extents(Graph& graph, const PassContext& context) {
  Views views(graph, context);
  if (!views.has_work()) return;
  for (GraphNode* node : graph.nodes()) views.add(node);
}

}  // namespace opwright
