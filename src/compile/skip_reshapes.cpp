#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "compile/passes.h"
#include "operators/movement.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// Axes of two shapes with the same elements: those from `in` to before `in_end` of the first shape
/// are those from `out` to before `out_end` of the second one.
struct AxisGroup {
  size_t in, in_end, out, out_end;
};

/// Takes axes from the shape until their product is `extent`. Returns the end of these axes;
/// nothing where there is no such end.
std::optional<size_t> take(const SymShape& shape, size_t first, const Expr& extent) {
  Expr product = 1;
  for (size_t end = first; end < shape.size();) {
    product = product * shape[end++];
    if (product == extent) return end;
  }
  return std::nullopt;
}

/// The smallest groups of axes of equal extents. Nothing where symbols hide them.
std::optional<std::vector<AxisGroup>> axis_groups(const SymShape& in, const SymShape& out) {
  std::vector<AxisGroup> groups;
  size_t i = 0, k = 0;
  while (i < in.size() && k < out.size()) {
    AxisGroup group{i, i + 1, k, k + 1};
    if (!(in[i] == out[k])) {
      if (const std::optional<size_t> in_end = take(in, i, out[k]))
        group.in_end = *in_end;
      else if (const std::optional<size_t> out_end = take(out, k, in[i]))
        group.out_end = *out_end;
      else
        return std::nullopt;
    }
    groups.push_back(group);
    i = group.in_end, k = group.out_end;
  }
  if (!are_ones(std::span(in).subspan(i)) || !are_ones(std::span(out).subspan(k)))
    return std::nullopt;
  return groups;
}

/// The most elements of a constant that is repeated.
constexpr int64_t kMostRepeated = int64_t{1} << 24;

/// The constant, repeated to another shape of the same rank. Null where it cannot be computed.
GraphValue* repeated(Graph& graph, const PassContext& context, GraphNode* before,
                     GraphValue* constant, const SymShape& dims) {
  if (!is_constant(dims) || constant_shape(dims).numel() > kMostRepeated) return nullptr;
  SliceParams params;
  for (size_t i = 0; i < dims.size(); ++i) {
    params.start.push_back(0), params.size.push_back(dims[i].constant());
    params.stride.push_back(constant->info.dims[i] == dims[i] ? 1 : 0);
  }
  TensorInfo info;
  info.dtype = constant->info.dtype, info.dims = dims;
  GraphNode* const slice = graph.insert_before(before, std::make_shared<Slice>(params), {constant},
                                               std::move(info), constant->name + " for each image");
  GraphValue* const result = slice->outputs[0];
  return fold(graph, slice, context) ? result : nullptr;
}

/// A constant that is broadcast to shape `out` as the given one is to shape `in`. Null where there
/// is none.
GraphValue* reshaped(Graph& graph, const PassContext& context, GraphNode* before,
                     const GraphValue& constant, const SymShape& in, const SymShape& out) {
  SymShape dims(in.size() - constant.info.dims.size(), Expr(1));
  dims.insert(dims.end(), constant.info.dims.begin(), constant.info.dims.end());
  const std::optional<std::vector<AxisGroup>> groups = axis_groups(in, out);
  if (!groups || !is_constant(dims)) return nullptr;
  SymShape whole = dims, result(out.size(), Expr(1));
  for (const AxisGroup& group : *groups) {
    bool has_elements = false;
    for (size_t i = group.in; i < group.in_end; ++i) has_elements |= !(dims[i] == Expr(1));
    if (!has_elements) continue;
    std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(group.in), group.in_end - group.in,
                whole.begin() + static_cast<std::ptrdiff_t>(group.in));
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(group.out), group.out_end - group.out,
                result.begin() + static_cast<std::ptrdiff_t>(group.out));
  }
  if (!is_constant(result)) return nullptr;
  GraphValue* value = graph.reshape_constant(constant, constant_shape(dims));
  if (!(whole == dims)) value = repeated(graph, context, before, value, whole);
  return value ? graph.reshape_constant(*value, constant_shape(result)) : nullptr;
}

/// A reshape behind an element-wise operation of tensors that were reshaped from its own shape, and
/// of constants, becomes that operation.
void skip(Graph& graph, const PassContext& context, GraphNode* node) {
  GraphNode* const operation = node->as<Reshape>() ? node->inputs[0]->producer : nullptr;
  if (operation == nullptr || !operation->as<Pointwise>() || operation->outputs.size() != 1 ||
      operation->precision || graph.single_user(*node->inputs[0]) != node)
    return;
  const SymShape &in = operation->outputs[0]->info.dims, &out = node->outputs[0]->info.dims;
  std::vector<GraphValue*> inputs;
  bool has_reshape = false;
  for (GraphValue* input : operation->inputs) {
    const GraphNode* const before = input->producer;
    const bool is_reshape = before != nullptr && before->as<Reshape>() && !input->stored_type &&
                            before->inputs[0]->info.dims == out;
    if (!is_reshape && !input->is_constant()) return;
    has_reshape |= is_reshape;
    inputs.push_back(is_reshape ? before->inputs[0]
                                : reshaped(graph, context, node, *input, in, out));
    if (inputs.back() == nullptr) return;
  }
  if (!has_reshape || !fits(*operation->op, node->name, inputs, node->outputs)) return;
  node->name = operation->name, node->metadata = operation->metadata;
  graph.replace(node, operation->op, std::move(inputs));
}

}  // namespace

void skip_reshapes(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) skip(graph, context, node);
}

}  // namespace opwright
