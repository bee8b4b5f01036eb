#include <algorithm>
#include <cmath>
#include <optional>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// scale * x + shift with a coefficient per channel, or one for all.
struct Affine {
  std::vector<double> scale{0}, shift{0};
  bool is_constant() const {
    return std::all_of(scale.begin(), scale.end(), [](double s) { return s == 0; });
  }
};

template <class F>
std::vector<double> zip(const std::vector<double>& a, const std::vector<double>& b, F&& f) {
  std::vector<double> result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = f(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]);
  return result;
}

std::vector<float> floats_of(const GraphValue& constant) {
  std::vector<float> values(static_cast<size_t>(constant_shape(constant.info.dims).numel()));
  convert(constant.info.constant.data(), constant.info.dtype, values.data(), DataType::kFLOAT,
          static_cast<int64_t>(values.size()));
  return values;
}

GraphValue* add_floats(Graph& graph, const std::vector<float>& values, DataType type,
                       const Shape& shape, const std::string& name) {
  const auto count = static_cast<int64_t>(values.size());
  Blob data = Blob::make(bytes_of(type, count), [&](void* memory) {
    convert(values.data(), DataType::kFLOAT, memory, type, count);
  });
  return graph.add_constant(type, shape, std::move(data), name);
}

/// The elements of a constant that only varies along `axis` of a tensor of rank `rank`.
std::optional<std::vector<double>> per_channel(const GraphValue& value, int axis, int rank,
                                               int64_t channels) {
  if (!value.is_constant() || !is_floating(value.info.dtype)) return std::nullopt;
  const Shape shape = constant_shape(value.info.dims);
  const int offset = rank - shape.rank();
  if (offset < 0) return std::nullopt;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && (i + offset != axis || shape[i] != channels)) return std::nullopt;
  const std::vector<float> values = floats_of(value);
  return std::vector<double>(values.begin(), values.end());
}

std::optional<Affine> combine(ElementWiseOperation op, const Affine& a, const Affine& b) {
  const auto plus = [](double x, double y) { return x + y; };
  const auto minus = [](double x, double y) { return x - y; };
  const auto times = [](double x, double y) { return x * y; };
  const auto over = [](double x, double y) { return x / y; };
  switch (op) {
    case ElementWiseOperation::kSUM:
      return Affine{zip(a.scale, b.scale, plus), zip(a.shift, b.shift, plus)};
    case ElementWiseOperation::kSUB:
      return Affine{zip(a.scale, b.scale, minus), zip(a.shift, b.shift, minus)};
    case ElementWiseOperation::kPROD:
      if (b.is_constant())
        return Affine{zip(a.scale, b.shift, times), zip(a.shift, b.shift, times)};
      if (a.is_constant())
        return Affine{zip(b.scale, a.shift, times), zip(b.shift, a.shift, times)};
      return std::nullopt;
    case ElementWiseOperation::kDIV:
      if (!b.is_constant()) return std::nullopt;
      return Affine{zip(a.scale, b.shift, over), zip(a.shift, b.shift, over)};
    default:
      return std::nullopt;
  }
}

/// The program as a function of `x` alone, when it is affine with constant coefficients.
std::optional<Affine> affine_program(const GraphNode& node, const GraphValue* x, int axis,
                                     int64_t channels) {
  const auto* op = node.as<Pointwise>();
  if (op == nullptr || op->params().results.size() != 1) return std::nullopt;
  std::vector<Affine> registers;
  for (const PointwiseInstruction& i : decode(op->params())) {
    if (i.type != DataType::kFLOAT) return std::nullopt;
    std::optional<Affine> result;
    const int rank = static_cast<int>(x->info.dims.size());
    if (i.op == opcode(PointwiseOp::kInput)) {
      if (node.inputs[i.a] == x) {
        result = Affine{{1}, {0}};
      } else if (auto values = per_channel(*node.inputs[i.a], axis, rank, channels)) {
        result = Affine{{0}, std::move(*values)};
      }
    } else if (i.op == opcode(PointwiseOp::kConstant)) {
      result = Affine{{0}, {i.alpha}};
    } else if (i.op >= opcode(PointwiseOp::kBinary) && i.op < opcode(PointwiseOp::kUnary)) {
      result = combine(binary_of(i.op), registers[i.a], registers[i.b]);
    } else if (i.op == opcode(UnaryOperation::kNEG)) {
      result = combine(ElementWiseOperation::kSUB, Affine{}, registers[i.a]);
    }
    if (!result) return std::nullopt;
    registers.push_back(std::move(*result));
  }
  Affine result = registers[op->params().results[0]];
  for (const std::vector<double>* list : {&result.scale, &result.shift})
    for (double value : *list)
      if (!std::isfinite(value)) return std::nullopt;
  return result;
}

bool all_equal(const std::vector<double>& values, double expected) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == expected; });
}

/// Multiplies the weights of output channel `channel_of(i)` into element i.
template <class F>
GraphValue* scaled(Graph& graph, const GraphValue& weights, const std::vector<double>& scale,
                   F&& channel_of) {
  std::vector<float> values = floats_of(weights);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(
        values[i] * scale[scale.size() == 1 ? 0 : channel_of(static_cast<int64_t>(i))]);
  return add_floats(graph, values, weights.info.dtype, constant_shape(weights.info.dims),
                    weights.name);
}

