#include "compile/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace opwright {
namespace {

/// A random network: each node takes tensors of earlier nodes, and has one output.
SelectionProblem random_problem(std::mt19937& random, int nodes, int max_types, double impossible) {
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::uniform_real_distribution<float> cost(0, 1);
  SelectionProblem problem;
  const int types = 1 + below(max_types);
  for (int n = 0; n < nodes; ++n) {
    const int inputs = n == 0 ? 0 : below(3);
    for (int i = 0; i < inputs; ++i)
      problem.tensors[below(static_cast<int>(problem.tensors.size()))].consumers.push_back({n, i});
    std::vector<SelectionProblem::Option> options(1 + below(3));
    for (auto& option : options) {
      option.cost = cost(random);
      for (int port = 0; port <= inputs; ++port) option.ports.push_back(10 + below(types));
    }
    problem.nodes.push_back(options);
    problem.tensors.push_back({{n, inputs}, {}, {}, {}});
  }
  for (auto& tensor : problem.tensors) {
    for (int type = types; type-- > 0;) tensor.types.push_back(10 + type);
    tensor.convert.assign(types, std::vector<float>(types));
    for (int a = 0; a < types; ++a)
      for (int b = 0; b < types; ++b)
        if (a != b)
          tensor.convert[a][b] =
              cost(random) < impossible ? std::numeric_limits<float>::infinity() : cost(random);
  }
  return problem;
}

/// The cost by its definition, written out again: options, and per tensor each wanted type that the
/// producer does not give, once.
double cost_of(const SelectionProblem& problem, const std::vector<int>& assignment) {
  double total = 0;
  for (size_t n = 0; n < problem.nodes.size(); ++n) total += problem.nodes[n][assignment[n]].cost;
  for (const auto& tensor : problem.tensors) {
    auto type = [&](SelectionProblem::Port port) {
      return problem.nodes[port.node][assignment[port.node]].ports[port.port];
    };
    const int given = type(tensor.producer);
    for (size_t to = 0; to < tensor.types.size(); ++to) {
      if (tensor.types[to] == given) continue;
      bool wanted = false;
      for (auto port : tensor.consumers) wanted = wanted || type(port) == tensor.types[to];
      for (size_t from = 0; wanted && from < tensor.types.size(); ++from)
        if (tensor.types[from] == given) total += tensor.convert[from][to];
    }
  }
  return total;
}

/// The least cost of the assignments that `counts` is true for.
template <class Counts>
double least_cost(const SelectionProblem& problem, Counts&& counts) {
  std::vector<int> assignment(problem.nodes.size());
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    if (counts(assignment)) least = std::min(least, cost_of(problem, assignment));
    size_t n = 0;
    while (n < assignment.size() && ++assignment[n] == static_cast<int>(problem.nodes[n].size()))
      assignment[n++] = 0;
    if (n == assignment.size()) return least;
  }
}

double least_cost(const SelectionProblem& problem) {
  return least_cost(problem, [](const auto&) { return true; });
}

void expect_optimal(const SelectionProblem& problem) {
  const std::vector<int> chosen = select_options(problem);
  ASSERT_EQ(chosen.size(), problem.nodes.size());
  const double least = least_cost(problem), cost = cost_of(problem, chosen);
  if (std::isinf(least)) return;  // nothing is possible
  EXPECT_NEAR(cost, least, 1e-5);
  EXPECT_NEAR(selection_cost(problem, chosen), cost, 1e-5);
}

TEST(Selection, ConversionCostsAreWhatANodesChoiceAddsBesideItsOwnCost) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const SelectionProblem problem = random_problem(random, 6, 3, 0);
    const std::vector<int> assignment = select_options(problem);
    const auto all_costs = conversion_costs(problem, assignment);
    ASSERT_EQ(all_costs.size(), problem.nodes.size());
    for (size_t node = 0; node < problem.nodes.size(); ++node) {
      const std::vector<double>& costs = all_costs[node];
      ASSERT_EQ(costs.size(), problem.nodes[node].size());
      std::vector<int> changed = assignment;
      double rest = 0;  // what the others cost, whatever this node chooses
      for (size_t option = 0; option < costs.size(); ++option) {
        changed[node] = static_cast<int>(option);
        const double other =
            cost_of(problem, changed) - problem.nodes[node][option].cost - costs[option];
        if (option > 0) {
          EXPECT_NEAR(other, rest, 1e-5);
        }
        rest = other;
      }
    }
  }
}

TEST(Selection, MatchesBruteForceOnRandomNetworks) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) expect_optimal(random_problem(random, 1 + i % 9, 3, 0));
}

TEST(Selection, MatchesBruteForceWhereConversionsAreImpossible) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) expect_optimal(random_problem(random, 1 + i % 9, 3, 0.3));
}

TEST(Selection, DescentIsNeverBetterThanTheOptimum) {
  std::mt19937 random(3);
  int optimal = 0;
  for (int i = 0; i < 100; ++i) {
    const SelectionProblem problem = random_problem(random, 8, 3, 0);
    const double least = least_cost(problem), cost = cost_of(problem, select_by_descent(problem));
    EXPECT_GE(cost, least - 1e-5);
    optimal += cost < least + 1e-5;
  }
  EXPECT_GT(optimal, 50);
}

