#include "compile/selection_problem.h"

#include <algorithm>
#include <map>

#include "compile/schedule.h"

namespace opwright {
namespace {

/// Milliseconds that are added to a conversion to avoid, which is chosen only where there is no
/// other way.
constexpr float kAvoided = 1e6F;

template <typename T>
int index_of(std::vector<T>& list, const T& element) {
  auto found = std::ranges::find(list, element);
  if (found == list.end()) found = list.insert(found, element);
  return static_cast<int>(found - list.begin());
}

class ProblemMaker {
 public:
  ProblemMaker(const Graph& graph, const Network& network, Tuner& tuner)
      : graph_(graph), network_(network), tuner_(tuner) {}

  SelectionProblem make(const std::vector<GraphNode*>& nodes, const std::vector<TunedNode>& tuned,
                        bool direct_io, const Tuner::CompileProgress& progress) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      produce(graph_.inputs[i], add_fixed(input_type(i)), 0);
    for (size_t i = 0; i < nodes.size(); ++i) add_node(*nodes[i], tuned[i]);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      consume_as(graph_.outputs()[i], output_type(i));
    for (const Graph::Debug& debug : graph_.debug()) consume_as(debug.value, {debug.dtype});
    for (size_t i = 0; i < problem_.tensors.size(); ++i) list_conversions(i);
    time_conversions(progress);
    if (direct_io) avoid_conversions_of_io();
    return std::move(problem_);
  }

 private:
  PortType input_type(size_t i) const { return network_port_type(*network_.inputs()[i]); }
  PortType output_type(size_t i) const { return network_port_type(*network_.outputs()[i]); }
  int number_of(PortType type) { return index_of(types_, type); }

  /// Adds a node that has one port of one type. Returns its index.
  int add_fixed(PortType type) {
    problem_.nodes.push_back({{0, {number_of(type)}}});
    return static_cast<int>(problem_.nodes.size()) - 1;
  }
  void produce(const GraphValue* value, int node, int port) {
    tensor_of_[value] = static_cast<int>(problem_.tensors.size());
    problem_.tensors.push_back({{node, port}, {}, {}, {}});
    values_.push_back(value);
  }
  void consume(const GraphValue* value, int node, int port) {
    problem_.tensors[tensor_of_.at(value)].consumers.push_back({node, port});
  }
  void consume_as(const GraphValue* value, PortType type) {
    if (!value->is_known()) consume(value, add_fixed(type), 0);
  }

  static bool is_edge(const GraphValue* input) { return input != nullptr && !input->is_known(); }

  void add_node(const GraphNode& node, const TunedNode& tuned) {
    const int number = static_cast<int>(problem_.nodes.size());
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (is_edge(node.inputs[i])) consume(node.inputs[i], number, static_cast<int>(i));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      produce(node.outputs[i], number, static_cast<int>(node.inputs.size() + i));
    std::vector<SelectionProblem::Option> options;
    for (const TunedOption& option : tuned.options) options.push_back(option_of(node, option));
    problem_.nodes.push_back(std::move(options));
  }

  SelectionProblem::Option option_of(const GraphNode& node, const TunedOption& tuned) {
    SelectionProblem::Option option;
    option.cost = tuned.time_ms > 0 ? tuned.time_ms : tuned.candidate.estimated_ms;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      option.ports.push_back(is_edge(node.inputs[i]) ? number_of(tuned.candidate.inputs[i])
                                                     : SelectionProblem::kNoEdge);
    for (const PortType& type : tuned.candidate.outputs) option.ports.push_back(number_of(type));
    return option;
  }

  /// Sets the tensor's types, and lists each conversion that its neighbours may need.
  void list_conversions(size_t number) {
    SelectionProblem::Tensor& tensor = problem_.tensors[number];
    std::vector<int> given, taken;
    const auto collect = [&](SelectionProblem::Port port, std::vector<int>& types) {
      for (const SelectionProblem::Option& option : problem_.nodes[port.node]) {
        index_of(types, option.ports[port.port]);
        index_of(tensor.types, option.ports[port.port]);
      }
    };
    collect(tensor.producer, given);
    for (const SelectionProblem::Port port : tensor.consumers) collect(port, taken);
    const auto contains = [](const std::vector<int>& types, int type) {
      return std::ranges::find(types, type) != types.end();
    };
    const size_t count = tensor.types.size();
    tensor.convert.assign(count, std::vector<float>(count));
    for (size_t from = 0; from < count; ++from)
      for (size_t to = 0; to < count; ++to)
        if (from != to && contains(given, tensor.types[from]) &&
            contains(taken, tensor.types[to])) {
          places_.push_back({number, from, to});
          conversions_.push_back(
              {values_[number], types_[tensor.types[from]], types_[tensor.types[to]]});
        }
  }

  /// Sets the times of the listed conversions.
  void time_conversions(const Tuner::CompileProgress& progress) {
    tuner_.compile_conversions(conversions_, progress);
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto& [tensor, from, to] = places_[i];
      problem_.tensors[tensor].convert[from][to] = tuner_.reformat_time(conversions_[i]);
    }
  }

  void avoid_conversions_of_io() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      if (network_.inputs()[i]->has_allowed_formats()) avoid(graph_.inputs[i], input_type(i));
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (network_.outputs()[i]->has_allowed_formats() && !graph_.outputs()[i]->is_known())
        avoid(graph_.outputs()[i], output_type(i));
  }
  void avoid(const GraphValue* value, PortType avoided) {
    SelectionProblem::Tensor& tensor = problem_.tensors[tensor_of_.at(value)];
    const int type = number_of(avoided);
    for (size_t from = 0; from < tensor.types.size(); ++from)
      for (size_t to = 0; to < tensor.types.size(); ++to)
        if (from != to && (tensor.types[from] == type || tensor.types[to] == type))
          tensor.convert[from][to] += kAvoided;
  }

  const Graph& graph_;
  const Network& network_;
  Tuner& tuner_;
  SelectionProblem problem_;
  std::vector<PortType> types_;                 ///< by the numbers that stand for them
  std::map<const GraphValue*, int> tensor_of_;  ///< index in problem_.tensors
  std::vector<const GraphValue*> values_;       ///< by index in problem_.tensors
  std::vector<Conversion> conversions_;
  /// Where the time of each conversion stands.
  struct Place {
    size_t tensor, from, to;
  };
  std::vector<Place> places_;
};

}  // namespace

SelectionProblem make_selection_problem(const Graph& graph, const Network& network,
                                        const std::vector<GraphNode*>& nodes,
                                        const std::vector<TunedNode>& tuned, Tuner& tuner,
                                        bool direct_io, const Tuner::CompileProgress& progress) {
  return ProblemMaker(graph, network, tuner).make(nodes, tuned, direct_io, progress);
}

}  // namespace opwright