/// bias * scale + shift as a constant; null when nothing remains to be added.
GraphValue* new_bias(Graph& graph, const GraphValue* bias, const Affine& affine, int64_t channels,
                     DataType type, const std::string& name) {
  if (bias == nullptr && all_equal(affine.shift, 0)) return nullptr;
  std::vector<float> before(static_cast<size_t>(channels));
  if (bias) {
    before = floats_of(*bias);
    before.resize(static_cast<size_t>(channels), before.front());
  }
  std::vector<float> values(before.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(before[i] * affine.scale[affine.scale.size() == 1 ? 0 : i] +
                                   affine.shift[affine.shift.size() == 1 ? 0 : i]);
  return add_floats(graph, values, type, {channels}, name + " bias");
}

void fold_into_convolution(Graph& graph, GraphNode* node, GraphNode* convolution,
                           const ConvolutionParams& params, bool transposed) {
  if (params.has_residual || params.activation.present()) return;
  GraphValue *weights = convolution->inputs[1], *bias = convolution->input(2);
  if (bias && !bias->is_constant()) return;
  const SymShape& dims = weights->info.dims;
  const Expr channel_extent = transposed ? dims[1] * params.groups : dims[0];
  if (!channel_extent.is_constant()) return;
  const int64_t channels = channel_extent.constant();
  const std::optional<Affine> affine = affine_program(*node, convolution->outputs[0], 1, channels);
  if (!affine) return;
  if (!all_equal(affine->scale, 1)) {
    if (!weights->is_constant()) return;
    const Shape shape = constant_shape(dims);
    const int64_t inner = shape.numel(2, shape.rank());
    weights = scaled(graph, *weights, affine->scale, [&](int64_t i) {
      if (!transposed) return i / (shape[1] * inner);
      const int64_t group = i / (inner * shape[1]) / (shape[0] / params.groups);
      return group * shape[1] + i / inner % shape[1];
    });
  }
  std::vector<GraphValue*> inputs{convolution->inputs[0], weights};
  if (GraphValue* added = new_bias(graph, bias, *affine, channels, weights->info.dtype, node->name))
    inputs.push_back(added);
  join(*convolution, *node);
  graph.replace(node, convolution->op, std::move(inputs));
}

void fold_into_product(Graph& graph, GraphNode* node, GraphNode* product,
                       const MatrixMultiplyParams& params, const PassContext& context) {
  if (params.activation.present() || params.op1 == MatrixOperation::kVECTOR ||
      params.op0 == MatrixOperation::kVECTOR)
    return;
  GraphValue *weights = product->inputs[1], *bias = params.has_bias ? product->inputs[2] : nullptr;
  if (bias && !bias->is_constant()) return;
  const SymShape& result = product->outputs[0]->info.dims;
  if (!result.back().is_constant()) return;
  const int64_t channels = result.back().constant();
  const std::optional<Affine> affine =
      affine_program(*node, product->outputs[0], static_cast<int>(result.size()) - 1, channels);
  if (!affine) return;
  if (!all_equal(affine->scale, 1)) {
    if (!weights->is_constant()) return;
    const Shape shape = constant_shape(weights->info.dims);
    const int64_t last = shape[shape.rank() - 1];
    const bool transposed = params.op1 == MatrixOperation::kTRANSPOSE;
    weights = scaled(graph, *weights, affine->scale,
                     [&](int64_t i) { return transposed ? i / last % channels : i % last; });
  }
  std::vector<GraphValue*> inputs{product->inputs[0], weights};
  MatrixMultiplyParams changed = params;
  GraphValue* added =
      new_bias(graph, bias, *affine, channels, product->outputs[0]->info.dtype, node->name);
  changed.has_bias = added != nullptr;
  if (added) inputs.push_back(added);
  auto op = std::make_shared<MatrixMultiply>(changed);
  if (!context.can_run(*op, *node, inputs)) return;
  join(*product, *node);
  graph.replace(node, std::move(op), std::move(inputs));
}

}  // namespace

void fold_scales(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    if (!node->as<Pointwise>()) continue;
    for (GraphValue* input : std::vector<GraphValue*>(node->inputs)) {
      GraphNode* before = input->producer;
      if (before == nullptr || graph.single_user(*input) != node || !may_join(*before, *node) ||
          input->info.dtype != node->outputs[0]->info.dtype ||
          input->info.dims != node->outputs[0]->info.dims)
        continue;
      if (const auto* op = before->as<Convolution>())
        fold_into_convolution(graph, node, before, op->params(), false);
      else if (const auto* op = before->as<Deconvolution>())
        fold_into_convolution(graph, node, before, op->params(), true);
      else if (const auto* op = before->as<MatrixMultiply>())
        fold_into_product(graph, node, before, op->params(), context);
      if (!node->as<Pointwise>()) break;
    }
  }
}

}  // namespace opwright
