#pragma once

#include <optional>
#include <span>
#include <vector>

#include "control/recognize_recurrence.h"
#include "onnx/importer.h"

namespace opwright::onnx {

/// The tensors at the beginning of a body's network, as they were made.
struct BodyTensors {
  Tensor* iteration = nullptr;
  std::vector<Tensor*> states;
  std::vector<RepeatedLayers::Element> elements;
};

/// Whether the body has only nodes of kinds that a recurrent layer's cell may have.
bool may_be_cell(const GraphProto& body);

/// Adds a loop as the recurrent layer whose cell is the body. If it is none, returns nothing and
/// adds no layer. `limit`: the number of iterations, one integer outside. `first`, `next`: the
/// states outside before the first iteration, and in the body for the next one.
std::optional<RecurrentCellLayers> recognize_body(NodeImporter& node, const BodyNetwork& body,
                                                  BodyTensors tensors, Tensor* limit,
                                                  std::span<Tensor* const> first,
                                                  std::span<Tensor* const> next,
                                                  std::span<Tensor* const> stacked);

}  // namespace opwright::onnx
