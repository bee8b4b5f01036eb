#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/simd_targets.h"
#include "operators/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_integer.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {

/// The type in which arithmetic wraps around without being undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

#define OPWRIGHT_BINARY(Name, Result, expression) \
  struct Name {                                   \
    template <class T>                            \
    static HWY_INLINE Result apply(T x, T y) {    \
      using U = Wrapping<T>;                      \
      (void)sizeof(U), (void)y;                   \
      return static_cast<Result>(expression);     \
    }                                             \
  }
OPWRIGHT_BINARY(Sum, T, U(x) + U(y));
OPWRIGHT_BINARY(Sub, T, U(x) - U(y));
OPWRIGHT_BINARY(Prod, T, U(x) * U(y));
OPWRIGHT_BINARY(Max, T, x > y ? x : y);
OPWRIGHT_BINARY(Min, T, x < y ? x : y);
OPWRIGHT_BINARY(And, T, x& y);
OPWRIGHT_BINARY(Or, T, x | y);
OPWRIGHT_BINARY(Xor, T, x ^ y);
OPWRIGHT_BINARY(Equal, uint8_t, x == y);
OPWRIGHT_BINARY(Greater, uint8_t, x > y);
OPWRIGHT_BINARY(Less, uint8_t, x < y);
// The unary operations ignore y.
OPWRIGHT_BINARY(Abs, T, x < T(0) ? U(0) - U(x) : U(x));
OPWRIGHT_BINARY(Neg, T, U(0) - U(x));
OPWRIGHT_BINARY(Sign, T, (x > T(0)) - (x < T(0)));
OPWRIGHT_BINARY(Not, uint8_t, x == T(0));
OPWRIGHT_BINARY(Relu, T, x < T(0) ? T(0) : x);
#undef OPWRIGHT_BINARY

struct Div {
  template <class T>
  static T apply(T x, T y) {
    if (y == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (y == -1) return Neg::apply(x, y);  // the lowest value wraps around
    return x / y;
  }
};
struct FloorDiv {
  template <class T>
  static T apply(T x, T y) {
    const T quotient = Div::apply(x, y);
    if constexpr (std::is_signed_v<T>)
      if (y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0)) return quotient - 1;
    return quotient;
  }
};
struct Pow {
  template <class T>
  static T apply(T x, T y) {
    if constexpr (std::is_signed_v<T>)
      if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    // What shifts are made of.
    if (x == 2) {
      constexpr T kBits = sizeof(T) * 8;
      return y < kBits ? static_cast<T>(Wrapping<T>{1} << y) : T(0);
    }
    Wrapping<T> result = 1, base = static_cast<Wrapping<T>>(x);
    for (; y != 0; y /= 2, base *= base)
      if (y % 2 != 0) result *= base;
    return static_cast<T>(result);
  }
};

// The fixed inner trip count lets the compiler vectorize at -O2.
template <class Op, class T>
void binary(void* out, const void* a, const void* b, const void*, int64_t count, const double*) {
  using Result = decltype(Op::apply(T(), T()));
  const T* HWY_RESTRICT x = static_cast<const T*>(a);
  const T* HWY_RESTRICT y = static_cast<const T*>(b);
  Result* HWY_RESTRICT z = static_cast<Result*>(out);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) z[i + j] = Op::apply(x[i + j], y[i + j]);
  }
  for (; i < count; ++i) z[i] = Op::apply(x[i], y[i]);
}
template <class Op, class T>
void unary(void* out, const void* a, const void*, const void* c, int64_t count,
           const double* immediates) {
  binary<Op, T>(out, a, a, c, count, immediates);
}

/// The greatest value of the type that a double holds.
template <class T>
constexpr double kHighest = sizeof(T) == 8 ? 0x1.fffffffffffffp62
                                           : static_cast<double>(std::numeric_limits<T>::max());
template <class T>
void clip(void* out, const void* a, const void*, const void*, int64_t count,
          const double* immediates) {
  // Bounds beyond the type's range bound nothing.
  using Limits = std::numeric_limits<T>;
  const double low_bound = std::ceil(immediates[0]), high_bound = std::floor(immediates[1]);
  const T low = low_bound > static_cast<double>(Limits::min())
                    ? static_cast<T>(std::min(low_bound, kHighest<T>))
                    : Limits::min();
  const T high = high_bound < kHighest<T>
                     ? static_cast<T>(std::max(high_bound, static_cast<double>(Limits::min())))
                     : Limits::max();
  const T* HWY_RESTRICT x = static_cast<const T*>(a);
  T* HWY_RESTRICT y = static_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) y[i] = std::min(std::max(x[i], low), high);
}

