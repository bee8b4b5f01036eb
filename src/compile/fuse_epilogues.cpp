#include <algorithm>
#include <optional>

#include "compile/passes.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// What a program does at most: activation(first + second), where the sum and the activation may be
/// missing.
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

  /// When the instruction is `op` of a register and a constant: the register, else -1.
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

  /// Recognizes an activation at the end; gives the register that it is applied to.
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

bool try_replace(Graph& graph, const PassContext& context, GraphNode* node, GraphNode* producer,
                 OperatorPtr op, std::vector<GraphValue*> inputs) {
  if (!context.can_run(*op, *node, inputs)) return false;
  join(*producer, *node);
  graph.replace(node, std::move(op), std::move(inputs));
  return true;
}

template <class Op>
bool fuse_into_convolution(Graph& graph, const PassContext& context, GraphNode* node,
                           GraphNode* producer, GraphValue* residual,
                           const FusedActivation& activation) {
  ConvolutionParams params = producer->as<Op>()->params();
  if (params.activation.present() || (residual && params.has_residual)) return false;
  std::vector<GraphValue*> inputs = producer->inputs;
  if (residual) {
    if (Op::kKind == Deconvolution::kKind) return false;
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
      !is_floating(result.dtype))
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
  if (product == nullptr || residual || product->params().activation.present()) return false;
  MatrixMultiplyParams params = product->params();
  params.activation = activation;
  return try_replace(graph, context, node, producer, std::make_shared<MatrixMultiply>(params),
                     producer->inputs);
}

}  // namespace

void fuse_epilogues(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    const auto* pointwise = node->as<Pointwise>();
    if (pointwise == nullptr || node->outputs.size() != 1) continue;
    const std::optional<Epilogue> epilogue =
        EpilogueMatch(pointwise->params()).match(static_cast<int>(pointwise->params().results[0]));
    if (!epilogue) continue;
    GraphValue* first = node->inputs[epilogue->first];
    GraphValue* second = epilogue->second < 0 ? nullptr : node->inputs[epilogue->second];
    if (second == nullptr && !epilogue->activation.present()) continue;
    // Of two convolutions the one whose result comes last takes the other's as its residual; the
    // exporters of residual networks put the shortcut second.
    if (fuse(graph, context, node, first, second, epilogue->activation)) continue;
    if (second) fuse(graph, context, node, second, first, epilogue->activation);
  }
}

}  // namespace opwright
