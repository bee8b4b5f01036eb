#include "onnx/refit.h"

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

}  // namespace

std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model) {
  std::vector<onnx::TensorProto> weights = model.graph.initializers;
  for (const onnx::NodeProto& node : model.graph.nodes) {
    if (node.op_type != "Constant" || !node.domain.empty() || node.outputs.empty()) continue;
    weights.push_back(constant_of(node));
    weights.back().name = node.outputs[0];
  }
  return weights;
}

}  // namespace opwright
