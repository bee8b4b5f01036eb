// Operators whose number of elements data decides.

#include "operators/selection.h"

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

void non_zero(NodeImporter& node) {
  node.set_output(0, node.add<NonZero>({DataType::kINT64}, {node.input(0)}));
}

void non_max_suppression(NodeImporter& node) {
  NmsParams params;
  params.indices_type = DataType::kINT64;
  if (node.get_int("center_point_box", 0) != 0)
    params.bounding_box_format = BoundingBoxFormat::kCENTER_SIZES;
  node.require_rank(node.input(1), 3, 3);
  Tensor* most = node.optional_input(2);
  // Without a number no box is taken.
  if (most == nullptr) most = node.scalar(0, DataType::kINT64);
  params.is_bounded = most->info().values != nullptr;
  std::vector<Tensor*> inputs = {node.input(0), node.transpose(node.input(1), {0, 2, 1}), most};
  for (int i = 3; i < 5; ++i) inputs.push_back(node.optional_input(i));
  while (inputs.back() == nullptr) inputs.pop_back();
  node.set_output(0, node.add<Nms>(params, inputs));
}

/// The slices at the indices where the condition holds.
void compress(NodeImporter& node) {
  Tensor *x = node.input(0), *condition = node.input(1);
  node.require_rank(condition, 1, 1);
  int axis = 0;
  if (const AttributeProto* given = node.attribute("axis", AttributeProto::Type::kInt)) {
    axis = node.axis(given->i, x->rank());
  } else {
    const Expr count = numel(x->dims());
    x = node.reshape(x, std::span(&count, 1));
  }
  // Elements of the condition beyond the axis select nothing.
  const Expr extent = x->dims()[static_cast<size_t>(axis)], length = condition->dims()[0];
  if (!(length.is_constant() && extent.is_constant() && length.constant() <= extent.constant()))
    condition = node.slice(condition, {0}, {min(length, extent)}, {1});
  Tensor* found = node.add<NonZero>({DataType::kINT64}, {condition});
  GatherParams params;
  params.axis = axis;
  node.set_output(0, node.add<Gather>(params, {x, node.squeeze(found, {0})}));
}

void unique(NodeImporter& node) {
  Tensor* x = node.input(0);
  UniqueParams params;
  params.sorted = node.get_int("sorted", 1) != 0;
  if (const AttributeProto* given = node.attribute("axis", AttributeProto::Type::kInt)) {
    params.flatten = false;
    params.axis = node.axis(given->i, x->rank());
  }
  const Layer* layer = node.network().add<Unique>(params, {x}, node.next_name());
  for (int i = 0; i < 4; ++i) node.set_output(i, layer->output(i));
}

}  // namespace

void add_selection(NodeTable& table) {
  table["NonZero"] = non_zero;
  table["NonMaxSuppression"] = non_max_suppression;
  table["Compress"] = compress;
  table["Unique"] = unique;
}

}  // namespace opwright::onnx
