#include "compile/passes.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Whether the extents are a batch, channels and two or three axes of pixels.
bool is_image(const SymShape& dims) { return dims.size() == 4 || dims.size() == 5; }

/// Whether the node exchanges the last two of three axes.
bool swaps_last(const GraphNode* node) {
  const auto* transpose = node != nullptr ? node->as<Transpose>() : nullptr;
  return transpose != nullptr && transpose->params().permutation == Ints{0, 2, 1};
}

GraphValue* add(Graph& graph, GraphNode* before, OperatorPtr op, GraphValue* value, SymShape dims) {
  TensorInfo info;
  info.dtype = value->info.dtype;
  info.dims = std::move(dims);
  return graph.insert_before(before, std::move(op), {value}, std::move(info), before->name)
      ->outputs[0];
}

/// Replaces [batch, channels, height, width] -> [batch, channels, pixels] -> [batch, pixels,
/// channels].
void move_channels_behind(Graph& graph, GraphNode* node) {
  const GraphNode* const reshape = node->inputs[0]->producer;
  if (!swaps_last(node) || reshape == nullptr || !reshape->as<Reshape>()) return;
  GraphValue* const image = reshape->inputs[0];
  const SymShape &dims = image->info.dims, &rows = node->inputs[0]->info.dims;
  if (!is_image(dims) || !(dims[0] == rows[0] && dims[1] == rows[1])) return;
  Ints permutation = {0};
  SymShape moved = {dims[0]};
  for (size_t axis = 2; axis < dims.size(); ++axis) {
    permutation.push_back(static_cast<int64_t>(axis));
    moved.push_back(dims[axis]);
  }
  permutation.push_back(1);
  moved.push_back(dims[1]);
  GraphValue* const last =
      add(graph, node, std::make_shared<Transpose>(TransposeParams{permutation}), image,
          std::move(moved));
  graph.replace(node, std::make_shared<Reshape>(), {last});
}

/// Replaces [batch, pixels, channels] -> [batch, channels, pixels] -> [batch, channels, height,
/// width].
void move_channels_before(Graph& graph, GraphNode* node) {
  GraphNode* const transpose = node->as<Reshape>() ? node->inputs[0]->producer : nullptr;
  if (!swaps_last(transpose) || graph.single_user(*node->inputs[0]) != node) return;
  const SymShape &dims = node->outputs[0]->info.dims, &planes = node->inputs[0]->info.dims;
  if (!is_image(dims) || !(dims[0] == planes[0] && dims[1] == planes[1])) return;
  const auto rank = static_cast<int64_t>(dims.size());
  Ints permutation = {0, rank - 1};
  SymShape pixels = {dims[0]};
  for (int64_t axis = 1; axis + 1 < rank; ++axis) {
    permutation.push_back(axis);
    pixels.push_back(dims[static_cast<size_t>(axis) + 1]);
  }
  pixels.push_back(dims[1]);
  GraphValue* const image =
      add(graph, node, std::make_shared<Reshape>(), transpose->inputs[0], std::move(pixels));
  graph.replace(node, std::make_shared<Transpose>(TransposeParams{permutation}), {image});
}

}  // namespace

void separate_pixels(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    if (node->outputs.size() != 1 || node->inputs.empty() || node->inputs[0] == nullptr) continue;
    if (node->as<Transpose>())
      move_channels_behind(graph, node);
    else
      move_channels_before(graph, node);
  }
}

}  // namespace opwright
