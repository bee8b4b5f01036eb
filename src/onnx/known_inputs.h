#pragma once

#include <string>
#include <unordered_map>

#include "base/blob.h"
#include "base/shape.h"
#include "base/types.h"
#include "network/shape_source.h"

namespace opwright::onnx {

/// What the caller knows of a model's inputs, and of what it computes, beyond its file.
struct KnownInputs {
  struct Constant {
    DataType dtype = DataType::kFLOAT;
    Shape shape;
    Blob data;  ///< dense
  };
  /// Shapes that inputs have in every run.
  std::unordered_map<std::string, Shape> shapes;
  /// Inputs whose elements are the same in every run: the network has constants in their places.
  std::unordered_map<std::string, Constant> constants;
  /// Upper bounds of tensors whose elements decide extents, by the names that the model gives them.
  std::unordered_map<std::string, int64_t> upper_bounds;
  /// Who the caller is, for messages.
  ShapeSource source = ShapeSource::kProfile;
};

}  // namespace opwright::onnx
