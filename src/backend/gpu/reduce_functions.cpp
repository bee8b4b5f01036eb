#include "backend/gpu/reduce_functions.h"

#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// A sum of truth values is OR and a product AND.
ReduceOperation operation_on(DataType type, ReduceOperation op) {
  if (type != DataType::kBOOL) return op;
  return op == ReduceOperation::kPROD || op == ReduceOperation::kMIN ? ReduceOperation::kMIN
                                                                     : ReduceOperation::kMAX;
}

/// The type that elements are reduced in. The average of integers must not wrap around before it is
/// divided.
std::string_view value_type(ReduceOperation op, DataType type) {
  if (is_floating(type)) return "float";
  return type == DataType::kINT64 || op == ReduceOperation::kAVG ? "long long" : "int";
}

std::string_view combination(ReduceOperation op, bool is_float) {
  switch (op) {
    case ReduceOperation::kPROD:
      return is_float ? "x * y" : "(Value)((UValue)x * (UValue)y)";
    // A comparison with NaN is false, so y's NaN wins by itself and x's by x != x.
    case ReduceOperation::kMAX:
      return is_float ? "x > y || x != x ? x : y" : "x > y ? x : y";
    case ReduceOperation::kMIN:
      return is_float ? "x < y || x != x ? x : y" : "x < y ? x : y";
    default:
      return "(Value)((UValue)x + (UValue)y)";
  }
}

/// The extremes are those of the elements' own type, so that an empty one fits the output.
std::string_view neutral(ReduceOperation op, DataType type) {
  if (op == ReduceOperation::kPROD) return "1";
  if (op != ReduceOperation::kMAX && op != ReduceOperation::kMIN) return "0";
  const bool is_max = op == ReduceOperation::kMAX;
  switch (type) {
    case DataType::kINT8:
      return is_max ? "-128" : "127";
    case DataType::kUINT8:
      return is_max ? "0" : "255";
    case DataType::kBOOL:
      return is_max ? "0" : "1";
    case DataType::kINT32:
      return is_max ? "-2147483647 - 1" : "2147483647";
    case DataType::kINT64:
      return is_max ? "-9223372036854775807LL - 1" : "9223372036854775807LL";
    default:
      return is_max ? "__uint_as_float(0xff800000u)" : "__uint_as_float(0x7f800000u)";
  }
}

}  // namespace

std::string reduce_functions(ReduceOperation op, DataType input, DataType output) {
  op = operation_on(input, op);
  const std::string_view value = value_type(op, input);
  const bool is_float = value == "float", is_average = op == ReduceOperation::kAVG;
  std::string text = str("typedef ", value, " Value;\n");
  if (is_float && (is_average || op == ReduceOperation::kSUM)) {
    text += include("compensated_total.cuh");
  } else {
    // Integers wrap around, which is defined for unsigned ones alone.
    if (!is_float) text += str("typedef unsigned ", value, " UValue;\n");
    text += str("__device__ inline Value combine(Value x, Value y) { return ",
                combination(op, is_float), "; }\n", include("plain_total.cuh"),
                "__device__ inline Total neutral() { return Total{", neutral(op, input), "}; }\n");
  }
  text += str("__device__ inline ", register_type(output),
              " finish(const Total& total, Index count) {", "\nValue value = value_of(total);\n");
  if (is_average)
    text += is_float ? "value = __fdiv_rn(value, (float)count);\n"
                     : "value = count == 0 ? 0 : value / (Value)count;\n";
  else
    text += "(void)count;\n";
  return text + str("return convert<", register_type(output), ">(value);\n}\n\n");
}

}  // namespace opwright::gpu
