#include "compile/settle_extents.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "compile/agreements.h"
#include "compile/expansion.h"
#include "operators/assertion.h"
#include "operators/builtin.h"
#include "operators/movement.h"
#include "symbolic/substitution.h"

namespace opwright {
namespace {

/// Collects sets of extents that have to be equal.
class ExtentRelations {
 public:
  ExtentRelations(const Network& network, std::span<ProfileRanges> profiles)
      : symbols_(network.symbols()), profiles_(profiles) {}

  /// Sets the extents that all profiles fix.
  void fix() {
    for (int id = 0; id < symbols_.size(); ++id) {
      if (symbols_[id].kind == Symbol::Kind::kSizeTensor) continue;
      const std::optional<int64_t> value = fixed_value(id);
      if (value) set(id, *value);
    }
  }

  void find(const Graph& graph) {
    for (const GraphNode* node : graph.nodes()) {
      if (const auto* assertion = node->as<Assertion>(); assertion != nullptr) {
        assertion_ = str("assertion '", node->name, "': ", assertion->params().message);
        find_asserted(*node);
        assertion_.clear();
        continue;
      }
      if (!is_builtin_operator(node->op->kind())) continue;
      for (const Agreements::Agreement& each : Agreements(graph, *node).find()) {
        const Expr own = values_(node->inputs[static_cast<size_t>(each.input)]
                                     ->info.dims[static_cast<size_t>(each.axis)]);
        const Expr other = values_(each.expected);
        if (each.broadcasts) {
          relate_broadcast(own, other);
        } else if (is_extent(own) && other.is_constant()) {
          set_constant(own.symbol_id(), other.constant(), *node, each);
        } else if (is_extent(other) && own.is_constant()) {
          set_constant(other.symbol_id(), own.constant(), *node, each);
        } else {
          relate(own, other);
        }
      }
    }
  }

  bool has_open() const {
    for (int id = 0; id < symbols_.size(); ++id)
      if (symbols_[id].kind == Symbol::Kind::kInputExtent && !fixed_value(id)) return true;
    return false;
  }
  const Substitution& values() const { return values_; }

  /// Notes in the symbols which assertion replaced them by another expression.
  void note_assertions(SymbolTable& symbols) const {
    for (const auto& [id, assertion] : assertions_) {
      Symbol symbol = symbols[id];
      symbol.assertion = assertion;
      symbols.replace(id, std::move(symbol));
    }
  }

 private:
  std::optional<int64_t> fixed_value(int id) const {
    const ProfileRanges::Bounds first = profiles_.front().bounds(Expr::symbol(id));
    for (const ProfileRanges& each : profiles_) {
      const ProfileRanges::Bounds bounds = each.bounds(Expr::symbol(id));
      if (bounds.low != bounds.high || bounds.low != first.low) return std::nullopt;
    }
    return first.low;
  }

  void set(int id, const Expr& value) {
    values_.add(Expr::symbol(id), value);
    if (!assertion_.empty()) assertions_.emplace_back(id, assertion_);
  }

  bool is_extent(const Expr& e) const {
    return e.op() == ExprOp::kSymbol && symbols_[e.symbol_id()].kind == Symbol::Kind::kInputExtent;
  }

  /// Whether the extent is 2 or more in all runs. Such an extent does not broadcast.
  bool is_many(const Expr& e) const {
    return std::ranges::all_of(profiles_,
                               [&](const ProfileRanges& each) { return each.bounds(e).low > 1; });
  }

  /// Sets an extent of an input to the value that weights require.
  void set_constant(int id, int64_t value, const GraphNode& node,
                    const Agreements::Agreement& where) {
    const Symbol& symbol = symbols_[id];
    for (const ProfileRanges& each : profiles_) {
      const ProfileRanges::Bounds range = each.bounds(Expr::symbol(id));
      require(range.low <= value && value <= range.high, "Layer '", node.name, "' (",
              node.op->kind(), "): axis ", where.axis, " of input ", where.input, ", '",
              node.inputs[static_cast<size_t>(where.input)]->name, "', has to agree with extent ",
              symbol.index, " of network input '", symbol.tensor, "', which must be ", value,
              ", but the optimization profile has ", range.low, " to ", range.high,
              "; give a profile that includes ", value);
    }
    for (ProfileRanges& each : profiles_) each.fix(symbols_, id, value);
    set(id, value);
  }

