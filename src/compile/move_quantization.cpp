#include <algorithm>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/scalar_quantization.h"
#include "operators/activation.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/quantization.h"
#include "operators/type_rules.h"

namespace opwright {

std::optional<std::vector<float>> fixed_elements(const GraphValue& value) {
  if (!value.is_fixed()) return std::nullopt;
  std::vector<float> elements(constant_shape(value.info.dims).numel());
  convert(value.info.constant.data(), value.info.dtype, elements.data(), DataType::kFLOAT,
          static_cast<int64_t>(elements.size()));
  return elements;
}

std::optional<ScalarQuantization> scalar_quantization(const GraphNode& node) {
  const bool quantizes = node.as<Quantize>() != nullptr;
  if (!quantizes && !node.as<Dequantize>()) return std::nullopt;
  ScalarQuantization result;
  result.type = (quantizes ? node.outputs[0] : node.inputs[0])->info.dtype;
  const auto scale = fixed_elements(*node.inputs[1]);
  if (!scale || scale->size() != 1 || !(scale->front() > 0)) return std::nullopt;
  result.scale = scale->front();
  if (const GraphValue* zero = node.input(2)) {
    const auto element = fixed_elements(*zero);
    if (!element || element->size() != 1) return std::nullopt;
    result.zero_point = static_cast<int64_t>(element->front());
  }
  return result;
}

namespace {

/// Number of first inputs whose elements the node only moves, or replaces by 0 where they are
/// negative. The node may do so before these inputs are dequantized.
size_t moved_inputs(const GraphNode& node, const ScalarQuantization& quantization) {
  const int64_t zero_point = quantization.zero_point;
  const auto* pooling = node.as<Pooling>();
  const auto* activation = node.as<Activation>();
  if (activation != nullptr && activation->params().type == ActivationType::kRELU)
    return is_byte(quantization.type) && zero_point == 0 ? 1 : 0;
  if (node.as<Shuffle>() || node.as<Reshape>() || node.as<Transpose>() || node.as<Squeeze>() ||
      node.as<Unsqueeze>() || (pooling != nullptr && pooling->params().type == PoolingType::kMAX))
    return 1;
  if (node.as<Concatenation>()) return node.inputs.size();
  // Elements outside become 0.
  if (zero_point == 0 && (node.as<Gather>() || (node.as<Slice>() && node.inputs.size() <= 4)))
    return 1;
  return 0;
}

/// Moves the bytes as they are, instead of dequantizing, moving and quantizing them.
void skip_dequantization(Graph& graph, const PassContext& context, GraphNode* quantize) {
  const auto wanted = scalar_quantization(*quantize);
  GraphNode* const mover = quantize->inputs[0]->producer;
  if (!wanted || mover == nullptr || quantize->precision || quantize->outputs[0]->stored_type)
    return;
  const auto bytes_before = [&](const GraphNode* node) -> GraphValue* {
    if (node == nullptr || !node->as<Dequantize>() || scalar_quantization(*node) != wanted)
      return nullptr;
    return node->inputs[0];
  };
  if (GraphValue* const bytes = bytes_before(mover)) {
    graph.replace_uses(quantize->outputs[0], bytes);
    return;
  }
  const size_t count = moved_inputs(*mover, *wanted);
  if (count == 0 || mover->outputs.size() != 1 || mover->precision) return;
  std::vector<GraphValue*> inputs = mover->inputs;
  for (size_t i = 0; i < count; ++i) {
    inputs[i] = inputs[i] != nullptr ? bytes_before(inputs[i]->producer) : nullptr;
    if (inputs[i] == nullptr) return;
  }
  if (mover->as<Activation>() && wanted->type == DataType::kUINT8) {
    graph.replace_uses(quantize->outputs[0], inputs[0]);
    return;
  }
  const bool is_view_or_turned = !mover->as<Pooling>() && !mover->as<Concatenation>() &&
                                 !mover->as<Gather>() && !mover->as<Slice>();
  if (!is_view_or_turned && !context.can_run(*mover->op, *quantize, inputs)) return;
  join(*mover, *quantize);
  graph.replace(quantize, mover->op, std::move(inputs));
}

/// Changes the type of bytes whose zero point is at the end or in the middle of its range to the
/// other type of bytes, where that zero point is 0. Padding with zeros and products by tensor cores
/// need no zero point then.
void center_zero_point(Graph& graph, GraphNode* quantize) {
  const auto own = scalar_quantization(*quantize);
  GraphValue* const bytes = quantize->outputs[0];
  const bool is_signed = own && own->type == DataType::kINT8 && own->zero_point == -128;
  const bool is_unsigned = own && own->type == DataType::kUINT8 && own->zero_point == 128;
  if ((!is_signed && !is_unsigned) || graph.is_kept(*bytes) || bytes->stored_type) return;
  for (const GraphValue::Use& use : bytes->uses)
    if (!use.node->as<Dequantize>() || use.input != 0 || scalar_quantization(*use.node) != own)
      return;
  const DataType type = is_signed ? DataType::kUINT8 : DataType::kINT8;
  QuantizationParams params = quantize->as<Quantize>()->params();
  params.to = type;
  graph.replace(quantize, std::make_shared<Quantize>(params),
                {quantize->inputs[0], quantize->inputs[1]});
  bytes->info.dtype = type;
  for (const GraphValue::Use& use : GraphValue::Uses(bytes->uses))
    graph.replace(use.node, use.node->op, {bytes, use.node->inputs[1]});
}

/// Lets the kernel of a normalization also quantize its result, and store both.
void quantize_normalized(Graph& graph, const PassContext& context, GraphNode* quantize) {
  GraphValue *const y = quantize->inputs[0], *const bytes = quantize->outputs[0];
  GraphNode* const before = y->producer;
  const auto* op = before != nullptr ? before->as<Normalization>() : nullptr;
  const auto quantization = scalar_quantization(*quantize);
  constexpr float kLeastScale = 0x1p-40F, kMostScale = 0x1p40F;  // scales whose reciprocals are
                                                                 // used
  if (op == nullptr || !quantization || quantization->scale < kLeastScale ||
      quantization->scale > kMostScale || context.device.is_host() || y->stored_type ||
      bytes->stored_type || quantize->precision || before->precision)
    return;
  std::vector<GraphValue*> inputs = before->inputs;
  inputs.resize(QuantizedNormalization::kScale);
  inputs.push_back(quantize->inputs[1]);
  GraphValue* zero_point = quantize->input(2);
  if (zero_point == nullptr) {
    const uint8_t zero = 0;
    zero_point = graph.add_constant(quantization->type, {}, Blob::copy(&zero, 1),
                                    quantize->name + " zero point");
  }
  inputs.push_back(zero_point);
  const bool keeps_result = graph.single_user(*y) != quantize;
  const auto fused = std::make_shared<QuantizedNormalization>(
      QuantizedNormalizationParams{op->params(), keeps_result});
  GraphNode like;
  like.name = before->name, like.outputs = {bytes};
  if (keeps_result) like.outputs.insert(like.outputs.begin(), y);
  if (!context.can_run(*fused, like, inputs)) return;
  GraphNode* const node =
      graph.insert_before(before, fused, inputs, like.outputs[0]->info, before->name);
  node->name += " + " + quantize->name;
  if (keeps_result) {
    graph.add_output(node, bytes->info, bytes->name);
    graph.replace_uses(y, node->outputs[0]);
  }
  graph.replace_uses(bytes, node->outputs.back());
}

}  // namespace

void move_quantization(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes())
    if (node->as<Quantize>()) center_zero_point(graph, node);
  for (GraphNode* node : graph.nodes())
    if (node->as<Quantize>()) skip_dequantization(graph, context, node);
  graph.remove_dead();
  for (GraphNode* node : graph.nodes())
    if (node->as<Quantize>()) quantize_normalized(graph, context, node);
}

}  // namespace opwright
