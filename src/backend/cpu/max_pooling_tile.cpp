#include "backend/cpu/max_pooling_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/simd_targets.h"
#include "base/checked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/max_pooling_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kSlackBytes = 256;  ///< bytes that vectors may reach beyond rows in the scratch
                                      ///< memory

/// The order of elements. They are compared as T: `from` converts stored elements, and `to`
/// converts back.
struct FloatOrder {
  using T = float;
  static T least() { return -std::numeric_limits<float>::infinity(); }
  template <class V>
  static HWY_INLINE V from(V v) {
    return v;
  }
  template <class V>
  static HWY_INLINE V to(V v) {
    return v;
  }
  template <class V>
  static HWY_INLINE V most(V a, V b) {
#if HWY_ARCH_X86  // x86 returns the second operand where one is NaN
    return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
#else
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
#endif
  }
};

/// Orders 16-bit floating-point numbers as integers, NaN above all.
template <int16_t kInfinity>
struct NarrowOrder {
  using T = int16_t;
  static T least() { return static_cast<T>(-kInfinity - 1); }
  template <class V>
  static HWY_INLINE V from(V v) {
    const hn::DFromV<V> d;
    const auto magnitude = hn::And(v, hn::Set(d, T{0x7FFF}));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, kInfinity)), magnitude, to(v));
  }
  template <class V>
  static HWY_INLINE V to(V v) {
    const hn::DFromV<V> d;
    return hn::Xor(v, hn::And(hn::ShiftRight<15>(v), hn::Set(d, T{0x7FFF})));
  }
  template <class V>
  static HWY_INLINE V most(V a, V b) {
    return hn::Max(a, b);
  }
};

template <class Byte>
struct ByteOrder {
  using T = Byte;
  static T least() { return std::numeric_limits<T>::min(); }
  template <class V>
  static HWY_INLINE V from(V v) {
    return v;
  }
  template <class V>
  static HWY_INLINE V to(V v) {
    return v;
  }
  template <class V>
  static HWY_INLINE V most(V a, V b) {
    return hn::Max(a, b);
  }
};

template <class Order>
class RowPool {
  using T = typename Order::T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  RowPool(const MaxPoolingRow& row, void* scratch, void* y)
      : row_(row),
        lanes_(static_cast<int64_t>(hn::Lanes(D()))),
        x_(static_cast<const T*>(row.x)),
        end_(static_cast<const T*>(row.end)),
        line_(static_cast<T*>(scratch)),
        y_(static_cast<T*>(y)) {}

  void run() {
    const int64_t reach = row_.reach();
    const int64_t before = row_.is_padded() ? row_.pre : 0;
    const int64_t covered = std::clamp<int64_t>(reach - row_.pre, 0, row_.in) * row_.inner;
    values_ = line_ + before;
    std::fill(line_, values_, Order::least());
    merge_rows(covered);
    if (!row_.is_padded()) return each_position();
    if (before + covered < reach) std::fill(values_ + covered, line_ + reach, Order::least());
    T* const behind = line_ + std::max(reach, before + covered) + kSlackBytes / sizeof(T);
    switch (row_.window) {
      case 2:
        return neighbours<2>(behind);
      case 3:
        return neighbours<3>(behind);
      default:
        return neighbours<0>(behind);
    }
  }

