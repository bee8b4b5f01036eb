#include "compile/selection.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace opwright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using ProblemTensor = SelectionProblem::Tensor;

int index_of(const ProblemTensor& tensor, int type) {
  auto found = std::find(tensor.types.begin(), tensor.types.end(), type);
  require(found != tensor.types.end(), "Selection: a port's type is not listed at its tensor");
  return static_cast<int>(found - tensor.types.begin());
}

int type_at(const SelectionProblem& problem, const std::vector<int>& assignment,
            SelectionProblem::Port port) {
  return problem.nodes[port.node][assignment[port.node]].ports[port.port];
}

double tensor_cost(const SelectionProblem& problem, const std::vector<int>& assignment,
                   const ProblemTensor& tensor) {
  const int from = index_of(tensor, type_at(problem, assignment, tensor.producer));
  std::vector<bool> needed(tensor.types.size());
  for (SelectionProblem::Port port : tensor.consumers)
    needed[index_of(tensor, type_at(problem, assignment, port))] = true;
  double cost = 0;
  for (size_t to = 0; to < needed.size(); ++to)
    if (needed[to] && static_cast<int>(to) != from) cost += tensor.convert[from][to];
  return cost;
}

// A function of some variables as a table. The last variable runs fastest.
struct Factor {
  std::vector<int> variables;  // ascending
  std::vector<double> table;
};

/// Min-sum elimination over variables with finite domains.
class Elimination {
 public:
  explicit Elimination(size_t max_table) : max_table_(max_table) {}

  int add_variable(int domain) {
    domains_.push_back(domain);
    log_domain_.push_back(log_of(domain));
    log_size_.push_back(0);
    neighbours_.emplace_back();
    return static_cast<int>(domains_.size()) - 1;
  }
  void add_factor(Factor factor) {
    for (int a : factor.variables)
      for (int b : factor.variables)
        if (a != b) neighbours_[a].insert(b);
    factors_.push_back(std::move(factor));
  }
  /// The minimizing assignment; nothing where a table would be too large.
  std::optional<std::vector<int>> solve() {
    const int count = static_cast<int>(domains_.size());
    std::vector<std::vector<int>> factors_of(count);
    for (size_t f = 0; f < factors_.size(); ++f)
      for (int v : factors_[f].variables) factors_of[v].push_back(static_cast<int>(f));
    std::vector<bool> used(factors_.size());
    for (int v = 0; v < count; ++v) log_size_[v] = log_table(v);
    std::set<std::pair<int64_t, int>> order;  // variables that are left, by the size of their
                                              // tables
    for (int v = 0; v < count; ++v) order.emplace(log_size_[v], v);
    struct Step {
      int variable;
      std::vector<int> scope;
      std::vector<int> best;  // best value of the variable, per entry of the scope's table
    };
    std::vector<Step> steps;
    for (int round = 0; round < count; ++round) {
      const int v = order.begin()->second;
      if (log_size_[v] > log_of(static_cast<double>(max_table_))) return std::nullopt;
      order.erase(order.begin());
      const std::vector<int> scope(neighbours_[v].begin(), neighbours_[v].end());
      std::vector<int> joined;  // factors that contain v
      for (int f : factors_of[v])
        if (!used[f]) joined.push_back(f), used[f] = true;
      Step step{v, scope, {}};
      Factor message = minimize(v, scope, joined, &step.best);
      steps.push_back(std::move(step));
      for (int a : scope) {
        order.erase({log_size_[a], a});
        neighbours_[a].erase(v);
        log_size_[a] -= log_domain_[v];
        for (int b : scope)
          if (a != b && neighbours_[a].insert(b).second) log_size_[a] += log_domain_[b];
        order.emplace(log_size_[a], a);
      }
      if (scope.empty()) continue;
      for (int a : scope) factors_of[a].push_back(static_cast<int>(factors_.size()));
      factors_.push_back(std::move(message));
      used.push_back(false);
    }
    std::vector<int> assignment(count);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      size_t index = 0;
      for (int s : step->scope) index = index * domains_[s] + assignment[s];
      assignment[step->variable] = step->best[index];
    }
    return assignment;
  }

 private:
  /// Logarithms to the base 2 as fixed-point numbers, whose sums are exact.
  static int64_t log_of(double size) {
    return std::llround(std::log2(std::max(size, 1.0)) * static_cast<double>(int64_t{1} << 30));
  }
  int64_t log_table(int v) const {
    int64_t size = log_domain_[v];
    for (int n : neighbours_[v]) size += log_domain_[n];
    return size;
  }

  Factor minimize(int v, const std::vector<int>& scope, const std::vector<int>& joined,
                  std::vector<int>* best) const {
    // Per joined factor, the step of its index for each variable of (scope..., v).
    const size_t rank = scope.size() + 1;
    std::vector<std::vector<size_t>> strides(joined.size(), std::vector<size_t>(rank));
    for (size_t f = 0; f < joined.size(); ++f) {
      const std::vector<int>& variables = factors_[joined[f]].variables;
      size_t stride = 1;
      for (size_t i = variables.size(); i-- > 0; stride *= domains_[variables[i]]) {
        const size_t at = variables[i] == v
                              ? rank - 1
                              : std::find(scope.begin(), scope.end(), variables[i]) - scope.begin();
        strides[f][at] = stride;
      }
    }
    size_t entries = 1;
    for (int s : scope) entries *= domains_[s];
    Factor message{scope, std::vector<double>(entries)};
    best->resize(entries);
    std::vector<int> digits(scope.size());
    std::vector<size_t> base(joined.size());
    for (size_t entry = 0; entry < entries; ++entry) {
      double least = kInfinity;
      int least_value = 0;
      for (int value = 0; value < domains_[v]; ++value) {
        double sum = 0;
        for (size_t f = 0; f < joined.size(); ++f)
          sum += factors_[joined[f]].table[base[f] + value * strides[f][rank - 1]];
        if (sum < least) least = sum, least_value = value;
      }
      message.table[entry] = least;
      (*best)[entry] = least_value;
      for (size_t i = scope.size(); i-- > 0;) {
        const bool carry = ++digits[i] == domains_[scope[i]];
        for (size_t f = 0; f < joined.size(); ++f) {
          base[f] += strides[f][i];
          if (carry) base[f] -= strides[f][i] * domains_[scope[i]];
        }
        if (!carry) break;
        digits[i] = 0;
      }
    }
    return message;
  }

  size_t max_table_;
  std::vector<int> domains_;
  std::vector<int64_t> log_domain_, log_size_;  // per variable: of its domain, of its table
  std::vector<std::set<int>> neighbours_;
  std::vector<Factor> factors_;
};

