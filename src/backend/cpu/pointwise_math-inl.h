// Functions of one FP32 vector, compiled once per target. Highway's contrib/math covers the
// elementary functions within its ranges; this file handles the ends of the ranges and adds missing
// functions.

#if defined(OPWRIGHT_POINTWISE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef OPWRIGHT_POINTWISE_MATH_INL_H
#undef OPWRIGHT_POINTWISE_MATH_INL_H
#else
#define OPWRIGHT_POINTWISE_MATH_INL_H
#endif

#include <cmath>
#include <limits>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V infinity(D d) {
  return hn::Set(d, std::numeric_limits<float>::infinity());
}

/// e^x for x in [-87.33, 88.72]: 2^n e^r with |r| <= ln(2) / 2, e^r = 1 + r + r^2 Q(r). Q is a
/// minimax fit of degree 4 (relative error 3e-9). Adding 1.5 * 2^23 rounds to an integer n. The sum
/// has n in its low bits, from where it is added to the exponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_in_range(D d, V x) {
  const hn::Rebind<int32_t, D> di;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const V n = hn::Sub(shifted, magic);
  // ln(2) in two parts, the first short enough for n times it to be exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860682030941723e-6f), r);
  V q = hn::Set(d, 0.001381455804221332f);
  q = hn::MulAdd(q, r, hn::Set(d, 0.008368736132979393f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.04166838899254799f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.1666652113199234f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.4999999403953552f));
  const V p = hn::Add(hn::MulAdd(hn::Mul(q, r), r, r), hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

/// Results below the normal numbers are flushed to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  const V y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), exp_in_range(d, x));
  // NaN fails the comparison as well. The sum with infinity keeps NaN and makes infinity of other
  // values.
  return hn::IfThenElse(hn::Le(x, hn::Set(d, 88.72283f)), y, hn::Add(x, infinity(d)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1(D d, V x) {
  const V y = hn::Expm1(d, hn::Min(x, hn::Set(d, 88.72283f)));
  return hn::IfThenElse(hn::IsNaN(x), x,
                        hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.72283f)), infinity(d), y));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity(d)), y);
  // The logarithm of +infinity and of NaN is the value itself.
  y = hn::IfThenElse(hn::Or(hn::Eq(x, infinity(d)), hn::IsNaN(x)), x, y);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()),
                        y);
}

/// Uses the C library for values beyond the range of Highway's argument reduction.
template <float (*function)(float), class D, class V = hn::Vec<D>>
HWY_INLINE V beyond(D d, V x, V y) {
  const auto outside = hn::Not(hn::Le(hn::Abs(x), hn::Set(d, 30000.0f)));
  if (HWY_LIKELY(hn::AllFalse(d, outside))) return y;
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::IfThenElse(outside, hn::Load(d, lanes), y);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin(D d, V x) {
  // hn::Sin makes 0 of -0.
  const V y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Sin(d, x));
  return beyond<::sinf>(d, x, y);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cos(D d, V x) {
  return beyond<::cosf>(d, x, hn::Cos(d, x));
}

/// Squaring e^(x/2) avoids the overflow of e^x just below the limit of sinh and cosh.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cosh(D d, V x) {
  const V half = hn::Set(d, 0.5f);
  const V e = exp(d, hn::Mul(hn::Abs(x), half));
  return hn::Add(hn::Mul(hn::Mul(half, e), e), hn::Div(hn::Div(half, e), e));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sinh(D d, V x) {
  const V half = hn::Set(d, 0.5f);
  const V magnitude = hn::Abs(x);
  const V e = exp(d, hn::Mul(magnitude, half));
  const V large = hn::Sub(hn::Mul(hn::Mul(half, e), e), hn::Div(hn::Div(half, e), e));
  // (m + m / (m + 1)) / 2 with m = e^|x| - 1 does not cancel near 0.
  const V m = expm1(d, hn::Min(magnitude, hn::Set(d, 2.0f)));
  const V small = hn::Mul(half, hn::Add(m, hn::Div(m, hn::Add(m, hn::Set(d, 1.0f)))));
  const V y = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 1.0f)), small, large);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(y, x));
}

/// log(2 a), for values so large that a^2 would overflow or make the 1 beside it vanish.
constexpr float kFar = 0x1p30f;
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_twice(D d, V a) {
  return hn::Add(log(d, a), hn::Set(d, 0.693147180559945309f));
}

