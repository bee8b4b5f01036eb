#include <algorithm>
#include <optional>

#include "base/types.h"
#include "compile/fused_parts.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "operators/convolution.h"
#include "operators/fused_attention.h"
#include "operators/fused_normalization.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

/// An epilogue that simple kernels can compute: activation(first + second). The sum and the
/// activation may be missing.
struct Epilogue {
  int first = -1, second = -1;  ///< inputs of the program; second is -1 without a sum
  FusedActivation activation;
};

class EpilogueMatch {
 public:
  explicit EpilogueMatch(const PointwiseParams& params) : program_(decode(params)) {
    for (const PointwiseInstruction& i : program_)
      all_float_ = all_float_ && i.type == DataType::kFLOAT;
  }

  std::optional<Epilogue> match(int result) const {
    if (!all_float_) return std::nullopt;
    Epilogue epilogue;
    int at = match_activation(result, epilogue.activation);
    if (int input = input_at(at); input >= 0) {
      epilogue.first = input;
      return epilogue;
    }
    const PointwiseInstruction& sum = program_[at];
    if (sum.op != opcode(ElementWiseOperation::kSUM)) return std::nullopt;
    epilogue.first = input_at(sum.a);
    epilogue.second = input_at(sum.b);
    if (epilogue.first < 0 || epilogue.second < 0) return std::nullopt;
    return epilogue;
  }

 private:
  int input_at(int at) const {
    const PointwiseInstruction& i = program_[at];
    return i.op == opcode(PointwiseOp::kInput) ? i.a : -1;
  }

  const double* constant_at(int at) const {
    const PointwiseInstruction& i = program_[at];
    return i.op == opcode(PointwiseOp::kConstant) ? &i.alpha : nullptr;
  }

  /// If the instruction is `op` of a register and a constant, returns the register, else -1.
  int with_constant(int at, ElementWiseOperation op, double* value) const {
    const PointwiseInstruction& i = program_[at];
    if (i.op != opcode(op)) return -1;
    for (auto [reg, other] : {std::pair(i.a, i.b), std::pair(i.b, i.a)})
      if (const double* constant = constant_at(other)) {
        *value = *constant;
        return reg;
      }
    return -1;
  }

  /// Recognizes an activation at the end. Returns the register to which it is applied.
  int match_activation(int at, FusedActivation& activation) const {
    const PointwiseInstruction& i = program_[at];
    if (i.op >= opcode(PointwiseOp::kActivation)) {
      activation.type = i.op - opcode(PointwiseOp::kActivation);
      activation.alpha = static_cast<float>(i.alpha);
      activation.beta = static_cast<float>(i.beta);
      return i.a;
    }
    double low = 0;
    if (int x = with_constant(at, ElementWiseOperation::kMAX, &low); x >= 0 && low == 0) {
      activation.type = static_cast<int32_t>(ActivationType::kRELU);
      return x;
    }
    return at;
  }

  std::vector<PointwiseInstruction> program_;
  bool all_float_ = true;
};

bool is_product(const GraphNode& node) {
  return node.as<Convolution>() || node.as<Deconvolution>() || node.as<MatrixMultiply>();
}
/// Whether the node is a product whose epilogues can only be programs.
bool is_quantized_product(const GraphNode& node) {
  return is_quantized(node.inputs[0]->info.dtype);
}

/// Whether the program of the result may be faster as a separate step, which reads and writes the
/// result once more. It is not for sums that become bytes, which are several times as large.
bool may_pay_alone(const GraphNode& node, const GraphNode& producer) {
  if (is_quantized_product(producer) || !is_floating(producer.outputs[0]->info.dtype) ||
      producer.as<Normalization>())
    return false;
  if (producer.parts != nullptr) return true;
  const std::vector<PointwiseInstruction> program = decode(node.as<Pointwise>()->params());
  return std::any_of(program.begin(), program.end(), [](const PointwiseInstruction& i) {
    return i.op > opcode(PointwiseOp::kConstant) && !is_cheap(i);
  });
}

bool try_replace(Graph& graph, const PassContext& context, GraphNode* node, GraphNode* producer,
                 OperatorPtr op, std::vector<GraphValue*> inputs) {
  if (!context.can_run(*op, *node, inputs)) return false;
  graph.fuse(*producer, node, std::move(op), std::move(inputs),
             may_pay_alone(*node, *producer) ? parts_of(*producer, *node) : nullptr);
  return true;
}

