#include "operators/normalization.h"

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

int64_t mask_from(int first, int rank) {
  int64_t mask = 0;
  for (int i = first; i < rank; ++i) mask |= int64_t{1} << i;
  return mask;
}

/// [C] as [1, C, 1, ...] of the rank.
Tensor* per_channel(NodeImporter& node, Tensor* x, int rank) {
  node.require_rank(node.input(0), 2);
  SymShape dims(rank, Expr(1));
  dims[1] = numel(x->dims());
  return node.reshape(x, dims);
}

void batch_normalization(NodeImporter& node) {
  if (node.get_int("training_mode", 0) != 0) node.error("training_mode=1 is not supported");
  Tensor* x = node.input(0);
  const float epsilon = node.get_float("epsilon", 1e-5f);
  using Op = ElementWiseOperation;
  bool constant = true;
  for (int i = 0; i < 4; ++i) {
    Tensor* parameter = node.input(i + 1);
    constant &= static_cast<bool>(parameter->info().constant);
    if (constant && parameter->info().dims != node.input(1)->info().dims)
      node.error("scale, bias, mean and variance differ in size");
  }
  if (constant) {
    // Layers over constants, which the build folds and refitting computes again. They use FP32: a
    // coefficient's rounding is the same at all positions, so no mean over positions makes it
    // small.
    const auto exact = [&](int index) { return node.cast(node.input(index), DataType::kFLOAT); };
    Tensor *scale = exact(1), *bias = exact(2), *mean = exact(3);
    Tensor* deviation =
        node.unary(UnaryOperation::kSQRT, node.elementwise(Op::kSUM, exact(4), epsilon));
    Tensor* factor = node.elementwise(Op::kDIV, scale, deviation);
    Tensor* shift = node.elementwise(Op::kSUB, bias, node.elementwise(Op::kPROD, mean, factor));
    ScaleParams params;
    params.channel_axis = 1;
    node.set_output(0, node.add<Scale>(params, {x, shift, factor}));
    return;
  }
  // Computed parameters: scale * (x - mean) / sqrt(variance + epsilon) + bias.
  Tensor* parameters[4];
  for (int i = 0; i < 4; ++i) parameters[i] = per_channel(node, node.input(i + 1), x->rank());
  Tensor* deviation =
      node.unary(UnaryOperation::kSQRT, node.elementwise(Op::kSUM, parameters[3], epsilon));
  Tensor* y = node.elementwise(Op::kDIV, node.elementwise(Op::kSUB, x, parameters[2]), deviation);
  y = node.elementwise(Op::kPROD, y, parameters[0]);
  node.set_output(0, node.elementwise(Op::kSUM, y, parameters[1]));
}

void instance_normalization(NodeImporter& node) {
  Tensor* x = node.input(0);
  NormalizationParams params;
  params.epsilon = node.get_float("epsilon", 1e-5f);
  params.axes = mask_from(2, x->rank());
  node.set_output(0,
                  node.add<Normalization>(params, {x, per_channel(node, node.input(1), x->rank()),
                                                   per_channel(node, node.input(2), x->rank())}));
}

void group_normalization(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 2);
  NormalizationParams params;
  params.epsilon = node.get_float("epsilon", 1e-5f);
  params.num_groups = node.get_int("num_groups", 0);
  if (params.num_groups < 1)
    node.error("num_groups is ", params.num_groups, "; expected at least 1");
  params.axes = mask_from(2, x->rank());
  Tensor* parameters[2];
  for (int i = 0; i < 2; ++i) {
    Tensor* given = node.input(i + 1);
    if (node.opset() < 21) {
      // Opset 18 has one value per group, which is repeated for the group's channels.
      const Expr channels = x->dims()[1];
      const Expr groups = params.num_groups;
      given = node.unsqueeze(given, {1});
      const SymShape wide = {groups, floor_div(channels, groups)};
      given = node.expand(given, wide);
    }
    parameters[i] = per_channel(node, given, x->rank());
  }
  // One group spans all channels, so the axes include the channels: num_groups 1 means instance
  // normalization.
  if (params.num_groups == 1) params.axes |= 2;
  node.set_output(0, node.add<Normalization>(params, {x, parameters[0], parameters[1]}));
}

