#include "backend/gpu/pointwise_math.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

using enum PointwiseOp;
using enum ElementWiseOperation;
using enum UnaryOperation;
using enum ActivationType;

std::string constant(DataType type, double value) {
  if (type == DataType::kFLOAT) return float_literal(static_cast<float>(value));
  const auto number = static_cast<int64_t>(value);
  // C++ has no literal for the lowest value.
  const std::string text = number == std::numeric_limits<int64_t>::min()
                               ? "(-9223372036854775807LL - 1)"
                               : std::to_string(number) + "LL";
  return str("(", register_type(type), ")(", text, ")");
}

/// An operation's expression on a GPU, empty where it does not take the type. $a, $b and $c stand
/// for the operands, $p for alpha and beta.
struct Expressions {
  int32_t op;
  std::string_view of_floats, of_integers = {}, of_bools = {};
};

// The intrinsics keep the compiler from contracting sums and products, so that x * y - x * y is 0.
constexpr Expressions kExpressions[] = {
    {opcode(kSUM), "__fadd_rn($a, $b)", "wrapping_sum($a, $b)"},
    {opcode(kPROD), "__fmul_rn($a, $b)", "wrapping_product($a, $b)"},
    {opcode(kMAX), "larger($a, $b)", "$a > $b ? $a : $b"},
    {opcode(kMIN), "smaller($a, $b)", "$a < $b ? $a : $b"},
    {opcode(kSUB), "__fsub_rn($a, $b)", "wrapping_difference($a, $b)"},
    {opcode(kDIV), "__fdiv_rn($a, $b)", "quotient($a, $b)"},
    {opcode(kPOW), "powf($a, $b)", "integer_power($a, $b)"},
    {opcode(kFLOOR_DIV), "floorf(__fdiv_rn($a, $b))", "floor_quotient($a, $b)"},
    {opcode(kAND), {}, "$a & $b", "$a && $b"},
    {opcode(kOR), {}, "$a | $b", "$a || $b"},
    {opcode(kXOR), {}, "$a ^ $b", "$a != $b"},
    {opcode(kEQUAL), "$a == $b", "$a == $b", "$a == $b"},
    {opcode(kGREATER), "$a > $b", "$a > $b"},
    {opcode(kLESS), "$a < $b", "$a < $b"},

    {opcode(kEXP), "expf($a)"},
    {opcode(kLOG), "logf($a)"},
    {opcode(kSQRT), "__fsqrt_rn($a)"},
    {opcode(kRECIP), "__fdiv_rn(1.0f, $a)"},
    {opcode(kABS), "fabsf($a)", "$a < 0 ? negated($a) : $a"},
    {opcode(kNEG), "-$a", "negated($a)"},
    {opcode(kSIN), "sinf($a)"},
    {opcode(kCOS), "cosf($a)"},
    {opcode(kTAN), "tanf($a)"},
    {opcode(kSINH), "sinhf($a)"},
    {opcode(kCOSH), "coshf($a)"},
    {opcode(kASIN), "asinf($a)"},
    {opcode(kACOS), "acosf($a)"},
    {opcode(kATAN), "atanf($a)"},
    {opcode(kASINH), "asinhf($a)"},
    {opcode(kACOSH), "acoshf($a)"},
    {opcode(kATANH), "atanhf($a)"},
    {opcode(kCEIL), "ceilf($a)"},
    {opcode(kFLOOR), "floorf($a)"},
    {opcode(kERF), "erff($a)"},
    {opcode(kNOT), {}, {}, "!$a"},
    {opcode(kSIGN), "$a > 0.0f ? 1.0f : $a < 0.0f ? -1.0f : $a == 0.0f ? 0.0f : $a",
     "($a > 0) - ($a < 0)"},
    {opcode(kROUND), "rintf($a)"},
    {opcode(kISINF), "(__float_as_uint($a) & 0x7fffffffu) == 0x7f800000u"},
    {opcode(kISNAN), "$a != $a"},

    {opcode(kRELU), "$a < 0.0f ? 0.0f : $a", "$a < 0 ? 0 : $a"},
    {opcode(kSIGMOID), "sigmoid($a)"},
    {opcode(kTANH), "tanhf($a)"},
    {opcode(kLEAKY_RELU), "leaky_relu($a, $p)"},
    {opcode(kELU), "elu($a, $p)"},
    {opcode(kSELU), "selu($a, $p)"},
    {opcode(kSOFTSIGN), "__fdiv_rn($a, fabsf($a) + 1.0f)"},
    {opcode(kSOFTPLUS), "softplus($a, $p)"},
    {opcode(kCLIP), "clip($a, $p)", "integer_clip($a, $p)"},
    {opcode(kHARD_SIGMOID), "clip(fmaf($a, $p), 0.0f, 1.0f)"},
    {opcode(kSCALED_TANH), "scaled_tanh($a, $p)"},
    {opcode(kTHRESHOLDED_RELU), "thresholded_relu($a, $p)"},
    {opcode(kGELU_ERF), "gelu<kHasShortResults>($a)"},
    {opcode(kGELU_TANH), "gelu_tanh($a)"},

    {opcode(kToHalf), "load(store<Half>($a))"},
    {opcode(kToBf16), "load(store<BFloat16>($a))"},
    {opcode(kRemainder), "float_remainder($a, $b)"},
    {opcode(kSelect), {}, {}, "$a ? $b : $c"},
};

