#include "base/half.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00)  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Avoids subnormal floats, which a thread may flush to zero.
  const float value = magnitude < 0x400 ? static_cast<float>(magnitude) * 0x1p-24f
                                        : std::bit_cast<float>((magnitude << 13) + 0x38000000u);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)  // NaN: quiet, with the upper bits of the payload
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or is beyond
  if (magnitude < 0x38800000u) {
    // The result is subnormal, a multiple of 2^-24. The last bit of 0.5 is 2^-24, so adding 0.5
    // makes the processor round.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float fp8_to_float(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  const float value = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                    : std::bit_cast<float>((magnitude << 20) + 0x3c000000u);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint8_t float_to_fp8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448 and beyond saturate
  if (magnitude < 0x3c800000u) {
    // As for half: subnormals are multiples of 2^-9, the last bit of 2^14.
    const float rounded = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x46800000u));
  }
  const uint32_t odd = magnitude >> 20 & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

namespace {

// Storage of each element type, and the arithmetic type for its conversions.
template <class Stored>
struct Plain {
  using Storage = Stored;
  static Stored load(Stored x) { return x; }
};
struct Half {
  using Storage = uint16_t;
  static float load(uint16_t x) { return half_to_float(x); }
};
struct BFloat16 {
  using Storage = uint16_t;
  static float load(uint16_t x) { return bfloat16_to_float(x); }
};
struct Fp8 {
  using Storage = uint8_t;
  static float load(uint8_t x) { return fp8_to_float(x); }
};
struct Bool {
  using Storage = uint8_t;
  static uint8_t load(uint8_t x) { return x != 0; }
};

template <class To, class Value>
typename To::Storage store(Value value) {
  using Storage = typename To::Storage;
  if constexpr (std::is_same_v<To, Half>) {
    return float_to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return float_to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Fp8>) {
    return float_to_fp8(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return value != Value{};
  } else if constexpr (std::is_floating_point_v<Value> && std::is_integral_v<Storage>) {
    using Limits = std::numeric_limits<Storage>;
    // One above the largest value is a power of two, so it is exact even if the largest value is
    // not.
    constexpr Value kEnd = static_cast<Value>(Limits::max() / 2 + 1) * 2;
    if (std::isnan(value)) return 0;
    if (value >= kEnd) return Limits::max();
    if (value <= static_cast<Value>(Limits::min())) return Limits::min();
    return static_cast<Storage>(value);
  } else {
    return static_cast<Storage>(value);
  }
}

template <class From, class To>
void convert_range(const void* from, void* to, int64_t begin, int64_t end) {
  const auto* source = static_cast<const typename From::Storage*>(from);
  auto* target = static_cast<typename To::Storage*>(to);
  for (int64_t i = begin; i < end; ++i) target[i] = store<To>(From::load(source[i]));
}

// Calls f with the storage class of `type`.
template <class F>
auto with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::kFLOAT:
      return f(Plain<float>{});
    case DataType::kHALF:
      return f(Half{});
    case DataType::kBF16:
      return f(BFloat16{});
    case DataType::kFP8:
      return f(Fp8{});
    case DataType::kINT8:
      return f(Plain<int8_t>{});
    case DataType::kUINT8:
      return f(Plain<uint8_t>{});
    case DataType::kINT32:
      return f(Plain<int32_t>{});
    case DataType::kINT64:
      return f(Plain<int64_t>{});
    case DataType::kBOOL:
      return f(Bool{});
    default:
      fail("elements of type ", name(type), " cannot be converted");
  }
}

using RangeFunction = void (*)(const void*, void*, int64_t, int64_t);

}  // namespace

void convert(const void* from, DataType from_type, void* to, DataType to_type, int64_t count) {
  if (from_type == to_type) {
    if (const int64_t bytes = bytes_of(from_type, count))
      std::memmove(to, from, static_cast<size_t>(bytes));
    return;
  }
  const RangeFunction function = with_type(from_type, [&](auto source) {
    return with_type(to_type, [&](auto target) -> RangeFunction {
      return &convert_range<decltype(source), decltype(target)>;
    });
  });
  constexpr int64_t kGrain = 1 << 15;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { function(from, to, begin, end); });
}

void convert(const void* from, DataType from_type, void* to, DataType to_type, int64_t count,
             float scale) {
  const bool quantizes = to_type == DataType::kINT8 && is_floating(from_type);
  const bool dequantizes = from_type == DataType::kINT8 && is_floating(to_type);
  if (!(scale > 0) || !(quantizes || dequantizes))
    return convert(from, from_type, to, to_type, count);
  constexpr int64_t kBlock = 1024;
  float values[kBlock];
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    convert(source + begin * bits(from_type) / 8, from_type, values, DataType::kFLOAT, length);
    if (dequantizes) {
      for (int64_t i = 0; i < length; ++i) values[i] *= scale;
    } else {
      for (int64_t i = 0; i < length; ++i) {
        const float rounded = std::nearbyint(values[i] / scale);
        values[i] = std::isnan(rounded) ? 0.0f : std::clamp(rounded, -128.0f, 127.0f);
      }
    }
    convert(values, DataType::kFLOAT, target + begin * bits(to_type) / 8, to_type, length);
  }
}

}  // namespace opwright
