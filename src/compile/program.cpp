#include "compile/program.h"

#include <algorithm>
#include <bit>

#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright {

bool is_cheap(const PointwiseInstruction& instruction) {
  const int32_t op = instruction.op;
  if (op == opcode(PointwiseOp::kCast) || op == opcode(PointwiseOp::kToHalf) ||
      op == opcode(PointwiseOp::kToBf16))
    return true;
  const OperationFacts* const facts = facts_of(op);
  return facts && facts->is(OperationFacts::kCheap);
}

std::optional<PointwiseOp> rounding_to(DataType type) {
  if (type == DataType::kHALF) return PointwiseOp::kToHalf;
  if (type == DataType::kBF16) return PointwiseOp::kToBf16;
  return std::nullopt;
}

DataType register_type(DataType type) { return is_floating(type) ? DataType::kFLOAT : type; }

int ProgramWriter::add(PointwiseInstruction i) {
  const Key key{i.op,
                static_cast<int>(i.type),
                i.a,
                i.b,
                i.c,
                std::bit_cast<uint64_t>(i.alpha),
                std::bit_cast<uint64_t>(i.beta)};
  auto [known, added] = known_.try_emplace(key, static_cast<int>(instructions_.size()));
  if (added) instructions_.push_back(i);
  return known->second;
}

int ProgramWriter::input(int index, DataType type) {
  return add({opcode(PointwiseOp::kInput), register_type(type), index});
}

int ProgramWriter::constant(double value, DataType type) {
  PointwiseInstruction instruction{opcode(PointwiseOp::kConstant), register_type(type)};
  instruction.alpha = value;
  return add(instruction);
}

int ProgramWriter::binary(ElementWiseOperation op, int a, int b) {
  return add({opcode(op), result_type(op, type(a)), a, b});
}

int ProgramWriter::unary(UnaryOperation op, int a) {
  return add({opcode(op), result_type(op, type(a)), a});
}

int ProgramWriter::activation(ActivationType activation, int a, float alpha, float beta) {
  return add({opcode(activation), type(a), a, -1, -1, alpha, beta});
}

int ProgramWriter::select(int condition, int a, int b) {
  return add({opcode(PointwiseOp::kSelect), type(a), condition, a, b});
}

int ProgramWriter::cast(int a, DataType to) {
  if (type(a) == register_type(to)) return a;
  const PointwiseInstruction& given = instructions_[a];
  if (given.op == opcode(PointwiseOp::kConstant) && register_type(to) == DataType::kFLOAT)
    return constant(static_cast<float>(given.alpha), to);
  return add({opcode(PointwiseOp::kCast), register_type(to), a});
}

int ProgramWriter::remainder(int a, int b) {
  return add({opcode(PointwiseOp::kRemainder), DataType::kFLOAT, a, b});
}

int ProgramWriter::round(int a, DataType type) {
  const std::optional<PointwiseOp> op = rounding_to(type);
  if (!op || instructions_[a].op == opcode(*op)) return a;
  return add({opcode(*op), DataType::kFLOAT, a});
}

int ProgramWriter::append(PointwiseInstruction instruction, std::span<const int> registers) {
  for (int32_t* operand : {&instruction.a, &instruction.b, &instruction.c})
    if (*operand >= 0) *operand = registers[*operand];
  return add(instruction);
}

std::vector<int> ProgramWriter::append(const PointwiseParams& program,
                                       std::span<const int> inputs) {
  std::vector<int> registers;
  for (const PointwiseInstruction& instruction : decode(program))
    registers.push_back(instruction.op == opcode(PointwiseOp::kInput)
                            ? inputs[instruction.a]
                            : append(instruction, registers));
  std::vector<int> results;
  for (int64_t result : program.results) results.push_back(registers[result]);
  return results;
}

PointwiseParams ProgramWriter::finish(std::span<const int> results,
                                      std::vector<int>* used_inputs) const {
  std::vector<bool> needed(instructions_.size());
  for (int result : results) needed[result] = true;
  for (size_t i = instructions_.size(); i-- > 0;) {
    const PointwiseInstruction& instruction = instructions_[i];
    if (!needed[i] || instruction.op == opcode(PointwiseOp::kInput)) continue;
    for (int32_t operand : {instruction.a, instruction.b, instruction.c})
      if (operand >= 0) needed[operand] = true;
  }
  used_inputs->clear();
  for (size_t i = 0; i < instructions_.size(); ++i)
    if (needed[i] && instructions_[i].op == opcode(PointwiseOp::kInput))
      used_inputs->push_back(instructions_[i].a);
  std::sort(used_inputs->begin(), used_inputs->end());
  std::vector<int32_t> renumbered(instructions_.size(), -1);
  std::vector<PointwiseInstruction> program;
  for (size_t i = 0; i < instructions_.size(); ++i) {
    if (!needed[i]) continue;
    PointwiseInstruction instruction = instructions_[i];
    if (instruction.op == opcode(PointwiseOp::kInput)) {
      instruction.a =
          static_cast<int32_t>(std::find(used_inputs->begin(), used_inputs->end(), instruction.a) -
                               used_inputs->begin());
    } else {
      for (int32_t* operand : {&instruction.a, &instruction.b, &instruction.c})
        if (*operand >= 0) *operand = renumbered[*operand];
    }
    renumbered[i] = static_cast<int32_t>(program.size());
    program.push_back(instruction);
  }
  Ints result_registers;
  for (int result : results) result_registers.push_back(renumbered[result]);
  return encode(program, std::move(result_registers));
}

}  // namespace opwright
