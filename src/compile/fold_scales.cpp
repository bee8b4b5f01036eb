#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "operators/convolution.h"
#include "operators/diffused_cast.h"
#include "operators/matrix.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

/// A value in a program over coefficients: a register, or a number that needs no arithmetic.
struct Coefficient {
  enum class Kind { kZero, kOne, kRegister } kind = Kind::kZero;
  int reg = -1;
  bool is_zero() const { return kind == Kind::kZero; }
  bool is_one() const { return kind == Kind::kOne; }
};
constexpr Coefficient kZero{}, kOne{Coefficient::Kind::kOne};

/// Writes the arithmetic of coefficients as a program over constants. The folding of constants
/// evaluates it during the build, and again when an engine is refitted.
class CoefficientWriter {
 public:
  Coefficient input(int index, DataType type) { return at(writer_.input(index, type)); }
  Coefficient number(double value) { return at(writer_.constant(value, DataType::kFLOAT)); }
  Coefficient add(Coefficient a, Coefficient b) {
    if (a.is_zero()) return b;
    if (b.is_zero()) return a;
    return at(writer_.binary(ElementWiseOperation::kSUM, reg(a), reg(b)));
  }
  Coefficient subtract(Coefficient a, Coefficient b) {
    if (b.is_zero()) return a;
    return at(writer_.binary(ElementWiseOperation::kSUB, reg(a), reg(b)));
  }
  Coefficient multiply(Coefficient a, Coefficient b) {
    if (a.is_zero() || b.is_zero()) return kZero;
    if (a.is_one()) return b;
    if (b.is_one()) return a;
    return at(writer_.binary(ElementWiseOperation::kPROD, reg(a), reg(b)));
  }
  Coefficient divide(Coefficient a, Coefficient b) {
    if (a.is_zero() || b.is_one()) return a;
    return at(writer_.binary(ElementWiseOperation::kDIV, reg(a), reg(b)));
  }
  int reg(Coefficient c) {
    if (c.kind == Coefficient::Kind::kRegister) return c.reg;
    return writer_.constant(c.is_one() ? 1 : 0, DataType::kFLOAT);
  }
  PointwiseParams finish(Coefficient result, std::vector<int>* used) {
    const int results[] = {reg(result)};
    return writer_.finish(results, used);
  }

 private:
  static Coefficient at(int reg) { return {Coefficient::Kind::kRegister, reg}; }
  ProgramWriter writer_;
};

/// scale * x + shift, with coefficients per channel or one for all.
struct Affine {
  Coefficient scale = kZero, shift = kZero;
  bool is_constant() const { return scale.is_zero(); }
};

/// Whether the value is a constant that only varies along `axis` of a tensor of rank `rank`.
bool is_per_channel(const GraphValue& value, int axis, int rank, int64_t channels) {
  if (!value.is_constant() || !is_floating(value.info.dtype)) return false;
  const Shape shape = constant_shape(value.info.dims);
  const int offset = rank - shape.rank();
  if (offset < 0) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && (i + offset != axis || shape[i] != channels)) return false;
  return true;
}

std::optional<Affine> combine(CoefficientWriter& w, ElementWiseOperation op, const Affine& a,
                              const Affine& b) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return Affine{w.add(a.scale, b.scale), w.add(a.shift, b.shift)};
    case ElementWiseOperation::kSUB:
      return Affine{w.subtract(a.scale, b.scale), w.subtract(a.shift, b.shift)};
    case ElementWiseOperation::kPROD:
      if (b.is_constant())
        return Affine{w.multiply(a.scale, b.shift), w.multiply(a.shift, b.shift)};
      if (a.is_constant())
        return Affine{w.multiply(b.scale, a.shift), w.multiply(b.shift, a.shift)};
      return std::nullopt;
    case ElementWiseOperation::kDIV:
      if (!b.is_constant()) return std::nullopt;
      return Affine{w.divide(a.scale, b.shift), w.divide(a.shift, b.shift)};
    default:
      return std::nullopt;
  }
}

/// A Pointwise node as a function of one tensor, when it is affine with constant coefficients.
class AffineNode {
 public:
  AffineNode(Graph& graph, const PassContext& context, GraphNode* node)
      : graph_(graph), context_(context), node_(node) {}

  bool match(const GraphValue* x, int axis, int64_t channels) {
    const auto* op = node_->as<Pointwise>();
    if (op == nullptr || op->params().results.size() != 1) return false;
    const int rank = static_cast<int>(x->info.dims.size());
    std::vector<Affine> registers;
    for (const PointwiseInstruction& i : decode(op->params())) {
      if (i.type != DataType::kFLOAT) return false;
      std::optional<Affine> result;
      if (i.op == opcode(PointwiseOp::kInput)) {
        const GraphValue& input = *node_->inputs[i.a];
        if (&input == x) {
          result = Affine{kOne, kZero};
        } else if (is_per_channel(input, axis, rank, channels)) {
          result = Affine{kZero, writer_.input(i.a, input.info.dtype)};
        }
      } else if (i.op == opcode(PointwiseOp::kConstant)) {
        result = Affine{kZero, writer_.number(i.alpha)};
      } else if (i.op >= opcode(PointwiseOp::kBinary) && i.op < opcode(PointwiseOp::kUnary)) {
        result = combine(writer_, binary_of(i.op), registers[i.a], registers[i.b]);
      } else if (i.op == opcode(UnaryOperation::kNEG)) {
        result = combine(writer_, ElementWiseOperation::kSUB, Affine{}, registers[i.a]);
      }
      if (!result) return false;
      registers.push_back(*result);
    }
    affine_ = registers[op->params().results[0]];
    return !affine_.is_constant();
  }

