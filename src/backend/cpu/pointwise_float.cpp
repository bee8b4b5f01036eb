#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/simd_targets.h"
#include "operators/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_float.cpp"
#include <hwy/foreach_target.h>

#include "backend/cpu/pointwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {

template <class Op>
void unary(void* out, const void* a, const void*, const void*, int64_t count,
           const double* immediates) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto alpha = hn::Set(d, static_cast<float>(immediates[0]));
  const auto beta = hn::Set(d, static_cast<float>(immediates[1]));
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  float* HWY_RESTRICT y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(Op::apply(d, hn::LoadU(d, x + i), alpha, beta), d, y + i);
  if (i < count) {
    const auto mask = hn::FirstN(d, count - i);
    hn::BlendedStore(Op::apply(d, hn::MaskedLoad(mask, d, x + i), alpha, beta), mask, d, y + i);
  }
}

template <class Op>
void binary(void* out, const void* a, const void* b, const void*, int64_t count, const double*) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  const float* HWY_RESTRICT y = static_cast<const float*>(b);
  float* HWY_RESTRICT z = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(Op::apply(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, z + i);
  if (i < count) {
    const auto mask = hn::FirstN(d, count - i);
    const auto result =
        Op::apply(d, hn::MaskedLoad(mask, d, x + i), hn::MaskedLoad(mask, d, y + i));
    hn::BlendedStore(result, mask, d, z + i);
  }
}

template <class Op>
void binary_by_scalar(void* out, const void* a, const void* b, const void*, int64_t count,
                      const double*) {
  if (count == 0) return;
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto y = hn::Set(d, *static_cast<const float*>(b));
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  float* HWY_RESTRICT z = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Op::apply(d, hn::LoadU(d, x + i), y), d, z + i);
  if (i < count) {
    const auto mask = hn::FirstN(d, count - i);
    hn::BlendedStore(Op::apply(d, hn::MaskedLoad(mask, d, x + i), y), mask, d, z + i);
  }
}

// The fixed inner trip count lets the compiler vectorize at -O2, narrowing included.
template <class Test>
void test(void* out, const void* a, const void* b, const void*, int64_t count, const double*) {
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  const float* HWY_RESTRICT y = static_cast<const float*>(Test::kIsUnary ? a : b);
  uint8_t* HWY_RESTRICT z = static_cast<uint8_t*>(out);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) z[i + j] = Test::apply(x[i + j], y[i + j]);
  }
  for (; i < count; ++i) z[i] = Test::apply(x[i], y[i]);
}

struct Functions {
  TileFunction of_tiles = nullptr;
  TileFunction by_scalar = nullptr;  ///< b has one element
};

/// The functions of an operation on FP32: of a vector, or a test of an element. Empty where the
/// operation does not take FP32. alpha and beta are the immediates.
template <auto op>
struct Float {
  static constexpr Functions kFunctions = {};
};

#define OPWRIGHT_UNARY(op, expression)                      \
  template <>                                               \
  struct Float<op> {                                        \
    template <class D, class V = hn::Vec<D>>                \
    static HWY_INLINE V apply(D d, V x, V alpha, V beta) {  \
      (void)d, (void)alpha, (void)beta;                     \
      return expression;                                    \
    }                                                       \
    static constexpr Functions kFunctions = {unary<Float>}; \
  }
#define OPWRIGHT_BINARY(op, expression)                                               \
  template <>                                                                         \
  struct Float<op> {                                                                  \
    template <class D, class V = hn::Vec<D>>                                          \
    static HWY_INLINE V apply(D d, V x, V y) {                                        \
      (void)d;                                                                        \
      return expression;                                                              \
    }                                                                                 \
    static constexpr Functions kFunctions = {binary<Float>, binary_by_scalar<Float>}; \
  }