template <class Op>
bool fuse_into_convolution(Graph& graph, const PassContext& context, GraphNode* node,
                           GraphNode* producer, GraphValue* residual,
                           const FusedActivation& activation) {
  ConvolutionParams params = producer->as<Op>()->params();
  if (params.fused.present() || params.activation.present() || (residual && params.has_residual))
    return false;
  std::vector<GraphValue*> inputs = producer->inputs;
  if (residual) {
    inputs.resize(3);  // an absent bias keeps its place, the residual is the last input
    inputs.push_back(residual);
    params.has_residual = true;
  }
  params.activation = activation;
  return try_replace(graph, context, node, producer, std::make_shared<Op>(params),
                     std::move(inputs));
}

bool fuse(Graph& graph, const PassContext& context, GraphNode* node, GraphValue* value,
          GraphValue* residual, const FusedActivation& activation) {
  GraphNode* producer = value->producer;
  const TensorInfo& result = node->outputs[0]->info;
  if (producer == nullptr || graph.single_user(*value) != node || !may_join(*producer, *node) ||
      value->info.dtype != result.dtype || value->info.dims != result.dims ||
      !is_floating(result.dtype) || (is_product(*producer) && is_quantized_product(*producer)))
    return false;
  if (residual && (residual == value || residual->is_known() ||
                   residual->info.dtype != result.dtype || residual->info.dims != result.dims))
    return false;
  if (producer->as<Convolution>())
    return fuse_into_convolution<Convolution>(graph, context, node, producer, residual, activation);
  if (producer->as<Deconvolution>())
    return fuse_into_convolution<Deconvolution>(graph, context, node, producer, residual,
                                                activation);
  const auto* product = producer->as<MatrixMultiply>();
  if (product == nullptr || residual || product->params().activation.present() ||
      product->params().fused.present())
    return false;
  MatrixMultiplyParams params = product->params();
  params.activation = activation;
  return try_replace(graph, context, node, producer, std::make_shared<MatrixMultiply>(params),
                     producer->inputs);
}

/// Fuses the epilogues that every device knows: an activation of a sum. Either may be missing.
bool fuse_simple(Graph& graph, const PassContext& context, GraphNode* node,
                 const Pointwise& pointwise) {
  const std::optional<Epilogue> epilogue =
      EpilogueMatch(pointwise.params()).match(static_cast<int>(pointwise.params().results[0]));
  if (!epilogue) return false;
  GraphValue* first = node->inputs[epilogue->first];
  GraphValue* second = epilogue->second < 0 ? nullptr : node->inputs[epilogue->second];
  if (second == nullptr && !epilogue->activation.present()) return false;
  // The later one of two convolutions takes the other's result as its residual.
  // Exporters of residual networks put the shortcut second.
  return fuse(graph, context, node, first, second, epilogue->activation) ||
         (second && fuse(graph, context, node, second, first, epilogue->activation));
}

// Programs up to this size keep their registers while sums are stored.
constexpr size_t kMostInstructions = 48;
constexpr int kMostInputs = 6;
// Normalizations unroll the program for the elements that a thread keeps.
constexpr size_t kMostNormalizationInstructions = 24;

/// A Pointwise node that becomes the program of the product or normalization before it.
class ProgramFusion {
 public:
  ProgramFusion(Graph& graph, const PassContext& context, GraphNode* node)
      : graph_(graph), context_(context), node_(node) {}

  bool fuse(GraphValue* value) {
    GraphNode* const producer = value->producer;
    const TensorInfo& result = node_->outputs[0]->info;
    if (producer == nullptr || value->stored_type || value->info.dtype == DataType::kFP8 ||
        graph_.single_user(*value) != node_ || !may_join(*producer, *node_) ||
        value->info.dims != result.dims)
      return false;
    if (const auto* op = producer->as<Convolution>())
      return fuse<Convolution>(op->params(), producer, value, 3, 1);
    if (const auto* op = producer->as<Deconvolution>())
      return fuse<Deconvolution>(op->params(), producer, value, 3, 1);
    if (const auto* op = producer->as<Normalization>())
      return fuse<FusedNormalization>(FusedNormalizationParams{op->params(), {}}, producer, value,
                                      FusedNormalization::kOwnInputs, 1);
    const auto* op = producer->as<MatrixMultiply>();
    if (op != nullptr && has_epilogues(producer->inputs[0]->info.dtype))
      return fuse<MatrixMultiply>(op->params(), producer, value, op->params().has_bias ? 3 : 2,
                                  static_cast<int>(result.dims.size()) - 1);
    return false;
  }

