#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/model.h"

namespace opwright {

/// Names with which an engine is refitted with the weights of an ONNX model, by its initializers
/// and Constant nodes. Weights of the graph keep their own names. So do weights of a body whose
/// name is unique in the model. Other weights of bodies follow the names of the nodes around them
/// and of the bodies' attributes: "node/then_branch/w". Weights of a function follow the function's
/// name.
std::unordered_map<const void*, std::string> onnx_weight_names(const onnx::ModelProto& model);

/// The weights of an ONNX model under these names.
std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model);

}  // namespace opwright