// A factor over node `a` and another variable `b`.
template <class F>
Factor pair_factor(int a, int size_a, int b, int size_b, F&& cost) {
  Factor factor;
  factor.variables = {std::min(a, b), std::max(a, b)};
  factor.table.resize(static_cast<size_t>(size_a) * size_b);
  for (int i = 0; i < size_a; ++i)
    for (int j = 0; j < size_b; ++j)
      factor.table[a < b ? static_cast<size_t>(i) * size_b + j
                         : static_cast<size_t>(j) * size_a + i] = cost(i, j);
  return factor;
}

std::optional<std::vector<int>> eliminate(const SelectionProblem& problem, size_t max_table) {
  Elimination elimination(max_table);
  const int nodes = static_cast<int>(problem.nodes.size());
  for (const auto& options : problem.nodes) {
    const int v = elimination.add_variable(static_cast<int>(options.size()));
    Factor unary{{v}, {}};
    for (const auto& option : options) unary.table.push_back(option.cost);
    elimination.add_factor(std::move(unary));
  }
  auto options_of = [&](int node) { return static_cast<int>(problem.nodes[node].size()); };
  for (const ProblemTensor& tensor : problem.tensors) {
    auto type_of = [&](SelectionProblem::Port port, int option) {
      return index_of(tensor, problem.nodes[port.node][option].ports[port.port]);
    };
    const SelectionProblem::Port from = tensor.producer;
    if (tensor.types.size() < 2) continue;
    if (tensor.consumers.size() == 1 && tensor.consumers[0].node != from.node) {
      const SelectionProblem::Port to = tensor.consumers[0];
      elimination.add_factor(pair_factor(from.node, options_of(from.node), to.node,
                                         options_of(to.node), [&](int i, int j) {
                                           const int a = type_of(from, i), b = type_of(to, j);
                                           return a == b ? 0.0 : tensor.convert[a][b];
                                         }));
      continue;
    }
    // Each type has a variable: whether the tensor exists in that type. The producer pays for it,
    // and each consumer needs the tensor in its own type.
    for (size_t type = 0; type < tensor.types.size(); ++type) {
      const int present = elimination.add_variable(2);
      elimination.add_factor(
          pair_factor(from.node, options_of(from.node), present, 2, [&](int i, int there) {
            const int a = type_of(from, i);
            return there && a != static_cast<int>(type) ? tensor.convert[a][type] : 0.0;
          }));
      for (SelectionProblem::Port to : tensor.consumers)
        elimination.add_factor(
            pair_factor(to.node, options_of(to.node), present, 2, [&](int i, int there) {
              return !there && type_of(to, i) == static_cast<int>(type) ? kInfinity : 0.0;
            }));
    }
  }
  std::optional<std::vector<int>> assignment = elimination.solve();
  if (assignment) assignment->resize(nodes);
  return assignment;
}

}  // namespace

