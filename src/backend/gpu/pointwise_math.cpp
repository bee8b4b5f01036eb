#include "backend/gpu/pointwise_math.h"

#include <cmath>
#include <optional>

#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

using enum PointwiseOp;

/// `$a` and `$b` in the pattern stand for operands.
std::string fill_in(std::string_view pattern, std::string_view a, std::string_view b = {}) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$')
      text += pattern[i];
    else
      text += pattern[++i] == 'a' ? a : b;
  }
  return text;
}

std::string constant(DataType type, double value) {
  if (type == DataType::kFLOAT) return float_literal(static_cast<float>(value));
  const auto number = static_cast<int64_t>(value);
  // The lowest value has no literal.
  const std::string text = number == std::numeric_limits<int64_t>::min()
                               ? "(-9223372036854775807LL - 1)"
                               : std::to_string(number) + "LL";
  return str("(", register_type(type), ")(", text, ")");
}

// Sums and products are not contracted to a fused operation, so that x * y - x * y is 0.
std::string_view float_binary(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return "__fadd_rn($a, $b)";
    case ElementWiseOperation::kPROD:
      return "__fmul_rn($a, $b)";
    case ElementWiseOperation::kMAX:
      return "larger($a, $b)";
    case ElementWiseOperation::kMIN:
      return "smaller($a, $b)";
    case ElementWiseOperation::kSUB:
      return "__fsub_rn($a, $b)";
    case ElementWiseOperation::kDIV:
      return "__fdiv_rn($a, $b)";
    case ElementWiseOperation::kPOW:
      return "powf($a, $b)";
    case ElementWiseOperation::kFLOOR_DIV:
      return "floorf(__fdiv_rn($a, $b))";
    case ElementWiseOperation::kEQUAL:
      return "$a == $b";
    case ElementWiseOperation::kGREATER:
      return "$a > $b";
    case ElementWiseOperation::kLESS:
      return "$a < $b";
    default:
      return {};
  }
}

/// Exponents that need no logarithm.
std::string_view power_by(double exponent) {
  if (exponent == 2) return "__fmul_rn($a, $a)";
  if (exponent == 3) return "__fmul_rn(__fmul_rn($a, $a), $a)";
  if (exponent == 0.5) return "power_of_half($a)";
  if (exponent == -1) return "__fdiv_rn(1.0f, $a)";
  if (exponent == -0.5) return "__fdiv_rn(1.0f, power_of_half($a))";
  return {};
}

std::string_view integer_binary(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return "wrapping_sum($a, $b)";
    case ElementWiseOperation::kPROD:
      return "wrapping_product($a, $b)";
    case ElementWiseOperation::kMAX:
      return "$a > $b ? $a : $b";
    case ElementWiseOperation::kMIN:
      return "$a < $b ? $a : $b";
    case ElementWiseOperation::kSUB:
      return "wrapping_difference($a, $b)";
    case ElementWiseOperation::kDIV:
      return "quotient($a, $b)";
    case ElementWiseOperation::kPOW:
      return "integer_power($a, $b)";
    case ElementWiseOperation::kFLOOR_DIV:
      return "floor_quotient($a, $b)";
    case ElementWiseOperation::kAND:
      return "$a & $b";
    case ElementWiseOperation::kOR:
      return "$a | $b";
    case ElementWiseOperation::kXOR:
      return "$a ^ $b";
    case ElementWiseOperation::kEQUAL:
      return "$a == $b";
    case ElementWiseOperation::kGREATER:
      return "$a > $b";
    case ElementWiseOperation::kLESS:
      return "$a < $b";
    default:
      return {};
  }
}

std::string_view logical_binary(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kAND:
      return "$a && $b";
    case ElementWiseOperation::kOR:
      return "$a || $b";
    case ElementWiseOperation::kXOR:
      return "$a != $b";
    case ElementWiseOperation::kEQUAL:
      return "$a == $b";
    default:
      return {};
  }
}

