#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "operators/activation.h"
#include "operators/assertion.h"
#include "operators/elementwise.h"
#include "operators/infer.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/quantization.h"
#include "plugin/model/plugin_model.h"

namespace opwright {
namespace {

/// The value of a constant with one element, if a program's immediate can hold the value.
std::optional<double> scalar_constant(const GraphValue& value) {
  if (!value.is_fixed() || constant_shape(value.info.dims).numel() != 1) return std::nullopt;
  const DataType type = value.info.dtype;
  if (is_floating(type)) {
    float number;
    convert(value.info.constant.data(), type, &number, DataType::kFLOAT, 1);
    return number;
  }
  if (!is_integer(type) && type != DataType::kBOOL) return std::nullopt;
  int64_t number;
  convert(value.info.constant.data(), type, &number, DataType::kINT64, 1);
  constexpr int64_t kExact = int64_t{1} << 53;
  if (number > kExact || number < -kExact) return std::nullopt;
  return static_cast<double>(number);
}

/// Collects the program of one node and its inputs; scalar constants become immediates.
class NodeProgram {
 public:
  NodeProgram(Graph& graph, GraphNode& node) : graph_(graph), node_(node) {
    // A program's kernels take the shape from an input of the result's rank, so the program needs
    // one.
    const size_t rank = node.outputs[0]->info.dims.size();
    has_tensor_ = std::ranges::any_of(node.inputs, [&](const GraphValue* input) {
      return input && !scalar_constant(*input) && input->info.dims.size() == rank;
    });
  }
  int operand(GraphValue* value) {
    if (has_tensor_)
      if (std::optional<double> scalar = scalar_constant(*value))
        return writer.constant(*scalar, value->info.dtype);
    inputs_.push_back(value);
    return writer.input(static_cast<int>(inputs_.size()) - 1, value->info.dtype);
  }
  void finish(int result) {
    std::vector<int> used;
    const int results[] = {writer.cast(result, node_.outputs[0]->info.dtype)};
    PointwiseParams program = writer.finish(results, &used);
    std::vector<GraphValue*> inputs;
    inputs.reserve(used.size());
    for (int input : used) inputs.push_back(inputs_[input]);
    graph_.replace(&node_, std::make_shared<Pointwise>(std::move(program)), std::move(inputs));
  }
  ProgramWriter writer;

