#pragma once

#include <cstdint>
#include <string_view>

#include "base/types.h"
#include "operators/builtin.h"

/// \file
/// Every element-wise operation, one row each. Type rules, names and documentation in Python, the
/// importer of ONNX and the planning of programs read these rows. Each backend has one table of how
/// its device computes the operations: `backend/cpu/pointwise_float.cpp` and
/// `pointwise_integer.cpp`, `backend/gpu/pointwise_math.cpp`.
namespace opwright {

/// The types of an operation's operands. Floats are FP32, FP16, BF16 and FP8.
enum class OperandTypes : uint8_t {
  kFloats,
  kNumbers,         ///< floats and integers
  kNumbersOrBool,   ///< BOOL counts as the numbers 0 and 1
  kIntegersOrBool,  ///< bit by bit
  kBool,
};

/// Facts about an operation that hold on every device.
struct OperationFacts {
  enum Trait : uint8_t {
    kExact = 1,      ///< an FP32 result is the exact one, rounded once, on every device
    kGivesBool = 2,  ///< the result is BOOL; other results have the operands' type
    kCheap = 4,      ///< as fast as an addition: computed again rather than stored
  };
  /// The ONNX operator that is exactly this operation; empty where there is none.
  std::string_view onnx;
  OperandTypes operands = OperandTypes::kFloats;
  /// Very roughly the time of an element on a CPU in units of an addition.
  int cost = 1;
  uint8_t traits = 0;  ///< a union of Trait

