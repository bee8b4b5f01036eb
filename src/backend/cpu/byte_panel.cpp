#include "backend/cpu/byte_panel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/processor.h"
#include "backend/cpu/simd_targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace opwright {
namespace {

constexpr float kMost = 8388600;  ///< of an integer of 24 bits, with room for a rounding
constexpr int64_t kBytePlanes = 3;
/// Bytes of a plane of bytes, and elements of one of words.
constexpr int64_t plane_size(int64_t k) { return byte_planes_size(k) / 4; }

/// The best of the instruction sets that these functions use.
enum class ByteProducts { kNone, kAvx2, kVnni };
ByteProducts byte_products() {
#if defined(__x86_64__)
  static const ByteProducts best = [] {
    if (processor_features().int8 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
      return ByteProducts::kVnni;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? ByteProducts::kAvx2
                                                                           : ByteProducts::kNone;
  }();
  return best;
#else
  return ByteProducts::kNone;
#endif
}

#if defined(__x86_64__)
#define OPWRIGHT_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined vectors of its own header for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define OPWRIGHT_VNNI_INLINE OPWRIGHT_VNNI inline __attribute__((always_inline))

OPWRIGHT_VNNI_INLINE __m512i product(__m512i sum, const uint8_t* plane, __m512i codes) {
  int32_t four;
  std::memcpy(&four, plane, sizeof(four));
  return _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), codes);
}

/// Writes the sums of a vector's planes with 16 columns from `c` on. The planes are unsigned: byte
/// 2 of a number is 128 too large, for which the offsets make up.
OPWRIGHT_VNNI_INLINE void store_sums(const BytePanelProduct& p, int64_t row, int64_t c, __m512i low,
                                     __m512i middle, __m512i high) {
  const __m512 byte = _mm512_set1_ps(256.0F);
  high = _mm512_sub_epi32(high, _mm512_loadu_si512(p.offsets + c));
  __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), byte, _mm512_cvtepi32_ps(middle));
  sum = _mm512_fmadd_ps(sum, byte, _mm512_cvtepi32_ps(low));
  const __m512 unit = _mm512_set1_ps(p.vectors.scales[p.first + row]);
  const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(p.scales + c), unit);
  const __m512 init = p.init != nullptr ? _mm512_loadu_ps(p.init + c) : _mm512_setzero_ps();
  _mm512_storeu_ps(p.out + row * p.out_stride + c, _mm512_fmadd_ps(sum, scale, init));
}

/// Written with index sequences instead of loops, so that the sums stay in registers.
template <size_t... kPlane>
OPWRIGHT_VNNI void multiply_pair(const BytePanelProduct& p, int64_t first,
                                 std::index_sequence<kPlane...>) {
  const int64_t plane = plane_size(p.vectors.k);
  const uint8_t* planes = p.vectors.planes + (p.first + first) * kBytePlanes * plane;
  const int8_t *panel = p.panel, *const end = panel + byte_panel_size(p.vectors.k);
  __m512i low[] = {((void)kPlane, _mm512_setzero_si512())...};
  __m512i high[] = {((void)kPlane, _mm512_setzero_si512())...};
  for (; panel < end; panel += 4 * kByteColumns, planes += 4) {
    const __m512i a = _mm512_loadu_si512(panel), b = _mm512_loadu_si512(panel + 64);
    ((low[kPlane] = product(low[kPlane], planes + kPlane * plane, a),
      high[kPlane] = product(high[kPlane], planes + kPlane * plane, b)),
     ...);
  }
  store_sums(p, first, 0, low[0], low[1], low[2]);
  store_sums(p, first, 16, high[0], high[1], high[2]);
  store_sums(p, first + 1, 0, low[3], low[4], low[5]);
  store_sums(p, first + 1, 16, high[3], high[4], high[5]);
}

/// One vector has several sums of each plane, since additions to one would wait for each other.
template <size_t... kPlane>
OPWRIGHT_VNNI void multiply_one(const BytePanelProduct& p, int64_t row,
                                std::index_sequence<kPlane...>) {
  const int64_t plane = plane_size(p.vectors.k);
  const uint8_t* planes = p.vectors.planes + (p.first + row) * kBytePlanes * plane;
  const int8_t *panel = p.panel, *const end = panel + byte_panel_size(p.vectors.k);
  __m512i sums[4][kBytePlanes] = {{((void)kPlane, _mm512_setzero_si512())...},
                                  {((void)kPlane, _mm512_setzero_si512())...},
                                  {((void)kPlane, _mm512_setzero_si512())...},
                                  {((void)kPlane, _mm512_setzero_si512())...}};
  for (; panel < end; panel += 8 * kByteColumns, planes += 8) {
    const __m512i a = _mm512_loadu_si512(panel), b = _mm512_loadu_si512(panel + 64);
    const __m512i c = _mm512_loadu_si512(panel + 128), d = _mm512_loadu_si512(panel + 192);
    ((sums[0][kPlane] = product(sums[0][kPlane], planes + kPlane * plane, a),
      sums[1][kPlane] = product(sums[1][kPlane], planes + kPlane * plane, b),
      sums[2][kPlane] = product(sums[2][kPlane], planes + kPlane * plane + 4, c),
      sums[3][kPlane] = product(sums[3][kPlane], planes + kPlane * plane + 4, d)),
     ...);
  }
  store_sums(p, row, 0, _mm512_add_epi32(sums[0][kPlane], sums[2][kPlane])...);
  store_sums(p, row, 16, _mm512_add_epi32(sums[1][kPlane], sums[3][kPlane])...);
}

