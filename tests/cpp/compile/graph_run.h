#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "compile/graph.h"
#include "compile/passes.h"
#include "compile/ports.h"
#include "engine_run.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"

namespace opwright {

/// A dense FP32 tensor of the little interpreter below.
struct Dense {
  Shape shape;
  std::vector<float> data;
  /// The element at an index of a larger shape to which this one is broadcast.
  float at(const Shape& larger, int64_t flat) const {
    int64_t index = 0, stride = 1;
    for (int i = larger.rank() - 1, j = shape.rank() - 1; i >= 0; --i, --j) {
      const int64_t digit = flat % larger[i];
      flat /= larger[i];
      if (j < 0) continue;
      if (shape[j] != 1) index += digit * stride;
      stride *= shape[j];
    }
    return data[static_cast<size_t>(index)];
  }
};

/// Runs a graph of FP32 tensors with constant shapes: element-wise programs, means, normalization,
/// transposes and reshapes by their definitions in double precision, the rest (convolution, matrix
/// product, pooling, padding) by the host's kernels.
class GraphRun {
 public:
  explicit GraphRun(const Graph& graph) : graph_(graph) {}

  std::vector<std::vector<float>> operator()(const std::vector<std::vector<float>>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      values_[graph_.inputs[i]] = {constant_shape(graph_.inputs[i]->info.dims), inputs[i]};
    for (const GraphNode* node : graph_.nodes()) run(*node);
    std::vector<std::vector<float>> outputs;
    for (const GraphValue* output : graph_.outputs()) outputs.push_back(value(output).data);
    return outputs;
  }

 private:
  const Dense& value(const GraphValue* v) {
    if (v->is_constant() && !values_.contains(v)) {
      const Shape shape = constant_shape(v->info.dims);
      const auto* data = v->info.constant.as<float>();
      values_[v] = {shape, {data, data + shape.numel()}};
    }
    return values_.at(v);
  }

  void run(const GraphNode& node) {
    Dense& y = values_[node.outputs[0]];
    y.shape = constant_shape(node.outputs[0]->info.dims);
    y.data.resize(static_cast<size_t>(y.shape.numel()));
    if (node.as<Reshape>() || node.as<Identity>()) {
      y.data = value(node.inputs[0]).data;
    } else if (const auto* op = node.as<Transpose>()) {
      transpose(value(node.inputs[0]), op->params().permutation, y);
    } else if (const auto* op = node.as<Pointwise>()) {
      for (size_t i = 0; i < y.data.size(); ++i)
        y.data[i] = static_cast<float>(element(node, *op, y.shape, static_cast<int64_t>(i)));
    } else if (const auto* op = node.as<Reduce>()) {
      ASSERT_EQ(op->params().op, ReduceOperation::kAVG);
      mean(value(node.inputs[0]), op->params().axes, y);
    } else if (const auto* op = node.as<Normalization>()) {
      normalize(node, op->params(), y);
    } else {
      std::vector<TensorInfo> infos;
      for (const GraphValue* input : node.inputs) {
        infos.emplace_back();
        if (!input) continue;
        infos.back() = input->info;
        if (!input->is_known()) infos.back().constant = blob_of(value(input).data);
      }
      std::vector<const TensorInfo*> pointers;
      for (size_t i = 0; i < infos.size(); ++i)
        pointers.push_back(node.inputs[i] ? &infos[i] : nullptr);
      const std::vector<TensorInfo> outputs{node.outputs[0]->info};
      const Blob result =
          run_on_host(get_device(DeviceType::kCPU), *node.op, node.name, pointers, outputs).front();
      y.data.assign(result.as<float>(), result.as<float>() + y.data.size());
    }
  }

  static void transpose(const Dense& x, const Ints& permutation, Dense& y) {
    for (int64_t i = 0; i < y.shape.numel(); ++i) {
      int64_t rest = i, from = 0;
      for (int axis = y.shape.rank() - 1; axis >= 0; --axis) {
        const int source = static_cast<int>(permutation[axis]);
        from += rest % y.shape[axis] * x.shape.numel(source + 1, x.shape.rank());
        rest /= y.shape[axis];
      }
      y.data[i] = x.data[from];
    }
  }

  static void mean(const Dense& x, int64_t axes, Dense& y) {
    Shape kept = x.shape;
    double count = 1;
    for (int axis = 0; axis < kept.rank(); ++axis)
      if (axes >> axis & 1) count *= static_cast<double>(kept[axis]), kept[axis] = 1;
    std::vector<double> sums(y.data.size());
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      int64_t rest = i, to = 0, stride = 1;
      for (int axis = kept.rank() - 1; axis >= 0; --axis) {
        if (kept[axis] != 1) to += rest % x.shape[axis] * stride;
        rest /= x.shape[axis];
        stride *= kept[axis];
      }
      sums[to] += x.data[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) y.data[i] = static_cast<float>(sums[i] / count);
  }