std::string_view float_unary(UnaryOperation op) {
  switch (op) {
    case UnaryOperation::kEXP:
      return "expf($a)";
    case UnaryOperation::kLOG:
      return "logf($a)";
    case UnaryOperation::kSQRT:
      return "__fsqrt_rn($a)";
    case UnaryOperation::kRECIP:
      return "__fdiv_rn(1.0f, $a)";
    case UnaryOperation::kABS:
      return "fabsf($a)";
    case UnaryOperation::kNEG:
      return "-$a";
    case UnaryOperation::kSIN:
      return "sinf($a)";
    case UnaryOperation::kCOS:
      return "cosf($a)";
    case UnaryOperation::kTAN:
      return "tanf($a)";
    case UnaryOperation::kSINH:
      return "sinhf($a)";
    case UnaryOperation::kCOSH:
      return "coshf($a)";
    case UnaryOperation::kASIN:
      return "asinf($a)";
    case UnaryOperation::kACOS:
      return "acosf($a)";
    case UnaryOperation::kATAN:
      return "atanf($a)";
    case UnaryOperation::kASINH:
      return "asinhf($a)";
    case UnaryOperation::kACOSH:
      return "acoshf($a)";
    case UnaryOperation::kATANH:
      return "atanhf($a)";
    case UnaryOperation::kCEIL:
      return "ceilf($a)";
    case UnaryOperation::kFLOOR:
      return "floorf($a)";
    case UnaryOperation::kERF:
      return "erff($a)";
    case UnaryOperation::kSIGN:
      return "$a > 0.0f ? 1.0f : $a < 0.0f ? -1.0f : $a == 0.0f ? 0.0f : $a";
    case UnaryOperation::kROUND:
      return "rintf($a)";
    case UnaryOperation::kISINF:
      return "(__float_as_uint($a) & 0x7fffffffu) == 0x7f800000u";
    case UnaryOperation::kISNAN:
      return "$a != $a";
    default:
      return {};
  }
}

std::string_view integer_unary(UnaryOperation op) {
  switch (op) {
    case UnaryOperation::kABS:
      return "$a < 0 ? negated($a) : $a";
    case UnaryOperation::kNEG:
      return "negated($a)";
    case UnaryOperation::kSIGN:
      return "($a > 0) - ($a < 0)";
    default:
      return {};
  }
}

/// `$b` stands for "alpha, beta".
std::string_view float_activation(ActivationType type) {
  switch (type) {
    case ActivationType::kRELU:
      return "$a < 0.0f ? 0.0f : $a";
    case ActivationType::kSIGMOID:
      return "sigmoid($a)";
    case ActivationType::kTANH:
      return "tanhf($a)";
    case ActivationType::kLEAKY_RELU:
      return "leaky_relu($a, $b)";
    case ActivationType::kELU:
      return "elu($a, $b)";
    case ActivationType::kSELU:
      return "selu($a, $b)";
    case ActivationType::kSOFTSIGN:
      return "__fdiv_rn($a, fabsf($a) + 1.0f)";
    case ActivationType::kSOFTPLUS:
      return "softplus($a, $b)";
    case ActivationType::kCLIP:
      return "clip($a, $b)";
    case ActivationType::kHARD_SIGMOID:
      return "clip(fmaf($a, $b), 0.0f, 1.0f)";
    case ActivationType::kSCALED_TANH:
      return "scaled_tanh($a, $b)";
    case ActivationType::kTHRESHOLDED_RELU:
      return "thresholded_relu($a, $b)";
    case ActivationType::kGELU_ERF:
      return "gelu($a)";
    case ActivationType::kGELU_TANH:
      return "gelu_tanh($a)";
  }
  return {};
}

/// Bounds beyond the type's range bound nothing.
template <class T>
std::string integer_bounds(DataType type, double alpha, double beta) {
  using Limits = std::numeric_limits<T>;
  // The greatest value of the type that a double holds.
  constexpr double kHighest =
      sizeof(T) == 8 ? 0x1.fffffffffffffp62 : static_cast<double>(Limits::max());
  constexpr double kLowest = static_cast<double>(Limits::min());
  const double low = std::ceil(alpha), high = std::floor(beta);
  const auto bound = [&](double value) {
    return constant(type, std::min(std::max(value, kLowest), kHighest));
  };
  const std::string highest =
      str("(", register_type(type), ")", static_cast<int64_t>(Limits::max()), "LL");
  return str(low > kLowest ? bound(low) : constant(type, kLowest), ", ",
             high < kHighest ? bound(high) : highest);
}

