#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/simd_targets.h"
#include "base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_cast.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Storage of the types that C++ has no arithmetic for.
struct Bool {
  uint8_t value;
};
struct Bf16 {
  uint16_t bits;
};
struct Fp8 {
  uint8_t bits;
};

template <class To, class From>
HWY_INLINE To convert_one(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<uint8_t>(x != From(0))};
  } else if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(x.value != 0);
  } else if constexpr (std::is_same_v<From, Bf16>) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
  } else if constexpr (std::is_same_v<To, Bf16>) {
    // Rounds to nearest even by adding half a unit. NaN is handled separately, since it would
    // overflow into infinity.
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return Bf16{static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40 : rounded)};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Both limits are exact as floats (powers of two, or one below for short types), so the
    // comparisons do not suffer from rounding.
    constexpr float kLow = static_cast<float>(std::numeric_limits<To>::min());
    constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
    constexpr float kBeyond = 2.0f * static_cast<float>(kHalf);
    const bool inside = x > kLow && x < kBeyond;
    const To truncated = static_cast<To>(inside ? x : 0.0f);
    const To limit = x >= kBeyond ? std::numeric_limits<To>::max()
                     : x <= kLow  ? std::numeric_limits<To>::min()
                                  : To(0);
    return inside ? truncated : limit;
  } else {
    return static_cast<To>(x);
  }
}

// The fixed inner trip count lets the compiler vectorize at -O2.
template <class From, class To>
void cast(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  const From* HWY_RESTRICT x = static_cast<const From*>(a);
  To* HWY_RESTRICT y = static_cast<To*>(out);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) y[i + j] = convert_one<To, From>(x[i + j]);
  }
  for (; i < count; ++i) y[i] = convert_one<To, From>(x[i]);
}

template <int kSize>
void copy(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  std::memcpy(out, a, count * kSize);
}

void from_half(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const int64_t lanes = hn::Lanes(d);
  const auto* HWY_RESTRICT x = static_cast<const hwy::float16_t*>(a);
  float* HWY_RESTRICT y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, x + i)), d, y + i);
  // Newer versions of Highway have float16_t without a public member for its bits.
  for (const auto* bits = static_cast<const uint16_t*>(a); i < count; ++i)
    y[i] = half_to_float(bits[i]);
}

void to_half(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // its conversion truncates
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const int64_t lanes = hn::Lanes(d);
  auto* HWY_RESTRICT y = static_cast<hwy::float16_t*>(out);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x + i)), half, y + i);
#endif
  for (auto* bits = static_cast<uint16_t*>(out); i < count; ++i) bits[i] = float_to_half(x[i]);
}

/// Converts to INT8 or UINT8: truncates and saturates; NaN becomes 0.
template <class To>
void to_byte(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<To, decltype(d)> bytes;
  const int64_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  To* HWY_RESTRICT y = static_cast<To*>(out);
  const auto low = hn::Set(d, static_cast<float>(std::numeric_limits<To>::min()));
  const auto high = hn::Set(d, static_cast<float>(std::numeric_limits<To>::max()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto v = hn::LoadU(d, x + i);
    v = hn::IfThenZeroElse(hn::IsNaN(v), v);
    v = hn::Min(hn::Max(v, low), high);
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(di, v)), bytes, y + i);
  }
  for (; i < count; ++i) y[i] = convert_one<To, float>(x[i]);
}

/// Stores quotients as bytes, rounded half to even. Adding a number whose unit in the last place is
/// 1 rounds the quotient and leaves the integer in the lowest byte. `q` is at most 2^20. NaN in
/// `origin` gives 0.
template <class To, class V = hn::Vec<hn::ScalableTag<float>>>
HWY_INLINE void store_codes(V origin, V q, hn::Vec<hn::ScalableTag<int32_t>> zero, To* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto sum = hn::BitCast(hn::ScalableTag<int32_t>(), hn::Add(q, hn::Set(d, 0x1.8p23f)));
  const auto code = hn::BitCast(d, hn::Add(sum, zero));
  const auto known = hn::BitCast(du, hn::IfThenElseZero(hn::Eq(origin, origin), code));
  hn::StoreU(hn::TruncateTo(hn::Rebind<uint8_t, decltype(d)>(), known),
             hn::Rebind<uint8_t, decltype(d)>(), reinterpret_cast<uint8_t*>(y));
}

template <class To>
constexpr float kLowestCode = static_cast<float>(std::numeric_limits<To>::min());
template <class To>
constexpr float kHighestCode = static_cast<float>(std::numeric_limits<To>::max());

/// Quantizes one element; `zero` may be null.
template <class To>
HWY_INLINE To quantize_one(float x, float scale, const float* zero) {
  const float y = std::nearbyint(x / scale) + (zero != nullptr ? *zero : 0.0f);
  return convert_one<To, float>(y);
}

