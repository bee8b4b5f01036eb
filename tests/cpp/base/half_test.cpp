// Conversions against values computed from the formats' definitions with integers and doubles.

#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"

namespace opwright {
namespace {

/// A binary format by its definition: sign, exponent, mantissa.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  ///< else the one pattern of all ones is NaN and the rest are numbers

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_bit() const { return exponent_bits + mantissa_bits; }

  double value(int bits) const {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits >> sign_bit() & 1 ? -1 : 1;
    const bool top = exponent == (1 << exponent_bits) - 1;
    if (top && has_infinity) return mantissa ? std::nan("") : sign * INFINITY;
    if (top && mantissa == (1 << mantissa_bits) - 1) return std::nan("");
    const double fraction = exponent ? mantissa + (1 << mantissa_bits) : mantissa;
    return sign * std::ldexp(fraction, std::max(exponent, 1) - bias() - mantissa_bits);
  }

  /// The magnitude pattern nearest to `x` >= 0, ties to even patterns, by binary search.
  int nearest(double x) const {
    // Behind the largest number are infinity and all that is not a number, or one pattern of that.
    const int largest = (1 << sign_bit()) - (has_infinity ? 1 << mantissa_bits : 1) - 1;
    int low = 0, high = largest;
    if (x >= value(largest)) {
      if (!has_infinity) return largest;
      const double next = value(largest) + (value(largest) - value(largest - 1));
      const double middle = (value(largest) + next) / 2;
      return x < middle ? largest : largest + 1;  // a tie goes to infinity, the even pattern
    }
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (value(middle) <= x ? low : high) = middle;
    }
    const double below = x - value(low), above = value(high) - x;
    if (below != above) return below < above ? low : high;
    return low % 2 == 0 ? low : high;
  }
};

constexpr Format kHalf{5, 10, true}, kBFloat16{8, 7, true}, kFp8{4, 3, false};

template <class Decode>
void check_decoding(const Format& format, Decode decode) {
  for (int bits = 0; bits < 1 << (format.sign_bit() + 1); ++bits) {
    const double expected = format.value(bits);
    const float got = decode(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << bits;
    }
  }
}

template <class Encode>
void check_encoding(const Format& format, Encode encode) {
  const auto check = [&](float x) {
    const int sign = std::signbit(x) ? 1 << format.sign_bit() : 0;
    ASSERT_EQ(encode(x), sign | format.nearest(std::fabs(static_cast<double>(x)))) << x;
  };
  // Every number, the middles between neighbours, and what lies just beside those.
  for (int bits = 0; bits + 1 < 1 << format.sign_bit(); ++bits) {
    const double value = format.value(bits), next = format.value(bits + 1);
    if (!std::isfinite(value)) continue;
    const auto middle = static_cast<float>(std::isfinite(next) ? (value + next) / 2 : value * 1.01);
    for (const float x : {static_cast<float>(value), middle, std::nextafter(middle, 0.0f),
                          std::nextafter(middle, INFINITY)}) {
      check(x);
      check(-x);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) check(x);
  }
  check(std::numeric_limits<float>::max());
  check(INFINITY);
  const auto nan_pattern = [&](uint32_t bits) {
    return std::isnan(format.value(encode(std::bit_cast<float>(bits))));
  };
  EXPECT_TRUE(nan_pattern(0x7fc00000));
  EXPECT_TRUE(nan_pattern(0x7f800001));  // signaling, its payload is in the lowest bit
  EXPECT_TRUE(nan_pattern(0xffffffff));
}

TEST(Half, DecodesEveryPattern) {
  check_decoding(kHalf, [](int bits) { return half_to_float(static_cast<uint16_t>(bits)); });
}
TEST(Half, RoundsToNearestEven) { check_encoding(kHalf, float_to_half); }

TEST(BFloat16, DecodesEveryPattern) {
  check_decoding(kBFloat16,
                 [](int bits) { return bfloat16_to_float(static_cast<uint16_t>(bits)); });
}
TEST(BFloat16, RoundsToNearestEven) { check_encoding(kBFloat16, float_to_bfloat16); }

TEST(Fp8, DecodesEveryPattern) {
  check_decoding(kFp8, [](int bits) { return fp8_to_float(static_cast<uint8_t>(bits)); });
}
TEST(Fp8, RoundsToNearestEvenAndSaturates) {
  check_encoding(kFp8, float_to_fp8);
  EXPECT_EQ(fp8_to_float(float_to_fp8(1e9f)), 448.0f);
  EXPECT_EQ(fp8_to_float(float_to_fp8(-INFINITY)), -448.0f);
}

template <class To, class From>
std::vector<To> converted(DataType from_type, const std::vector<From>& from, DataType to_type) {
  std::vector<To> to(from.size());
  convert(from.data(), from_type, to.data(), to_type, static_cast<int64_t>(from.size()));
  return to;
}