 private:
  Graph& graph_;
  GraphNode& node_;
  std::vector<GraphValue*> inputs_;
  bool has_tensor_ = false;
};

/// The value with another constant shape: a constant is reshaped now, other values by a node.
GraphValue* reshaped(Graph& graph, GraphNode* before, GraphValue* value, const SymShape& dims) {
  if (value->info.dims == dims) return value;
  if (value->is_constant()) return graph.reshape_constant(*value, constant_shape(dims));
  TensorInfo info;
  info.dtype = value->info.dtype;
  info.dims = dims;
  GraphNode* node = graph.insert_before(before, std::make_shared<Reshape>(), {value},
                                        std::move(info), before->name + " reshape");
  return node->outputs[0];
}

void lower_scale(Graph& graph, GraphNode* node, const ScaleParams& params) {
  const GraphValue& x = *node->inputs[0];
  const int rank = static_cast<int>(x.info.dims.size());
  auto coefficient = [&](size_t index) -> GraphValue* {
    GraphValue* value = node->input(index);
    if (value == nullptr) return nullptr;
    SymShape dims(rank, Expr(1));
    if (params.mode == ScaleMode::kCHANNEL) {
      dims[params.channel_axis] = numel(value->info.dims);
    } else if (params.mode == ScaleMode::kELEMENTWISE) {
      dims = x.info.dims;
      dims[0] = 1;
    }
    return reshaped(graph, node, value, dims);
  };
  GraphValue *shift = coefficient(1), *scale = coefficient(2), *power = coefficient(3);
  NodeProgram program(graph, *node);
  int result = program.operand(node->inputs[0]);
  auto apply = [&](ElementWiseOperation op, GraphValue* operand) {
    if (operand) result = program.writer.binary(op, result, program.operand(operand));
  };
  apply(ElementWiseOperation::kPROD, scale);
  apply(ElementWiseOperation::kSUM, shift);
  apply(ElementWiseOperation::kPOW, power);
  program.finish(result);
}

/// Writes the program of a node whose scales broadcast to x.
void lower_quantization(Graph& graph, GraphNode* node, bool quantizes) {
  NodeProgram program(graph, *node);
  ProgramWriter& writer = program.writer;
  using Op = ElementWiseOperation;
  constexpr DataType kFloat = DataType::kFLOAT;
  int x = program.operand(node->inputs[0]);
  GraphValue* zero_point = node->input(2);
  if (zero_point != nullptr && scalar_constant(*zero_point) == 0.0) zero_point = nullptr;
  const bool divides = scalar_constant(*node->inputs[1]) != 1.0;
  const int scale = divides ? writer.cast(program.operand(node->inputs[1]), kFloat) : -1;
  if (quantizes) {
    const DataType to = node->outputs[0]->info.dtype;
    x = writer.cast(x, kFloat);
    if (divides) x = writer.binary(Op::kDIV, x, scale);
    if (to != DataType::kFP8) x = writer.unary(UnaryOperation::kROUND, x);
    if (zero_point)
      x = writer.binary(Op::kSUM, x, writer.cast(program.operand(zero_point), kFloat));
    if (to != DataType::kFP8) {
      const bool is_signed = to == DataType::kINT8;
      x = writer.activation(ActivationType::kCLIP, x, is_signed ? -128 : 0, is_signed ? 127 : 255);
    }
  } else {
    // Differences of INT32 are computed exactly before they become FP32.
    const DataType type = writer.type(x) == DataType::kINT32 ? DataType::kINT32 : kFloat;
    x = writer.cast(x, type);
    if (zero_point) x = writer.binary(Op::kSUB, x, writer.cast(program.operand(zero_point), type));
    x = writer.cast(x, kFloat);
    if (divides) x = writer.binary(Op::kPROD, x, scale);
  }
  program.finish(x);
}

/// Gives blocks an axis of their own, along which their scales broadcast.
void lower_quantization(Graph& graph, GraphNode* node, const QuantizationParams& params) {
  const SymShape x = node->inputs[0]->info.dims;
  std::vector<GraphValue*> inputs = node->inputs;
  SymShape split;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    std::string problem;
    SymShape dims = scale_shape(x, inputs[i]->info.dims, params.axis, problem);
    require(problem.empty(), "Layer '", node->name, "': input ", i, " ", problem);
    const bool is_vector = is_vector_of_scales(x, inputs[i]->info.dims);
    // A zero point of blocks has as many blocks as the scale has.
    const SymShape& first = i == 1 ? dims : node->inputs[1]->info.dims;
    SymShape wide;
    for (size_t axis = 0; axis < x.size(); ++axis) {
      const bool blocks =
          !is_vector && first.size() == x.size() && has_blocks(x[axis], first[axis]);
      require(is_vector || blocks || !has_blocks(x[axis], dims[axis]), "Layer '", node->name,
              "': scale and zero point have blocks along different axes");
      wide.push_back(dims[axis]);
      if (i == 1) split.push_back(blocks ? first[axis] : x[axis]);
      if (!blocks) continue;
      wide.push_back(Expr(1));
      if (i == 1) split.push_back(Expr(x[axis].constant() / first[axis].constant()));
    }
    inputs[i] = reshaped(graph, node, inputs[i], wide);
  }
  const bool quantizes = node->op->kind() == Quantize::kKind;
  if (split == x) {
    graph.replace(node, node->op, std::move(inputs));
    return lower_quantization(graph, node, quantizes);
  }
  inputs[0] = reshaped(graph, node, inputs[0], split);
  TensorInfo info;
  info.dtype = node->outputs[0]->info.dtype;
  info.dims = split;
  GraphNode* const inner = graph.insert_before(node, node->op, std::move(inputs), std::move(info),
                                               node->name + " blocks");
  lower_quantization(graph, inner, quantizes);
  graph.replace(node, std::make_shared<Reshape>(), {inner->outputs[0]});
}

void lower_prelu(Graph& graph, GraphNode* node) {
  NodeProgram program(graph, *node);
  ProgramWriter& writer = program.writer;
  const int x = program.operand(node->inputs[0]), slope = program.operand(node->inputs[1]);
  const int negative = writer.binary(ElementWiseOperation::kLESS, x,
                                     writer.constant(0, node->inputs[0]->info.dtype));
  program.finish(writer.select(negative, writer.binary(ElementWiseOperation::kPROD, x, slope), x));
}

Ints identity(int rank) {
  Ints permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  return permutation;
}

SymShape permuted(const SymShape& dims, const Ints& permutation) {
  SymShape result;
  for (int64_t axis : permutation) result.push_back(dims[axis]);
  return result;
}

void lower_shuffle(Graph& graph, GraphNode* node, const ShuffleParams& params) {
  GraphValue* value = node->inputs[0];
  const bool reshapes = params.has_reshape || node->input(1) != nullptr;
  auto move = [&](OperatorPtr op, SymShape dims, const char* what) {
    TensorInfo info;
    info.dtype = value->info.dtype;
    info.dims = std::move(dims);
    value = graph.insert_before(node, std::move(op), {value}, std::move(info), node->name + what)
                ->outputs[0];
  };
  const SymShape& result = node->outputs[0]->info.dims;
  const Ints first = Shuffle::permutation(params.first_transpose, value->info.dims.size());
  Ints last = Shuffle::permutation(params.second_transpose, result.size());
  if (!first.empty()) {
    if (!reshapes) {
      // One transposition does both: element i of the result is axis first[second[i]] of the input.
      if (last.empty()) last = identity(static_cast<int>(value->info.dims.size()));
      for (int64_t& axis : last) axis = first[axis];
    } else {
      move(std::make_shared<Transpose>(TransposeParams{first}), permuted(value->info.dims, first),
           " first transpose");
    }
  }
  if (!reshapes) {
    if (last.empty()) last = identity(static_cast<int>(result.size()));
    graph.replace(node, std::make_shared<Transpose>(TransposeParams{last}), {value});
    return;
  }
  if (last.empty()) {
    graph.replace(node, std::make_shared<Reshape>(), {value});
    return;
  }
  SymShape between(result.size());
  for (size_t i = 0; i < last.size(); ++i) between[last[i]] = result[i];
  move(std::make_shared<Reshape>(), std::move(between), " reshape");
  graph.replace(node, std::make_shared<Transpose>(TransposeParams{last}), {value});
}

/// Replaces the operator by one without shape inputs. Returns whether there is one.
bool lower_shape_inputs(Graph& graph, GraphNode* node) {
  std::vector<const TensorInfo*> infos;
  for (const GraphValue* input : node->inputs) infos.push_back(input ? &input->info : nullptr);
  OperatorPtr op = node->op->without_shape_inputs(infos);
  if (op == nullptr) return false;
  std::vector<GraphValue*> others;
  for (size_t i = 0; i < node->inputs.size(); ++i)
    if (!node->op->is_shape_input(static_cast<int>(i))) others.push_back(node->inputs[i]);
  graph.replace(node, std::move(op), std::move(others));
  return true;
}

/// Turns factors per group into factors per channel.
void lower_normalization(Graph& graph, GraphNode* node, const NormalizationParams& params) {
  const SymShape& x = node->inputs[0]->info.dims;
  std::vector<GraphValue*> inputs = node->inputs;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || !is_per_group(params, x, inputs[i]->info.dims)) continue;
    const int64_t groups = params.num_groups, channels = x[1].constant();
    SliceParams repeat;
    repeat.start = {0, 0}, repeat.size = {groups, channels / groups}, repeat.stride = {1, 0};
    TensorInfo info;
    info.dtype = inputs[i]->info.dtype;
    info.dims = {Expr(groups), Expr(channels / groups)};
    const GraphNode* const repeated = graph.insert_before(
        node, std::make_shared<Slice>(repeat),
        {reshaped(graph, node, inputs[i], {Expr(groups), Expr(1)})}, info, node->name + " groups");
    SymShape wide(x.size(), Expr(1));
    wide[1] = channels;
    inputs[i] = reshaped(graph, node, repeated->outputs[0], wide);
  }
  if (inputs != node->inputs) graph.replace(node, node->op, std::move(inputs));
}