/// The expression of an operation whose operand a has the type.
std::string_view pattern_of(int32_t op, DataType type) {
  const auto* const found = std::ranges::find(kExpressions, op, &Expressions::op);
  if (found == std::end(kExpressions)) return {};
  return type == DataType::kFLOAT  ? found->of_floats
         : type == DataType::kBOOL ? found->of_bools
                                   : found->of_integers;
}

/// The expression of a power that needs no logarithm; empty for other exponents.
std::string_view power_by(double exponent) {
  if (exponent == 2) return "__fmul_rn($a, $a)";
  if (exponent == 3) return "__fmul_rn(__fmul_rn($a, $a), $a)";
  if (exponent == 0.5) return "power_of_half($a)";
  if (exponent == -1) return "__fdiv_rn(1.0f, $a)";
  if (exponent == -0.5) return "__fdiv_rn(1.0f, power_of_half($a))";
  return {};
}

/// Bounds as arguments. Bounds beyond the type's range have no effect.
template <class T>
std::string integer_bounds(DataType type, double alpha, double beta) {
  using Limits = std::numeric_limits<T>;
  // The greatest value of the type that a double represents.
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

/// Alpha and beta as arguments.
std::string parameters(const PointwiseInstruction& instruction) {
  const double alpha = instruction.alpha, beta = instruction.beta;
  const DataType type = instruction.type;
  switch (type) {
    case DataType::kFLOAT:
      return str(constant(type, alpha), ", ", constant(type, beta));
    case DataType::kINT8:
      return integer_bounds<int8_t>(type, alpha, beta);
    case DataType::kUINT8:
      return integer_bounds<uint8_t>(type, alpha, beta);
    case DataType::kINT32:
      return integer_bounds<int32_t>(type, alpha, beta);
    default:
      return integer_bounds<int64_t>(type, alpha, beta);
  }
}

std::string fill_in(std::string_view pattern, const PointwiseInstruction& instruction) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      text += pattern[i];
      continue;
    }
    const char operand = pattern[++i];
    text += operand == 'p'   ? parameters(instruction)
            : operand == 'a' ? str("r", instruction.a)
            : operand == 'b' ? str("r", instruction.b)
                             : str("r", instruction.c);
  }
  return text;
}

