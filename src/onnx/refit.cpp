#include "onnx/refit.h"

#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "onnx/functions.h"

namespace opwright {
namespace {

template <class T>
onnx::TensorProto tensor(DataType dtype, const Shape& shape, const T* values, size_t count) {
  onnx::TensorProto made;
  made.dtype = dtype;
  made.shape = shape;
  made.data = Blob::copy(values, count * sizeof(T));
  return made;
}

onnx::TensorProto constant_of(const onnx::NodeProto& node) {
  for (const onnx::AttributeProto& a : node.attributes) {
    if (a.name == "value") return a.t;
    if (a.name == "value_float") return tensor(DataType::kFLOAT, Shape(), &a.f, 1);
    if (a.name == "value_floats")
      return tensor(DataType::kFLOAT, Shape{static_cast<int64_t>(a.floats.size())}, a.floats.data(),
                    a.floats.size());
    if (a.name == "value_ints")
      return tensor(DataType::kINT64, Shape{static_cast<int64_t>(a.ints.size())}, a.ints.data(),
                    a.ints.size());
  }
  return {};
}

/// An initializer or a Constant node.
struct Weight {
  const void* owner = nullptr;
  const onnx::TensorProto* initializer = nullptr;  ///< null: that of `node`
  const onnx::NodeProto* node = nullptr;
  std::string own_name, path;  ///< the path is empty in the graph
  bool is_of_function = false;
};

class WeightList {
 public:
  explicit WeightList(const onnx::ModelProto& model) {
    add_initializers(model.graph, {});
    add_nodes(model.graph.nodes, {}, false);
    for (const onnx::FunctionProto& function : model.functions)
      add_nodes(function.nodes, onnx::full_name(function), true);
    name_all(model.graph);
  }
  const std::vector<Weight>& weights() const { return weights_; }
  const std::string& name(size_t weight) const { return names_[weight]; }

 private:
  void add_initializers(const onnx::GraphProto& graph, const std::string& path) {
    for (const onnx::TensorProto& tensor : graph.initializers)
      weights_.push_back({&tensor, &tensor, nullptr, tensor.name, path, false});
  }
  void add_nodes(const std::vector<onnx::NodeProto>& nodes, const std::string& path,
                 bool is_of_function) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const onnx::NodeProto& node = nodes[i];
      // A constant from an attribute of the function's call is no weight of the function.
      if (node.op_type == "Constant" && node.domain.empty() && !node.outputs.empty() &&
          !onnx::has_references(node))
        weights_.push_back({&node, nullptr, &node, node.outputs[0], path, is_of_function});
      for (const onnx::AttributeProto& attribute : node.attributes) {
        if (attribute.g == nullptr) continue;
        const std::string label = !node.name.empty()     ? node.name
                                  : node.outputs.empty() ? str("node ", i)
                                                         : node.outputs[0];
        const std::string inner = str(path, path.empty() ? "" : "/", label, "/", attribute.name);
        const size_t first = weights_.size();
        add_initializers(*attribute.g, inner);
        for (size_t w = first; w < weights_.size(); ++w)
          weights_[w].is_of_function = is_of_function;
        add_nodes(attribute.g->nodes, inner, is_of_function);
      }
    }
  }

  void name_all(const onnx::GraphProto& graph) {
    std::map<std::string_view, int> count;
    for (const auto* values : {&graph.inputs, &graph.outputs})
      for (const onnx::ValueInfoProto& value : *values) ++count[value.name];
    for (const onnx::NodeProto& node : graph.nodes)
      for (const std::string& output : node.outputs) ++count[output];
    for (const Weight& weight : weights_) ++count[weight.own_name];
    std::unordered_set<std::string> used;
    for (const Weight& weight : weights_) {
      const bool has_own =
          weight.path.empty() || (!weight.is_of_function && count.at(weight.own_name) == 1);
      std::string name = has_own ? weight.own_name : str(weight.path, "/", weight.own_name);
      // Nodes may share a name.
      const std::string first = name;
      for (int i = 2;
           !weight.path.empty() && (used.contains(name) || (!has_own && count.contains(name))); ++i)
        name = str(first, " ", i);
      used.insert(name);
      names_.push_back(std::move(name));
    }
  }

  std::vector<Weight> weights_;
  std::vector<std::string> names_;
};

}  // namespace

std::unordered_map<const void*, std::string> onnx_weight_names(const onnx::ModelProto& model) {
  const WeightList list(model);
  std::unordered_map<const void*, std::string> names;
  for (size_t i = 0; i < list.weights().size(); ++i)
    names.emplace(list.weights()[i].owner, list.name(i));
  return names;
}

std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model) {
  const WeightList list(model);
  std::vector<onnx::TensorProto> weights;
  for (size_t i = 0; i < list.weights().size(); ++i) {
    const Weight& weight = list.weights()[i];
    weights.push_back(weight.initializer != nullptr ? *weight.initializer
                                                    : constant_of(*weight.node));
    weights.back().name = list.name(i);
  }
  return weights;
}

}  // namespace opwright