/// Two conversions round to the nearest integer, ties to even, as lrintf does.
OPWRIGHT_VNNI void make_planes(const float* a, int64_t k, float factor, uint8_t* planes,
                               int64_t plane) {
  const __m512 scale = _mm512_set1_ps(factor);
  const __m512i middle = _mm512_set1_epi32(1 << 23);
  for (int64_t i = 0; i < k; i += 16) {
    const auto mask = static_cast<__mmask16>(k - i >= 16 ? 0xffff : (1 << (k - i)) - 1);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, a + i), scale);
    __m512i number = _mm512_add_epi32(_mm512_cvtps_epi32(x), middle);
    for (int64_t p = 0; p < kBytePlanes; ++p, number = _mm512_srli_epi32(number, 8))
      _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + p * plane + i),
                       _mm512_cvtepi32_epi8(number));
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define OPWRIGHT_AVX2 __attribute__((target("avx2,fma")))

/// The elements [i, i + 8) of k, of which those that lack are 0.
OPWRIGHT_AVX2 inline __m256 load_eight(const float* a, int64_t i, int64_t k) {
  if (k - i >= 8) return _mm256_loadu_ps(a + i);
  float last[8] = {};
  std::copy(a + i, a + k, last);
  return _mm256_loadu_ps(last);
}

/// The largest absolute value; NaN if there is one.
OPWRIGHT_AVX2 float largest(const float* a, int64_t k) {
  // The bits of absolute values have their order, and those of NaN are the largest.
  const __m256i absolute = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (int64_t i = 0; i < k; i += 8) {
    const __m256i x = _mm256_castps_si256(load_eight(a, i, k));
    most = _mm256_max_epi32(most, _mm256_and_si256(x, absolute));
  }
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), most);
  return std::bit_cast<float>(*std::max_element(lanes, lanes + 8));
}

/// With AVX2 a number is two words: its upper bits with the sign, and its lower 12 bits.
constexpr int kLowBits = 12;

int16_t* words_of(const ByteVectors& v, int64_t row) {
  return reinterpret_cast<int16_t*>(v.planes + row * byte_planes_size(v.k));
}

/// Writes the upper words of a vector, and its lower words behind them.
OPWRIGHT_AVX2 void make_words(const float* a, int64_t k, float factor, int16_t* words) {
  const __m256 scale = _mm256_set1_ps(factor);
  const __m256i mask = _mm256_set1_epi32((1 << kLowBits) - 1);
  const int64_t plane = plane_size(k);
  for (int64_t i = 0; i < k; i += 8) {
    const __m256 x = _mm256_mul_ps(load_eight(a, i, k), scale);
    const __m256i number = _mm256_cvtps_epi32(x);
    const __m256i upper = _mm256_srai_epi32(number, kLowBits);
    const __m256i lower = _mm256_and_si256(number, mask);
    // Each half has four upper words and four lower ones.
    const __m256i mixed = _mm256_packs_epi32(upper, lower);
    const __m256i ordered = _mm256_permute4x64_epi64(mixed, 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(words + i), _mm256_castsi256_si128(ordered));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(words + plane + i),
                     _mm256_extracti128_si256(ordered, 1));
  }
}

/// Four words that follow each other, four times.
OPWRIGHT_AVX2 inline __m256i load_four(const int16_t* words) {
  int64_t four;
  std::memcpy(&four, words, sizeof(four));
  return _mm256_set1_epi64x(four);
}

/// The sums of 8 columns. Each of the two vectors has two summands of four columns.
OPWRIGHT_AVX2 inline __m256 add_halves(__m256i first, __m256i second) {
  const __m256i sums = _mm256_hadd_epi32(first, second);
  return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(sums, 0xd8));
}

