#include "operators/pointwise.h"

#include <cmath>
#include <limits>

#include "operators/infer.h"

namespace opwright {
namespace {

constexpr int kIntsPerInstruction = 5;
constexpr int kFloatsPerInstruction = 2;
/// Far more than fusion makes. A damaged plan cannot ask for much memory.
constexpr size_t kMaxInstructions = 4096;

template <class... Parts>
void check(bool condition, size_t index, const Parts&... parts) {
  require(condition, "pointwise program, instruction ", index, ": ", parts...);
}

int32_t narrow(int64_t value, size_t index) {
  check(
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(),
      index, value, " does not fit 32 bits");
  return static_cast<int32_t>(value);
}

bool is_register_type(DataType type) {
  return type == DataType::kFLOAT || is_integer(type) || type == DataType::kBOOL;
}

/// Checks that operands are earlier registers of fitting types.
void verify(std::span<const PointwiseInstruction> program, size_t index) {
  const PointwiseInstruction& instruction = program[index];
  check(is_register_type(instruction.type), index, "registers cannot have type ",
        static_cast<int32_t>(instruction.type), "; expected FP32, an integer type or BOOL");
  const auto operand = [&](int32_t id) {
    check(id >= 0 && static_cast<size_t>(id) < index, index, "operand ", id,
          " is not an earlier register");
    return program[id].type;
  };
  const auto expect = [&](bool fits) {
    check(fits, index, "operands and result have unfitting types");
  };
  const int32_t op = instruction.op;
  if (op == opcode(PointwiseOp::kInput)) {
    check(instruction.a >= 0, index, "input ", instruction.a, " is negative");
  } else if (op == opcode(PointwiseOp::kConstant)) {
    check(instruction.type == DataType::kFLOAT ||
              (std::abs(instruction.alpha) < 0x1p63 &&
               instruction.alpha == std::trunc(instruction.alpha)),
          index, "the constant ", instruction.alpha, " is no integer");
  } else if (op == opcode(PointwiseOp::kSelect)) {
    expect(operand(instruction.a) == DataType::kBOOL);
    expect(operand(instruction.b) == instruction.type &&
           operand(instruction.c) == instruction.type);
  } else if (op == opcode(PointwiseOp::kCast)) {
    operand(instruction.a);
  } else if (op == opcode(PointwiseOp::kToHalf) || op == opcode(PointwiseOp::kToBf16)) {
    expect(operand(instruction.a) == DataType::kFLOAT && instruction.type == DataType::kFLOAT);
  } else if (op == opcode(PointwiseOp::kRemainder)) {
    expect(operand(instruction.a) == DataType::kFLOAT &&
           operand(instruction.b) == DataType::kFLOAT && instruction.type == DataType::kFLOAT);
  } else if (const OperationFacts* const facts = facts_of(op)) {
    const DataType type = operand(instruction.a);
    const bool is_binary = op < opcode(PointwiseOp::kUnary);
    expect(facts->takes(type) && instruction.type == facts->gives(type) &&
           (!is_binary || operand(instruction.b) == type));
  } else {
    check(false, index, "unknown operation ", op);
  }
}

}  // namespace

std::vector<PointwiseInstruction> decode(const PointwiseParams& params) {
  const size_t count = params.code.size() / kIntsPerInstruction;
  require(params.code.size() % kIntsPerInstruction == 0 && count >= 1 && count <= kMaxInstructions,
          "pointwise program: the code must be 1 to ", kMaxInstructions, " times ",
          kIntsPerInstruction, " integers, but is ", params.code.size());
  require(params.immediates.size() == count * kFloatsPerInstruction, "pointwise program: expected ",
          count * kFloatsPerInstruction, " immediates for ", count, " instructions, but there are ",
          params.immediates.size());
  std::vector<PointwiseInstruction> program(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t* code = &params.code[i * kIntsPerInstruction];
    PointwiseInstruction& instruction = program[i];
    instruction.op = narrow(code[0], i);
    instruction.type = static_cast<DataType>(narrow(code[1], i));
    instruction.a = narrow(code[2], i);
    instruction.b = narrow(code[3], i);
    instruction.c = narrow(code[4], i);
    instruction.alpha = params.immediates[i * kFloatsPerInstruction];
    instruction.beta = params.immediates[i * kFloatsPerInstruction + 1];
    verify(program, i);
  }
  require(!params.results.empty(), "pointwise program: there must be at least one result");
  for (int64_t result : params.results)
    require(result >= 0 && result < static_cast<int64_t>(count), "pointwise program: result ",
            result, " is none of the ", count, " registers");
  return program;
}

PointwiseParams encode(std::span<const PointwiseInstruction> program, Ints results) {
  PointwiseParams params;
  for (const PointwiseInstruction& instruction : program) {
    for (int64_t value :
         {static_cast<int64_t>(instruction.op), static_cast<int64_t>(instruction.type),
          static_cast<int64_t>(instruction.a), static_cast<int64_t>(instruction.b),
          static_cast<int64_t>(instruction.c)})
      params.code.push_back(value);
    params.immediates.push_back(instruction.alpha);
    params.immediates.push_back(instruction.beta);
  }
  params.results = std::move(results);
  return params;
}

PointwiseParams PointwiseParams::without_scales() const {
  std::vector<PointwiseInstruction> program = decode(*this);
  std::vector<bool> is_scale(program.size()), is_other(program.size());
  for (const PointwiseInstruction& i : program) {
    if (i.op == opcode(PointwiseOp::kInput)) continue;
    const bool multiplies = i.op == opcode(ElementWiseOperation::kPROD),
               divides = i.op == opcode(ElementWiseOperation::kDIV);
    if (i.a >= 0) (multiplies ? is_scale : is_other)[i.a] = true;
    if (i.b >= 0) (multiplies || divides ? is_scale : is_other)[i.b] = true;
    if (i.c >= 0) is_other[i.c] = true;
  }
  for (size_t i = 0; i < program.size(); ++i)
    if (program[i].op == opcode(PointwiseOp::kConstant) && is_scale[i] && !is_other[i] &&
        program[i].type == DataType::kFLOAT)
      program[i].alpha = 1;
  return encode(program, results);
}

std::vector<OutputInfo> Pointwise::infer(InferContext& context) const {
  const Inference inference(context, kKind, {}, 0, std::numeric_limits<int>::max());
  const std::vector<PointwiseInstruction> program = decode(params());
  DataType floating = DataType::kFLOAT;
  SymShape shape;
  for (int i = inference.count() - 1; i >= 0; --i) {
    inference.require(inference.optional(i) != nullptr, inference.port(i), " must be there");
    const TensorInfo& input = inference.input(i);
    if (is_floating(input.dtype)) floating = input.dtype;
    try {
      shape = broadcast(std::span<const Expr>(shape), input.dims);
    } catch (const Error&) {
      inference.fail(inference.port(i), " of shape ", str(input.dims), " does not broadcast with ",
                     str(shape));
    }
  }
  for (int i = 0; i < inference.count(); ++i)
    inference.agree_to_broadcast(i, inference.input(i).dims.size(), shape);
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].op != opcode(PointwiseOp::kInput)) continue;
    const int index = program[i].a;
    inference.require(index < inference.count(), "the program reads input ", index,
                      ", but there are ", inference.count(), " inputs");
    const DataType type = inference.input(index).dtype;
    const DataType expected = is_floating(type) ? DataType::kFLOAT : type;
    inference.require(program[i].type == expected, inference.port(index), " is ", name(type),
                      ", but the program reads it as ", name(program[i].type));
  }
  std::vector<OutputInfo> outputs;
  for (int64_t result : params().results) {
    const DataType type = program[result].type;
    outputs.push_back(make_output(type == DataType::kFLOAT ? floating : type, shape));
  }
  return outputs;
}

}  // namespace opwright