  bool has_scale() const { return !affine_.scale.is_one(); }

  /// The weights times the scales; null where that is not finite. `view` is the shape in which
  /// DiffusedCast sees the weights. Scales that differ by channel have the shape `channels`, which
  /// broadcasts to it.
  GraphValue* scaled(const GraphValue& weights, const Shape& view, const Shape& channels) {
    const DataType type = weights.info.dtype;
    ProgramWriter program;
    std::vector<GraphValue*> inputs{graph_.reshape_constant(weights, view)};
    const int weight = program.input(0, type);
    const int scale = append(program, inputs, affine_.scale, channels);
    GraphValue* result =
        evaluated(program, program.binary(ElementWiseOperation::kPROD, weight, scale), inputs,
                  DataType::kFLOAT, view, weights.name);
    // Rounding each weight to the nearest value moves a channel's mean, and nothing averages that
    // out.
    if (result != nullptr && type != DataType::kFLOAT)
      result = evaluated(std::make_shared<DiffusedCast>(DiffusedCastParams{type}), {result}, type,
                         view, weights.name);
    return result ? graph_.reshape_constant(*result, constant_shape(weights.info.dims)) : nullptr;
  }

  /// Whether the layer still needs a bias: it has one, or the shift is not zero.
  bool needs_bias(const GraphValue* bias) const { return bias || !affine_.shift.is_zero(); }

  /// bias * scale + shift as a constant; null where that is not finite. A computed bias is FP32,
  /// because rounding it would move a channel's mean.
  GraphValue* new_bias(GraphValue* bias, int64_t channels, DataType type) {
    if (has_scale() || bias) type = DataType::kFLOAT;
    ProgramWriter program;
    std::vector<GraphValue*> inputs;
    int result = -1;
    if (bias) {
      inputs.push_back(graph_.reshape_constant(*bias, {constant_shape(bias->info.dims).numel()}));
      result = program.input(0, bias->info.dtype);
    }
    if (bias == nullptr || inputs[0]->info.dims[0] != Expr(channels)) {
      // The zeros give the result its extent.
      const auto bytes = static_cast<size_t>(bytes_of(type, channels));
      Blob zeros = Blob::make(bytes, [&](void* memory) { std::memset(memory, 0, bytes); });
      inputs.push_back(graph_.add_constant(type, {channels}, std::move(zeros), "zeros"));
      const int zero = program.input(static_cast<int>(inputs.size()) - 1, type);
      result = bias ? program.binary(ElementWiseOperation::kSUM, result, zero) : zero;
    }
    if (bias && has_scale())
      result = program.binary(ElementWiseOperation::kPROD, result,
                              append(program, inputs, affine_.scale, {channels}));
    if (!affine_.shift.is_zero())
      result = program.binary(ElementWiseOperation::kSUM, result,
                              append(program, inputs, affine_.shift, {channels}));
    return evaluated(program, result, inputs, type, {channels}, node_->name + " bias");
  }

 private:
  /// Adds the coefficient to a program. Its inputs with several elements get the shape `channels`.
  int append(ProgramWriter& program, std::vector<GraphValue*>& inputs, Coefficient coefficient,
             const Shape& channels) {
    std::vector<int> used, registers;
    const PointwiseParams params = writer_.finish(coefficient, &used);
    for (const int index : used) {
      const GraphValue& value = *node_->inputs[index];
      const bool is_one = constant_shape(value.info.dims).numel() == 1;
      inputs.push_back(graph_.reshape_constant(value, is_one ? ones(channels.rank()) : channels));
      registers.push_back(program.input(static_cast<int>(inputs.size()) - 1, value.info.dtype));
    }
    return program.append(params, registers).front();
  }

  GraphValue* evaluated(ProgramWriter& program, int result, const std::vector<GraphValue*>& inputs,
                        DataType type, const Shape& shape, const std::string& name) {
    std::vector<int> used;
    const int results[] = {program.cast(result, type)};
    PointwiseParams params = program.finish(results, &used);
    std::vector<GraphValue*> operands;
    operands.reserve(used.size());
    for (const int index : used) operands.push_back(inputs[index]);
    return evaluated(std::make_shared<Pointwise>(std::move(params)), std::move(operands), type,
                     shape, name);
  }