/// log1p(a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|, which does not cancel near 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V asinh(D d, V x) {
  const V one = hn::Set(d, 1.0f), magnitude = hn::Abs(x);
  const V a = hn::Min(magnitude, hn::Set(d, kFar)), square = hn::Mul(a, a);
  const V near =
      hn::Log1p(d, hn::Add(a, hn::Div(square, hn::Add(one, hn::Sqrt(hn::Add(square, one))))));
  const V y = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, kFar)), log_of_twice(d, magnitude), near);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(y, x));
}
/// log1p(u + sqrt(u (u + 2))) with u = x - 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V acosh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Sub(hn::Min(x, hn::Set(d, kFar)), one);
  const V near = hn::Log1p(d, hn::Add(u, hn::Sqrt(hn::Mul(u, hn::Add(u, hn::Set(d, 2.0f))))));
  const V y = hn::IfThenElse(hn::Gt(x, hn::Set(d, kFar)), log_of_twice(d, x), near);
  return hn::IfThenElse(hn::Ge(x, one), y, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
}
/// log1p(2 a / (1 - a)) / 2 with a = |x|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atanh(D d, V x) {
  const V one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f), a = hn::Abs(x);
  V y = hn::Mul(half, hn::Log1p(d, hn::Div(hn::Add(a, a), hn::Sub(one, a))));
  y = hn::IfThenElse(hn::Eq(a, one), infinity(d), y);
  y = hn::IfThenElse(hn::Le(a, one), y, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
  return hn::CopySign(y, x);
}

/// c[0] + c[1] s + c[2] s^2 + ...
template <size_t count, class D, class V = hn::Vec<D>>
HWY_INLINE V polynomial(D d, V s, const float (&c)[count]) {
  V sum = hn::Set(d, c[count - 1]);
  for (size_t i = count - 1; i > 0; --i) sum = hn::MulAdd(sum, s, hn::Set(d, c[i - 1]));
  return sum;
}

/// The odd function x P(x^2) / Q(x^2), which tends to 1. Beyond `limit`, its value there is used: P
/// and Q are such that P exceeds Q, so the minimum makes it exactly 1. NaN comes through both
/// minima, whose second operand it is.
template <size_t above, size_t below, class D, class V = hn::Vec<D>>
HWY_INLINE V saturating_ratio(D d, V x, const float (&above_c)[above],
                              const float (&below_c)[below], float limit) {
  const V magnitude = hn::Min(hn::Set(d, limit), hn::Abs(x));
  const V s = hn::Mul(magnitude, magnitude);
  const V q = polynomial(d, s, below_c);
  const V p = hn::Mul(magnitude, polynomial(d, s, above_c));
  return hn::CopySign(hn::Div(hn::Min(p, q), q), x);
}

/// The fit up to 9 has a relative error of 2.1e-8. Rounding adds up to 3e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  constexpr float kAbove[] = {1.0f, 0.13381025f, 0.0034955877f, 2.0609074e-05f, 1.33546445e-08f};
  constexpr float kBelow[] = {1.0f, 0.46714342f, 0.02587698f, 0.00032856342f, 7.776552e-07f};
  return saturating_ratio(d, x, kAbove, kBelow, 9.8f);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

/// log(1 + e^x) without overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softplus(D d, V x) {
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  const V y = hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, e));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// fmod(x, y) of one element, by the method of remainder() in double precision. The C library takes
/// over where that does not suffice.
HWY_INLINE float far_remainder(float x, float y) {
  const double a = std::fabs(x), b = std::fabs(y), quotient = a / b;
  if (!HWY_NATIVE_FMA || !(quotient < 0x1p52)) return std::fmod(x, y);
  const double rest = std::fma(-std::floor(quotient), b, a);
  return std::copysign(static_cast<float>(rest < 0 ? rest + b : rest), x);
}
/// fmod(x, y). The floor of a rounded quotient below 2^23 is the wanted whole number or the next
/// one. The remainder is a float, so the fused multiply-add computes it without rounding.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V remainder(D d, V x, V y) {
  const V a = hn::Abs(x), b = hn::Abs(y), quotient = hn::Div(a, b);
  V rest = hn::NegMulAdd(hn::Floor(quotient), b, a);
  rest = hn::IfThenElse(hn::Lt(rest, hn::Zero(d)), hn::Add(rest, b), rest);
  rest = hn::CopySign(hn::IfThenElse(hn::Lt(a, b), a, rest), x);
  const auto is_small = HWY_NATIVE_FMA ? hn::Lt(quotient, hn::Set(d, 0x1p23f)) : hn::Lt(a, b);
  if (HWY_LIKELY(hn::AllTrue(d, is_small))) return rest;
  HWY_ALIGN float lanes[hn::MaxLanes(d)], others[hn::MaxLanes(d)];
  hn::Store(x, d, lanes), hn::Store(y, d, others);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = far_remainder(lanes[i], others[i]);
  return hn::IfThenElse(is_small, rest, hn::Load(d, lanes));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sign(D d, V x) {
  const V one = hn::CopySign(hn::Set(d, 1.0f), x);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), one));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V clip(D d, V x, V low, V high) {
  (void)d;
  const V y = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(y, high), high, y);
}

