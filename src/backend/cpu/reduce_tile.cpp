#include "backend/cpu/reduce_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/reduce_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {

// Bytes of a register. GCC compares and selects wider vectors element by element.
#if HWY_TARGET == HWY_SCALAR
constexpr int kRegister = 16;
#else
constexpr int kRegister = hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<uint8_t>());
#endif

// The compiler's own vectors cover all element types and targets with one source. They are passed
// by reference, since their calling convention differs between targets.
template <class T>
struct Vectors {
  static constexpr int kLanes = kRegister / sizeof(T);
  typedef T Vector __attribute__((vector_size(kRegister)));
};
template <class T>
using Vector = typename Vectors<T>::Vector;
template <class T>
constexpr int kLanes = Vectors<T>::kLanes;

template <class T>
HWY_INLINE void load(const T* from, Vector<T>& v) {
  std::memcpy(&v, from, sizeof v);
}
template <class T>
HWY_INLINE void store(const Vector<T>& v, T* to) {
  std::memcpy(to, &v, sizeof v);
}

// Integer arithmetic wraps around, so it is done unsigned.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                      std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;

struct Sum {
  template <class T>
  static constexpr T neutral() {
    return T(0);
  }
  template <class T>
  static HWY_INLINE void apply(T& a, const T& b) {
    a = static_cast<T>(static_cast<Arithmetic<T>>(a) + static_cast<Arithmetic<T>>(b));
  }
  template <class T>
  static HWY_INLINE void apply_vector(Vector<T>& a, const Vector<T>& b) {
    a = (Vector<T>)((Vector<Arithmetic<T>>)a + (Vector<Arithmetic<T>>)b);
  }
};
struct Prod {
  template <class T>
  static constexpr T neutral() {
    return T(1);
  }
  template <class T>
  static HWY_INLINE void apply(T& a, const T& b) {
    a = static_cast<T>(static_cast<Arithmetic<T>>(a) * static_cast<Arithmetic<T>>(b));
  }
  template <class T>
  static HWY_INLINE void apply_vector(Vector<T>& a, const Vector<T>& b) {
    a = (Vector<T>)((Vector<Arithmetic<T>>)a * (Vector<Arithmetic<T>>)b);
  }
};
// A comparison with NaN is false. So NaN in b wins without a test, and NaN in a wins by a != a.
struct Max {
  template <class T>
  static constexpr T neutral() {
    using Limits = std::numeric_limits<T>;
    return std::is_floating_point_v<T> ? -Limits::infinity() : Limits::lowest();
  }
  template <class T>
  static HWY_INLINE void apply(T& a, const T& b) {
    a = a > b || a != a ? a : b;
  }
  template <class T>
  static HWY_INLINE void apply_vector(Vector<T>& a, const Vector<T>& b) {
    a = ((a > b) | (a != a)) ? a : b;
  }
};
struct Min {
  template <class T>
  static constexpr T neutral() {
    using Limits = std::numeric_limits<T>;
    return std::is_floating_point_v<T> ? Limits::infinity() : Limits::max();
  }
  template <class T>
  static HWY_INLINE void apply(T& a, const T& b) {
    a = a < b || a != a ? a : b;
  }
  template <class T>
  static HWY_INLINE void apply_vector(Vector<T>& a, const Vector<T>& b) {
    a = ((a < b) | (a != a)) ? a : b;
  }
};

template <class T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

/// Combines lanes pairwise, halves first. The sums are short, so they stay in the elements' type.
/// The trip count is fixed so that the compiler vectorizes the loop.
template <class Op, int kHalf, class T>
HWY_INLINE void fold(T* lanes) {
  for (int i = 0; i < kHalf; ++i) Op::apply(lanes[i], lanes[i + kHalf]);
  if constexpr (kHalf > 1) fold<Op, kHalf / 2>(lanes);
}
template <class Op, class T>
HWY_INLINE void merge_lanes(const Vector<T>& v, Total<T>& total) {
  T lanes[kLanes<T>];
  store<T>(v, lanes);
  fold<Op, kLanes<T> / 2>(lanes);
  Op::apply(total, static_cast<Total<T>>(lanes[0]));
}

