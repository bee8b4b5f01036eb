#include <cmath>

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

// Each operation is a struct with `apply` over one vector; alpha and beta are the immediates.
#define OPWRIGHT_UNARY(Name, expression)                   \
  struct Name {                                            \
    template <class D, class V = hn::Vec<D>>               \
    static HWY_INLINE V apply(D d, V x, V alpha, V beta) { \
      (void)d, (void)alpha, (void)beta;                    \
      return expression;                                   \
    }                                                      \
  }
#define OPWRIGHT_BINARY(Name, expression)      \
  struct Name {                                \
    template <class D, class V = hn::Vec<D>>   \
    static HWY_INLINE V apply(D d, V x, V y) { \
      (void)d;                                 \
      return expression;                       \
    }                                          \
  }

OPWRIGHT_UNARY(Exp, exp(d, x));
OPWRIGHT_UNARY(Log, log(d, x));
OPWRIGHT_UNARY(Sqrt, hn::Sqrt(x));
OPWRIGHT_UNARY(Recip, hn::Div(hn::Set(d, 1.0f), x));
OPWRIGHT_UNARY(Abs, hn::Abs(x));
OPWRIGHT_UNARY(Neg, hn::Neg(x));
OPWRIGHT_UNARY(Sin, sin(d, x));
OPWRIGHT_UNARY(Cos, cos(d, x));
OPWRIGHT_UNARY(Tan, hn::Div(sin(d, x), cos(d, x)));
OPWRIGHT_UNARY(Sinh, sinh(d, x));
OPWRIGHT_UNARY(Cosh, cosh(d, x));
OPWRIGHT_UNARY(Asin, hn::Asin(d, x));
OPWRIGHT_UNARY(Acos, hn::Acos(d, x));
OPWRIGHT_UNARY(Atan, hn::Atan(d, x));
OPWRIGHT_UNARY(Asinh, asinh(d, x));
OPWRIGHT_UNARY(Acosh, acosh(d, x));
OPWRIGHT_UNARY(Atanh, atanh(d, x));
OPWRIGHT_UNARY(Ceil, hn::Ceil(x));
OPWRIGHT_UNARY(Floor, hn::Floor(x));
OPWRIGHT_UNARY(Round, hn::Round(x));
OPWRIGHT_UNARY(Erf, erf(d, x));
OPWRIGHT_UNARY(Sign, sign(d, x));

OPWRIGHT_UNARY(Relu, hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x));
OPWRIGHT_UNARY(Sigmoid, sigmoid(d, x));
OPWRIGHT_UNARY(Tanh, tanh(d, x));
OPWRIGHT_UNARY(LeakyRelu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, alpha), x));
OPWRIGHT_UNARY(Elu, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(alpha, expm1(d, x))));
OPWRIGHT_UNARY(Selu, hn::Mul(beta, Elu::apply(d, x, alpha, beta)));
OPWRIGHT_UNARY(Softsign, hn::Div(x, hn::Add(hn::Abs(x), hn::Set(d, 1.0f))));
OPWRIGHT_UNARY(Softplus, hn::Mul(alpha, softplus(d, hn::Mul(beta, x))));
OPWRIGHT_UNARY(Clip, clip(d, x, alpha, beta));
OPWRIGHT_UNARY(HardSigmoid, clip(d, hn::MulAdd(x, alpha, beta), hn::Zero(d), hn::Set(d, 1.0f)));
OPWRIGHT_UNARY(ScaledTanh, hn::Mul(alpha, tanh(d, hn::Mul(beta, x))));
OPWRIGHT_UNARY(ThresholdedRelu, hn::IfThenElseZero(hn::Gt(x, alpha), x));
OPWRIGHT_UNARY(GeluErf, gelu(d, x));
OPWRIGHT_UNARY(GeluTanh, gelu_tanh(d, x));

OPWRIGHT_BINARY(Sum, hn::Add(x, y));
OPWRIGHT_BINARY(Prod, hn::Mul(x, y));
OPWRIGHT_BINARY(Sub, hn::Sub(x, y));
OPWRIGHT_BINARY(Div, hn::Div(x, y));
OPWRIGHT_BINARY(FloorDiv, hn::Floor(hn::Div(x, y)));
// A comparison with NaN is false, so the second operand's NaN comes through by itself.
OPWRIGHT_BINARY(Max, hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y));
OPWRIGHT_BINARY(Min, hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y));

OPWRIGHT_BINARY(Rest, remainder(d, x, y));

#undef OPWRIGHT_UNARY
#undef OPWRIGHT_BINARY

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
HWY_INLINE void test(void* out, const void* a, const void* b, int64_t count) {
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  const float* HWY_RESTRICT y = static_cast<const float*>(b);
  uint8_t* HWY_RESTRICT z = static_cast<uint8_t*>(out);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) z[i + j] = Test::apply(x[i + j], y[i + j]);
  }
  for (; i < count; ++i) z[i] = Test::apply(x[i], y[i]);
}
template <class Test>
void binary_test(void* out, const void* a, const void* b, const void*, int64_t count,
                 const double*) {
  test<Test>(out, a, b, count);
}
template <class Test>
void unary_test(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  test<Test>(out, a, a, count);
}
struct Equal {
  static HWY_INLINE bool apply(float x, float y) { return x == y; }
};
struct Greater {
  static HWY_INLINE bool apply(float x, float y) { return x > y; }
};
struct Less {
  static HWY_INLINE bool apply(float x, float y) { return x < y; }
};
struct IsNan {
  static HWY_INLINE bool apply(float x, float) { return x != x; }
};
struct IsInf {
  static HWY_INLINE bool apply(float x, float) { return x == HUGE_VALF || x == -HUGE_VALF; }
};

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
/// Unlike the square root, the power of -infinity is infinity, and that of -0 is 0.
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
  if (exponent == -1) return unary<Recip>(out, a, b, c, count, kNone);
  if (exponent == -0.5f) return unary<ReciprocalRoot>(out, a, b, c, count, kNone);
  for (int64_t i = 0; i < count; ++i)
    static_cast<float*>(out)[i] = std::pow(static_cast<const float*>(a)[i], exponent);
}