namespace {

/// The costs of conversions under an assignment that changes node by node. A tensor may have any
/// number of consumers, so the class counts needed conversions instead of searching for them.
class ConversionCosts {
 public:
  ConversionCosts(const SelectionProblem& problem, const std::vector<int>& assignment)
      : problem_(problem), assignment_(assignment), uses_(problem.nodes.size()) {
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      const ProblemTensor& tensor = problem.tensors[t];
      use(tensor.producer.node, t).produced = tensor.producer.port;
      for (SelectionProblem::Port port : tensor.consumers)
        use(port.node, t).consumed.push_back(port.port);
      from_.push_back(index_of(tensor, type_at(problem, assignment, tensor.producer)));
      std::vector<int>& needed = needed_.emplace_back(tensor.types.size());
      for (SelectionProblem::Port port : tensor.consumers)
        ++needed[index_of(tensor, type_at(problem, assignment, port))];
    }
  }

  /// Cost of conversions at the node's ports, if the node took the option.
  double at(int node, int option) {
    double cost = 0;
    for (const Use& each : uses_[node]) {
      const ProblemTensor& tensor = problem_.tensors[each.tensor];
      change(node, each, option, 1);
      const int from =
          each.produced >= 0 ? type_of(node, option, each.produced, tensor) : from_[each.tensor];
      double own = 0;
      for (size_t to = 0; to < tensor.types.size(); ++to)
        if (needed_[each.tensor][to] > 0 && static_cast<int>(to) != from)
          own += tensor.convert[from][to];
      cost += own;
      change(node, each, option, -1);
    }
    return cost;
  }

  void assign(int node, int option) {
    for (const Use& each : uses_[node]) {
      change(node, each, option, 1);
      if (each.produced >= 0)
        from_[each.tensor] = type_of(node, option, each.produced, problem_.tensors[each.tensor]);
    }
    assignment_[node] = option;
  }
  const std::vector<int>& assignment() const { return assignment_; }

 private:
  /// A tensor at ports of a node.
  struct Use {
    size_t tensor;
    int produced = -1;
    std::vector<int> consumed;
  };

  Use& use(int node, size_t tensor) {
    std::vector<Use>& uses = uses_[node];
    if (uses.empty() || uses.back().tensor != tensor) uses.push_back({tensor, -1, {}});
    return uses.back();
  }
  int type_of(int node, int option, int port, const ProblemTensor& tensor) const {
    return index_of(tensor, problem_.nodes[node][option].ports[port]);
  }
  /// Counts the consuming ports by the option's types instead of their present ones. `sign` -1
  /// undoes that.
  void change(int node, const Use& use, int option, int sign) {
    const ProblemTensor& tensor = problem_.tensors[use.tensor];
    for (const int port : use.consumed) {
      needed_[use.tensor][type_of(node, assignment_[node], port, tensor)] -= sign;
      needed_[use.tensor][type_of(node, option, port, tensor)] += sign;
    }
  }

  const SelectionProblem& problem_;
  std::vector<int> assignment_;
  std::vector<std::vector<Use>> uses_;    // per node, one entry per tensor
  std::vector<int> from_;                 // per tensor: the type in which it is produced
  std::vector<std::vector<int>> needed_;  // per tensor and type: number of ports that need it
};

}  // namespace

double selection_cost(const SelectionProblem& problem, const std::vector<int>& assignment) {
  double cost = 0;
  for (size_t i = 0; i < problem.nodes.size(); ++i) cost += problem.nodes[i][assignment[i]].cost;
  for (const ProblemTensor& tensor : problem.tensors)
    cost += tensor_cost(problem, assignment, tensor);
  return cost;
}