template <class Op, class T>
HWY_INLINE void set_neutral(Vector<T>& v) {
  T lanes[kLanes<T>];
  std::fill_n(lanes, kLanes<T>, Op::template neutral<T>());
  load<T>(lanes, v);
}

template <class Op, class T>
void reduce(const void* from, int64_t count, void* total_pointer) {
  const T* x = static_cast<const T*>(from);
  Total<T> total = *static_cast<Total<T>*>(total_pointer);
  constexpr int64_t kStep = 4 * kLanes<T>, kBlock = 32 * kStep;
  while (count > 0) {
    Vector<T> a0, a1, a2, a3, b;
    set_neutral<Op, T>(a0);
    a1 = a2 = a3 = a0;
    int64_t i = 0;
    const int64_t end = std::min(count, kBlock);
    for (; i + kStep <= end; i += kStep) {
      load<T>(x + i, b);
      Op::template apply_vector<T>(a0, b);
      load<T>(x + i + kLanes<T>, b);
      Op::template apply_vector<T>(a1, b);
      load<T>(x + i + 2 * kLanes<T>, b);
      Op::template apply_vector<T>(a2, b);
      load<T>(x + i + 3 * kLanes<T>, b);
      Op::template apply_vector<T>(a3, b);
    }
    for (; i + kLanes<T> <= end; i += kLanes<T>) {
      load<T>(x + i, b);
      Op::template apply_vector<T>(a1, b);
    }
    constexpr int kFew = 4;
    if (kLanes<T> <= kFew || end - i <= kFew) {
      for (; i < end; ++i) Op::apply(total, static_cast<Total<T>>(x[i]));
    } else {  // the rest, padded with the neutral element
      T lanes[kLanes<T>];
      std::fill_n(lanes, kLanes<T>, Op::template neutral<T>());
      std::memcpy(lanes, x + i, (end - i) * sizeof(T));
      load<T>(lanes, b);
      Op::template apply_vector<T>(a2, b);
      i = end;
    }
    Op::template apply_vector<T>(a0, a1);
    Op::template apply_vector<T>(a2, a3);
    Op::template apply_vector<T>(a0, a2);
    merge_lanes<Op, T>(a0, total);
    x += i;
    count -= i;
  }
  *static_cast<Total<T>*>(total_pointer) = total;
}

template <class Op, class T, int kCount>
void reduce_rows_of(const T* x, int64_t rows, Total<T>* totals) {
  // Sums and products use the totals' type; maxima and minima keep the elements' type.
  constexpr bool kIsOrder = std::is_same_v<Op, Max> || std::is_same_v<Op, Min>;
  using Value = std::conditional_t<kIsOrder, T, Total<T>>;
  for (int64_t row = 0; row < rows; ++row) {
    Value value = static_cast<Value>(x[row * kCount]);
    for (int k = 1; k < kCount; ++k) Op::apply(value, static_cast<Value>(x[row * kCount + k]));
    totals[row] = static_cast<Total<T>>(value);
  }
}

template <class Op, class T>
void reduce_short(const void* from, int64_t rows, int64_t count, void* totals) {
  using Function = void (*)(const T*, int64_t, Total<T>*);
  static_assert(ReduceFunctions::kShortRow == 8);
  constexpr Function kByCount[] = {reduce_rows_of<Op, T, 1>, reduce_rows_of<Op, T, 2>,
                                   reduce_rows_of<Op, T, 3>, reduce_rows_of<Op, T, 4>,
                                   reduce_rows_of<Op, T, 5>, reduce_rows_of<Op, T, 6>,
                                   reduce_rows_of<Op, T, 7>, reduce_rows_of<Op, T, 8>};
  kByCount[count - 1](static_cast<const T*>(from), rows, static_cast<Total<T>*>(totals));
}

/// Combines vectors of four rows pairwise.
template <class Op, class T>
HWY_INLINE void combine_four(const T* r0, const T* r1, const T* r2, const T* r3, Vector<T>& a) {
  Vector<T> b, c;
  load<T>(r0, a), load<T>(r1, b);
  Op::template apply_vector<T>(a, b);
  load<T>(r2, c), load<T>(r3, b);
  Op::template apply_vector<T>(c, b);
  Op::template apply_vector<T>(a, c);
}