 private:
  /// Makes the producer an `Op`, which computes the node. The producer's own inputs stand in front;
  /// `own` is their number.
  template <class Op, class Params>
  bool fuse(Params params, GraphNode* producer, GraphValue* value, size_t own, int channel_axis) {
    constexpr bool kIsProduct = !std::is_same_v<Op, FusedNormalization>;
    std::vector<GraphValue*> inputs = producer->inputs;
    // The program reads the sum and then these inputs.
    std::vector<GraphValue*> others;
    if constexpr (requires { params.has_residual; }) {
      if (params.has_residual) others.push_back(inputs.back()), inputs.pop_back();
      params.has_residual = false;
    }
    const size_t count = params.fused.inputs();
    others.insert(others.end(), inputs.end() - count, inputs.end());
    inputs.resize(inputs.size() - count);
    inputs.resize(own);

    const bool quantized = is_quantized(inputs[0]->info.dtype);
    const DataType sum = type_of_product(inputs[0]->info.dtype);
    ProgramWriter writer;
    std::vector<int> registers = {writer.input(0, sum)};
    for (size_t i = 0; i < others.size(); ++i)
      registers.push_back(writer.input(static_cast<int>(i) + 1, others[i]->info.dtype));
    int made = registers[0];
    if (params.fused.present())
      made = writer.append(params.fused.program, registers).front();
    else if (!others.empty())
      made = writer.binary(ElementWiseOperation::kSUM, made, registers[1]);
    if constexpr (kIsProduct) {
      made = activate(writer, made, params.activation);
      params.activation = {};
    }

    registers.clear();
    for (GraphValue* input : node_->inputs) {
      if (input == value) {
        registers.push_back(made);
        continue;
      }
      const auto at = std::find(others.begin(), others.end(), input);
      registers.push_back(
          writer.input(static_cast<int>(at - others.begin()) + 1, input->info.dtype));
      if (at == others.end()) others.push_back(input);
    }
    const std::vector<int> results = append_node(writer, *node_, registers);
    std::vector<int> used;
    params.fused.program = writer.finish(results, &used);
    params.fused.result = node_->outputs[0]->info.dtype;
    params.fused.places.clear();
    if (used.empty() || used[0] != 0 || used.size() > kMostInputs + 1 ||
        params.fused.program.code.size() / 5 >
            (kIsProduct ? kMostInstructions : kMostNormalizationInstructions))
      return false;
    const TensorInfo& result = node_->outputs[0]->info;
    for (size_t i = 1; i < used.size(); ++i) {
      GraphValue* const other = others[used[i] - 1];
      const int64_t place = fused_place(other->info.dims, result.dims, channel_axis);
      // Floating tensors share one type, except beside products of quantized operands.
      const DataType type = other->info.dtype;
      const bool shares =
          is_floating(sum) && is_floating(type) && !is_quantized(type) && !quantized;
      const bool fits = !shares || type == value->info.dtype;
      if (place < 0 || !fits || other->is_values()) return false;
      params.fused.places.push_back(place);
      inputs.push_back(other);
    }
    if (is_floating(sum) && is_floating(result.dtype) && !is_quantized(result.dtype) &&
        !quantized && result.dtype != value->info.dtype)
      return false;
    return try_replace(graph_, context_, node_, producer, std::make_shared<Op>(params),
                       std::move(inputs));
  }

  /// Whether products with sums of the type have epilogues. Those of INT32 and INT64 do not.
  static bool has_epilogues(DataType type) { return is_floating(type) || is_byte(type); }

