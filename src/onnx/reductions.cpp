// Reductions, softmax, top-k.

#include "operators/reduce.h"

#include <numeric>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

Ints all_axes(int rank) {
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// What a Reduce* node computes before and after the reduction itself.
using Map = Tensor* (*)(NodeImporter&, Tensor*);
Tensor* keep(NodeImporter&, Tensor* x) { return x; }
Tensor* absolute(NodeImporter& node, Tensor* x) { return node.unary(UnaryOperation::kABS, x); }
Tensor* square(NodeImporter& node, Tensor* x) {
  return node.elementwise(ElementWiseOperation::kPROD, x, x);
}
/// A function of real numbers; of integers it is truncated.
Tensor* real(NodeImporter& node, UnaryOperation op, Tensor* x) {
  if (is_floating(x->dtype())) return node.unary(op, x);
  return node.cast(node.unary(op, node.cast(x, DataType::kFLOAT)), x->dtype());
}
Tensor* root(NodeImporter& node, Tensor* x) { return real(node, UnaryOperation::kSQRT, x); }
Tensor* logarithm(NodeImporter& node, Tensor* x) { return real(node, UnaryOperation::kLOG, x); }

/// The axes of a Reduce* node, from the opset `since` on an input; nullopt where nothing is
/// reduced.
std::optional<Ints> reduced_axes(NodeImporter& node, int rank, int64_t since) {
  std::optional<Ints> axes = node.axes_of(rank, since, 1);
  if (axes && !axes->empty()) return axes;
  if (rank == 0 || (node.opset() >= since && node.get_int("noop_with_empty_axes", 0) != 0))
    return std::nullopt;
  return all_axes(rank);
}

template <ReduceOperation op, int since, Map before = keep, Map after = keep>
void reduce(NodeImporter& node) {
  Tensor* y = before(node, node.input(0));
  const bool keep_dims = node.get_int("keepdims", 1) != 0;
  if (const std::optional<Ints> axes = reduced_axes(node, y->rank(), since))
    y = node.reduce(op, y, *axes, keep_dims);
  node.set_output(0, after(node, y));
}

/// m + log(sum(exp(x - m))) with the maximum m, so that nothing overflows.
void reduce_log_sum_exp(NodeImporter& node) {
  Tensor* x = node.input(0);
  const DataType type = x->dtype();
  const std::optional<Ints> axes = reduced_axes(node, x->rank(), 18);
  if (!axes) return node.set_output(0, x);
  if (!is_floating(type)) x = node.cast(x, DataType::kFLOAT);
  const bool keep_dims = node.get_int("keepdims", 1) != 0;
  Tensor* peak = node.reduce(ReduceOperation::kMAX, x, *axes, true);
  // Infinity minus infinity is not a number: an infinite maximum is not subtracted.
  peak = node.select(node.unary(UnaryOperation::kISINF, peak), node.scalar(0, x->dtype()), peak);
  Tensor* scaled =
      node.unary(UnaryOperation::kEXP, node.elementwise(ElementWiseOperation::kSUB, x, peak));
  Tensor* sum =
      node.unary(UnaryOperation::kLOG, node.reduce(ReduceOperation::kSUM, scaled, *axes, true));
  Tensor* y = node.elementwise(ElementWiseOperation::kSUM, peak, sum);
  if (!keep_dims) y = node.squeeze(y, *axes);
  node.set_output(0, y->dtype() == type ? y : node.cast(y, type));
}

void softmax(NodeImporter& node, bool log) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  const int axis = node.axis(node.get_int("axis", node.opset() < 13 ? 1 : -1), rank);
  const SymShape dims = x->dims();
  bool last = true;  // nothing but extents of 1 behind the axis
  for (int i = axis + 1; i < rank; ++i) last &= dims[i] == Expr(1);
  if (node.opset() >= 13 || last) {
    node.set_output(0, node.add<Softmax>({int64_t{1} << axis, log}, {x}));
    return;
  }
  // Before opset 13 the axes from `axis` on are one.
  const Expr outer = numel(std::span(dims).first(axis)),
             inner = numel(std::span(dims).subspan(axis));
  const SymShape flat = {outer, inner};
  Tensor* y = node.add<Softmax>({int64_t{1} << 1, log}, {node.reshape(x, flat)});
  node.set_output(0, node.reshape(y, dims));
}

