#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

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

/// The unsigned type in which arithmetic wraps around without undefined behaviour.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// The fixed inner trip count lets the compiler vectorize at -O2.
template <class Op, class T>
void elements(void* out, const void* a, const void* b, const void*, int64_t count, const double*) {
  using Result = decltype(Op::apply(T(), T()));
  const T* HWY_RESTRICT x = static_cast<const T*>(a);
  const T* HWY_RESTRICT y = static_cast<const T*>(Op::kIsUnary ? a : b);
  Result* HWY_RESTRICT z = static_cast<Result*>(out);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) z[i + j] = Op::apply(x[i + j], y[i + j]);
  }
  for (; i < count; ++i) z[i] = Op::apply(x[i], y[i]);
}

/// The greatest value of the type that a double represents.
template <class T>
constexpr double kHighest = sizeof(T) == 8 ? 0x1.fffffffffffffp62
                                           : static_cast<double>(std::numeric_limits<T>::max());
template <class T>
void clip(void* out, const void* a, const void*, const void*, int64_t count,
          const double* immediates) {
  // Bounds beyond the type's range have no effect.
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
    // A mask instead of a branch loads both operands, so the loop vectorizes.
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

template <class T>
T negated(T x) {
  return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x));
}
template <class T>
T quotient(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (y == -1) return negated(x);  // the lowest value wraps around
  return x / y;
}
template <class T>
T floor_quotient(T x, T y) {
  const T q = quotient(x, y);
  if constexpr (std::is_signed_v<T>)
    if (y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0)) return q - 1;
  return q;
}
template <class T>
T power(T x, T y) {
  if constexpr (std::is_signed_v<T>)
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  // Powers of two are shifts.
  if (x == 2) {
    constexpr T kBits = sizeof(T) * 8;
    return y < kBits ? static_cast<T>(Wrapping<T>{1} << y) : T(0);
  }
  Wrapping<T> result = 1, base = static_cast<std::make_unsigned_t<T>>(x);
  for (; y != 0; y /= 2, base *= base)
    if (y % 2 != 0) result *= base;
  return static_cast<T>(result);
}

using enum ElementWiseOperation;
using enum UnaryOperation;
using enum ActivationType;

/// The function of an operation on integers, null where the operation does not take them. Unary
/// operations ignore y.
template <auto op>
struct Integer {
  template <class T>
  static constexpr TileFunction kFunction = nullptr;
};

#define OPWRIGHT_INTEGER(op, expression)                                                  \
  template <>                                                                             \
  struct Integer<op> {                                                                    \
    static constexpr bool kIsUnary = !std::is_same_v<decltype(op), ElementWiseOperation>; \
    template <class T>                                                                    \
    static HWY_INLINE auto apply(T x, T y) {                                              \
      using U = Wrapping<T>;                                                              \
      (void)sizeof(U), (void)y;                                                           \
      constexpr bool kGivesBool = facts_of(op)->is(OperationFacts::kGivesBool);           \
      return static_cast<std::conditional_t<kGivesBool, uint8_t, T>>(expression);         \
    }                                                                                     \
    template <class T>                                                                    \
    static constexpr TileFunction kFunction = elements<Integer, T>;                       \
  }

OPWRIGHT_INTEGER(kSUM, U(x) + U(y));
OPWRIGHT_INTEGER(kPROD, U(x) * U(y));
OPWRIGHT_INTEGER(kMAX, x > y ? x : y);
OPWRIGHT_INTEGER(kMIN, x < y ? x : y);
OPWRIGHT_INTEGER(kSUB, U(x) - U(y));
OPWRIGHT_INTEGER(kDIV, quotient(x, y));
OPWRIGHT_INTEGER(kPOW, power(x, y));
OPWRIGHT_INTEGER(kFLOOR_DIV, floor_quotient(x, y));
OPWRIGHT_INTEGER(kAND, x& y);
OPWRIGHT_INTEGER(kOR, x | y);
OPWRIGHT_INTEGER(kXOR, x ^ y);
OPWRIGHT_INTEGER(kEQUAL, x == y);
OPWRIGHT_INTEGER(kGREATER, x > y);
OPWRIGHT_INTEGER(kLESS, x < y);

OPWRIGHT_INTEGER(kABS, x < T(0) ? negated(x) : x);
OPWRIGHT_INTEGER(kNEG, negated(x));
OPWRIGHT_INTEGER(kNOT, x == T(0));
OPWRIGHT_INTEGER(kSIGN, (x > T(0)) - (x < T(0)));

OPWRIGHT_INTEGER(kRELU, x < T(0) ? T(0) : x);
template <>
struct Integer<kCLIP> {
  template <class T>
  static constexpr TileFunction kFunction = clip<T>;
};

#undef OPWRIGHT_INTEGER

/// The functions of all operations of an enumeration.
template <class T, class E, size_t... i>
constexpr std::array<TileFunction, sizeof...(i)> table(std::index_sequence<i...>) {
  return {Integer<static_cast<E>(i)>::template kFunction<T>...};
}
template <class T>
TileFunction find(int32_t op) {
  return with_operation(op, []<class E>(E operation) {
    constexpr auto kTable = table<T, E>(std::make_index_sequence<kEnumeration<E>.values.size()>());
    return row_of(operation) ? kTable[static_cast<size_t>(operation)] : nullptr;
  });
}

}  // namespace

TileFunction integer_op(int32_t op, DataType operands) {
  const OperationFacts* const facts = facts_of(op);
  if (facts == nullptr || !facts->takes(operands)) return nullptr;
  switch (operands) {
    case DataType::kINT8:
      return find<int8_t>(op);
    case DataType::kUINT8:
    case DataType::kBOOL:
      return find<uint8_t>(op);
    case DataType::kINT32:
      return find<int32_t>(op);
    case DataType::kINT64:
      return find<int64_t>(op);
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