std::string integer_activation(const PointwiseInstruction& instruction, std::string_view a) {
  const auto activation = activation_of(instruction.op);
  if (activation == ActivationType::kRELU) return fill_in("$a < 0 ? 0 : $a", a);
  if (activation != ActivationType::kCLIP) return {};
  const DataType type = instruction.type;
  const double alpha = instruction.alpha, beta = instruction.beta;
  const std::string bounds = type == DataType::kINT8    ? integer_bounds<int8_t>(type, alpha, beta)
                             : type == DataType::kUINT8 ? integer_bounds<uint8_t>(type, alpha, beta)
                             : type == DataType::kINT32
                                 ? integer_bounds<int32_t>(type, alpha, beta)
                                 : integer_bounds<int64_t>(type, alpha, beta);
  return fill_in("integer_clip($a, $b)", a, bounds);
}

std::string find_expression(std::span<const PointwiseInstruction> program, int index) {
  const PointwiseInstruction& instruction = program[index];
  const int32_t op = instruction.op;
  const auto name = [](int32_t id) { return "r" + std::to_string(id); };
  const std::string a = name(instruction.a);
  if (op == opcode(kInput)) return "x" + std::to_string(instruction.a);
  if (op == opcode(kConstant)) return constant(instruction.type, instruction.alpha);
  if (op == opcode(kSelect)) return str(a, " ? ", name(instruction.b), " : ", name(instruction.c));
  if (op == opcode(kToHalf)) return str("load(store<Half>(", a, "))");
  if (op == opcode(kToBf16)) return str("load(store<BFloat16>(", a, "))");
  if (op == opcode(kRemainder)) return str("float_remainder(", a, ", ", name(instruction.b), ")");
  if (op == opcode(kCast)) return str("convert<", register_type(instruction.type), ">(", a, ")");
  const DataType type = program[instruction.a].type;
  const bool is_float = type == DataType::kFLOAT;
  if (op >= opcode(kActivation)) {
    if (!is_float) return integer_activation(instruction, a);
    return fill_in(float_activation(activation_of(op)), a,
                   str(float_literal(static_cast<float>(instruction.alpha)), ", ",
                       float_literal(static_cast<float>(instruction.beta))));
  }
  if (op >= opcode(kUnary)) {
    const auto unary = unary_of(op);
    if (unary == UnaryOperation::kNOT) return type == DataType::kBOOL ? "!" + a : std::string();
    return fill_in(is_float ? float_unary(unary) : integer_unary(unary), a);
  }
  if (op < opcode(kBinary)) return {};
  const auto binary = binary_of(op);
  std::string_view pattern = is_float                  ? float_binary(binary)
                             : type == DataType::kBOOL ? logical_binary(binary)
                                                       : integer_binary(binary);
  const PointwiseInstruction& b = program[instruction.b];
  if (is_float && binary == ElementWiseOperation::kPOW && b.op == opcode(kConstant) &&
      !power_by(b.alpha).empty())
    pattern = power_by(b.alpha);
  return fill_in(pattern, a, name(instruction.b));
}

}  // namespace

std::string pointwise_expression(std::span<const PointwiseInstruction> program, int index) {
  std::string expression = find_expression(program, index);
  require(!expression.empty(), "the GPU has no kernel for operation ", program[index].op,
          " of a pointwise program with a result of type ", name(program[index].type));
  return expression;
}

std::string pointwise_functions(bool has_short_results) {
  return str("constexpr bool kHasShortResults = ", has_short_results ? "true" : "false", ";\n",
             include("pointwise.cuh"));
}