template <class To, bool kHasZero>
void quantize(void* out, const void* a, const void* b, const void* c, int64_t count,
              const double*) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<int32_t> di;
  const int64_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  const float* HWY_RESTRICT scale = static_cast<const float*>(b);
  const float* HWY_RESTRICT zeros = static_cast<const float*>(c);
  To* HWY_RESTRICT y = static_cast<To*>(out);
  const auto low = hn::Set(d, kLowestCode<To>), high = hn::Set(d, kHighestCode<To>);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto q = hn::Div(hn::LoadU(d, x + i), hn::LoadU(d, scale + i));
    const auto zero = kHasZero ? hn::LoadU(d, zeros + i) : hn::Zero(d);
    const auto bounded = hn::Min(hn::Max(q, hn::Sub(low, zero)), hn::Sub(high, zero));
    store_codes(q, bounded, kHasZero ? hn::ConvertTo(di, zero) : hn::Zero(di), y + i);
  }
  for (; i < count; ++i) y[i] = quantize_one<To>(x[i], scale[i], kHasZero ? zeros + i : nullptr);
}

/// With a near quotient q = x (1 / s), the quotient x / s is q + (x - q s) / s. A fused
/// multiply-add makes the remainder exact. The final rounding differs from the quotient by less
/// than the resolution of floats (P. W. Markstein, "Computation of elementary functions on the IBM
/// RISC System/6000 processor", 1990).
template <class To, bool kHasZero>
void quantize_by_scalar(void* out, const void* a, const void* b, const void* c, int64_t count,
                        const double*) {
  if (count == 0) return;
  const float factor = *static_cast<const float*>(b);
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  To* HWY_RESTRICT y = static_cast<To*>(out);
  const float zero = kHasZero ? *static_cast<const float*>(c) : 0.0f;
  // The values of the lowest and the highest code. Values beyond them get these codes, too.
  const float ends[] = {(kLowestCode<To> - zero) * factor, (kHighestCode<To> - zero) * factor};
  const auto least = hn::Set(d, std::min(ends[0], ends[1]));
  const auto most = hn::Set(d, std::max(ends[0], ends[1]));
  const auto scale = hn::Set(d, factor), reciprocal = hn::Set(d, 1 / factor);
  const auto moved = hn::Set(hn::ScalableTag<int32_t>(), static_cast<int32_t>(zero));
  // Outside of these bounds the reciprocal or the remainder would not be a normal number.
  const bool is_normal = std::abs(factor) > 0x1p-100f && std::abs(factor) < 0x1p100f;
  int64_t i = 0;
  for (; HWY_NATIVE_FMA && is_normal && i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i), bounded = hn::Min(hn::Max(v, least), most);
    const auto near = hn::Mul(bounded, reciprocal);
    const auto exact = hn::MulAdd(hn::NegMulAdd(near, scale, bounded), reciprocal, near);
    store_codes(v, exact, moved, y + i);
  }
  for (; i < count; ++i) y[i] = quantize_one<To>(x[i], factor, kHasZero ? &zero : nullptr);
}

void scaled_sum(void* out, const void* a, const void* b, const void* c, int64_t count,
                const double*) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const int64_t lanes = hn::Lanes(d);
  const int32_t* HWY_RESTRICT x = static_cast<const int32_t*>(a);
  const float* HWY_RESTRICT scale = static_cast<const float*>(b);
  const float* HWY_RESTRICT shift = static_cast<const float*>(c);
  float* HWY_RESTRICT y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sums = hn::ConvertTo(d, hn::LoadU(integers, x + i));
    const auto scaled = hn::Mul(sums, hn::LoadU(d, scale + i));
    hn::StoreU(hn::Add(scaled, hn::LoadU(d, shift + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] = static_cast<float>(x[i]) * scale[i] + shift[i];
}

/// Converts to INT64: truncates and saturates; NaN becomes 0.
void to_int64(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  const hn::ScalableTag<int64_t> d;
  const hn::Rebind<double, decltype(d)> wide;
  const hn::Rebind<float, decltype(d)> narrow;
  const int64_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  int64_t* HWY_RESTRICT y = static_cast<int64_t*>(out);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto v = hn::LoadU(narrow, x + i);
    v = hn::IfThenZeroElse(hn::IsNaN(v), v);
    hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(wide, v)), d, y + i);
  }
  for (; i < count; ++i) y[i] = convert_one<int64_t, float>(x[i]);
}

void from_fp8(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[i] = fp8_to_float(static_cast<uint8_t>(i));
    return values;
  }();
  for (int64_t i = 0; i < count; ++i)
    static_cast<float*>(out)[i] = table[static_cast<const uint8_t*>(a)[i]];
}
void to_fp8(void* out, const void* a, const void*, const void*, int64_t count, const double*) {
  for (int64_t i = 0; i < count; ++i)
    static_cast<uint8_t*>(out)[i] = float_to_fp8(static_cast<const float*>(a)[i]);
}

