#pragma once

#include <string>
#include <unordered_map>

#include "base/blob.h"
#include "base/shape.h"
#include "base/types.h"
#include "network/shape_source.h"

namespace opwright::onnx {

/// The caller's knowledge of a model's inputs and tensors, beyond the file.
struct KnownInputs {
  struct Constant {
    DataType dtype = DataType::kFLOAT;
    Shape shape;
    Blob data;  ///< dense
  };
  /// Shapes that inputs have in every run.
  std::unordered_map<std::string, Shape> shapes;
  /// Inputs whose elements are the same in every run. The network has constants instead of these.
  std::unordered_map<std::string, Constant> constants;
  /// Upper bounds of tensors whose elements decide extents, by their names in the model.
  std::unordered_map<std::string, int64_t> upper_bounds;
  /// The kind of caller, for messages.
  ShapeSource source = ShapeSource::kProfile;
};

}  // namespace opwright::onnx