TEST(Convert, FloatingToInteger) {
  const std::vector<float> from{1.9f, -1.9f, 300, -300, 1e30f, -1e30f, NAN, -0.5f, INFINITY};
  EXPECT_EQ(converted<int8_t>(DataType::kFLOAT, from, DataType::kINT8),
            (std::vector<int8_t>{1, -1, 127, -128, 127, -128, 0, 0, 127}));
  EXPECT_EQ(converted<uint8_t>(DataType::kFLOAT, from, DataType::kUINT8),
            (std::vector<uint8_t>{1, 0, 255, 0, 255, 0, 0, 0, 255}));
  EXPECT_EQ(converted<int32_t>(DataType::kFLOAT, from, DataType::kINT32),
            (std::vector<int32_t>{1, -1, 300, -300, INT32_MAX, INT32_MIN, 0, 0, INT32_MAX}));
  EXPECT_EQ(converted<int64_t>(DataType::kFLOAT, from, DataType::kINT64),
            (std::vector<int64_t>{1, -1, 300, -300, INT64_MAX, INT64_MIN, 0, 0, INT64_MAX}));
  EXPECT_EQ(converted<uint8_t>(DataType::kFLOAT, std::vector<float>{0, -0.0f, 1e-40f, NAN},
                               DataType::kBOOL),
            (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(converted<int32_t>(DataType::kHALF, std::vector<uint16_t>{0x3e00, 0xfc00, 0x7bff},
                               DataType::kINT32),
            (std::vector<int32_t>{1, INT32_MIN, 65504}));
}

TEST(Convert, Integers) {
  const std::vector<int32_t> from{200, -1, 256, 70000};
  EXPECT_EQ(converted<int8_t>(DataType::kINT32, from, DataType::kINT8),
            (std::vector<int8_t>{-56, -1, 0, 112}));
  EXPECT_EQ(converted<int64_t>(DataType::kINT32, from, DataType::kINT64),
            (std::vector<int64_t>{200, -1, 256, 70000}));
  EXPECT_EQ(converted<uint8_t>(DataType::kINT32, from, DataType::kBOOL),
            (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(converted<float>(DataType::kINT64, std::vector<int64_t>{(1ll << 53) + 1, -3},
                             DataType::kFLOAT),
            (std::vector<float>{0x1p53f, -3}));
  EXPECT_EQ(converted<uint16_t>(DataType::kINT32, from, DataType::kHALF),
            (std::vector<uint16_t>{0x5a40, 0xbc00, 0x5c00, 0x7c00}));
  // Any byte but 0 is true.
  EXPECT_EQ(converted<float>(DataType::kBOOL, std::vector<uint8_t>{0, 1, 7}, DataType::kFLOAT),
            (std::vector<float>{0, 1, 1}));
}

TEST(Convert, EveryPairKeepsSmallNumbers) {
  constexpr DataType kTypes[] = {DataType::kFLOAT, DataType::kHALF,  DataType::kBF16,
                                 DataType::kFP8,   DataType::kINT8,  DataType::kUINT8,
                                 DataType::kINT32, DataType::kINT64, DataType::kBOOL};
  const std::vector<float> numbers{0, 1, 1, 0, 1};
  constexpr int64_t kCount = 5;
  for (const DataType a : kTypes) {
    for (const DataType b : kTypes) {
      std::byte first[40], second[40];
      float result[kCount];
      convert(numbers.data(), DataType::kFLOAT, first, a, kCount);
      convert(first, a, second, b, kCount);
      convert(second, b, result, DataType::kFLOAT, kCount);
      EXPECT_EQ(std::vector(result, result + kCount), numbers);
    }
  }
  std::byte nothing[8];
  EXPECT_THROW(convert(nothing, DataType::kINT4, nothing, DataType::kFLOAT, 1), Error);
  EXPECT_THROW(convert(nothing, DataType::kFLOAT, nothing, DataType::kE8M0, 1), Error);
}

TEST(Convert, LongArrays) {
  std::vector<int32_t> from(200001);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int32_t>(i) - 7;
  const auto to = converted<int64_t>(DataType::kINT32, from, DataType::kINT64);
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], from[i]);
}

TEST(Convert, QuantizesWithAScale) {
  const float values[] = {0, 0.25f, 0.75f, 1.25f, -0.25f, -0.75f, 1000, -1000, 31.7f, NAN};
  const int8_t quantized[] = {0, 0, 2, 2, 0, -2, 127, -128, 63, 0};  // values / 0.5, ties to even
  int8_t got[10];
  convert(values, DataType::kFLOAT, got, DataType::kINT8, 10, 0.5f);
  EXPECT_EQ(std::memcmp(got, quantized, sizeof(got)), 0);
  float back[10];
  convert(quantized, DataType::kINT8, back, DataType::kFLOAT, 10, 0.5f);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(back[i], 0.5f * static_cast<float>(quantized[i]));

  // More elements than are converted at a time, through a narrower type.
  std::vector<uint16_t> halves(3000);
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = float_to_half(static_cast<float>(i % 200) - 100);
  std::vector<int8_t> integers(halves.size());
  convert(halves.data(), DataType::kHALF, integers.data(), DataType::kINT8, 3000, 2.0f);
  for (size_t i = 0; i < halves.size(); ++i)
    EXPECT_EQ(integers[i],
              static_cast<int8_t>(std::nearbyint((static_cast<double>(i % 200) - 100) / 2)));
}

TEST(Convert, AScaleOfZeroIsNone) {
  const float values[] = {1.75f, -1.75f};
  int8_t got[2];
  convert(values, DataType::kFLOAT, got, DataType::kINT8, 2, 0.0f);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], -1);
  int32_t whole[2];
  convert(values, DataType::kFLOAT, whole, DataType::kINT32, 2, 0.5f);
  EXPECT_EQ(whole[0], 1);
}

}  // namespace
}  // namespace opwright