std::string find_expression(std::span<const PointwiseInstruction> program, int index) {
  const PointwiseInstruction& instruction = program[index];
  const int32_t op = instruction.op;
  if (op == opcode(kInput)) return "x" + std::to_string(instruction.a);
  if (op == opcode(kConstant)) return constant(instruction.type, instruction.alpha);
  if (op == opcode(kCast))
    return str("convert<", register_type(instruction.type), ">(r", instruction.a, ")");
  const DataType type = program[instruction.a].type;
  std::string_view pattern = pattern_of(op, type);
  if (op == opcode(kPOW) && type == DataType::kFLOAT) {
    const PointwiseInstruction& exponent = program[instruction.b];
    if (exponent.op == opcode(kConstant) && !power_by(exponent.alpha).empty())
      pattern = power_by(exponent.alpha);
  }
  return fill_in(pattern, instruction);
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

/// Shortens quantizations in a program. A quotient by a constant is bounded before it is rounded,
/// so that a sum with a large number can round it. A byte that is converted back to a number is the
/// number that it was made of.
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
  /// A bounded whole number in a register.
  struct Whole {
    double low = 0, high = 0;
    int32_t round = -1;   ///< index of the instruction that rounds; -1: not a whole number
    std::string bounded;  ///< the operand of the rounding, where this register is its result
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
  /// The divisor of the instruction, if it is a constant in the range where its reciprocal is exact
  /// enough.
  std::optional<float> scale_of(int64_t index) const {
    const PointwiseInstruction& division = instructions_[index];
    if (division.op != opcode(kDIV)) return std::nullopt;
    const double* const divisor = constant_at(division.b);
    if (divisor == nullptr) return std::nullopt;
    const auto scale = static_cast<float>(*divisor);
    return scale >= kLeastScale && scale <= kMostScale ? std::optional(scale) : std::nullopt;
  }
  void match_clip(size_t index) {
    const PointwiseInstruction& clip = instructions_[index];
    // The range in which a sum with 1.5 * 2^23 rounds.
    constexpr double kMost = 1 << 20;
    if (clip.op != opcode(kCLIP) || clip.type != DataType::kFLOAT ||
        !(std::fabs(clip.alpha) < kMost) || !(std::fabs(clip.beta) < kMost) ||
        clip.alpha != std::floor(clip.alpha) || clip.beta != std::floor(clip.beta))
      return;
    int32_t round = clip.a;
    double zero_point = 0;
    if (const PointwiseInstruction& sum = instructions_[round];
        sum.op == opcode(kSUM) && uses_[round] == 1) {
      const double* const constant = constant_at(sum.b);
      if (constant == nullptr || *constant != std::floor(*constant) ||
          !(std::fabs(*constant) < kMost))
        return;
      zero_point = *constant, round = sum.a;
    }
    if (instructions_[round].op != opcode(kROUND) || uses_[round] != 1 ||
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
      // The conversion to a byte also rounds.
      if (uses_[cast.a] == 1 && !whole.bounded.empty()) expressions_[whole.round] = whole.bounded;
      expressions_[index] =
          str("round_to_byte<", register_type(cast.type), ">(", name_of(cast.a), ")");
      wholes_[index] = whole;
    }
  }

  std::vector<PointwiseInstruction> instructions_;
  std::vector<int> uses_;
  std::vector<Whole> wholes_;
  std::vector<std::string> expressions_;  ///< of instructions whose expressions are replaced
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
    program.push_back(binary(kPROD, 0, 1));
    program.push_back(activate(kSIGMOID, 2, 0, 0));
    program.push_back(binary(kPROD, 0, 3));
  } else if (activation.type == FusedActivation::kHardSwish) {
    program.push_back(activate(kHARD_SIGMOID, 0, activation.alpha, activation.beta));
    program.push_back(binary(kPROD, 0, 1));
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

int first_program_input(const KernelArgs& args, const FusedProgram& program) {
  return static_cast<int>(args.inputs.size()) - program.inputs();
}

}  // namespace opwright::gpu