#define OPWRIGHT_TEST(op, expression)                                                     \
  template <>                                                                             \
  struct Float<op> {                                                                      \
    static constexpr bool kIsUnary = !std::is_same_v<decltype(op), ElementWiseOperation>; \
    static HWY_INLINE bool apply(float x, float y) {                                      \
      (void)y;                                                                            \
      return expression;                                                                  \
    }                                                                                     \
    static constexpr Functions kFunctions = {test<Float>};                                \
  }

using enum ElementWiseOperation;
using enum UnaryOperation;
using enum ActivationType;

OPWRIGHT_BINARY(kSUM, hn::Add(x, y));
OPWRIGHT_BINARY(kPROD, hn::Mul(x, y));
OPWRIGHT_BINARY(kSUB, hn::Sub(x, y));
OPWRIGHT_BINARY(kDIV, hn::Div(x, y));
OPWRIGHT_BINARY(kFLOOR_DIV, hn::Floor(hn::Div(x, y)));
// A comparison with NaN is false, so the second operand's NaN needs no test.
OPWRIGHT_BINARY(kMAX, hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y));
OPWRIGHT_BINARY(kMIN, hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y));
OPWRIGHT_BINARY(PointwiseOp::kRemainder, remainder(d, x, y));
OPWRIGHT_TEST(kEQUAL, x == y);
OPWRIGHT_TEST(kGREATER, x > y);
OPWRIGHT_TEST(kLESS, x < y);

OPWRIGHT_UNARY(kEXP, exp(d, x));
OPWRIGHT_UNARY(kLOG, log(d, x));
OPWRIGHT_UNARY(kSQRT, hn::Sqrt(x));
OPWRIGHT_UNARY(kRECIP, hn::Div(hn::Set(d, 1.0f), x));
OPWRIGHT_UNARY(kABS, hn::Abs(x));
OPWRIGHT_UNARY(kNEG, hn::Neg(x));
OPWRIGHT_UNARY(kSIN, sin(d, x));
OPWRIGHT_UNARY(kCOS, cos(d, x));
OPWRIGHT_UNARY(kTAN, hn::Div(sin(d, x), cos(d, x)));
OPWRIGHT_UNARY(kSINH, sinh(d, x));
OPWRIGHT_UNARY(kCOSH, cosh(d, x));
OPWRIGHT_UNARY(kASIN, hn::Asin(d, x));
OPWRIGHT_UNARY(kACOS, hn::Acos(d, x));
OPWRIGHT_UNARY(kATAN, hn::Atan(d, x));
OPWRIGHT_UNARY(kASINH, asinh(d, x));
OPWRIGHT_UNARY(kACOSH, acosh(d, x));
OPWRIGHT_UNARY(kATANH, atanh(d, x));
OPWRIGHT_UNARY(kCEIL, hn::Ceil(x));
OPWRIGHT_UNARY(kFLOOR, hn::Floor(x));
OPWRIGHT_UNARY(kROUND, hn::Round(x));
OPWRIGHT_UNARY(kERF, erf(d, x));
OPWRIGHT_UNARY(kSIGN, sign(d, x));
OPWRIGHT_TEST(kISINF, x == HUGE_VALF || x == -HUGE_VALF);
OPWRIGHT_TEST(kISNAN, x != x);

OPWRIGHT_UNARY(kRELU, hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x));
OPWRIGHT_UNARY(kSIGMOID, sigmoid(d, x));
OPWRIGHT_UNARY(kTANH, tanh(d, x));
OPWRIGHT_UNARY(kLEAKY_RELU, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, alpha), x));
OPWRIGHT_UNARY(kELU, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(alpha, expm1(d, x))));
OPWRIGHT_UNARY(kSELU, hn::Mul(beta, Float<kELU>::apply(d, x, alpha, beta)));
OPWRIGHT_UNARY(kSOFTSIGN, hn::Div(x, hn::Add(hn::Abs(x), hn::Set(d, 1.0f))));
OPWRIGHT_UNARY(kSOFTPLUS, hn::Mul(alpha, softplus(d, hn::Mul(beta, x))));
OPWRIGHT_UNARY(kCLIP, clip(d, x, alpha, beta));
OPWRIGHT_UNARY(kHARD_SIGMOID, clip(d, hn::MulAdd(x, alpha, beta), hn::Zero(d), hn::Set(d, 1.0f)));
OPWRIGHT_UNARY(kSCALED_TANH, hn::Mul(alpha, tanh(d, hn::Mul(beta, x))));
OPWRIGHT_UNARY(kTHRESHOLDED_RELU, hn::IfThenElseZero(hn::Gt(x, alpha), x));
OPWRIGHT_UNARY(kGELU_ERF, gelu(d, x));
OPWRIGHT_UNARY(kGELU_TANH, gelu_tanh(d, x));

