#include <algorithm>
#include <utility>

#include "compile/passes.h"
#include "operators/convolution.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Whether the image, the kernel and the result have one column, and there is no padding beside it.
bool has_one_column(const GraphNode& node, const ConvolutionParams& params) {
  const SymShape &x = node.inputs[0]->info.dims, &kernel = node.inputs[1]->info.dims;
  const auto is_padded = [](const Ints& padding) { return padding.size() > 1 && padding[1] != 0; };
  return x.size() == 4 && kernel.size() == 4 && x[3] == Expr(1) && kernel[3] == Expr(1) &&
         kernel[2] != Expr(1) && node.outputs[0]->info.dims[3] == Expr(1) &&
         params.padding_mode == PaddingMode::kEXPLICIT_ROUND_DOWN &&
         !is_padded(params.pre_padding) && !is_padded(params.post_padding);
}

SymShape turned(SymShape dims) {
  std::swap(dims[2], dims[3]);
  return dims;
}

void turn(Ints& of_axes) {
  if (of_axes.size() == 2) std::swap(of_axes[0], of_axes[1]);
}

/// The value as a row instead of a column, or the other way round.
GraphValue* turned(Graph& graph, GraphNode* before, GraphValue* value) {
  const SymShape dims = turned(value->info.dims);
  if (value->is_constant() && is_constant(dims))
    return graph.reshape_constant(*value, constant_shape(dims));
  const GraphNode* const made = value->producer;
  if (made != nullptr && made->as<Reshape>() && made->inputs[0]->info.dims == dims &&
      !value->stored_type)
    return made->inputs[0];
  TensorInfo info;
  info.dtype = value->info.dtype, info.dims = dims;
  return graph
      .insert_before(before, std::make_shared<Reshape>(), {value}, std::move(info),
                     value->name + " as a row")
      ->outputs[0];
}

void lay_column(Graph& graph, const PassContext& context, GraphNode* node) {
  const auto* op = node->as<Convolution>();
  if (op == nullptr || node->inputs.size() < 2 || node->outputs[0]->stored_type ||
      !has_one_column(*node, op->params()))
    return;
  ConvolutionParams params = op->params();
  for (Ints* of_axes :
       {&params.stride, &params.dilation, &params.pre_padding, &params.post_padding})
    turn(*of_axes);
  // The image, the kernel, a residual and inputs of the program have an axis of rows.
  std::vector<GraphValue*> inputs = node->inputs;
  for (GraphValue*& input : inputs)
    if (input != nullptr && input->info.dims.size() == 4) input = turned(graph, node, input);
  TensorInfo info;
  info.dtype = node->outputs[0]->info.dtype, info.dims = turned(node->outputs[0]->info.dims);
  GraphNode* const row = graph.insert_before(node, std::make_shared<Convolution>(params), inputs,
                                             std::move(info), node->name);
  if (!context.can_run(*row->op, *row, inputs)) return;
  node->name += " as a column";
  graph.replace(node, std::make_shared<Reshape>(), {row->outputs[0]});
}

}  // namespace

void lay_columns(Graph& graph, const PassContext& context) {
  if (!context.device.is_host()) return;
  for (GraphNode* node : graph.nodes()) lay_column(graph, context, node);
  graph.remove_dead();
}

}  // namespace opwright