template <class Op, class T, int kCount>
HWY_INLINE void add(const T* const* rows, int64_t count, T* block) {
  // Local copies, since stores to the block might otherwise change the pointers.
  const T* r[kCount];
  for (int k = 0; k < kCount; ++k) r[k] = rows[k];
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Vector<T> a, b;
    if constexpr (kCount == 8) {
      combine_four<Op, T>(r[0] + i, r[1] + i, r[2] + i, r[3] + i, a);
      combine_four<Op, T>(r[4] + i, r[5] + i, r[6] + i, r[7] + i, b);
      Op::template apply_vector<T>(a, b);
    } else if constexpr (kCount == 4) {
      combine_four<Op, T>(r[0] + i, r[1] + i, r[2] + i, r[3] + i, a);
    } else {
      load<T>(r[0] + i, a);
    }
    load<T>(block + i, b);
    Op::template apply_vector<T>(b, a);
    store<T>(b, block + i);
  }
  for (; i < count; ++i) {
    T sum = r[0][i];
    for (int k = 1; k < kCount; ++k) Op::apply(sum, r[k][i]);
    Op::apply(block[i], sum);
  }
}
template <class Op, class T>
void add_rows(const void* const* rows, int row_count, int64_t count, void* block) {
  const T* const* typed = reinterpret_cast<const T* const*>(rows);
  T* const to = static_cast<T*>(block);
  static_assert(ReduceFunctions::kRows == 8);
  if (row_count == 8) return add<Op, T, 8>(typed, count, to);
  int r = 0;
  if (row_count >= 4) add<Op, T, 4>(typed, count, to), r = 4;
  for (; r < row_count; ++r) add<Op, T, 1>(typed + r, count, to);
}

template <class Op, class T>
void flush(void* block, int64_t count, void* totals) {
  for (int64_t i = 0; i < count; ++i) {
    T& element = static_cast<T*>(block)[i];
    Op::apply(static_cast<Total<T>*>(totals)[i], static_cast<Total<T>>(element));
    element = Op::template neutral<T>();
  }
}
template <class Op, class T>
void clear(void* elements, int64_t count) {
  std::fill_n(static_cast<T*>(elements), count, Op::template neutral<T>());
}
template <class Op, class T>
void clear_totals(void* totals, int64_t count) {
  // Uses the neutral element of the elements' type, so that the maximum of nothing fits that type.
  std::fill_n(static_cast<Total<T>*>(totals), count,
              static_cast<Total<T>>(Op::template neutral<T>()));
}
template <class Op, class T>
void merge(const void* others, int64_t count, void* totals) {
  for (int64_t i = 0; i < count; ++i)
    Op::apply(static_cast<Total<T>*>(totals)[i], static_cast<const Total<T>*>(others)[i]);
}

template <class Op, class T>
constexpr ReduceFunctions kFunctions = {reduce<Op, T>, reduce_short<Op, T>, add_rows<Op, T>,
                                        flush<Op, T>,  clear<Op, T>,        clear_totals<Op, T>,
                                        merge<Op, T>};
template <class Op>
const ReduceFunctions* functions_of(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return &kFunctions<Op, float>;
    case DataType::kINT32:
      return &kFunctions<Op, int32_t>;
    default:
      return &kFunctions<Op, int64_t>;
  }
}

}  // namespace

const ReduceFunctions* functions(ReduceOperation op, DataType type) {
  switch (op) {
    case ReduceOperation::kPROD:
      return functions_of<Prod>(type);
    case ReduceOperation::kMAX:
      return functions_of<Max>(type);
    case ReduceOperation::kMIN:
      return functions_of<Min>(type);
    default:
      return functions_of<Sum>(type);
  }
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(functions);

const ReduceFunctions& reduce_functions(ReduceOperation op, DataType type) {
  return *HWY_DYNAMIC_DISPATCH(functions)(op, type);
}

}  // namespace opwright
#endif