std::vector<std::vector<double>> conversion_costs(const SelectionProblem& problem,
                                                  const std::vector<int>& assignment) {
  ConversionCosts conversions(problem, assignment);
  std::vector<std::vector<double>> costs(problem.nodes.size());
  for (size_t node = 0; node < costs.size(); ++node)
    for (size_t option = 0; option < problem.nodes[node].size(); ++option)
      costs[node].push_back(conversions.at(static_cast<int>(node), static_cast<int>(option)));
  return costs;
}

std::vector<int> select_by_descent(const SelectionProblem& problem) {
  const size_t nodes = problem.nodes.size();
  std::set<int> types;
  for (const ProblemTensor& tensor : problem.tensors)
    types.insert(tensor.types.begin(), tensor.types.end());
  // Starts of the descent: the cheapest option of each node, and for each type the options that use
  // it most.
  std::vector<int> preferred{SelectionProblem::kNoEdge};
  preferred.insert(preferred.end(), types.begin(), types.end());
  std::vector<int> best;
  double best_cost = kInfinity;
  for (int type : preferred) {
    std::vector<int> assignment(nodes);
    for (size_t i = 0; i < nodes; ++i) {
      auto rank = [&](const SelectionProblem::Option& option) {
        const auto matches = type == SelectionProblem::kNoEdge
                                 ? 0
                                 : std::count(option.ports.begin(), option.ports.end(), type);
        return std::pair(-matches, option.cost);
      };
      const auto& options = problem.nodes[i];
      assignment[i] = static_cast<int>(
          std::min_element(options.begin(), options.end(),
                           [&](const auto& a, const auto& b) { return rank(a) < rank(b); }) -
          options.begin());
    }
    constexpr int kMaxRounds = 100;
    ConversionCosts conversions(problem, assignment);
    bool changed = true;
    for (int round = 0; changed && round < kMaxRounds; ++round) {
      changed = false;
      for (size_t i = 0; i < nodes; ++i) {
        const int node = static_cast<int>(i);
        const auto local = [&](int option) {
          return problem.nodes[i][option].cost + conversions.at(node, option);
        };
        const int before = conversions.assignment()[i];
        int least = before;
        double least_cost = local(before);
        for (int option = 0; option < static_cast<int>(problem.nodes[i].size()); ++option)
          if (const double cost = local(option); cost < least_cost)
            least_cost = cost, least = option;
        conversions.assign(node, least);
        changed = changed || least != before;
      }
    }
    assignment = conversions.assignment();
    const double cost = selection_cost(problem, assignment);
    if (best.empty() || cost < best_cost) best = assignment, best_cost = cost;
  }
  return best;
}

std::vector<int> select_options(const SelectionProblem& problem, size_t max_table) {
  if (std::optional<std::vector<int>> exact = eliminate(problem, max_table)) return *exact;
  return select_by_descent(problem);
}

std::vector<std::vector<int>> select_several(const SelectionProblem& problem,
                                             std::span<const std::vector<int>> groups, size_t count,
                                             double most) {
  std::vector<int> best = select_options(problem);
  const double limit = most * selection_cost(problem, best);
  std::multimap<double, std::vector<int>> others;  // equal costs keep the order of groups and
                                                   // options
  const auto least = [&](size_t node) {
    return std::ranges::min_element(problem.nodes[node], {}, &SelectionProblem::Option::cost)->cost;
  };
  double options_alone = 0;
  for (size_t node = 0; node < problem.nodes.size(); ++node) options_alone += least(node);
  SelectionProblem forced = problem;
  for (const std::vector<int>& group : groups) {
    const size_t options = problem.nodes[group.front()].size();
    for (size_t option = 0; option < options; ++option) {
      double bound = options_alone;
      for (const int node : group) bound += problem.nodes[node][option].cost - least(node);
      if (bound > limit) continue;
      for (const int node : group)
        for (size_t other = 0; other < options; ++other)
          forced.nodes[node][other].cost = other == option ? problem.nodes[node][other].cost
                                                           : std::numeric_limits<float>::infinity();
      std::vector<int> assignment = select_options(forced);
      const double cost = selection_cost(forced, assignment);
      const bool is_known =
          assignment == best || std::ranges::any_of(others, [&](const auto& other) {
            return other.second == assignment;
          });
      if (cost <= limit && std::isfinite(cost) && !is_known)
        others.emplace(cost, std::move(assignment));
    }
    for (const int node : group) forced.nodes[node] = problem.nodes[node];
  }
  std::vector<std::vector<int>> several = {std::move(best)};
  for (auto& [cost, assignment] : others)
    if (several.size() < count) several.push_back(std::move(assignment));
  return several;
}

}  // namespace opwright
