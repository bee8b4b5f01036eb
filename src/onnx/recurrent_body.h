#pragma once

#include <optional>
#include <span>
#include <vector>

#include "control/recognize_recurrence.h"
#include "onnx/importer.h"

namespace opwright::onnx {

/// What a body's network begins with, as it was made.
struct BodyTensors {
  Tensor* iteration = nullptr;
  std::vector<Tensor*> states;
  std::vector<RepeatedLayers::Element> elements;
};

/// Whether nodes of these kinds alone may be the cell of a recurrent layer.
bool may_be_cell(const GraphProto& body);

/// A loop as the recurrent layer whose cell its body is; nothing, and no layer, where it is none.
/// `limit`: how often it runs, one integer outside. `first`, `next`: the states outside before the
/// first iteration, and in the body for the next one.
std::optional<RecurrentCellLayers> recognize_body(NodeImporter& node, const BodyNetwork& body,
                                                  BodyTensors tensors, Tensor* limit,
                                                  std::span<Tensor* const> first,
                                                  std::span<Tensor* const> next,
                                                  std::span<Tensor* const> stacked);

}  // namespace opwright::onnx
