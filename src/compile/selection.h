#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace opwright {

/// The problem of choosing an option for every node so that the options' costs and the conversions
/// at tensors whose neighbours differ in type cost least. Types are numbers whose meaning the
/// caller decides.
struct SelectionProblem {
  static constexpr int kNoEdge = -1;
  struct Option {
    float cost = 0;
    std::vector<int> ports;  ///< type at each port, kNoEdge where no tensor is connected
  };
  struct Port {
    int node = 0;
    int port = 0;
  };
  /// A tensor, which one port produces and other ports consume. A conversion to a type is paid
  /// once, however many ports consume that type.
  struct Tensor {
    Port producer;
    std::vector<Port> consumers;
    std::vector<int> types;                   ///< the types that occur at its ports
    std::vector<std::vector<float>> convert;  ///< cost by index in `types`: [from][to]
  };
  std::vector<std::vector<Option>> nodes;
  std::vector<Tensor> tensors;
};

/// The cost of the options with these indices; infinite when a conversion is impossible.
double selection_cost(const SelectionProblem& problem, const std::vector<int>& assignment);

/// The index of an option for every node. Exact, by eliminating variables in order of least table
/// size (min-sum variable elimination, Bertelè and Brioschi 1972), if no table exceeds `max_table`
/// entries. Otherwise the best of iterated conditional modes (Besag 1986) from several starts.
std::vector<int> select_options(const SelectionProblem& problem,
                                size_t max_table = size_t{1} << 20);

/// The best assignment and, in order of cost, the best assignments in which all nodes of a group
/// take one option. Each occurs once; there are at most `count`, and none costs more than `most`
/// times the best. The nodes of a group have the same options. Without groups, the next best
/// assignments would differ in one node out of many that are alike.
std::vector<std::vector<int>> select_several(const SelectionProblem& problem,
                                             std::span<const std::vector<int>> groups, size_t count,
                                             double most);

/// Per node and option, the cost of the conversions at the node's ports when all other nodes are as
/// assigned.
std::vector<std::vector<double>> conversion_costs(const SelectionProblem& problem,
                                                  const std::vector<int>& assignment);

/// Only the fallback of select_options().
std::vector<int> select_by_descent(const SelectionProblem& problem);

}  // namespace opwright