namespace {

/// Quantizations in a program, as short as they can be: what is divided by a constant, rounded and
/// bounded is bounded first, so that a sum with a large number rounds it, and bytes that become
/// numbers again are the numbers that they were.
class QuantizingProgram {
 public:
  QuantizingProgram(std::vector<PointwiseInstruction> instructions, int64_t result, DataType output)
      : instructions_(std::move(instructions)),
        uses_(instructions_.size()),
        wholes_(instructions_.size()),
        expressions_(instructions_.size()) {
    for (const PointwiseInstruction& i : instructions_) {
      if (i.op == opcode(kInput)) continue;
      for (const int32_t operand : {i.a, i.b, i.c})
        if (operand >= 0) ++uses_[operand];
    }
    ++uses_[result];
    for (size_t i = 0; i < instructions_.size(); ++i) {
      match_clip(i);
      match_cast(i);
    }
    if (const auto scale = scale_of(result); scale && output == DataType::kFP8)
      expressions_[result] =
          str("divide_by(r", instructions_[result].a, ", ", scale_and_reciprocal(*scale), ")");
  }
  std::string expression(size_t index) const {
    return expressions_[index].empty()
               ? pointwise_expression(instructions_, static_cast<int>(index))
               : expressions_[index];
  }

 private:
  /// A bounded whole number that a register has.
  struct Whole {
    double low = 0, high = 0;
    int32_t round = -1;   ///< the instruction that rounds; -1: the register has none
    std::string bounded;  ///< what that one rounds, where this is its result
  };

  static std::string name_of(int32_t index) { return "r" + std::to_string(index); }
  static std::string scale_and_reciprocal(float scale) {
    return str(float_literal(scale), ", ", float_literal(1 / scale));
  }
  static std::string rounded(const std::string& number) {
    return str("round_to_whole(", number, ")");
  }
  const double* constant_at(int32_t index) const {
    const PointwiseInstruction& i = instructions_[index];
    return i.op == opcode(kConstant) && i.type == DataType::kFLOAT ? &i.alpha : nullptr;
  }
  /// What the instruction divides by, where that is a constant whose reciprocal will do.
  std::optional<float> scale_of(int64_t index) const {
    const PointwiseInstruction& division = instructions_[index];
    if (division.op != opcode(ElementWiseOperation::kDIV)) return std::nullopt;
    const double* const divisor = constant_at(division.b);
    if (divisor == nullptr) return std::nullopt;
    const auto scale = static_cast<float>(*divisor);
    return scale >= kLeastScale && scale <= kMostScale ? std::optional(scale) : std::nullopt;
  }
  void match_clip(size_t index) {
    const PointwiseInstruction& clip = instructions_[index];
    // Where a sum with 1.5 * 2^23 rounds.
    constexpr double kMost = 1 << 20;
    if (clip.op != opcode(ActivationType::kCLIP) || clip.type != DataType::kFLOAT ||
        !(std::fabs(clip.alpha) < kMost) || !(std::fabs(clip.beta) < kMost) ||
        clip.alpha != std::floor(clip.alpha) || clip.beta != std::floor(clip.beta))
      return;
    int32_t round = clip.a;
    double zero_point = 0;
    if (const PointwiseInstruction& sum = instructions_[round];
        sum.op == opcode(ElementWiseOperation::kSUM) && uses_[round] == 1) {
      const double* const constant = constant_at(sum.b);
      if (constant == nullptr || *constant != std::floor(*constant) ||
          !(std::fabs(*constant) < kMost))
        return;
      zero_point = *constant, round = sum.a;
    }
    if (instructions_[round].op != opcode(UnaryOperation::kROUND) || uses_[round] != 1 ||
        instructions_[round].type != DataType::kFLOAT)
      return;
    const auto low = static_cast<float>(clip.alpha - zero_point),
               high = static_cast<float>(clip.beta - zero_point);
    const int32_t given = instructions_[round].a;
    std::string bounded = str("fminf(fmaxf(", name_of(given), ", ", float_literal(low), "), ",
                              float_literal(high), ")");
    if (const auto scale = scale_of(given); scale && uses_[given] == 1) {
      const std::string divided = name_of(instructions_[given].a);
      bounded = str("divide_within(", divided, ", ", scale_and_reciprocal(*scale), ", ",
                    float_literal(low * *scale), ", ", float_literal(high * *scale), ")");
      expressions_[given] = divided;
    }
    expressions_[round] = rounded(bounded);
    expressions_[index] = name_of(clip.a);
    wholes_[index] = {clip.alpha, clip.beta, round, clip.a == round ? bounded : std::string()};
  }
  void match_cast(size_t index) {
    const PointwiseInstruction& cast = instructions_[index];
    if (cast.op != opcode(kCast)) return;
    const bool is_signed = cast.type == DataType::kINT8;
    const Whole& whole = wholes_[cast.a];
    if (cast.type == DataType::kFLOAT && is_byte(instructions_[cast.a].type) && whole.round >= 0) {
      const int32_t before = instructions_[cast.a].a;
      if (!whole.bounded.empty()) expressions_[whole.round] = rounded(whole.bounded);
      expressions_[index] = name_of(before);
    } else if (is_byte(cast.type) && whole.round >= 0 && whole.low >= (is_signed ? -128 : 0) &&
               whole.high <= (is_signed ? 127 : 255)) {
      // What rounds it to a byte rounds it.
      if (uses_[cast.a] == 1 && !whole.bounded.empty()) expressions_[whole.round] = whole.bounded;
      expressions_[index] =
          str("round_to_byte<", register_type(cast.type), ">(", name_of(cast.a), ")");
      wholes_[index] = whole;
    }
  }

