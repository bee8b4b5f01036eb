// Losses over classes.

#include "onnx/importer.h"
#include "operators/reduce.h"

namespace opwright::onnx {
namespace {

/// The elements of `x`, [N, C, ...], at the classes in `target`, negated, weighted and reduced.
Tensor* likelihood_loss(NodeImporter& node, Tensor* x) {
  node.require_rank(x, 2);
  Tensor *target = node.input(1), *weight = node.optional_input(2);
  node.require_rank(target, x->rank() - 1, x->rank() - 1);
  const DataType type = x->dtype();
  const std::string reduction = node.get_text("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    node.error("reduction is '", reduction, "'; expected none, sum or mean");
  Tensor *is_ignored = nullptr, *index = target;
  if (const AttributeProto* ignored = node.attribute("ignore_index", AttributeProto::Type::kInt)) {
    const auto number = static_cast<double>(ignored->i);
    is_ignored = node.elementwise(ElementWiseOperation::kEQUAL, target, number);
    index = node.select(is_ignored, node.scalar(0, target->dtype()), target);
  }
  GatherParams elements;
  elements.mode = GatherMode::kELEMENT;
  elements.axis = 1;
  Tensor* loss = node.squeeze(node.add<Gather>(elements, {x, node.unsqueeze(index, {1})}), {1});
  loss = node.unary(UnaryOperation::kNEG, loss);
  Tensor* shares = nullptr;
  if (weight != nullptr) {
    node.require_rank(weight, 1, 1);
    shares = node.add<Gather>({}, {weight, index});
    loss = node.elementwise(ElementWiseOperation::kPROD, loss, shares);
  }
  if (is_ignored != nullptr) {
    Tensor* zero = node.scalar(0, type);
    loss = node.select(is_ignored, zero, loss);
    shares = node.select(is_ignored, zero, shares != nullptr ? shares : node.scalar(1, type));
  }
  if (reduction == "none") return loss;
  Ints axes;
  for (int i = 0; i < loss->rank(); ++i) axes.push_back(i);
  if (reduction == "mean" && shares == nullptr)
    return node.reduce(ReduceOperation::kAVG, loss, axes, false);
  Tensor* sum = node.reduce(ReduceOperation::kSUM, loss, axes, false);
  if (reduction == "sum") return sum;
  return node.elementwise(ElementWiseOperation::kDIV, sum,
                          node.reduce(ReduceOperation::kSUM, shares, axes, false));
}

void negative_log_likelihood(NodeImporter& node) {
  node.set_output(0, likelihood_loss(node, node.input(0)));
}

void softmax_cross_entropy(NodeImporter& node) {
  node.require_rank(node.input(0), 2);
  Tensor* log = node.add<Softmax>({int64_t{1} << 1, true}, {node.input(0)});
  node.set_output(0, likelihood_loss(node, log));
  node.set_output(1, log);
}

}  // namespace

void add_losses(NodeTable& table) {
  table["NegativeLogLikelihoodLoss"] = negative_log_likelihood;
  table["SoftmaxCrossEntropyLoss"] = softmax_cross_entropy;
}

}  // namespace opwright::onnx