void round_to_half(void* out, const void* a, const void*, const void*, int64_t count,
                   const double*) {
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  float* HWY_RESTRICT y = static_cast<float*>(out);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // its conversion truncates
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::PromoteTo(d, hn::DemoteTo(half, hn::LoadU(d, x + i))), d, y + i);
#endif
  for (; i < count; ++i) y[i] = half_to_float(float_to_half(x[i]));
}
void round_to_bf16(void* out, const void* a, const void*, const void*, int64_t count,
                   const double*) {
  const float* HWY_RESTRICT x = static_cast<const float*>(a);
  float* HWY_RESTRICT y = static_cast<float*>(out);
  const auto round = [](float v) { return convert_one<float>(convert_one<Bf16>(v)); };
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    OPWRIGHT_NO_OVERLAP
    for (int j = 0; j < 64; ++j) y[i + j] = round(x[i + j]);
  }
  for (; i < count; ++i) y[i] = round(x[i]);
}

template <class From>
TileFunction cast_from(DataType to) {
  switch (to) {
    case DataType::kFLOAT:
      return cast<From, float>;
    case DataType::kINT8:
      return cast<From, int8_t>;
    case DataType::kUINT8:
      return cast<From, uint8_t>;
    case DataType::kINT32:
      return cast<From, int32_t>;
    case DataType::kINT64:
      return cast<From, int64_t>;
    case DataType::kBOOL:
      return cast<From, Bool>;
    default:
      return nullptr;
  }
}

}  // namespace

TileFunction cast_op(DataType from, DataType to) {
  if (from == to) {
    switch (from) {
      case DataType::kFLOAT:
      case DataType::kINT32:
        return copy<4>;
      case DataType::kHALF:
      case DataType::kBF16:
        return copy<2>;
      case DataType::kINT64:
        return copy<8>;
      case DataType::kINT8:
      case DataType::kUINT8:
      case DataType::kBOOL:
      case DataType::kFP8:
        return copy<1>;
      default:
        return nullptr;
    }
  }
  switch (from) {
    case DataType::kFLOAT:
      switch (to) {
        case DataType::kHALF:
          return to_half;
        case DataType::kBF16:
          return cast<float, Bf16>;
        case DataType::kFP8:
          return to_fp8;
        case DataType::kINT8:
          return to_byte<int8_t>;
        case DataType::kUINT8:
          return to_byte<uint8_t>;
        case DataType::kINT64:
          return to_int64;
        default:
          return cast_from<float>(to);
      }
    case DataType::kHALF:
      return to == DataType::kFLOAT ? from_half : nullptr;
    case DataType::kBF16:
      return to == DataType::kFLOAT ? static_cast<TileFunction>(cast<Bf16, float>) : nullptr;
    case DataType::kFP8:
      return to == DataType::kFLOAT ? from_fp8 : nullptr;
    case DataType::kINT8:
      return cast_from<int8_t>(to);
    case DataType::kUINT8:
      return cast_from<uint8_t>(to);
    case DataType::kINT32:
      return cast_from<int32_t>(to);
    case DataType::kINT64:
      return cast_from<int64_t>(to);
    case DataType::kBOOL:
      return cast_from<Bool>(to);
    default:
      return nullptr;
  }
}

TileFunction scaled_sum_op() { return scaled_sum; }

TileFunction rounding_op(DataType to) {
  return to == DataType::kHALF ? round_to_half : round_to_bf16;
}

template <class To>
TileFunction quantize_to(bool has_zero_point, bool by_scalar) {
  if (by_scalar)
    return has_zero_point ? quantize_by_scalar<To, true> : quantize_by_scalar<To, false>;
  return has_zero_point ? quantize<To, true> : quantize<To, false>;
}
TileFunction quantize_op(DataType to, bool has_zero_point, bool by_scalar) {
  return to == DataType::kINT8 ? quantize_to<int8_t>(has_zero_point, by_scalar)
                               : quantize_to<uint8_t>(has_zero_point, by_scalar);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(cast_op);
HWY_EXPORT(quantize_op);
HWY_EXPORT(rounding_op);
HWY_EXPORT(scaled_sum_op);

TileFunction find_cast(DataType from, DataType to) {
  return HWY_DYNAMIC_DISPATCH(cast_op)(from, to);
}
TileFunction find_rounding(DataType to) { return HWY_DYNAMIC_DISPATCH(rounding_op)(to); }
TileFunction find_scaled_sum() { return HWY_DYNAMIC_DISPATCH(scaled_sum_op)(); }
TileFunction find_quantize(DataType to, bool has_zero_point, bool by_scalar) {
  return HWY_DYNAMIC_DISPATCH(quantize_op)(to, has_zero_point, by_scalar);
}

}  // namespace opwright
#endif