  GraphValue* evaluated(OperatorPtr op, std::vector<GraphValue*> operands, DataType type,
                        const Shape& shape, const std::string& name) {
    TensorInfo info;
    info.dtype = type;
    info.dims = sym_shape(shape);
    GraphNode* added =
        graph_.insert_before(node_, std::move(op), std::move(operands), std::move(info), name);
    GraphValue* value = added->outputs[0];
    if (!fold(graph_, added, context_)) return nullptr;
    return value->may_change || is_finite(*value) ? value : nullptr;
  }

  static Shape ones(int rank) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(1);
    return shape;
  }

  static bool is_finite(const GraphValue& constant) {
    std::vector<float> values(static_cast<size_t>(constant_shape(constant.info.dims).numel()));
    convert(constant.info.constant.data(), constant.info.dtype, values.data(), DataType::kFLOAT,
            static_cast<int64_t>(values.size()));
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* node_;
  CoefficientWriter writer_;
  Affine affine_;
};

void fold_into_convolution(Graph& graph, const PassContext& context, GraphNode* node,
                           GraphNode* convolution, const ConvolutionParams& params,
                           bool transposed) {
  if (params.has_residual || params.activation.present() ||
      is_quantized(convolution->inputs[0]->info.dtype))
    return;
  GraphValue *weights = convolution->inputs[1], *bias = convolution->input(2);
  if (bias && !bias->is_constant()) return;
  const SymShape& dims = weights->info.dims;
  const Expr channel_extent = transposed ? dims[1] * params.groups : dims[0];
  if (!channel_extent.is_constant()) return;
  const int64_t channels = channel_extent.constant();
  AffineNode affine(graph, context, node);
  if (!affine.match(convolution->outputs[0], 1, channels)) return;
  if (affine.has_scale()) {
    if (!weights->is_constant()) return;
    // A transposed kernel has a group's output channels behind its input channels.
    const Shape shape = constant_shape(dims);
    const int64_t inner = shape.numel(2, shape.rank()), groups = params.groups;
    weights = transposed ? affine.scaled(*weights, {groups, shape[0] / groups, shape[1], inner},
                                         {groups, 1, shape[1], 1})
                         : affine.scaled(*weights, {shape[0], shape.numel() / shape[0], 1, 1},
                                         {shape[0], 1, 1, 1});
    if (weights == nullptr) return;
  }
  std::vector<GraphValue*> inputs{convolution->inputs[0], weights};
  if (affine.needs_bias(bias)) {
    inputs.push_back(affine.new_bias(bias, channels, weights->info.dtype));
    if (inputs.back() == nullptr) return;
  }
  if (!fits(*convolution->op, node->name, inputs, node->outputs)) return;
  join(*convolution, *node);
  graph.replace(node, convolution->op, std::move(inputs));
}

void fold_into_product(Graph& graph, GraphNode* node, GraphNode* product,
                       const MatrixMultiplyParams& params, const PassContext& context) {
  if (params.activation.present() || params.op1 == MatrixOperation::kVECTOR ||
      params.op0 == MatrixOperation::kVECTOR || is_quantized(product->inputs[0]->info.dtype))
    return;
  GraphValue *weights = product->inputs[1], *bias = params.has_bias ? product->inputs[2] : nullptr;
  if (bias && !bias->is_constant()) return;
  const SymShape& result = product->outputs[0]->info.dims;
  if (!result.back().is_constant()) return;
  const int64_t channels = result.back().constant();
  AffineNode affine(graph, context, node);
  if (!affine.match(product->outputs[0], static_cast<int>(result.size()) - 1, channels)) return;
  if (affine.has_scale()) {
    if (!weights->is_constant()) return;
    const Shape shape = constant_shape(weights->info.dims);
    const int rank = shape.rank();
    const bool transposed = params.op1 == MatrixOperation::kTRANSPOSE;
    const int64_t stack = shape.numel(0, rank - 2);
    weights = affine.scaled(*weights,
                            transposed ? Shape{stack, 1, channels, shape[rank - 1]}
                                       : Shape{stack, shape[rank - 2], channels, 1},
                            {1, 1, channels, 1});
    if (weights == nullptr) return;
  }
  std::vector<GraphValue*> inputs{product->inputs[0], weights};
  MatrixMultiplyParams changed = params;
  changed.has_bias = affine.needs_bias(bias);
  if (changed.has_bias) {
    inputs.push_back(affine.new_bias(bias, channels, product->outputs[0]->info.dtype));
    if (inputs.back() == nullptr) return;
  }
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
          input->info.dims != node->outputs[0]->info.dims || !is_floating(input->info.dtype))
        continue;
      if (const auto* op = before->as<Convolution>())
        fold_into_convolution(graph, context, node, before, op->params(), false);
      else if (const auto* op = before->as<Deconvolution>())
        fold_into_convolution(graph, context, node, before, op->params(), true);
      else if (const auto* op = before->as<MatrixMultiply>())
        fold_into_product(graph, node, before, op->params(), context);
      if (!node->as<Pointwise>()) break;
    }
  }
}

}  // namespace opwright
