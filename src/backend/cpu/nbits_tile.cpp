#include "backend/cpu/nbits_tile.h"

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/nbits_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPanelColumns = 32;

#if !HWY_HAVE_SCALABLE
/// Code `plane` of each byte of a vector.
template <int bits, int plane, class D, class V>
HWY_INLINE hn::Vec<D> code_of(D d, V bytes) {
  const hn::RebindToSigned<D> integers;
  if constexpr (plane > 0) bytes = hn::ShiftRight<bits * plane>(bytes);
  if constexpr (bits * (plane + 1) < 8) bytes = hn::And(bytes, hn::Set(integers, (1 << bits) - 1));
  return hn::ConvertTo(d, bytes);
}

template <class D>
HWY_INLINE auto load_bytes(D, const uint8_t* from) {
  return hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(hn::Rebind<uint8_t, D>(), from));
}

template <int bits, int rows, class D>
void multiply_rows(D d, const NBitsProduct& p) {
  constexpr int kPlanes = 8 / bits;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  hn::Vec<D> total[rows];
  OPWRIGHT_UNROLLED
  for (int r = 0; r < rows; ++r) total[r] = hn::Zero(d);
  const uint8_t* codes = p.codes;
  const float* a = p.a;
  for (int64_t block = 0; block < p.blocks; ++block) {
    hn::Vec<D> sum[rows];
    OPWRIGHT_UNROLLED
    for (int r = 0; r < rows; ++r) sum[r] = hn::Zero(d);
    for (int64_t j = 0; j < p.bytes_per_block; j += kLanes, codes += kLanes, a += kLanes) {
      OPWRIGHT_UNROLLED
      for (int r = 0; r < rows; ++r) {
        const auto bytes = load_bytes(d, codes + r * p.code_stride);
        sum[r] = hn::MulAdd(code_of<bits, 0>(d, bytes), hn::LoadU(d, a), sum[r]);
        if constexpr (kPlanes > 1)
          sum[r] = hn::MulAdd(code_of<bits, kPlanes / 2>(d, bytes),
                              hn::LoadU(d, a + kPlanes / 2 * p.plane_stride), sum[r]);
        if constexpr (kPlanes > 2) {
          sum[r] = hn::MulAdd(code_of<bits, 1>(d, bytes), hn::LoadU(d, a + p.plane_stride), sum[r]);
          sum[r] =
              hn::MulAdd(code_of<bits, 3>(d, bytes), hn::LoadU(d, a + 3 * p.plane_stride), sum[r]);
        }
      }
    }
    OPWRIGHT_UNROLLED
    for (int r = 0; r < rows; ++r)
      total[r] = hn::MulAdd(hn::Set(d, p.scales[r * p.scale_stride + block]), sum[r], total[r]);
  }
  OPWRIGHT_UNROLLED
  for (int r = 0; r < rows; ++r) p.out[r] += hn::GetLane(hn::SumOfLanes(d, total[r]));
}

template <int bits, class D>
void multiply_by(D d, const NBitsProduct& p) {
  if (p.rows == kNBitsRows) return multiply_rows<bits, kNBitsRows>(d, p);
  for (int64_t r = 0; r < p.rows; ++r) {
    NBitsProduct one = p;
    one.codes += r * p.code_stride, one.scales += r * p.scale_stride, one.out += r;
    multiply_rows<bits, 1>(d, one);
  }
}

template <int bits>
void multiply_codes(const NBitsProduct& p) {
  if (p.bytes_per_block >= 16)
    multiply_by<bits>(hn::CappedTag<float, 16>(), p);
  else if (p.bytes_per_block >= 8)
    multiply_by<bits>(hn::CappedTag<float, 8>(), p);
  else
    multiply_by<bits>(hn::CappedTag<float, 4>(), p);
}