  void normalize(const GraphNode& node, const NormalizationParams& params, Dense& y) {
    const Dense x = value(node.inputs[0]);
    Dense average{x.shape, {}}, variance{x.shape, {}};
    for (int axis = 0; axis < x.shape.rank(); ++axis)
      if (params.axes >> axis & 1) average.shape[axis] = variance.shape[axis] = 1;
    average.data.resize(static_cast<size_t>(average.shape.numel()));
    variance.data = average.data;
    if (!params.rms) mean(x, params.axes, average);
    Dense squares = x;
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      const double d = x.data[i] - average.at(x.shape, i);
      squares.data[i] = static_cast<float>(d * d);
    }
    mean(squares, params.axes, variance);
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      double v = (x.data[i] - average.at(x.shape, i)) /
                 std::sqrt(variance.at(x.shape, i) + params.epsilon);
      if (node.input(1)) v *= value(node.inputs[1]).at(x.shape, i);
      if (node.input(2)) v += value(node.inputs[2]).at(x.shape, i);
      y.data[i] = static_cast<float>(v);
    }
  }

  double element(const GraphNode& node, const Pointwise& op, const Shape& shape, int64_t at) {
    std::vector<double> r;
    for (const PointwiseInstruction& i : decode(op.params())) {
      if (i.op == static_cast<int32_t>(PointwiseOp::kInput))
        r.push_back(value(node.inputs[i.a]).at(shape, at));
      else if (i.op == static_cast<int32_t>(PointwiseOp::kConstant))
        r.push_back(i.alpha);
      else if (i.op == static_cast<int32_t>(PointwiseOp::kSelect))
        r.push_back(r[i.a] != 0 ? r[i.b] : r[i.c]);
      else if (i.op == static_cast<int32_t>(PointwiseOp::kCast))
        r.push_back(r[i.a]);
      else if (i.op >= static_cast<int32_t>(PointwiseOp::kActivation))
        r.push_back(activation(i, r[i.a]));
      else if (i.op >= static_cast<int32_t>(PointwiseOp::kUnary))
        r.push_back(unary(i.op - static_cast<int32_t>(PointwiseOp::kUnary), r[i.a]));
      else
        r.push_back(binary(i.op - static_cast<int32_t>(PointwiseOp::kBinary), r[i.a], r[i.b]));
    }
    return r[op.params().results[0]];
  }

  static double binary(int32_t op, double a, double b) {
    switch (static_cast<ElementWiseOperation>(op)) {
      case ElementWiseOperation::kSUM:
        return a + b;
      case ElementWiseOperation::kSUB:
        return a - b;
      case ElementWiseOperation::kPROD:
        return a * b;
      case ElementWiseOperation::kDIV:
        return a / b;
      case ElementWiseOperation::kPOW:
        return std::pow(a, b);
      case ElementWiseOperation::kMAX:
        return std::max(a, b);
      case ElementWiseOperation::kMIN:
        return std::min(a, b);
      case ElementWiseOperation::kLESS:
        return a < b;
      default:
        fail("the interpreter lacks binary operation ", op);
    }
  }
  static double unary(int32_t op, double a) {
    switch (static_cast<UnaryOperation>(op)) {
      case UnaryOperation::kEXP:
        return std::exp(a);
      case UnaryOperation::kSQRT:
        return std::sqrt(a);
      case UnaryOperation::kRECIP:
        return 1 / a;
      case UnaryOperation::kNEG:
        return -a;
      case UnaryOperation::kABS:
        return std::abs(a);
      case UnaryOperation::kERF:
        return std::erf(a);
      default:
        fail("the interpreter lacks unary operation ", op);
    }
  }
  static double activation(const PointwiseInstruction& i, double a) {
    switch (static_cast<ActivationType>(i.op - static_cast<int32_t>(PointwiseOp::kActivation))) {
      case ActivationType::kRELU:
        return std::max(a, 0.0);
      case ActivationType::kSIGMOID:
        return 1 / (1 + std::exp(-a));
      case ActivationType::kTANH:
        return std::tanh(a);
      case ActivationType::kCLIP:
        return std::min(std::max(a, i.alpha), i.beta);
      case ActivationType::kGELU_ERF:
        return 0.5 * a * (1 + std::erf(a / std::sqrt(2.0)));
      case ActivationType::kGELU_TANH:
        return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
      default:
        fail("the interpreter lacks activation ", i.op);
    }
  }

  const Graph& graph_;
  std::map<const GraphValue*, Dense> values_;
};

/// The kinds of a graph's operators in order, "Convolution Pointwise".
inline std::string kinds(const Graph& graph) {
  std::string text;
  for (const GraphNode* node : graph.nodes())
    text += (text.empty() ? "" : " ") + std::string(node->op->kind());
  return text;
}

}  // namespace opwright