  /// Relates two extents that have to be equal. Expressions that each grow with only one symbol
  /// make these symbols equal.
  void relate(const Expr& a, const Expr& b) {
    if (a == b) return;
    if (is_extent(a) && is_extent(b)) return unite(a.symbol_id(), b.symbol_id());
    const std::optional<int> x = grows_with(a), y = grows_with(b);
    if (!x || !y || *x == *y) return;
    Substitution renamed;
    renamed.add(Expr::symbol(*x), Expr::symbol(*y));
    if (renamed(a) == b) unite(*x, *y);
  }

  /// Relates an extent that is `expected` or 1.
  void relate_broadcast(const Expr& own, const Expr& expected) {
    if (!is_extent(own) || !is_many(own)) return;
    if (is_extent(expected)) return unite(own.symbol_id(), expected.symbol_id());
    if (expected.op() != ExprOp::kBroadcast) return;
    for (int i = 0; i < expected.arity(); ++i)
      if (const Expr& other = expected.operand(i);
          other != own && is_extent(other) && is_many(other))
        unite(own.symbol_id(), other.symbol_id());
  }

  /// Finds extents of inputs that an assertion computes from others in all runs.
  void find_asserted(const GraphNode& node) {
    const GraphValue* condition = node.inputs[0];
    if (condition == nullptr || condition->info.values == nullptr) return;
    for (const Expr& given : *condition->info.values) {
      const Expr element = values_(given);
      if (element.op() != ExprOp::kEqual) continue;
      const Expr &a = element.operand(0), &b = element.operand(1);
      if (is_extent(a) && is_extent(b)) {
        unite(a.symbol_id(), b.symbol_id());
      } else if (is_extent(a)) {
        define(a.symbol_id(), b);
      } else if (is_extent(b)) {
        define(b.symbol_id(), a);
      }
    }
  }

  /// The symbol of a sum or product of one extent and constants.
  std::optional<int> grows_with(const Expr& e) const {
    if (is_extent(e)) return e.symbol_id();
    if (e.op() != ExprOp::kSum && e.op() != ExprOp::kProd) return std::nullopt;
    std::optional<int> symbol;
    for (int i = 0; i < e.arity(); ++i) {
      if (e.operand(i).is_constant()) continue;
      const std::optional<int> inner = grows_with(e.operand(i));
      if (!inner || symbol) return std::nullopt;
      symbol = inner;
    }
    return symbol;
  }

  /// Replaces two symbols by one, if their ranges overlap in all profiles.
  void unite(int a, int b) {
    if (a == b) return;
    if (a > b) std::swap(a, b);
    for (const ProfileRanges& each : profiles_)
      if (!each.may_agree(a, b)) return;
    for (ProfileRanges& each : profiles_) each.agree(symbols_, a, b);
    if (const std::optional<int64_t> value = fixed_value(a)) {
      set(b, *value);
      set(a, *value);
      return;
    }
    set(b, Expr::symbol(a));
  }

  void define(int id, const Expr& value) {
    std::vector<bool> not_possible(static_cast<size_t>(symbols_.size()));
    for (int other = 0; other < symbols_.size(); ++other)
      not_possible[static_cast<size_t>(other)] =
          other == id || symbols_[other].kind != Symbol::Kind::kInputExtent;
    if (value.is_constant() || value.depends_on(not_possible)) return;
    const Expr own = Expr::symbol(id);
    for (const ProfileRanges& each : profiles_) {
      const ProfileRanges::Bounds is = each.bounds(own), wanted = each.bounds(value);
      if (is.low != wanted.low || is.high != wanted.high || each.opt(own) != each.opt(value))
        return;
    }
    set(id, value);
  }

  const SymbolTable& symbols_;
  std::span<ProfileRanges> profiles_;
  Substitution values_;
  std::string assertion_;  // the one that is read now
  std::vector<std::pair<int, std::string>> assertions_;
};

/// The factors of a product; the expression itself where it is no product.
std::vector<Expr> factors_of(const Expr& e) {
  if (e.op() != ExprOp::kProd) return {e};
  std::vector<Expr> factors;
  factors.reserve(static_cast<size_t>(e.arity()));
  for (int i = 0; i < e.arity(); ++i) factors.push_back(e.operand(i));
  return factors;
}

/// Finds broadcasts that a quotient divides by one of their operands.
class DividedBroadcasts {
 public:
  explicit DividedBroadcasts(std::span<const ProfileRanges> profiles) : profiles_(profiles) {}

  void look_at(const Expr& given) {
    std::vector<Expr> pending = {given};
    while (!pending.empty()) {
      const Expr e = pending.back();
      pending.pop_back();
      if (e.arity() == 0 || !seen_.insert(e).second) continue;
      if (e.op() == ExprOp::kFloorDiv) divide(e);
      for (int i = 0; i < e.arity(); ++i) pending.push_back(e.operand(i));
    }
  }
  const Substitution& values() const { return values_; }