TileFunction binary_op(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return binary<Sum>;
    case ElementWiseOperation::kPROD:
      return binary<Prod>;
    case ElementWiseOperation::kMAX:
      return binary<Max>;
    case ElementWiseOperation::kMIN:
      return binary<Min>;
    case ElementWiseOperation::kSUB:
      return binary<Sub>;
    case ElementWiseOperation::kDIV:
      return binary<Div>;
    case ElementWiseOperation::kPOW:
      return power;
    case ElementWiseOperation::kFLOOR_DIV:
      return binary<FloorDiv>;
    case ElementWiseOperation::kEQUAL:
      return binary_test<Equal>;
    case ElementWiseOperation::kGREATER:
      return binary_test<Greater>;
    case ElementWiseOperation::kLESS:
      return binary_test<Less>;
    default:
      return nullptr;
  }
}

TileFunction binary_op_by_scalar(ElementWiseOperation op) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return binary_by_scalar<Sum>;
    case ElementWiseOperation::kPROD:
      return binary_by_scalar<Prod>;
    case ElementWiseOperation::kMAX:
      return binary_by_scalar<Max>;
    case ElementWiseOperation::kMIN:
      return binary_by_scalar<Min>;
    case ElementWiseOperation::kSUB:
      return binary_by_scalar<Sub>;
    case ElementWiseOperation::kDIV:
      return binary_by_scalar<Div>;
    case ElementWiseOperation::kPOW:
      return power_by_scalar;
    default:
      return nullptr;
  }
}

TileFunction unary_op(UnaryOperation op) {
  switch (op) {
    case UnaryOperation::kEXP:
      return unary<Exp>;
    case UnaryOperation::kLOG:
      return unary<Log>;
    case UnaryOperation::kSQRT:
      return unary<Sqrt>;
    case UnaryOperation::kRECIP:
      return unary<Recip>;
    case UnaryOperation::kABS:
      return unary<Abs>;
    case UnaryOperation::kNEG:
      return unary<Neg>;
    case UnaryOperation::kSIN:
      return unary<Sin>;
    case UnaryOperation::kCOS:
      return unary<Cos>;
    case UnaryOperation::kTAN:
      return unary<Tan>;
    case UnaryOperation::kSINH:
      return unary<Sinh>;
    case UnaryOperation::kCOSH:
      return unary<Cosh>;
    case UnaryOperation::kASIN:
      return unary<Asin>;
    case UnaryOperation::kACOS:
      return unary<Acos>;
    case UnaryOperation::kATAN:
      return unary<Atan>;
    case UnaryOperation::kASINH:
      return unary<Asinh>;
    case UnaryOperation::kACOSH:
      return unary<Acosh>;
    case UnaryOperation::kATANH:
      return unary<Atanh>;
    case UnaryOperation::kCEIL:
      return unary<Ceil>;
    case UnaryOperation::kFLOOR:
      return unary<Floor>;
    case UnaryOperation::kERF:
      return unary<Erf>;
    case UnaryOperation::kSIGN:
      return unary<Sign>;
    case UnaryOperation::kROUND:
      return unary<Round>;
    case UnaryOperation::kISINF:
      return unary_test<IsInf>;
    case UnaryOperation::kISNAN:
      return unary_test<IsNan>;
    default:
      return nullptr;
  }
}

TileFunction activation(ActivationType type) {
  switch (type) {
    case ActivationType::kRELU:
      return unary<Relu>;
    case ActivationType::kSIGMOID:
      return unary<Sigmoid>;
    case ActivationType::kTANH:
      return unary<Tanh>;
    case ActivationType::kLEAKY_RELU:
      return unary<LeakyRelu>;
    case ActivationType::kELU:
      return unary<Elu>;
    case ActivationType::kSELU:
      return unary<Selu>;
    case ActivationType::kSOFTSIGN:
      return unary<Softsign>;
    case ActivationType::kSOFTPLUS:
      return unary<Softplus>;
    case ActivationType::kCLIP:
      return unary<Clip>;
    case ActivationType::kHARD_SIGMOID:
      return unary<HardSigmoid>;
    case ActivationType::kSCALED_TANH:
      return unary<ScaledTanh>;
    case ActivationType::kTHRESHOLDED_RELU:
      return unary<ThresholdedRelu>;
    case ActivationType::kGELU_ERF:
      return unary<GeluErf>;
    case ActivationType::kGELU_TANH:
      return unary<GeluTanh>;
  }
  return nullptr;
}

}  // namespace

TileFunction float_op(int32_t op) {
  if (op == opcode(PointwiseOp::kRemainder)) return binary<Rest>;
  if (op >= opcode(PointwiseOp::kActivation)) return activation(activation_of(op));
  if (op >= opcode(PointwiseOp::kUnary)) return unary_op(unary_of(op));
  if (op >= opcode(PointwiseOp::kBinary)) return binary_op(binary_of(op));
  return nullptr;
}

TileFunction float_op_by_scalar(int32_t op) {
  if (op == opcode(PointwiseOp::kRemainder)) return binary_by_scalar<Rest>;
  return op >= opcode(PointwiseOp::kBinary) && op < opcode(PointwiseOp::kUnary)
             ? binary_op_by_scalar(binary_of(op))
             : nullptr;
}

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
