#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/model.h"

namespace opwright {

/// The names by which an engine is refitted with the weights of an ONNX model, by its initializers
/// and Constant nodes. Those of the graph have their own. So have those of a body where nothing
/// else of the model has the name; else the nodes that they are in and the bodies' attributes stand
/// before it: "node/then_branch/w". Those of a function follow its name.
std::unordered_map<const void*, std::string> onnx_weight_names(const onnx::ModelProto& model);

/// The weights of an ONNX model under these names.
std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model);

}  // namespace opwright