#undef OPWRIGHT_UNARY
#undef OPWRIGHT_BINARY
#undef OPWRIGHT_TEST

void power(void* out, const void* a, const void* b, const void*, int64_t count, const double*) {
  for (int64_t i = 0; i < count; ++i)
    static_cast<float*>(out)[i] =
        std::pow(static_cast<const float*>(a)[i], static_cast<const float*>(b)[i]);
}

struct Square {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V x, V, V) {
    return hn::Mul(x, x);
  }
};
struct Cube {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V x, V, V) {
    return hn::Mul(hn::Mul(x, x), x);
  }
};
/// Differs from the square root: the power of -infinity is infinity, and that of -0 is 0.
struct Root {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V x, V, V) {
    const V root = hn::Sqrt(hn::Add(x, hn::Zero(d)));
    return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity(d))), infinity(d), root);
  }
};
struct ReciprocalRoot {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V x, V alpha, V beta) {
    return hn::Div(hn::Set(d, 1.0f), Root::apply(d, x, alpha, beta));
  }
};

void power_by_scalar(void* out, const void* a, const void* b, const void* c, int64_t count,
                     const double*) {
  if (count == 0) return;
  constexpr double kNone[2] = {};
  const float exponent = *static_cast<const float*>(b);
  if (exponent == 2) return unary<Square>(out, a, b, c, count, kNone);
  if (exponent == 3) return unary<Cube>(out, a, b, c, count, kNone);
  if (exponent == 0.5f) return unary<Root>(out, a, b, c, count, kNone);
  if (exponent == -1) return unary<Float<kRECIP>>(out, a, b, c, count, kNone);
  if (exponent == -0.5f) return unary<ReciprocalRoot>(out, a, b, c, count, kNone);
  for (int64_t i = 0; i < count; ++i)
    static_cast<float*>(out)[i] = std::pow(static_cast<const float*>(a)[i], exponent);
}

template <>
struct Float<kPOW> {
  static constexpr Functions kFunctions = {power, power_by_scalar};
};

/// The functions of all operations of an enumeration.
template <class E, size_t... i>
constexpr std::array<Functions, sizeof...(i)> table(std::index_sequence<i...>) {
  return {Float<static_cast<E>(i)>::kFunctions...};
}
Functions find(int32_t op) {
  if (op == opcode(PointwiseOp::kRemainder)) return Float<PointwiseOp::kRemainder>::kFunctions;
  return with_operation(op, []<class E>(E operation) {
    constexpr auto kTable = table<E>(std::make_index_sequence<kEnumeration<E>.values.size()>());
    return row_of(operation) ? kTable[static_cast<size_t>(operation)] : Functions{};
  });
}

}  // namespace

TileFunction float_op(int32_t op) { return find(op).of_tiles; }
TileFunction float_op_by_scalar(int32_t op) { return find(op).by_scalar; }

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(float_op);
HWY_EXPORT(float_op_by_scalar);

TileFunction find_float_op(int32_t op) { return HWY_DYNAMIC_DISPATCH(float_op)(op); }
TileFunction find_float_op_by_scalar(int32_t op) {
  return HWY_DYNAMIC_DISPATCH(float_op_by_scalar)(op);
}

}  // namespace opwright
#endif