/// The fit up to 3.9 has a relative error of 1.8e-8. Rounding adds up to 3e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf(D d, V x) {
  constexpr float kAbove[] = {1.1283791f,   0.18966629f,    0.052668005f,
                              0.003738321f, 0.00028506125f, 2.0664731e-06f};
  constexpr float kBelow[] = {1.0f,         0.50142014f,   0.113818735f,
                              0.014914228f, 0.0011573692f, 3.826997e-05f};
  return saturating_ratio(d, x, kAbove, kBelow, 4.2f);
}

// The parts of gelu keep the relative accuracy of 1 - erf. The range is split as W. J. Cody,
// "Rational Chebyshev Approximations for the Error Function" (Mathematics of Computation 23, 1969)
// does: erf(x) = x + x P(x^2) up to 1 and 1 - e^-Q(x) beyond. P (degree 6) and Q (degree 7, on
// [1, 4.2]) are weighted minimax fits in double precision. Their relative errors, 1.2e-9 and 2.6e-9
// of erf, are below the precision of FP32.

/// erf(x) for |x| <= 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_small(D d, V x) {
  const V s = hn::Mul(x, x);
  V p = hn::Set(d, 7.889119297033176e-05f);
  p = hn::MulAdd(p, s, hn::Set(d, -0.0008020841050893068f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.005189535208046436f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.026854444295167923f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.11283600330352783f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.3761262595653534f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.12837916612625122f));
  return hn::MulAdd(p, x, x);
}
/// 1 - erf(t) for t >= 1, 0 from 5 on.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_large(D d, V t) {
  const V limit = hn::Set(d, 5.0f);
  const V u = hn::Min(t, limit);
  V q = hn::Set(d, 1.5327967048506252e-05f);
  q = hn::MulAdd(q, u, hn::Set(d, -0.0003535243449732661f));
  q = hn::MulAdd(q, u, hn::Set(d, 0.003700653091073036f));
  q = hn::MulAdd(q, u, hn::Set(d, -0.02365238405764103f));
  q = hn::MulAdd(q, u, hn::Set(d, 0.1056276187300682f));
  q = hn::MulAdd(q, u, hn::Set(d, 0.6361303925514221f));
  q = hn::MulAdd(q, u, hn::Set(d, 1.1279425621032715f));
  q = hn::MulAdd(q, u, hn::Set(d, 0.00019488042744342238f));
  return hn::IfThenZeroElse(hn::Ge(t, limit), exp_in_range(d, hn::Neg(q)));
}

/// x Phi(x); the tail uses 1 - erf directly, which keeps its relative accuracy.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f);
  const V u = hn::Mul(x, hn::Set(d, 0.70710678118654752f));
  const V t = hn::Abs(u);
  const V tail = hn::Mul(half, erfc_large(d, t));
  const V large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  const V small = hn::MulAdd(half, erf_small(d, u), half);
  const V y = hn::Mul(x, hn::IfThenElse(hn::Gt(t, one), large, small));
  // Without this, -infinity would be multiplied by a tail of 0.
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -1e30f)), hn::Zero(d), y);
}

/// x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V s = hn::Mul(x, x);
  const V two_u =
      hn::Mul(x, hn::MulAdd(s, hn::Set(d, 0.07135481282640f), hn::Set(d, 1.59576912160573f)));
  const V y = hn::Mul(x, sigmoid(d, two_u));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -1e10f)), hn::Zero(d), y);
}

}  // namespace
}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // this file is included once per target
