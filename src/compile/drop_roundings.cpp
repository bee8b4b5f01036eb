#include "base/types.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "operators/convolution.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// The program without instructions that round inputs or results to the types that these have
/// already. Nothing where the program has no such instruction.
std::optional<PointwiseParams> without_roundings(const PointwiseParams& params,
                                                 std::span<const DataType> inputs,
                                                 std::span<const DataType> outputs) {
  const std::vector<PointwiseInstruction> program = decode(params);
  const auto rounds_to = [&](int64_t at, DataType type) {
    const std::optional<PointwiseOp> op = rounding_to(type);
    return op && program[at].op == opcode(*op);
  };
  bool is_changed = false;
  ProgramWriter writer;
  std::vector<int> registers;
  for (size_t i = 0; i < program.size(); ++i) {
    const PointwiseInstruction& instruction = program[i];
    const bool is_input = instruction.op == opcode(PointwiseOp::kInput);
    const PointwiseInstruction* const operand =
        !is_input && instruction.a >= 0 ? &program[instruction.a] : nullptr;
    const bool has_type = operand != nullptr && operand->op == opcode(PointwiseOp::kInput) &&
                          rounds_to(static_cast<int64_t>(i), inputs[operand->a]);
    is_changed = is_changed || has_type;
    registers.push_back(is_input   ? writer.input(instruction.a, instruction.type)
                        : has_type ? registers[instruction.a]
                                   : writer.append(instruction, registers));
  }
  std::vector<int> results;
  for (size_t i = 0; i < params.results.size(); ++i) {
    int64_t at = params.results[i];
    while (rounds_to(at, outputs[i])) at = program[at].a, is_changed = true;
    results.push_back(registers[at]);
  }
  if (!is_changed) return std::nullopt;
  std::vector<int> used;
  return writer.finish(results, &used);
}

std::vector<DataType> types_of(std::span<GraphValue* const> values) {
  std::vector<DataType> types;
  for (const GraphValue* value : values)
    types.push_back(value != nullptr ? value->info.dtype : DataType::kFLOAT);
  return types;
}

/// Drops roundings of the fused program of an `Op`. The program's first operand has the type `sum`.
template <class Op>
void drop_of(Graph& graph, GraphNode* node, DataType sum) {
  const auto* op = node->as<Op>();
  if (op == nullptr || !op->params().fused.present()) return;
  auto params = op->params();
  const auto all = types_of(node->inputs);
  std::vector<DataType> types = {sum};
  types.insert(types.end(), all.end() - params.fused.inputs(), all.end());
  std::optional<PointwiseParams> program =
      without_roundings(params.fused.program, types, types_of(node->outputs));
  if (!program) return;
  params.fused.program = std::move(*program);
  graph.replace(node, std::make_shared<Op>(std::move(params)), node->inputs);
}

}  // namespace

void drop_roundings(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    if (const auto* op = node->as<Pointwise>()) {
      std::optional<PointwiseParams> program =
          without_roundings(op->params(), types_of(node->inputs), types_of(node->outputs));
      if (program)
        graph.replace(node, std::make_shared<Pointwise>(std::move(*program)), node->inputs);
    }
    drop_of<Convolution>(graph, node, DataType::kFLOAT);
    drop_of<Deconvolution>(graph, node, DataType::kFLOAT);
    drop_of<MatrixMultiply>(graph, node, DataType::kFLOAT);
    drop_of<FusedAttention>(graph, node,
                            node->inputs.empty() || node->inputs[0] == nullptr
                                ? DataType::kFLOAT
                                : node->inputs[0]->info.dtype);
  }
}

}  // namespace opwright
