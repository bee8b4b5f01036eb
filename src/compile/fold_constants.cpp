#include <algorithm>

#include "base/error.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/ports.h"
#include "operators/builtin.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/recurrence.h"
#include "operators/scatter.h"
#include "operators/source.h"

namespace opwright {
namespace {

// Results up to this size are folded, whatever the size of their operands.
constexpr int64_t kSmallBytes = int64_t{1} << 20;
// Masks up to this size are folded: 4096 x 4096. Attention looks for causal masks among constants.
constexpr int64_t kMaskBytes = int64_t{1} << 24;
// Weights that a fill or a calculation makes are folded up to this size.
constexpr int64_t kWeightBytes = int64_t{1} << 31;

/// Whether an operator that is much faster with constant weights reads the value as such, directly
/// or through operators whose other operands are constants.
bool becomes_weight(const GraphValue& value, int depth = 6) {
  return std::ranges::any_of(value.uses, [&](const GraphValue::Use& use) {
    const GraphNode& node = *use.node;
    if (node.as<Convolution>() || node.as<Deconvolution>() || node.as<MatrixMultiply>() ||
        node.as<Recurrence>())
      return use.input > 0;
    return depth > 0 && !node.outputs.empty() &&
           std::ranges::all_of(node.inputs,
                               [&](const GraphValue* input) {
                                 return input == nullptr || input == &value ||
                                        input->is_of_constants();
                               }) &&
           becomes_weight(*node.outputs[0], depth - 1);
  });
}

int64_t result_bytes(const GraphNode& node) {
  int64_t bytes = 0;
  for (const GraphValue* output : node.outputs) {
    const int64_t size = bytes_of(output->info.dtype, constant_shape(output->info.dims).numel());
    require(!__builtin_add_overflow(bytes, size, &bytes), "Layer '", node.name,
            "': its results have more bytes than 63 bits can count");
  }
  return bytes;
}

bool worth_folding(const GraphNode& node) {
  int64_t in = 0;
  for (const GraphValue* input : node.inputs)
    if (input && input->is_constant()) in += static_cast<int64_t>(input->info.constant.size());
  const int64_t out = result_bytes(node);
  if (out <= std::max(kSmallBytes, 2 * in)) return true;
  if (node.outputs.size() == 1 && node.outputs[0]->info.dtype == DataType::kBOOL &&
      out <= kMaskBytes)
    return true;
  return out <= kWeightBytes &&
         std::all_of(node.outputs.begin(), node.outputs.end(),
                     [](const GraphValue* output) { return becomes_weight(*output); });
}

/// Whether the node fills the tensor into which a scatter writes. Filling it is faster than copying
/// a constant.
bool is_scattered_into(const GraphNode& node) {
  return node.as<Fill>() && std::ranges::any_of(node.outputs[0]->uses, [](const auto& use) {
           return use.input == 0 && use.node->template as<Scatter>();
         });
}

bool is_foldable(const GraphNode& node) {
  if (!node.op->is_pure() || node.defines_sizes() || node.is_random() || is_scattered_into(node))
    return false;
  for (const GraphValue* input : node.inputs) {
    // A refitted engine runs the operator again, without plugins.
    if (input && input->origin && !is_builtin_operator(node.op->kind())) return false;
    if (input == nullptr || input->is_constant()) continue;
    if (!input->is_values()) return false;
    for (const Expr& element : *input->info.values)
      if (!element.is_constant()) return false;
  }
  for (const GraphValue* output : node.outputs)
    if (!is_constant(output->info.dims) || bits(output->info.dtype) < 8) return false;
  return true;
}

/// How the node's results derive from weights that refitting changes. Null when they do not.
std::shared_ptr<const Derivation> derivation_of(const GraphNode& node) {
  const auto is_derived = [](const GraphValue* input) { return input && input->origin; };
  if (std::none_of(node.inputs.begin(), node.inputs.end(), is_derived)) return nullptr;
  auto made = std::make_shared<Derivation>();
  made->name = node.name;
  made->op = node.op;
  for (const GraphValue* input : node.inputs) {
    Derivation::Operand& operand = made->inputs.emplace_back();
    if (input == nullptr) continue;
    operand.present = true;
    operand.origin = input->origin;
    operand.info = input->info;
    if (input->origin) operand.info.constant = Blob();
  }
  for (const GraphValue* output : node.outputs) {
    TensorInfo& info = made->outputs.emplace_back();
    info.dtype = output->info.dtype;
    info.dims = output->info.dims;
  }
  return made;
}

}  // namespace

bool fold(Graph& graph, GraphNode* node, const PassContext& context) {
  if (node->as<Reshape>() && node->inputs[0]->is_constant()) {
    node->outputs[0]->info.constant = node->inputs[0]->info.constant;
    node->outputs[0]->origin = node->inputs[0]->origin;
    node->outputs[0]->may_change = node->inputs[0]->may_change;
    graph.detach(node->outputs[0]);
    return true;
  }
  std::vector<const TensorInfo*> inputs;
  std::vector<TensorInfo> outputs;
  bool may_change = false;
  for (const GraphValue* input : node->inputs) {
    inputs.push_back(input ? &input->info : nullptr);
    may_change = may_change || (input && input->may_change);
  }
  for (const GraphValue* output : node->outputs) outputs.push_back(output->info);
  if (context.budget != nullptr) {
    context.budget->check_time("computing the constants of layer '", node->name, "'");
    if (!context.budget->try_fold(static_cast<uint64_t>(result_bytes(*node)))) {
      context.config.log.verbose("Layer '", node->name, "' is not folded: it makes a constant of ",
                                 result_bytes(*node), " bytes, much more than the model has");
      return false;
    }
  }
  std::vector<Blob> results;
  try {
    results = run_on_host(get_device(DeviceType::kCPU), *node->op, node->name, inputs, outputs);
  } catch (const Error& error) {
    // The layer stays; if it cannot run on the device either, the tuner says so.
    context.config.log.verbose("Layer '", node->name, "' is not folded: ", error.what());
    return false;
  }
  const std::shared_ptr<const Derivation> derivation = derivation_of(*node);
  const std::vector<GraphValue*> values = node->outputs;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i]->info.constant = std::move(results[i]);
    if (derivation) values[i]->origin = {derivation, static_cast<int>(i)};
    values[i]->may_change = may_change;
    graph.detach(values[i]);
  }
  return true;
}

bool fold_behind_constants(Graph& graph, GraphValue* value, const PassContext& context) {
  if (value->is_constant()) return true;
  GraphNode* const node = value->producer;
  if (node == nullptr || !value->is_of_constants()) return false;
  for (GraphValue* input : std::vector<GraphValue*>(node->inputs))
    if (input != nullptr && !fold_behind_constants(graph, input, context)) return false;
  lower(graph, node);
  return is_foldable(*node) && fold(graph, node, context);
}

void fold_constants(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes())
    if (is_foldable(*node) && worth_folding(*node)) fold(graph, node, context);
}

}  // namespace opwright
