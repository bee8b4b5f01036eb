#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace opwright {

/// The choice of an option for every node such that the options' costs and the conversions between
/// neighbours that differ in a tensor's type cost least. Types are numbers that the caller gives
/// meaning to.
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
  /// A tensor: one port gives it, others take it. A conversion to a type is paid once, however many
  /// ports take that type.
  struct Tensor {
    Port producer;
    std::vector<Port> consumers;
    std::vector<int> types;                   ///< the types that occur at its ports
    std::vector<std::vector<float>> convert;  ///< cost by index in `types`: [from][to]
  };
  std::vector<std::vector<Option>> nodes;
  std::vector<Tensor> tensors;
};

/// What the options with these indices cost together; infinite when a conversion is impossible.
double selection_cost(const SelectionProblem& problem, const std::vector<int>& assignment);

/// The index of an option for every node. Exact, by eliminating variables in order of least table
/// size (min-sum variable elimination, Bertelè and Brioschi 1972), as long as no table exceeds
/// `max_table` entries; otherwise the best of iterated conditional modes (Besag 1986) from several
/// starts.
std::vector<int> select_options(const SelectionProblem& problem,
                                size_t max_table = size_t{1} << 20);

/// The best assignment, and behind it, in order of cost, those that are best where all nodes of a
/// group take one option: each once, `count` of them at most, and none that costs more than `most`
/// times the best. The nodes of a group have the same options. The assignments that are next best
/// as such would differ in one node out of many that are alike.
std::vector<std::vector<int>> select_several(const SelectionProblem& problem,
                                             std::span<const std::vector<int>> groups, size_t count,
                                             double most);

/// Per node and option, what the conversions of the tensors at its ports cost when all other nodes
/// are as assigned.
std::vector<std::vector<double>> conversion_costs(const SelectionProblem& problem,
                                                  const std::vector<int>& assignment);

/// The fallback by itself.
std::vector<int> select_by_descent(const SelectionProblem& problem);

}  // namespace opwright