/// Lowers a plugin that computes its elements by an expression of its inputs' elements.
bool lower_plugin(Graph& graph, GraphNode* node) {
  const PluginModel* const plugin = node->op->plugin();
  if (plugin == nullptr) return false;
  const Attributes attributes = plugin->pointwise(node->name);
  if (attributes.empty()) return false;
  const std::string owner = plugin->prefix(node->name);
  PointwiseParams params;
  AttributeReader reader(owner, attributes);
  params.visit(reader);
  const std::vector<PointwiseInstruction> instructions = decode(params);
  const TensorInfo& output = node->outputs[0]->info;
  require(node->outputs.size() == 1 && params.results.size() == 1 && !node->inputs.empty(), owner,
          "pointwise_impl is for plugins of one output");
  SymShape dims;
  NodeProgram program(graph, *node);
  std::vector<int> registers;
  for (size_t i = 0; i < node->inputs.size(); ++i) {
    GraphValue* const input = node->inputs[i];
    require(input != nullptr && is_floating(input->info.dtype), owner, "input ", i,
            input ? str(" is ", name(input->info.dtype)) : std::string(" is absent"),
            "; pointwise_impl takes floating tensors that are there");
    require(input->info.dtype == node->inputs[0]->info.dtype, owner, "input ", i, " is ",
            name(input->info.dtype), " and input 0 ", name(node->inputs[0]->info.dtype),
            "; pointwise_impl takes tensors of one type: add a cast");
    dims = broadcast(std::span<const Expr>(dims), input->info.dims);
    registers.push_back(program.operand(input));
  }
  bool fits = dims.size() == output.dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = !conflict(dims[i], output.dims[i]);
  require(fits, owner, "register gives the output shape ", str(output.dims),
          ", but the inputs broadcast to ", str(dims), ", which pointwise_impl computes");
  for (const PointwiseInstruction& i : instructions)
    require(i.op != opcode(PointwiseOp::kInput) || std::cmp_less(i.a, node->inputs.size()), owner,
            "pointwise_impl reads input ", i.a, " of ", node->inputs.size());
  const DataType result = instructions[params.results[0]].type;
  require(output.dtype == (result == DataType::kFLOAT ? node->inputs[0]->info.dtype : result),
          owner, "register gives the output type ", name(output.dtype),
          ", but pointwise_impl computes ",
          name(result == DataType::kFLOAT ? node->inputs[0]->info.dtype : result));
  program.finish(program.writer.append(params, registers).front());
  return true;
}

