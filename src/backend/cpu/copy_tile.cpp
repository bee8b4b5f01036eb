#include "backend/cpu/copy_tile.h"

#include <cstring>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/copy_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Elements that stand for several shorter ones may lie anywhere.
HWY_INLINE void copy_element(const uint32_t* from, uint32_t* to) {
  std::memcpy(to, from, sizeof *to);
}

template <class D>
HWY_INLINE void repeat_vectors(D d, const uint32_t* HWY_RESTRICT from, int64_t count,
                               uint32_t* HWY_RESTRICT to, int64_t& i) {
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, from + i);
    hn::StoreInterleaved2(v, v, d, to + 2 * i);
  }
}

/// The loop reads nothing behind the last element.
template <class D>
HWY_INLINE void take_vectors(D d, const uint32_t* HWY_RESTRICT from, int64_t count,
                             uint32_t* HWY_RESTRICT to, int64_t& i) {
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes < count; i += lanes) {
    hn::Vec<D> even, odd;
    hn::LoadInterleaved2(d, from + 2 * i, even, odd);
    hn::StoreU(even, d, to + i);
  }
}

template <class D>
HWY_INLINE void split_vectors(D d, const uint32_t* HWY_RESTRICT from, int64_t count,
                              uint32_t* HWY_RESTRICT even, uint32_t* HWY_RESTRICT odd, int64_t& i) {
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<D> a, b;
    hn::LoadInterleaved2(d, from + 2 * i, a, b);
    hn::StoreU(a, d, even + i);
    hn::StoreU(b, d, odd + i);
  }
}

}  // namespace

void split_rows(const uint32_t* from, int64_t stride, int64_t rows, int64_t count, uint32_t* even,
                uint32_t* odd, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row, from += stride, even += to_stride, odd += to_stride) {
    int64_t i = 0;
    split_vectors(hn::ScalableTag<uint32_t>(), from, count, even, odd, i);
    split_vectors(hn::CappedTag<uint32_t, 8>(), from, count, even, odd, i);
    split_vectors(hn::CappedTag<uint32_t, 4>(), from, count, even, odd, i);
    for (; i < count; ++i) {
      copy_element(from + 2 * i, even + i);
      copy_element(from + 2 * i + 1, odd + i);
    }
  }
}

// Rows are often short, so shorter vectors take the elements that whole vectors leave.
void twice(const uint32_t* from, int64_t count, uint32_t* to) {
  int64_t i = 0;
  repeat_vectors(hn::ScalableTag<uint32_t>(), from, count, to, i);
  repeat_vectors(hn::CappedTag<uint32_t, 4>(), from, count, to, i);
  for (; i < count; ++i) to[2 * i] = to[2 * i + 1] = from[i];
}
void second(const uint32_t* from, int64_t count, uint32_t* to) {
  int64_t i = 0;
  take_vectors(hn::ScalableTag<uint32_t>(), from, count, to, i);
  take_vectors(hn::CappedTag<uint32_t, 4>(), from, count, to, i);
  for (; i < count; ++i) copy_element(from + 2 * i, to + i);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(twice);
HWY_EXPORT(second);
HWY_EXPORT(split_rows);

void repeat_twice(const uint32_t* from, int64_t count, uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(twice)(from, count, to);
}
void split_pairs(const uint32_t* from, int64_t stride, int64_t rows, int64_t count, uint32_t* even,
                 uint32_t* odd, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(split_rows)(from, stride, rows, count, even, odd, to_stride);
}
void every_second(const uint32_t* from, int64_t count, uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(second)(from, count, to);
}

}  // namespace opwright
#endif
