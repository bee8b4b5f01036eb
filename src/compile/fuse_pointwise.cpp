#include <algorithm>

#include "base/types.h"
#include "compile/passes.h"
#include "compile/program.h"

namespace opwright {
namespace {

// Beyond these a program's intermediate results no longer stay in the nearest cache.
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxInstructions = 48;
// Programs up to this size may run once per consumer instead of storing their result.
constexpr size_t kCheapInstructions = 2;
constexpr size_t kMaxCopies = 3;

bool is_cheap(const GraphNode& node) {
  const auto cheap_binary = [](int32_t op) {
    switch (binary_of(op)) {
      case ElementWiseOperation::kSUM:
      case ElementWiseOperation::kSUB:
      case ElementWiseOperation::kPROD:
      case ElementWiseOperation::kMAX:
      case ElementWiseOperation::kMIN:
        return true;
      default:
        return false;
    }
  };
  size_t operations = 0;
  for (const PointwiseInstruction& i : decode(node.as<Pointwise>()->params())) {
    if (i.op <= opcode(PointwiseOp::kConstant)) continue;
    const bool is_relu = i.op == opcode(ActivationType::kRELU);
    const bool is_binary =
        i.op >= opcode(PointwiseOp::kBinary) && i.op < opcode(PointwiseOp::kUnary);
    if (!is_relu && i.op != opcode(PointwiseOp::kCast) && !(is_binary && cheap_binary(i.op)))
      return false;
    ++operations;
  }
  const auto tensors = std::count_if(node.inputs.begin(), node.inputs.end(),
                                     [](const GraphValue* v) { return !v->is_constant(); });
  return operations <= kCheapInstructions && tensors <= 1;
}

/// Whether everything that reads the value is a program over the same shape, so that the value need
/// not be stored at all.
bool vanishes(const Graph& graph, const GraphValue& value) {
  if (graph.is_kept(value) || value.uses.size() > kMaxCopies) return false;
  return std::all_of(value.uses.begin(), value.uses.end(), [&](const GraphValue::Use& use) {
    return use.node->as<Pointwise>() && use.node->outputs[0]->info.dims == value.info.dims;
  });
}

bool fuse(Graph& graph, GraphNode* consumer, GraphNode* producer) {
  const GraphValue* value = producer->outputs[0];
  std::vector<GraphValue*> inputs = consumer->inputs;
  for (GraphValue* input : producer->inputs)
    if (std::find(inputs.begin(), inputs.end(), input) == inputs.end()) inputs.push_back(input);
  auto index_of = [&](const GraphValue* input) {
    return static_cast<int>(std::find(inputs.begin(), inputs.end(), input) - inputs.begin());
  };
  ProgramWriter writer;
  std::vector<int> registers;
  for (const GraphValue* input : producer->inputs)
    registers.push_back(writer.input(index_of(input), input->info.dtype));
  const int made = writer.append(producer->as<Pointwise>()->params(), registers).front();
  registers.clear();
  for (const GraphValue* input : consumer->inputs)
    registers.push_back(input == value ? made : writer.input(index_of(input), input->info.dtype));
  const std::vector<int> results = writer.append(consumer->as<Pointwise>()->params(), registers);
  std::vector<int> used;
  PointwiseParams params = writer.finish(results, &used);
  if (used.size() > kMaxInputs || params.code.size() / 5 > kMaxInstructions) return false;
  std::vector<GraphValue*> remaining;
  for (int input : used) remaining.push_back(inputs[input]);
  join(*producer, *consumer);
  graph.replace(consumer, std::make_shared<Pointwise>(std::move(params)), std::move(remaining));
  graph.release(producer);
  return true;
}

bool fuse_one(Graph& graph, GraphNode* consumer) {
  for (GraphValue* input : consumer->inputs) {
    GraphNode* producer = input->producer;
    // Programs compute in FP32: only what is stored is rounded to FP8.
    if (producer == nullptr || !producer->as<Pointwise>() || producer->outputs.size() != 1 ||
        input->stored_type || input->is_stored || input->info.dtype == DataType::kFP8 ||
        !may_join(*producer, *consumer) || input->info.dims != consumer->outputs[0]->info.dims)
      continue;
    const bool alone = graph.single_user(*input) == consumer;
    if (!alone && !(is_cheap(*producer) && vanishes(graph, *input))) continue;
    if (fuse(graph, consumer, producer)) return true;
  }
  return false;
}

}  // namespace

void fuse_pointwise(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    if (!node->as<Pointwise>()) continue;
    while (fuse_one(graph, node)) {
    }
  }
}

}  // namespace opwright