void layer_normalization(NodeImporter& node, bool rms) {
  Tensor* x = node.input(0);
  NormalizationParams params;
  params.epsilon = node.get_float("epsilon", 1e-5f);
  params.axes = mask_from(node.axis(node.get_int("axis", -1), x->rank()), x->rank());
  params.rms = rms;
  std::vector<Tensor*> inputs = {x, node.input(1)};
  if (Tensor* bias = node.optional_input(2)) inputs.push_back(bias);
  node.set_output(0, node.add<Normalization>(params, inputs));
  if (!node.has_output(1) && !node.has_output(2)) return;
  // Mean and 1 / deviation, which training reads, are FP32 (stash_type).
  x = node.cast(x, DataType::kFLOAT);
  using Op = ElementWiseOperation;
  Ints axes;
  for (int i = 0; i < x->rank(); ++i)
    if (params.axes >> i & 1) axes.push_back(i);
  Tensor* mean = node.reduce(ReduceOperation::kAVG, x, axes, true);
  Tensor* centered = node.elementwise(Op::kSUB, x, mean);
  Tensor* variance = node.reduce(ReduceOperation::kAVG,
                                 node.elementwise(Op::kPROD, centered, centered), axes, true);
  Tensor* deviation =
      node.unary(UnaryOperation::kSQRT, node.elementwise(Op::kSUM, variance, params.epsilon));
  node.set_output(1, mean);
  node.set_output(2, node.unary(UnaryOperation::kRECIP, deviation));
}

void lrn(NodeImporter& node) {
  LrnParams params;
  params.window = node.get_int("size", 0);
  params.alpha = node.get_float("alpha", 1e-4f);
  params.beta = node.get_float("beta", 0.75f);
  params.k = node.get_float("bias", 1);
  node.set_output(0, node.add<Lrn>(params, {node.input(0)}));
}

/// x / norm(x); 0 where the norm is 0.
void lp_normalization(NodeImporter& node) {
  using Op = ElementWiseOperation;
  Tensor* x = node.input(0);
  const int axis = node.axis(node.get_int("axis", -1), x->rank());
  const int64_t p = node.get_int("p", 2);
  if (p != 1 && p != 2) node.error("p is ", p, "; expected 1 or 2");
  Tensor* powers = p == 1 ? node.unary(UnaryOperation::kABS, x) : node.elementwise(Op::kPROD, x, x);
  Tensor* norm = node.reduce(ReduceOperation::kSUM, powers, {axis}, true);
  if (p == 2) norm = node.unary(UnaryOperation::kSQRT, norm);
  Tensor* zero = node.elementwise(Op::kEQUAL, norm, 0.0);
  Tensor* safe = node.select(zero, node.scalar(1, x->dtype()), norm);
  node.set_output(0, node.elementwise(Op::kDIV, x, safe));
}

/// (x - mean) / (deviation + 1e-9) over the axes.
void mean_variance_normalization(NodeImporter& node) {
  using Op = ElementWiseOperation;
  Tensor* x = node.input(0);
  const Ints axes = node.axes(node.get_ints("axes", {0, 2, 3}), x->rank());
  Tensor* centered =
      node.elementwise(Op::kSUB, x, node.reduce(ReduceOperation::kAVG, x, axes, true));
  Tensor* square = node.elementwise(Op::kPROD, centered, centered);
  Tensor* deviation =
      node.unary(UnaryOperation::kSQRT, node.reduce(ReduceOperation::kAVG, square, axes, true));
  node.set_output(
      0, node.elementwise(Op::kDIV, centered, node.elementwise(Op::kSUM, deviation, 1e-9)));
}

}  // namespace

void add_normalizations(NodeTable& table) {
  table["BatchNormalization"] = batch_normalization;
  table["InstanceNormalization"] = instance_normalization;
  table["GroupNormalization"] = group_normalization;
  table["LayerNormalization"] = [](NodeImporter& node) { layer_normalization(node, false); };
  // The name of ONNX Runtime.
  table["SimplifiedLayerNormalization"] = [](NodeImporter& node) {
    layer_normalization(node, true);
  };
  table["RMSNormalization"] = [](NodeImporter& node) { layer_normalization(node, true); };
  table["LRN"] = lrn;
  table["LpNormalization"] = lp_normalization;
  table["MeanVarianceNormalization"] = mean_variance_normalization;
}

}  // namespace opwright::onnx