TEST(Selection, SeveralAreTheBestOfEachOptionInOrder) {
  std::mt19937 random(8);
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    SelectionProblem problem = random_problem(random, 2 + round % 6, 3, round % 2 ? 0.2 : 0);
    // Each node by itself, and the first of them together with one of as many options.
    std::vector<std::vector<int>> groups;
    for (int n = 0; n < static_cast<int>(problem.nodes.size()); ++n) {
      const bool is_like = n > 0 && problem.nodes[n].size() == problem.nodes[0].size();
      if (is_like && groups[0].size() == 1) {
        groups[0].push_back(n);
      } else {
        groups.push_back({n});
      }
    }
    const double best = least_cost(problem);
    if (std::isinf(best)) continue;
    constexpr double kMost = 1.5;
    std::vector<double> expected;
    for (const std::vector<int>& group : groups)
      for (int option = 0; option < static_cast<int>(problem.nodes[group[0]].size()); ++option) {
        const double cost = least_cost(problem, [&](const std::vector<int>& assignment) {
          return std::ranges::all_of(group, [&](int n) { return assignment[n] == option; });
        });
        if (cost <= kMost * best) expected.push_back(cost);
      }
    expected.push_back(best);
    std::ranges::sort(expected);
    // What several options have as their best is there once; costs are random, so it has its own.
    const auto is_same = [](double a, double b) { return b - a < 1e-5; };
    expected.erase(std::unique(expected.begin(), expected.end(), is_same), expected.end());

    const auto all = select_several(problem, groups, 100, kMost);
    ASSERT_EQ(all.size(), expected.size()) << "round " << round;
    EXPECT_EQ(all[0], select_options(problem));
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_NEAR(cost_of(problem, all[i]), expected[i], 1e-5);
    EXPECT_EQ(
        select_several(problem, groups, 2, kMost),
        std::vector(all.begin(), all.begin() + static_cast<long>(std::min<size_t>(2, all.size()))));
    found += static_cast<int>(all.size());
  }
  EXPECT_GT(found, 400);
}

TEST(Selection, FallsBackWhereTablesWouldBeTooLarge) {
  std::mt19937 random(4);
  const SelectionProblem problem = random_problem(random, 9, 3, 0);
  const std::vector<int> chosen = select_options(problem, /*max_table=*/1);
  EXPECT_EQ(chosen, select_by_descent(problem));
}

TEST(Selection, KeepsAChainInOneTypeWhenConversionsCostMore) {
  // Five nodes, each slightly faster in type 1 at every second place; converting costs more.
  SelectionProblem problem;
  for (int n = 0; n < 5; ++n) {
    const float a = n % 2 ? 1.0f : 1.1f, b = n % 2 ? 1.1f : 1.0f;
    problem.nodes.push_back({{a, {0, 0}}, {b, {1, 1}}});
    problem.tensors.push_back({{n, 1}, {}, {0, 1}, {{0, 0.5f}, {0.5f, 0}}});
    if (n > 0) problem.tensors[n - 1].consumers.push_back({n, 0});
  }
  const std::vector<int> chosen = select_options(problem);
  EXPECT_EQ(chosen, std::vector<int>(5, 1));
}

TEST(Selection, PaysAConversionOnceForAllConsumers) {
  // Four consumers gain 0.4 each from type 1, the conversion costs 1: worth it only when shared.
  SelectionProblem problem;
  problem.nodes.push_back({{0, {0}}});
  problem.tensors.push_back({{0, 0}, {}, {0, 1}, {{0, 1}, {1, 0}}});
  for (int n = 1; n <= 4; ++n) {
    problem.nodes.push_back({{0.5f, {0}}, {0.1f, {1}}});
    problem.tensors[0].consumers.push_back({n, 0});
  }
  EXPECT_EQ(select_options(problem), (std::vector<int>{0, 1, 1, 1, 1}));
}

TEST(Selection, SolvesLongChainsAndWideFansExactly) {
  std::mt19937 random(5);
  // A residual network: exact by elimination, checked by dynamic programming over the chain.
  constexpr int kNodes = 2000;
  std::uniform_real_distribution<float> cost(0, 1);
  SelectionProblem problem;
  std::vector<double> best{0, 0};
  for (int n = 0; n < kNodes; ++n) {
    const float a = cost(random), b = cost(random), convert = cost(random);
    problem.nodes.push_back({{a, {0, 0}}, {b, {1, 1}}});
    problem.tensors.push_back({{n, 1}, {}, {0, 1}, {{0, convert}, {convert, 0}}});
    if (n > 0) problem.tensors[n - 1].consumers.push_back({n, 0});
    const double before = n == 0 ? 0 : problem.tensors[n - 1].convert[0][1];
    best = {a + std::min(best[0], n == 0 ? best[0] : best[1] + before),
            b + std::min(best[1], n == 0 ? best[1] : best[0] + before)};
  }
  EXPECT_NEAR(cost_of(problem, select_options(problem)), std::min(best[0], best[1]), 1e-2);
}

/// One tensor that many nodes read, each in two types of its choice: what that costs was found by
/// looking at all of them for each.
TEST(Selection, ManyReadersOfATensorTakeLittleTime) {
  constexpr int kReaders = 20000;
  SelectionProblem problem;
  problem.nodes.push_back({{0, {0}}});
  SelectionProblem::Tensor tensor;
  tensor.producer = {0, 0};
  tensor.types = {0, 1};
  tensor.convert = {{0, 5}, {5, 0}};
  for (int i = 1; i <= kReaders; ++i) {
    problem.nodes.push_back({{2, {0}}, {1, {1}}});
    tensor.consumers.push_back({i, 0});
  }
  problem.tensors.push_back(tensor);
  const auto start = std::chrono::steady_clock::now();
  // The tensor is converted once for all of them.
  const std::vector<int> chosen = select_options(problem);
  EXPECT_DOUBLE_EQ(selection_cost(problem, chosen), 5 + kReaders);
  EXPECT_EQ(conversion_costs(problem, chosen).size(), problem.nodes.size());
  EXPECT_LE(selection_cost(problem, select_by_descent(problem)), 2 * kReaders);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace opwright
