#pragma once

#include <string>
#include <vector>

#include "onnx/model.h"

namespace opwright {

/// The weights of an ONNX model under the names that OnnxParser gives to those of a network: its
/// initializers and the results of its Constant nodes, those of bodies where their name is the only
/// one.
std::vector<onnx::TensorProto> onnx_weights(const onnx::ModelProto& model);

}  // namespace opwright