  static int activate(ProgramWriter& writer, int x, const FusedActivation& activation) {
    if (!activation.present()) return x;
    if (activation.type == FusedActivation::kSwish) {
      const int factor = writer.constant(activation.alpha, DataType::kFLOAT);
      const int scaled = writer.binary(ElementWiseOperation::kPROD, x, factor);
      return writer.binary(ElementWiseOperation::kPROD, x,
                           writer.activation(ActivationType::kSIGMOID, scaled, 0, 0));
    }
    if (activation.type == FusedActivation::kHardSwish)
      return writer.binary(
          ElementWiseOperation::kPROD, x,
          writer.activation(ActivationType::kHARD_SIGMOID, x, activation.alpha, activation.beta));
    return writer.activation(static_cast<ActivationType>(activation.type), x, activation.alpha,
                             activation.beta);
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* node_;
};

/// Lets an attention compute the program that turns its result into bytes, as its last step. Only
/// that program may read the result.
bool fuse_into_attention(Graph& graph, const PassContext& context, GraphNode* node,
                         const Pointwise& pointwise) {
  if (node->inputs.size() != 1) return false;
  GraphNode* const producer = node->inputs[0]->producer;
  const auto* op = producer != nullptr ? producer->as<FusedAttention>() : nullptr;
  const TensorInfo& result = node->outputs[0]->info;
  if (op == nullptr || op->params().fused.present() ||
      graph.single_user(*node->inputs[0]) != node || !may_join(*producer, *node) ||
      !is_quantized(result.dtype) || node->inputs[0]->info.dims != result.dims ||
      decode(pointwise.params()).size() > kMostInstructions)
    return false;
  ProgramWriter writer;
  const int result_of[] = {writer.input(0, node->inputs[0]->info.dtype)};
  std::vector<int> used;
  FusedAttentionParams params = op->params();
  params.fused = {writer.finish(append_node(writer, *node, result_of), &used), {}, result.dtype};
  auto fused = std::make_shared<FusedAttention>(std::move(params));
  if (!context.can_run(*fused, *node, producer->inputs)) return false;
  graph.fuse(*producer, node, std::move(fused), producer->inputs, nullptr);
  return true;
}

/// If the node reads a product whose rows are reshaped behind it, reshapes the rows before it
/// instead, so that the product can take the node.
void reshape_rows_before(Graph& graph, GraphNode* node) {
  for (GraphValue* value : std::vector<GraphValue*>(node->inputs)) {
    GraphNode* const reshape = value->producer;
    if (reshape == nullptr || !reshape->as<Reshape>() || graph.single_user(*value) != node ||
        value->stored_type || value->info.dims != node->outputs[0]->info.dims)
      continue;
    GraphValue* const before = reshape->inputs[0];
    GraphNode* const producer = before->producer;
    const auto* product = producer != nullptr ? producer->as<MatrixMultiply>() : nullptr;
    if (product == nullptr || graph.single_user(*before) != reshape || before->stored_type ||
        !may_join(*producer, *reshape))
      continue;
    const MatrixMultiplyParams params = product->params();
    const SymShape &from = before->info.dims, &to = value->info.dims;
    std::vector<GraphValue*> inputs = producer->inputs;
    if (params.op0 != MatrixOperation::kNONE || params.op1 == MatrixOperation::kVECTOR ||
        params.fused.present() || from.size() < 2 || to.size() < 2 || from.back() != to.back() ||
        inputs[0]->info.dims.size() < 2 || !inputs[1]->is_single(2) ||
        inputs[1]->info.dims.size() > to.size() || (params.has_bias && !inputs[2]->is_single(1)) ||
        (params.has_bias && inputs[2]->info.dims.size() > to.size()))
      continue;
    TensorInfo info;
    info.dtype = inputs[0]->info.dtype;
    info.dims.assign(to.begin(), to.end() - 1);
    info.dims.push_back(inputs[0]->info.dims.back());
    GraphNode* const made = inputs[0]->producer;
    GraphValue* const rows = made != nullptr && made->as<Reshape>() ? made->inputs[0] : inputs[0];
    if (rows->info.dims == info.dims)
      inputs[0] = rows;
    else
      inputs[0] = graph
                      .insert_before(producer, std::make_shared<Reshape>(), {rows}, std::move(info),
                                     inputs[0]->name + " rows")
                      ->outputs[0];
    join(*producer, *reshape);
    graph.replace(reshape, std::make_shared<MatrixMultiply>(params), std::move(inputs));
  }
}

/// If the program reads results of several products, the last product takes it. A normalization
/// takes what no product takes.
void fuse_program(Graph& graph, const PassContext& context, GraphNode* node,
                  const std::vector<GraphNode*>& order) {
  std::vector<GraphValue*> values, normalized;
  for (GraphValue* input : node->inputs)
    if (input->producer && is_product(*input->producer))
      values.push_back(input);
    else if (input->producer && input->producer->as<Normalization>())
      normalized.push_back(input);
  const auto position = [&](const GraphValue* value) {
    return std::find(order.begin(), order.end(), value->producer) - order.begin();
  };
  std::sort(values.begin(), values.end(),
            [&](const GraphValue* a, const GraphValue* b) { return position(a) > position(b); });
  values.insert(values.end(), normalized.begin(), normalized.end());
  ProgramFusion fusion(graph, context, node);
  for (GraphValue* value : values)
    if (fusion.fuse(value)) return;
}

}  // namespace

void fuse_epilogues(Graph& graph, const PassContext& context, bool whole_programs) {
  const std::vector<GraphNode*> order = graph.nodes();
  for (GraphNode* node : order) {
    const auto* pointwise = node->as<Pointwise>();
    if (pointwise == nullptr || node->outputs.size() != 1) continue;
    reshape_rows_before(graph, node);
    if (fuse_simple(graph, context, node, *pointwise)) continue;
    if (whole_programs && !fuse_into_attention(graph, context, node, *pointwise))
      fuse_program(graph, context, node, order);
  }
}

}  // namespace opwright