 private:
  /// values_[i] becomes the maximum of element i over all rows.
  void merge_rows(int64_t count) {
    const D d;
    int64_t i = 0;
    for (; i + 4 * lanes_ <= count; i += 4 * lanes_) {
      V a = hn::Set(d, Order::least()), b = a, c = a, e = a;
      const T* plane = x_ + i;
      for (int64_t p = 0; p < row_.planes; ++p, plane += row_.plane_step) {
        const T* from = plane;
        for (int64_t r = 0; r < row_.rows; ++r, from += row_.row_step) {
          a = Order::most(a, Order::from(hn::LoadU(d, from)));
          b = Order::most(b, Order::from(hn::LoadU(d, from + lanes_)));
          c = Order::most(c, Order::from(hn::LoadU(d, from + 2 * lanes_)));
          e = Order::most(e, Order::from(hn::LoadU(d, from + 3 * lanes_)));
        }
      }
      hn::StoreU(a, d, values_ + i);
      hn::StoreU(b, d, values_ + i + lanes_);
      hn::StoreU(c, d, values_ + i + 2 * lanes_);
      hn::StoreU(e, d, values_ + i + 3 * lanes_);
    }
    for (; i < count; i += lanes_) {
      V most = hn::Set(d, Order::least());
      for (int64_t p = 0; p < row_.planes; ++p)
        for (int64_t r = 0; r < row_.rows; ++r)
          most = Order::most(
              most, Order::from(load(x_ + p * row_.plane_step + r * row_.row_step + i, count - i)));
      // Lanes that a vector reads beyond the row must not count.
      if (count - i < lanes_)
        most = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - i)), most,
                              hn::Set(d, Order::least()));
      hn::StoreU(most, d, values_ + i);
    }
  }

  V load(const T* from, int64_t count) const {
    const D d;
    if (end_ - from >= lanes_) return hn::LoadU(d, from);
    HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)] = {};
    std::memcpy(part, from, static_cast<size_t>(std::min(count, lanes_)) * sizeof(T));
    return hn::Load(d, part);
  }
  void store(V v, T* to, int64_t count) const {
    const D d;
    if (count >= lanes_) return hn::StoreU(v, d, to);
    HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, d, part);
    std::memcpy(to, part, static_cast<size_t>(count) * sizeof(T));
  }

  /// Reduces windows whose positions have several neighbouring elements. A vector longer than a
  /// position writes into later positions, which are written after it.
  void each_position() {
    const D d;
    const int64_t inner = row_.inner, step = row_.dilation * inner, total = row_.out * inner;
    for (int64_t at = 0; at < row_.out; ++at) {
      const int64_t first = at * row_.stride - row_.pre;
      const int64_t skipped = first >= 0 ? 0 : (row_.dilation - 1 - first) / row_.dilation;
      const int64_t left = row_.in - first;
      const int64_t taps =
          std::min(row_.window, left <= 0 ? 0 : (left + row_.dilation - 1) / row_.dilation);
      for (int64_t i = 0; i < inner; i += lanes_) {
        V most = hn::Set(d, Order::least());
        for (int64_t k = skipped; k < taps; ++k)
          most = Order::most(most, hn::LoadU(d, values_ + first * inner + k * step + i));
        store(Order::to(most), y_ + at * inner + i, total - at * inner - i);
      }
    }
  }

  /// Reduces windows whose positions are single elements: neighbouring windows are computed
  /// together.
  template <int kWindow>
  void neighbours(T* whole) {
    const D d;
    const int64_t window = kWindow > 0 ? kWindow : row_.window;
    const auto most_at = [&](const T* from) HWY_ATTR {
      V most = hn::LoadU(d, from);
      for (int64_t k = 1; k < window; ++k)
        most = Order::most(most, hn::LoadU(d, from + k * row_.dilation));
      return Order::to(most);
    };
    if (row_.stride == 1) {
      for (int64_t at = 0; at < row_.out; at += lanes_)
        store(most_at(line_ + at), y_ + at, row_.out - at);
      return;
    }
#if HWY_TARGET != HWY_SCALAR
    if (row_.stride == 2 && row_.dilation == 1) {
      for (int64_t at = 0; at < row_.out; at += lanes_) {
        V most, odd;
        hn::LoadInterleaved2(d, line_ + 2 * at, most, odd);
        if (window > 1) most = Order::most(most, odd);
        for (int64_t k = 2; k < window; k += 2) {
          V even;
          hn::LoadInterleaved2(d, line_ + 2 * at + k, even, odd);
          most = Order::most(most, even);
          if (k + 1 < window) most = Order::most(most, odd);
        }
        store(Order::to(most), y_ + at, row_.out - at);
      }
      return;
    }
#endif
    // Computes windows at all positions, and takes every stride-th of them.
    const int64_t count = (row_.out - 1) * row_.stride + 1;
    for (int64_t at = 0; at < count; at += lanes_) hn::StoreU(most_at(line_ + at), d, whole + at);
    for (int64_t at = 0; at < row_.out; ++at) y_[at] = whole[at * row_.stride];
  }

  const MaxPoolingRow& row_;
  const int64_t lanes_;
  const T* const x_;
  const T* const end_;
  T* const line_;
  T* values_ = nullptr;
  T* const y_;
};

template <class Order>
void pool(const MaxPoolingRow& row, void* scratch, void* y) {
  RowPool<Order>(row, scratch, y).run();
}

}  // namespace

MaxPoolingFunction function(DataType type) {
  switch (type) {
    case DataType::kHALF:
      return pool<NarrowOrder<0x7C00>>;
    case DataType::kBF16:
      return pool<NarrowOrder<0x7F80>>;
    case DataType::kINT8:
      return pool<ByteOrder<int8_t>>;
    case DataType::kUINT8:
      return pool<ByteOrder<uint8_t>>;
    default:
      return pool<FloatOrder>;
  }
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(function);

MaxPoolingFunction max_pooling_function(DataType type) {
  return HWY_DYNAMIC_DISPATCH(function)(type);
}

size_t max_pooling_scratch(const MaxPoolingRow& row) {
  constexpr int64_t kSlack = 512;  // elements that vectors may reach beyond rows
  constexpr std::string_view kWhat = "the memory to pool in";
  int64_t elements = checked_product(kWhat, {row.in, row.inner});
  if (row.is_padded()) elements = 2 * std::max(row.reach(), elements + row.pre);
  return static_cast<size_t>(checked_product(kWhat, {elements + kSlack, sizeof(float)}));
}

}  // namespace opwright
#endif