  std::vector<PointwiseInstruction> instructions_;
  std::vector<int> uses_;
  std::vector<Whole> wholes_;
  std::vector<std::string> expressions_;  ///< of instructions that are written otherwise
};

}  // namespace

std::string fused_program(const FusedProgram& program, DataType output) {
  const std::vector<PointwiseInstruction> instructions = decode(program.program);
  const int64_t result = program.program.results[0];
  const QuantizingProgram quantizing(instructions, result, output);
  std::string text = "const auto x0 = y;\n";
  for (size_t i = 0; i < instructions.size(); ++i) {
    const std::string_view type = register_type(instructions[i].type);
    // The cast is for integers shorter than int, which C++ computes as int.
    text += str("const ", type, " r", i, " = (", type, ")(", quantizing.expression(i), ");\n");
  }
  const std::string_view type = register_type(output);
  return text + str("const ", type, " z = convert<", type, ">(r", result, ");\n");
}

std::string fused_activation(const FusedActivation& activation) {
  if (!activation.present()) return {};
  const auto constant = [](double value) {
    return PointwiseInstruction{
        opcode(PointwiseOp::kConstant), DataType::kFLOAT, -1, -1, -1, value};
  };
  const auto binary = [](ElementWiseOperation op, int a, int b) {
    return PointwiseInstruction{opcode(op), DataType::kFLOAT, a, b};
  };
  const auto activate = [](ActivationType type, int a, double alpha, double beta) {
    return PointwiseInstruction{opcode(type), DataType::kFLOAT, a, -1, -1, alpha, beta};
  };
  std::vector<PointwiseInstruction> program = {{opcode(PointwiseOp::kInput), DataType::kFLOAT, 0}};
  if (activation.type == FusedActivation::kSwish) {
    program.push_back(constant(activation.alpha));
    program.push_back(binary(ElementWiseOperation::kPROD, 0, 1));
    program.push_back(activate(ActivationType::kSIGMOID, 2, 0, 0));
    program.push_back(binary(ElementWiseOperation::kPROD, 0, 3));
  } else if (activation.type == FusedActivation::kHardSwish) {
    program.push_back(
        activate(ActivationType::kHARD_SIGMOID, 0, activation.alpha, activation.beta));
    program.push_back(binary(ElementWiseOperation::kPROD, 0, 1));
  } else {
    program.push_back(activate(static_cast<ActivationType>(activation.type), 0, activation.alpha,
                               activation.beta));
  }
  std::string text = "{\nconst float x0 = y;\n";
  for (size_t i = 0; i < program.size(); ++i)
    text +=
        str("const float r", i, " = ", pointwise_expression(program, static_cast<int>(i)), ";\n");
  return text + str("y = r", program.size() - 1, ";\n}\n");
}

}  // namespace opwright::gpu
