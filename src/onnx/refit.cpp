#include "onnx/refit.h"

#include <map>
#include <string_view>

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

void append_weights(const onnx::GraphProto& graph, std::vector<onnx::TensorProto>& weights) {
  weights.insert(weights.end(), graph.initializers.begin(), graph.initializers.end());
  for (const onnx::NodeProto& node : graph.nodes) {
    if (node.op_type != "Constant" || !node.domain.empty() || node.outputs.empty()) continue;
    weights.push_back(constant_of(node));
    weights.back().name = node.outputs[0];
  }
}

/// Those of the bodies of a graph's nodes, and of theirs.
void append_body_weights(const onnx::GraphProto& graph, std::vector<onnx::TensorProto>& weights) {
  for (const onnx::NodeProto& node : graph.nodes)
    for (const onnx::AttributeProto& attribute : node.attributes)
      if (attribute.g != nullptr) {
        append_weights(*attribute.g, weights);
        append_body_weights(*attribute.g, weights);
      }
}

}  // namespace

std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model) {
  std::vector<onnx::TensorProto> weights, of_bodies;
  append_weights(model.graph, weights);
  append_body_weights(model.graph, of_bodies);
  std::map<std::string_view, int> count;
  for (const auto* all : {&weights, &of_bodies})
    for (const onnx::TensorProto& tensor : *all) ++count[tensor.name];
  // A name that several have tells none of a body's.
  for (onnx::TensorProto& tensor : of_bodies)
    if (count.at(tensor.name) == 1) weights.push_back(tensor);
  return weights;
}

}  // namespace opwright