  constexpr bool is(Trait trait) const { return (traits & trait) != 0; }
  bool takes(DataType type) const {
    switch (operands) {
      case OperandTypes::kFloats:
        return is_floating(type);
      case OperandTypes::kNumbers:
        return is_floating(type) || is_integer(type);
      case OperandTypes::kNumbersOrBool:
        return is_floating(type) || is_integer(type) || type == DataType::kBOOL;
      case OperandTypes::kIntegersOrBool:
        return is_integer(type) || type == DataType::kBOOL;
      case OperandTypes::kBool:
        return type == DataType::kBOOL;
    }
    return false;
  }
  DataType gives(DataType operands_type) const {
    return is(kGivesBool) ? DataType::kBOOL : operands_type;
  }
};

/// A NamedValue with facts.
template <class E>
struct OperationRow {
  const char* name;
  E value;
  const char* doc;  ///< special values included
  OperationFacts facts;
};

template <>
inline constexpr auto kEnumeration<ElementWiseOperation> = [] {
  using enum ElementWiseOperation;
  using enum OperandTypes;
  using enum OperationFacts::Trait;
  const OperationRow<ElementWiseOperation> rows[] = {
      {"SUM", kSUM, "a + b", {"Add", kNumbers, 1, kExact | kCheap}},
      {"PROD", kPROD, "a b", {"Mul", kNumbers, 1, kExact | kCheap}},
      {"MAX", kMAX, "max(a, b), NaN with NaN", {{}, kNumbers, 1, kExact | kCheap}},
      {"MIN", kMIN, "min(a, b), NaN with NaN", {{}, kNumbers, 1, kExact | kCheap}},
      {"SUB", kSUB, "a - b", {"Sub", kNumbers, 1, kExact | kCheap}},
      {"DIV", kDIV, "a / b; of integers towards 0, a / 0 = 0", {"Div", kNumbers, 1, kExact}},
      {"POW", kPOW, "a to the power of b; of integers 0 instead of a fraction", {{}, kNumbers, 32}},
      {"FLOOR_DIV", kFLOOR_DIV, "floor(a / b); of integers a / 0 = 0", {{}, kNumbers, 1}},
      {"AND", kAND, "a and b; of integers bit by bit", {"And", kIntegersOrBool, 1, kExact}},
      {"OR", kOR, "a or b; of integers bit by bit", {"Or", kIntegersOrBool, 1, kExact}},
      {"XOR", kXOR, "Either a or b; of integers bit by bit.", {"Xor", kIntegersOrBool, 1, kExact}},
      {"EQUAL", kEQUAL, "Whether a = b.", {"Equal", kNumbersOrBool, 1, kExact | kGivesBool}},
      {"GREATER", kGREATER, "Whether a > b.", {"Greater", kNumbers, 1, kExact | kGivesBool}},
      {"LESS", kLESS, "Whether a < b.", {"Less", kNumbers, 1, kExact | kGivesBool}},
  };
  return enumeration<ElementWiseOperation>(
      "ElementWiseOperation",
      "A function of two elements, a and b. Integers wrap around; comparisons with NaN are false.",
      rows);
}();

template <>
inline constexpr auto kEnumeration<UnaryOperation> = [] {
  using enum UnaryOperation;
  using enum OperandTypes;
  using enum OperationFacts::Trait;
  const OperationRow<UnaryOperation> rows[] = {
      {"EXP", kEXP, "e to the power of x", {"Exp", kFloats, 8}},
      {"LOG", kLOG, "Natural logarithm.", {"Log", kFloats, 8}},
      {"SQRT", kSQRT, "Square root.", {"Sqrt", kFloats, 1, kExact}},
      {"RECIP", kRECIP, "1 / x", {"Reciprocal", kFloats, 1, kExact}},
      {"ABS", kABS, "|x|", {"Abs", kNumbers, 1, kExact}},
      {"NEG", kNEG, "-x", {"Neg", kNumbers, 1, kExact}},
      {"SIN", kSIN, "Sine.", {"Sin", kFloats, 8}},
      {"COS", kCOS, "Cosine.", {"Cos", kFloats, 8}},
      {"TAN", kTAN, "Tangent.", {"Tan", kFloats, 8}},
      {"SINH", kSINH, "Hyperbolic sine.", {"Sinh", kFloats, 8}},
      {"COSH", kCOSH, "Hyperbolic cosine.", {"Cosh", kFloats, 8}},
      {"ASIN", kASIN, "Inverse sine.", {"Asin", kFloats, 8}},
      {"ACOS", kACOS, "Inverse cosine.", {"Acos", kFloats, 8}},
      {"ATAN", kATAN, "Inverse tangent.", {"Atan", kFloats, 8}},
      {"ASINH", kASINH, "Inverse hyperbolic sine.", {"Asinh", kFloats, 8}},
      {"ACOSH", kACOSH, "Inverse hyperbolic cosine.", {"Acosh", kFloats, 8}},
      {"ATANH", kATANH, "Inverse hyperbolic tangent.", {"Atanh", kFloats, 8}},
      {"CEIL", kCEIL, "The next integer upwards.", {"Ceil", kFloats, 1, kExact}},
      {"FLOOR", kFLOOR, "The next integer downwards.", {"Floor", kFloats, 1, kExact}},
      {"ERF", kERF, "Gauss error function.", {"Erf", kFloats, 8}},
      {"NOT", kNOT, "Not x, of BOOL.", {"Not", kBool, 1, kExact}},
      {"SIGN", kSIGN, "-1, 0 or 1.", {"Sign", kNumbers, 1, kExact}},
      {"ROUND", kROUND, "The nearest integer, the even one of two.", {"Round", kFloats, 1, kExact}},
      {"ISINF", kISINF, "Whether x is infinite.", {{}, kFloats, 8, kExact | kGivesBool}},
      {"ISNAN", kISNAN, "Whether x is not a number.", {"IsNaN", kFloats, 8, kExact | kGivesBool}},
  };
  return enumeration<UnaryOperation>(
      "UnaryOperation",
      "A function of one element, NaN outside of its domain. Integers wrap around.", rows);
}();

template <>
inline constexpr auto kEnumeration<ActivationType> = [] {
  using enum ActivationType;
  using enum OperandTypes;
  using enum OperationFacts::Trait;
  const OperationRow<ActivationType> rows[] = {
      {"RELU", kRELU, "max(0, x)", {"Relu", kNumbers, 1, kExact | kCheap}},
      {"SIGMOID", kSIGMOID, "1 / (1 + exp(-x))", {"Sigmoid", kFloats, 8}},
      {"TANH", kTANH, "tanh(x)", {"Tanh", kFloats, 8}},
      {"LEAKY_RELU", kLEAKY_RELU, "x >= 0 ? x : alpha x", {{}, kFloats, 1, kExact | kCheap}},
      {"ELU", kELU, "x >= 0 ? x : alpha (exp(x) - 1)", {{}, kFloats, 8}},
      {"SELU", kSELU, "beta (x > 0 ? x : alpha (exp(x) - 1))", {{}, kFloats, 8}},
      {"SOFTSIGN", kSOFTSIGN, "x / (1 + |x|)", {"Softsign", kFloats, 8}},
      {"SOFTPLUS", kSOFTPLUS, "alpha log(exp(beta x) + 1)", {{}, kFloats, 8}},
      {"CLIP", kCLIP, "max(alpha, min(beta, x))", {{}, kNumbers, 1, kExact | kCheap}},
      {"HARD_SIGMOID", kHARD_SIGMOID, "max(0, min(1, alpha x + beta))", {{}, kFloats, 1, kCheap}},
      {"SCALED_TANH", kSCALED_TANH, "alpha tanh(beta x)", {{}, kFloats, 8}},
      {"THRESHOLDED_RELU",
       kTHRESHOLDED_RELU,
       "x > alpha ? x : 0",
       {{}, kFloats, 1, kExact | kCheap}},
      {"GELU_ERF", kGELU_ERF, "x (1 + erf(x / sqrt(2))) / 2", {{}, kFloats, 8}},
      {"GELU_TANH",
       kGELU_TANH,
       "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
       {{}, kFloats, 8}},
  };
  return enumeration<ActivationType>(
      "ActivationType", "A function of one element, with parameters alpha and beta.", rows);
}();

/// The row of an operation; null for an unknown one, because a plan or a caller may give any
/// number.
template <class E>
constexpr const OperationRow<E>* row_of(E op) {
  constexpr auto& rows = kEnumeration<E>.values;
  static_assert([] {
    for (size_t i = 0; i < rows.size(); ++i)
      if (static_cast<size_t>(rows[i].value) != i) return false;
    return true;
  }());
  const auto index = static_cast<uint32_t>(op);
  return index < rows.size() ? &rows[index] : nullptr;
}
template <class E>
constexpr const OperationFacts* facts_of(E op) {
  const OperationRow<E>* const row = row_of(op);
  return row ? &row->facts : nullptr;
}

}  // namespace opwright