 private:
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };

  void divide(const Expr& quotient) {
    const std::vector<Expr> divisor = factors_of(quotient.operand(1));
    for (const Expr& factor : factors_of(quotient.operand(0))) {
      if (factor.op() != ExprOp::kBroadcast) continue;
      for (int i = 0; i < factor.arity(); ++i) {
        const Expr& operand = factor.operand(i);
        if (std::ranges::find(divisor, operand) == divisor.end() || !is_planned(factor, operand) ||
            values_(factor) != factor)
          continue;
        // If the quotient is then constant, no other operand gives the number that it has to be.
        Substitution one;
        one.add(factor, operand);
        if (!one(quotient).is_constant()) continue;
        values_.add(factor, operand);
        break;
      }
    }
  }

  bool is_planned(const Expr& broadcast, const Expr& operand) const {
    return std::ranges::all_of(profiles_, [&](const ProfileRanges& each) {
      return each.opt(broadcast) == each.opt(operand);
    });
  }

  std::span<const ProfileRanges> profiles_;
  std::unordered_set<Expr, Hash> seen_;
  Substitution values_;
};

/// Gives all values of the graph other extents. A view follows a node whose outputs have different
/// ones.
class BroadcastViews {
 public:
  BroadcastViews(Graph& graph, const Substitution& values) : graph_(graph), values_(values) {}

  void run() {
    for (GraphNode* node : graph_.nodes()) add(node);
  }

 private:
  static bool has(const Substitution& values, const GraphValue* value) {
    return value != nullptr && values(value->info.dims) != value->info.dims;
  }

  void add(GraphNode* node) {
    std::vector<SymShape> wanted;
    bool changes = false;
    for (GraphValue* output : node->outputs) {
      wanted.push_back(values_(output->info.dims));
      changes = changes || wanted.back() != output->info.dims;
      replace_values(*output);
    }
    if (!changes) return;
    const std::vector<SymShape> made = shapes_made(*node, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      GraphValue* const output = node->outputs[i];
      output->info.dims = made[i];
      if (made[i] != wanted[i]) view_result(graph_, node, output, wanted[i]);
    }
  }

  void replace_values(GraphValue& value) const {
    if (value.info.values == nullptr) return;
    value.info.values =
        std::make_shared<const std::vector<Expr>>(values_(SymShape(*value.info.values)));
  }

  /// The shapes that a node makes. A plugin's outputs follow from its inputs if one of these had
  /// such an extent.
  std::vector<SymShape> shapes_made(const GraphNode& node,
                                    const std::vector<SymShape>& wanted) const {
    std::vector<SymShape> made;
    if (is_builtin_operator(node.op->kind())) {
      for (OutputInfo& info : Agreements(graph_, node).infer())
        made.push_back(std::move(info.dims));
      return made;
    }
    return wanted;
  }

  Graph& graph_;
  const Substitution& values_;
};

}  // namespace

std::shared_ptr<const Network> settle_extents(const Network& network,
                                              std::span<ProfileRanges> profiles) {
  const auto settled = [&](const Network& from,
                           const ExtentRelations& relations) -> std::shared_ptr<const Network> {
    if (relations.values().empty()) return nullptr;
    const std::shared_ptr<Network> made = Expansion::with(from, relations.values());
    relations.note_assertions(made->symbols());
    for (ProfileRanges& each : profiles) each.follow(made->symbols());
    return made;
  };
  ExtentRelations known(network, profiles);
  known.fix();
  std::shared_ptr<const Network> current = settled(network, known);
  // Extents that are now one symbol may let other layers agree.
  for (;;) {
    const Network& from = current ? *current : network;
    ExtentRelations relations(from, profiles);
    if (!relations.has_open() || from.outputs().empty()) return current;
    relations.find(Graph(from));
    std::shared_ptr<const Network> next = settled(from, relations);
    if (!next) return current;
    current = std::move(next);
  }
}

void settle_broadcasts(Graph& graph, std::span<const ProfileRanges> profiles) {
  DividedBroadcasts divided(profiles);
  for (const GraphNode* node : graph.nodes()) {
    if (!is_builtin_operator(node->op->kind())) continue;
    for (const Agreements::Agreement& each : Agreements(graph, *node).find()) {
      const GraphValue& value = *node->inputs[static_cast<size_t>(each.input)];
      const Expr& own = value.info.dims[static_cast<size_t>(each.axis)];
      if (each.expected.is_constant()) divided.look_at(own);
      if (own.is_constant()) divided.look_at(each.expected);
    }
  }
  if (!divided.values().empty()) BroadcastViews(graph, divided.values()).run();
}

}  // namespace opwright