template <int bits, int plane, class D, class V>
HWY_INLINE void store_plane(D d, V bytes, hn::Vec<D> scale, hn::Vec<D> offset, float* to) {
  if constexpr (plane < 8 / bits) {
    hn::StoreU(hn::MulAdd(code_of<bits, plane>(d, bytes), scale, offset), d,
               to + plane * kPanelColumns);
    store_plane<bits, plane + 1>(d, bytes, scale, offset, to);
  }
}

template <int bits>
void unpack_codes(const NBitsPanel& p) {
  const hn::CappedTag<float, 16> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t c = 0; c < kPanelColumns; c += kLanes) {
    const auto scale = hn::LoadU(d, p.scales + c), offset = hn::LoadU(d, p.offsets + c);
    for (int64_t j = 0; j < p.bytes; ++j)
      store_plane<bits, 0>(d, load_bytes(d, p.codes + j * kPanelColumns + c), scale, offset,
                           p.out + j * (8 / bits) * kPanelColumns + c);
  }
}
#else
/// Vectors whose length the compiler does not know cannot be elements of arrays, so these loops are
/// scalar.
template <int bits>
void multiply_codes(const NBitsProduct& p) {
  constexpr int kPlanes = 8 / bits;
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t b = 0; b < p.blocks; ++b) {
      float sum = 0;
      for (int64_t j = b * p.bytes_per_block; j < (b + 1) * p.bytes_per_block; ++j)
        for (int plane = 0; plane < kPlanes; ++plane)
          sum += static_cast<float>(p.codes[r * p.code_stride + j] >> (bits * plane) &
                                    ((1 << bits) - 1)) *
                 p.a[plane * p.plane_stride + j];
      p.out[r] += p.scales[r * p.scale_stride + b] * sum;
    }
}
template <int bits>
void unpack_codes(const NBitsPanel& p) {
  constexpr int kPlanes = 8 / bits;
  for (int64_t j = 0; j < p.bytes; ++j)
    for (int plane = 0; plane < kPlanes; ++plane)
      for (int64_t c = 0; c < kPanelColumns; ++c)
        p.out[(j * kPlanes + plane) * kPanelColumns + c] =
            static_cast<float>(p.codes[j * kPanelColumns + c] >> (bits * plane) &
                               ((1 << bits) - 1)) *
                p.scales[c] +
            p.offsets[c];
}
#endif

/// Subtracts the contribution of the zero points.
void subtract_zeros(const NBitsProduct& p) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* const scales = p.scales + r * p.scale_stride;
    const float* const zeros = p.zeros != nullptr ? p.zeros + r * p.zero_stride : nullptr;
    auto total = hn::Zero(d);
    int64_t b = 0;
    for (; b + lanes <= p.blocks; b += lanes) {
      const auto zero = zeros != nullptr ? hn::LoadU(d, zeros + b) : hn::Set(d, p.zero);
      total = hn::MulAdd(hn::Mul(hn::LoadU(d, scales + b), zero), hn::LoadU(d, p.sums + b), total);
    }
    float rest = hn::GetLane(hn::SumOfLanes(d, total));
    for (; b < p.blocks; ++b)
      rest += scales[b] * (zeros != nullptr ? zeros[b] : p.zero) * p.sums[b];
    p.out[r] -= rest;
  }
}

}  // namespace

void run_nbits_product(const NBitsProduct& product) {
  if (product.bits == 2)
    multiply_codes<2>(product);
  else if (product.bits == 4)
    multiply_codes<4>(product);
  else
    multiply_codes<8>(product);
  subtract_zeros(product);
}
void run_nbits_panel(const NBitsPanel& panel) {
  if (panel.bits == 2)
    unpack_codes<2>(panel);
  else if (panel.bits == 4)
    unpack_codes<4>(panel);
  else
    unpack_codes<8>(panel);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(run_nbits_product);
HWY_EXPORT(run_nbits_panel);

void multiply_nbits(const NBitsProduct& product) {
  HWY_DYNAMIC_DISPATCH(run_nbits_product)(product);
}
void unpack_nbits(const NBitsPanel& panel) { HWY_DYNAMIC_DISPATCH(run_nbits_panel)(panel); }

}  // namespace opwright
#endif