template <class T>
void select(void* out, const void* a, const void* b, const void* c, int64_t count, const double*) {
  const uint8_t* HWY_RESTRICT condition = static_cast<const uint8_t*>(a);
  const T* HWY_RESTRICT x = static_cast<const T*>(b);
  const T* HWY_RESTRICT y = static_cast<const T*>(c);
  T* HWY_RESTRICT z = static_cast<T*>(out);
  const auto choose = [&](int64_t i) HWY_ATTR {
    // A mask instead of a branch: both operands are loaded, so the loop vectorizes.
    const T mask = static_cast<T>(-static_cast<T>(condition[i] != 0));
    z[i] = static_cast<T>((x[i] & mask) | (y[i] & static_cast<T>(~mask)));
  };
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) choose(i + j);
  }
  for (; i < count; ++i) choose(i);
}

void copy_bytes(void* out, const void* a, int64_t bytes) { std::memcpy(out, a, bytes); }
template <class T>
void identity(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  copy_bytes(out, a, count * sizeof(T));
}

template <class T>
TileFunction binary_op(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return binary<Sum, T>;
    case ElementWiseOperation::kPROD:
      return binary<Prod, T>;
    case ElementWiseOperation::kMAX:
      return binary<Max, T>;
    case ElementWiseOperation::kMIN:
      return binary<Min, T>;
    case ElementWiseOperation::kSUB:
      return binary<Sub, T>;
    case ElementWiseOperation::kDIV:
      return binary<Div, T>;
    case ElementWiseOperation::kPOW:
      return binary<Pow, T>;
    case ElementWiseOperation::kFLOOR_DIV:
      return binary<FloorDiv, T>;
    case ElementWiseOperation::kAND:
      return binary<And, T>;
    case ElementWiseOperation::kOR:
      return binary<Or, T>;
    case ElementWiseOperation::kXOR:
      return binary<Xor, T>;
    case ElementWiseOperation::kEQUAL:
      return binary<Equal, T>;
    case ElementWiseOperation::kGREATER:
      return binary<Greater, T>;
    case ElementWiseOperation::kLESS:
      return binary<Less, T>;
  }
  return nullptr;
}

template <class T>
TileFunction unary_op(UnaryOperation op) {
  switch (op) {
    case UnaryOperation::kABS:
      return unary<Abs, T>;
    case UnaryOperation::kNEG:
      return unary<Neg, T>;
    case UnaryOperation::kSIGN:
      return unary<Sign, T>;
    case UnaryOperation::kNOT:
      return unary<Not, T>;
    case UnaryOperation::kCEIL:
    case UnaryOperation::kFLOOR:
    case UnaryOperation::kROUND:
      return identity<T>;
    default:
      return nullptr;
  }
}

template <class T>
TileFunction any_op(int32_t op) {
  if (op == opcode(ActivationType::kRELU)) return unary<Relu, T>;
  if (op == opcode(ActivationType::kCLIP)) return clip<T>;
  if (op >= opcode(PointwiseOp::kActivation)) return nullptr;
  if (op >= opcode(PointwiseOp::kUnary)) return unary_op<T>(unary_of(op));
  return binary_op<T>(binary_of(op));
}

/// On bytes that are 0 or 1 the sum is OR and the product AND, as in NumPy.
TileFunction bool_op(int32_t op) {
  if (op < opcode(PointwiseOp::kUnary)) {
    switch (binary_of(op)) {
      case ElementWiseOperation::kSUM:
        return binary<Or, uint8_t>;
      case ElementWiseOperation::kPROD:
        return binary<And, uint8_t>;
      case ElementWiseOperation::kSUB:
      case ElementWiseOperation::kDIV:
      case ElementWiseOperation::kFLOOR_DIV:
      case ElementWiseOperation::kPOW:
        return nullptr;
      default:
        return any_op<uint8_t>(op);
    }
  }
  return op == opcode(UnaryOperation::kNOT) ? any_op<uint8_t>(op) : nullptr;
}

}  // namespace

TileFunction integer_op(int32_t op, DataType operands) {
  if (op < opcode(PointwiseOp::kBinary)) return nullptr;
  switch (operands) {
    case DataType::kINT8:
      return any_op<int8_t>(op);
    case DataType::kUINT8:
      return any_op<uint8_t>(op);
    case DataType::kINT32:
      return any_op<int32_t>(op);
    case DataType::kINT64:
      return any_op<int64_t>(op);
    case DataType::kBOOL:
      return bool_op(op);
    default:
      return nullptr;
  }
}

TileFunction select_op(int element_size) {
  return element_size == 1   ? select<uint8_t>
         : element_size == 4 ? select<uint32_t>
         : element_size == 8 ? select<uint64_t>
                             : static_cast<TileFunction>(nullptr);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(integer_op);
HWY_EXPORT(select_op);

TileFunction find_integer_op(int32_t op, DataType operands) {
  return HWY_DYNAMIC_DISPATCH(integer_op)(op, operands);
}
TileFunction find_select(int element_size) { return HWY_DYNAMIC_DISPATCH(select_op)(element_size); }

}  // namespace opwright
#endif