void cumulative(NodeImporter& node, bool product) {
  CumulativeParams params{CumulativeOperation::kSUM, node.get_int("exclusive", 0) != 0,
                          node.get_int("reverse", 0) != 0};
  params.product = product;
  node.constant_int(node.input(1), "axis");
  Tensor* const inputs[] = {node.input(0), node.input(1)};
  node.set_output(0, node.network().add<Cumulative>(params, inputs, node.next_name())->output(0));
}

void top_k(NodeImporter& node) {
  Tensor* x = node.input(0);
  TopKParams params;
  params.op = node.get_int("largest", 1) != 0 ? TopKOperation::kMAX : TopKOperation::kMIN;
  params.axes = int64_t{1} << node.axis(node.get_int("axis", -1), x->rank());
  params.indices_type = DataType::kINT64;
  std::vector<Tensor*> inputs = {x};
  if (node.opset() < 10) {
    params.k = node.get_int("k", 1);
  } else {
    const auto axis = static_cast<size_t>(node.axis(node.get_int("axis", -1), x->rank()));
    const Expr k = node.extent(node.input(1), "k", x->dims()[axis]);
    // A layer's own k is not 0; one that a tensor gives may be.
    if (k.is_constant() && k.constant() != 0)
      params.k = k.constant();
    else
      inputs.push_back(node.scalar_of(k));
  }
  Layer* layer = node.network().add<TopK>(params, inputs, node.next_name());
  node.set_output(0, layer->output(0));
  node.set_output(1, layer->output(1));
}

void arg(NodeImporter& node, TopKOperation op) {
  Tensor* x = node.input(0);
  const bool last = node.get_int("select_last_index", 0) != 0;
  const int axis = node.axis(node.get_int("axis", 0), x->rank());
  const Expr extent = x->dims()[axis];
  if (last) {
    // The last one is the first from the end.
    std::vector<Expr> start(x->rank(), 0);
    Ints stride(x->rank(), 1);
    start[axis] = extent - 1, stride[axis] = -1;
    x = node.slice(x, start, {x->dims().begin(), x->dims().end()}, stride);
  }
  TopKParams params;
  params.op = op;
  params.axes = int64_t{1} << axis;
  params.indices_type = DataType::kINT64;
  Layer* layer = node.network().add<TopK>(params, {x}, node.next_name());
  Tensor* indices = layer->output(1);
  if (last) {
    Tensor* end = node.reshape(node.scalar_of(extent - 1), SymShape(indices->rank(), 1));
    indices = node.elementwise(ElementWiseOperation::kSUB, end, indices);
  }
  node.set_output(0, node.get_int("keepdims", 1) != 0 ? indices : node.squeeze(indices, {axis}));
}

}  // namespace

void add_reductions(NodeTable& table) {
  table["ReduceSum"] = reduce<ReduceOperation::kSUM, 13>;
  table["ReduceMean"] = reduce<ReduceOperation::kAVG, 18>;
  table["ReduceMax"] = reduce<ReduceOperation::kMAX, 18>;
  table["ReduceMin"] = reduce<ReduceOperation::kMIN, 18>;
  table["ReduceProd"] = reduce<ReduceOperation::kPROD, 18>;
  table["ReduceL1"] = reduce<ReduceOperation::kSUM, 18, absolute>;
  table["ReduceL2"] = reduce<ReduceOperation::kSUM, 18, square, root>;
  table["ReduceSumSquare"] = reduce<ReduceOperation::kSUM, 18, square>;
  table["ReduceLogSum"] = reduce<ReduceOperation::kSUM, 18, keep, logarithm>;
  table["ReduceLogSumExp"] = reduce_log_sum_exp;
  table["Softmax"] = [](NodeImporter& node) { softmax(node, false); };
  table["LogSoftmax"] = [](NodeImporter& node) { softmax(node, true); };
  table["CumSum"] = [](NodeImporter& node) { cumulative(node, false); };
  table["CumProd"] = [](NodeImporter& node) { cumulative(node, true); };
  table["TopK"] = top_k;
  table["ArgMax"] = [](NodeImporter& node) { arg(node, TopKOperation::kMAX); };
  table["ArgMin"] = [](NodeImporter& node) { arg(node, TopKOperation::kMIN); };
}

}  // namespace opwright::onnx