OPWRIGHT_AVX2 void multiply_words(const BytePanelProduct& p, int64_t row) {
  constexpr int64_t kColumns = 16;  // whose sums fit the registers
  constexpr int kVectors = 4;
  const int16_t* const upper_words = words_of(p.vectors, p.first + row);
  const int16_t* const lower_words = upper_words + plane_size(p.vectors.k);
  const __m256 unit = _mm256_set1_ps(p.vectors.scales[p.first + row]);
  const __m256 factor = _mm256_set1_ps(1 << kLowBits);
  for (int64_t first = 0; first < kByteColumns; first += kColumns) {
    __m256i upper[kVectors], lower[kVectors];
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; ++v) upper[v] = lower[v] = _mm256_setzero_si256();
    const int8_t *panel = p.panel, *const end = panel + byte_panel_size(p.vectors.k);
    for (int64_t k = 0; panel < end; panel += 4 * kByteColumns, k += 4) {
      const __m256i a = load_four(upper_words + k), b = load_four(lower_words + k);
      OPWRIGHT_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        const auto* const codes = reinterpret_cast<const __m128i*>(panel + 4 * first + 16 * v);
        const __m256i weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(codes));
        upper[v] = _mm256_add_epi32(upper[v], _mm256_madd_epi16(a, weights));
        lower[v] = _mm256_add_epi32(lower[v], _mm256_madd_epi16(b, weights));
      }
    }
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; v += 2) {
      const int64_t c = first + 4 * v;
      const __m256 sum = _mm256_fmadd_ps(add_halves(upper[v], upper[v + 1]), factor,
                                         add_halves(lower[v], lower[v + 1]));
      const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(p.scales + c), unit);
      const __m256 init = p.init != nullptr ? _mm256_loadu_ps(p.init + c) : _mm256_setzero_ps();
      _mm256_storeu_ps(p.out + row * p.out_stride + c, _mm256_fmadd_ps(sum, scale, init));
    }
  }
}

#endif

/// A vector that cannot be an integer times a scale.
void multiply_vector(const BytePanelProduct& p, int64_t row) {
  const ByteVectors& v = p.vectors;
  const float* const a = v.a + (p.first + row) * v.a_stride;
  for (int64_t c = 0; c < kByteColumns; ++c) {
    float sum = p.init != nullptr ? p.init[c] : 0.0F;
    for (int64_t k = 0; k < v.k; ++k)
      sum += a[k] * (static_cast<float>(p.panel[byte_place(k, c)]) * p.scales[c]);
    p.out[row * p.out_stride + c] = sum;
  }
}

}  // namespace

bool prefers_bytes(int64_t k, int64_t columns, int64_t vectors) {
  // Larger sums would overflow.
  constexpr int64_t kMostOfBytes = 1 << 16, kMostOfWords = 1 << 12;
  constexpr int64_t kNearCache = 512 << 10, kFewVectors = 2;
  switch (byte_products()) {
    case ByteProducts::kVnni:
      return k <= kMostOfBytes;
    case ByteProducts::kAvx2:
      return k <= kMostOfWords && vectors <= kFewVectors &&
             k * columns * int64_t{sizeof(float)} > kNearCache;
    default:
      return false;
  }
}

bool find_byte_codes(const float* weights, int64_t count, int8_t* codes, float& scale) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(weights[i])) return false;
    most = std::max(most, std::abs(weights[i]));
  }
  scale = 0;
  std::fill_n(codes, count, int8_t{0});
  if (most == 0) return true;
  if (most < std::numeric_limits<float>::min() * 65536) return false;
  // A product of a code and a scale, and the scale that comes from the largest, are rounded.
  constexpr float kRounding = 1.0F / (1 << 21);
  for (int largest_code = 128; largest_code > 0; --largest_code) {
    const float unit = most / static_cast<float>(largest_code);
    int64_t i = 0;
    for (; i < count; ++i) {
      const float code = std::nearbyint(weights[i] / unit);
      if (code > 127 || std::abs(code * unit - weights[i]) > kRounding * std::abs(weights[i]))
        break;
      codes[i] = static_cast<int8_t>(code);
    }
    scale = unit;
    if (i == count) return true;
  }
  return false;
}

void make_byte_planes(const ByteVectors& v, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  const int64_t plane = plane_size(v.k);
  for (int64_t row = begin; row < end; ++row) {
    const float* const a = v.a + row * v.a_stride;
    const float most = largest(a, v.k);
    // Below that the scale would be no normal number.
    constexpr float kLeast = 1e-30F;
    const bool is_zero = most == 0;
    if (!is_zero && !(most >= kLeast && most <= std::numeric_limits<float>::max())) {
      v.scales[row] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    v.scales[row] = most / kMost;
    const float factor = is_zero ? 0.0F : kMost / most;
    if (byte_products() == ByteProducts::kVnni)
      make_planes(a, v.k, factor, v.planes + row * kBytePlanes * plane, plane);
    else
      make_words(a, v.k, factor, words_of(v, row));
  }
#else
  std::fill(v.scales + begin, v.scales + end, std::numeric_limits<float>::quiet_NaN());
#endif
}

void multiply_byte_panel(const BytePanelProduct& p) {
  const float* const scales = p.vectors.scales + p.first;
  for (int64_t row = 0; row < p.rows;) {
    if (std::isnan(scales[row])) {
      multiply_vector(p, row++);
      continue;
    }
#if defined(__x86_64__)
    if (byte_products() == ByteProducts::kAvx2) {
      multiply_words(p, row++);
      continue;
    }
    // More vectors at once would not fit the registers.
    const bool is_pair = row + 1 < p.rows && !std::isnan(scales[row + 1]);
    if (is_pair)
      multiply_pair(p, row, std::make_index_sequence<2 * kBytePlanes>());
    else
      multiply_one(p, row, std::make_index_sequence<kBytePlanes>());
    row += is_pair ? 2 : 1;
#endif
  }
}

}  // namespace opwright
