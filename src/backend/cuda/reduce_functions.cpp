#include "backend/cuda/reduce_functions.h"

#include "backend/cuda/source.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::cuda {
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

constexpr std::string_view kCompensated = R"(
// The two-sum of D. E. Knuth (The Art of Computer Programming 2, 4.2.2): `rest` collects what the
// sums lose to rounding.
struct Total { float sum, rest; };
__device__ inline Total neutral() { return Total{0.0f, 0.0f}; }
__device__ inline float combine(float x, float y) { return x + y; }
__device__ inline void add(Total& total, float x) {
  const float sum = __fadd_rn(total.sum, x), part = __fsub_rn(sum, total.sum);
  const float lost = __fadd_rn(__fsub_rn(total.sum, __fsub_rn(sum, part)), __fsub_rn(x, part));
  total.sum = sum;
  total.rest = __fadd_rn(total.rest, lost);
}
__device__ inline void merge(Total& total, const Total& other) {
  add(total, other.sum);
  total.rest += other.rest;
}
__device__ inline Total exchange(const Total& total, int distance) {
  return Total{__shfl_xor_sync(0xffffffffu, total.sum, distance),
               __shfl_xor_sync(0xffffffffu, total.rest, distance)};
}
// Of infinities no rest is known.
__device__ inline float value_of(const Total& total) {
  return total.sum - total.sum == 0.0f ? total.sum + total.rest : total.sum;
}
)";

constexpr std::string_view kPlain = R"(
struct Total { Value value; };
__device__ inline void add(Total& total, Value x) { total.value = combine(total.value, x); }
__device__ inline void merge(Total& total, const Total& other) { add(total, other.value); }
__device__ inline Total exchange(const Total& total, int distance) {
  return Total{__shfl_xor_sync(0xffffffffu, total.value, distance)};
}
__device__ inline Value value_of(const Total& total) { return total.value; }
)";

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

std::string_view neutral(ReduceOperation op, std::string_view value) {
  const bool is_float = value == "float", is_long = value == "long long";
  switch (op) {
    case ReduceOperation::kPROD:
      return "1";
    case ReduceOperation::kMAX:
      return is_float  ? "__uint_as_float(0xff800000u)"
             : is_long ? "-9223372036854775807LL - 1"
                       : "-2147483647 - 1";
    case ReduceOperation::kMIN:
      return is_float  ? "__uint_as_float(0x7f800000u)"
             : is_long ? "9223372036854775807LL"
                       : "2147483647";
    default:
      return "0";
  }
}

}  // namespace

std::string reduce_functions(ReduceOperation op, DataType input, DataType output) {
  op = operation_on(input, op);
  const std::string_view value = value_type(op, input);
  const bool is_float = value == "float", is_average = op == ReduceOperation::kAVG;
  std::string text = str("typedef ", value, " Value;\n");
  if (is_float && (is_average || op == ReduceOperation::kSUM)) {
    text += kCompensated;
  } else {
    // Integers wrap around, which is defined for unsigned ones alone.
    if (!is_float) text += str("typedef unsigned ", value, " UValue;\n");
    text += str("__device__ inline Value combine(Value x, Value y) { return ",
                combination(op, is_float), "; }\n", kPlain,
                "__device__ inline Total neutral() { return Total{", neutral(op, value), "}; }\n");
  }
  text += str("__device__ inline ", register_type(output),
              " finish(const Total& total, Index count) {", "\nValue value = value_of(total);\n");
  if (is_average)
    text += is_float ? "value = __fdiv_rn(value, (float)count);\n"
                     : "value = count == 0 ? 0 : value / (Value)count;\n";
  else
    text += "(void)count;\n";
  // The extreme of no truth values is the neutral element, which is no truth value itself.
  if (input == DataType::kBOOL) text += "value = value > 0;\n";
  return text + str("return convert<", register_type(output), ">(value);\n}\n\n");
}

}  // namespace opwright::cuda
