#include "compile/fused_parts.h"

#include <algorithm>
#include <utility>

namespace opwright {
namespace {

// A program with more inputs or instructions no longer keeps its intermediate results in the
// nearest cache.
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxInstructions = 48;

}  // namespace

std::vector<int> append_node(ProgramWriter& writer, const GraphNode& node,
                             std::span<const int> registers) {
  const PointwiseParams& params = node.as<Pointwise>()->params();
  const std::vector<PointwiseInstruction> program = decode(params);
  const auto is_input = [&](int64_t at) { return program[at].op == opcode(PointwiseOp::kInput); };
  const auto type_of = [&](int64_t at) { return node.inputs[program[at].a]->info.dtype; };
  std::vector<int> made;
  for (PointwiseInstruction instruction : program) {
    if (instruction.op == opcode(PointwiseOp::kInput)) {
      made.push_back(registers[instruction.a]);
    } else if (instruction.op == opcode(PointwiseOp::kCast) && is_input(instruction.a)) {
      made.push_back(
          writer.cast(writer.round(made[instruction.a], type_of(instruction.a)), instruction.type));
    } else {
      made.push_back(writer.append(instruction, made));
    }
  }
  std::vector<int> results;
  for (size_t i = 0; i < params.results.size(); ++i) {
    const int64_t at = params.results[i];
    const DataType type = node.outputs[i]->info.dtype;
    int result = made[at];
    if (is_input(at) && type_of(at) != type)
      result = writer.round(writer.round(result, type_of(at)), type);
    else if (program[at].op == opcode(PointwiseOp::kCast))
      result = writer.round(result, type);
    results.push_back(result);
  }
  return results;
}

std::optional<JoinedPrograms> join_programs(const GraphNode& first, const GraphNode& second) {
  const GraphValue* value = first.outputs[0];
  std::vector<GraphValue*> inputs = second.inputs;
  for (GraphValue* input : first.inputs)
    if (std::find(inputs.begin(), inputs.end(), input) == inputs.end()) inputs.push_back(input);
  const auto index_of = [&](const GraphValue* input) {
    return static_cast<int>(std::find(inputs.begin(), inputs.end(), input) - inputs.begin());
  };
  ProgramWriter writer;
  std::vector<int> registers;
  for (const GraphValue* input : first.inputs)
    registers.push_back(writer.input(index_of(input), input->info.dtype));
  const int made = append_node(writer, first, registers).front();
  registers.clear();
  for (const GraphValue* input : second.inputs)
    registers.push_back(input == value ? made : writer.input(index_of(input), input->info.dtype));
  const std::vector<int> results = append_node(writer, second, registers);
  std::vector<int> used;
  JoinedPrograms joined{writer.finish(results, &used), {}};
  if (used.size() > kMaxInputs || joined.program.code.size() / 5 > kMaxInstructions)
    return std::nullopt;
  for (const int input : used) joined.inputs.push_back(inputs[static_cast<size_t>(input)]);
  return joined;
}

std::shared_ptr<const FusedParts> parts_of(const GraphNode& producer, const GraphNode& node) {
  auto parts = std::make_shared<FusedParts>();
  auto& [first, second] = parts->nodes;
  first = producer, second = node;
  if (producer.parts != nullptr) {
    const auto& [product, program] = producer.parts->nodes;
    std::optional<JoinedPrograms> joined = join_programs(program, node);
    if (!joined) return nullptr;
    first = product;
    second.op = std::make_shared<Pointwise>(std::move(joined->program));
    second.inputs = std::move(joined->inputs);
    join(program, second);
  }
  first.parts = second.parts = nullptr;
  GraphValue* const result = first.outputs[0];
  parts->between.name = result->name;
  parts->between.info = result->info;
  parts->between.scale = result->scale;
  parts->between.producer = &first;
  first.outputs = {&parts->between};
  std::replace(second.inputs.begin(), second.inputs.end(), result, &parts->between);
  if (std::find(second.inputs.begin(), second.inputs.end(), &parts->between) == second.inputs.end())
    return nullptr;
  return parts;
}

}  // namespace opwright