/// Removes an assertion that is known to hold, which needs no check at run time.
void lower_assertion(Graph& graph, GraphNode* node) {
  const TensorInfo& condition = node->inputs[0]->info;
  if (!condition.values) return;
  for (const Expr& element : *condition.values)
    if (!element.is_constant() || element.constant() == 0) return;
  AssertionParams params = node->as<Assertion>()->params();
  params.holds = true;
  graph.replace(node, std::make_shared<Assertion>(std::move(params)), node->inputs);
}

void lower_node(Graph& graph, GraphNode* node) {
  if (const auto* shuffle = node->as<Shuffle>())
    return lower_shuffle(graph, node, shuffle->params());
  if (const auto* scale = node->as<Scale>()) return lower_scale(graph, node, scale->params());
  if (const auto* op = node->as<Quantize>()) return lower_quantization(graph, node, op->params());
  if (const auto* op = node->as<Dequantize>()) return lower_quantization(graph, node, op->params());
  if (node->as<Squeeze>() || node->as<Unsqueeze>())
    return graph.replace(node, std::make_shared<Reshape>(), {node->inputs[0]});
  if (const auto* op = node->as<Normalization>())
    return lower_normalization(graph, node, op->params());
  if (node->as<Assertion>()) return lower_assertion(graph, node);
  if (lower_plugin(graph, node)) return;
  if (node->as<ParametricRelu>()) return lower_prelu(graph, node);
  if (lower_shape_inputs(graph, node)) return;
  if (const auto* op = node->as<ElementWise>()) {
    NodeProgram program(graph, *node);
    const int a = program.operand(node->inputs[0]), b = program.operand(node->inputs[1]);
    return program.finish(program.writer.binary(op->params().op, a, b));
  }
  if (node->as<Remainder>()) {
    NodeProgram program(graph, *node);
    const int a = program.operand(node->inputs[0]), b = program.operand(node->inputs[1]);
    return program.finish(program.writer.remainder(a, b));
  }
  if (const auto* op = node->as<Unary>()) {
    NodeProgram program(graph, *node);
    return program.finish(program.writer.unary(op->params().op, program.operand(node->inputs[0])));
  }
  if (const auto* op = node->as<Activation>()) {
    NodeProgram program(graph, *node);
    return program.finish(program.writer.activation(op->params().type,
                                                    program.operand(node->inputs[0]),
                                                    op->params().alpha, op->params().beta));
  }
  if (node->as<Select>()) {
    NodeProgram program(graph, *node);
    const int condition = program.operand(node->inputs[0]);
    const int a = program.operand(node->inputs[1]), b = program.operand(node->inputs[2]);
    return program.finish(program.writer.select(condition, a, b));
  }
  if (node->as<Cast>()) {
    NodeProgram program(graph, *node);
    return program.finish(program.operand(node->inputs[0]));
  }
}

}  // namespace

void lower(Graph& graph, GraphNode* node) { lower_node(graph, node); }

void lower(Graph& graph) {
  for (GraphNode* node : graph.nodes()) lower_node(graph, node);
}

}  // namespace opwright
