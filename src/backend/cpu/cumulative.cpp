#include <algorithm>
#include <type_traits>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

constexpr Types kCumulativeTypes = kFloats | kIndexTypes;
/// Elements that are converted, or columns that are added up, in one piece.
constexpr int64_t kPiece = 512;

DataType sum_type(DataType type) { return is_floating(type) ? DataType::kFLOAT : type; }

/// Sums or products along the axis, over [outer, axis, inner]. Floating-point totals are kept in
/// double precision; integers wrap around.
template <class T, bool is_product>
class CumulativeKernel final : public Kernel {
 public:
  CumulativeKernel(const CumulativeParams& params, const KernelArgs& args)
      : params_(params),
        size_(element_size(args.inputs[0].type.dtype)),
        load_(find_cast(args.inputs[0].type.dtype, sum_type(args.inputs[0].type.dtype))),
        store_(find_cast(sum_type(args.inputs[0].type.dtype), args.inputs[0].type.dtype)),
        converts_(args.inputs[0].type.dtype != sum_type(args.inputs[0].type.dtype)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    require_countable(inputs);
    const Shape& shape = inputs[0];
    const int axis = static_cast<int>(params_.axis);
    outer_ = shape.numel(0, axis);
    extent_ = shape[axis];
    inner_ = shape.numel(axis + 1, shape.rank());
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    if (outer_ * extent_ * inner_ == 0) return;
    const int64_t blocks = (inner_ + kPiece - 1) / kPiece;
    parallel_for(outer_ * blocks,
                 std::max<int64_t>(1, kGrain / (extent_ * std::min(inner_, kPiece))),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i / blocks * extent_ * inner_ + i % blocks * kPiece;
                     if (inner_ == 1)
                       add_line(from + first * size_, to + first * size_);
                     else
                       add_rows(from + first * size_, to + first * size_,
                                std::min(kPiece, inner_ - i % blocks * kPiece));
                   }
                 });
  }

 private:
  static constexpr int64_t kGrain = 1 << 13;  ///< elements that are worth a thread
  static constexpr int64_t kColumns = 16;     ///< enough for the compiler to make vectors of them
  using Sum = std::conditional_t<
      std::is_floating_point_v<T>, double,
      std::make_unsigned_t<std::conditional_t<std::is_floating_point_v<T>, int, T>>>;

  /// The elements at `from`, converted to T in `buffer` where that is necessary.
  const T* loaded(const std::byte* from, int64_t count, T* buffer) const {
    if (!converts_) return reinterpret_cast<const T*>(from);
    load_(buffer, from, nullptr, nullptr, count, nullptr);
    return buffer;
  }
  T* target(std::byte* to, T* buffer) const {
    return converts_ ? buffer : reinterpret_cast<T*>(to);
  }
  void stored(std::byte* to, const T* values, int64_t count) const {
    if (converts_) store_(to, values, nullptr, nullptr, count, nullptr);
  }

  static Sum joined(Sum a, Sum b) {
    if constexpr (is_product) return a * b;
    return a + b;
  }

  template <bool reverse, bool exclusive>
  static Sum add_piece(const T* from, T* to, int64_t count, Sum sum) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = reverse ? count - 1 - k : k;
      const Sum next = joined(sum, static_cast<Sum>(from[i]));
      to[i] = static_cast<T>(exclusive ? sum : next);
      sum = next;
    }
    return sum;
  }

  void add_line(const std::byte* from, std::byte* to) const {
    const auto add = params_.reverse
                         ? (params_.exclusive ? add_piece<true, true> : add_piece<true, false>)
                         : (params_.exclusive ? add_piece<false, true> : add_piece<false, false>);
    alignas(64) T in[kPiece], out[kPiece];
    Sum sum = is_product;
    for (int64_t done = 0; done < extent_; done += kPiece) {
      const int64_t count = std::min(kPiece, extent_ - done);
      const int64_t first = (params_.reverse ? extent_ - done - count : done) * size_;
      T* const result = target(to + first, out);
      sum = add(loaded(from + first, count, in), result, count, sum);
      stored(to + first, result, count);
    }
  }

  void add_rows(const std::byte* from, std::byte* to, int64_t columns) const {
    alignas(64) Sum sums[kPiece];
    std::fill(sums, sums + kPiece, Sum{is_product});
    alignas(64) T in[kPiece], out[kPiece];
    for (int64_t r = 0; r < extent_; ++r) {
      const int64_t first = (params_.reverse ? extent_ - 1 - r : r) * inner_ * size_;
      const T* const row = loaded(from + first, columns, in);
      T* const result = target(to + first, out);
      int64_t i = 0;
      for (; i + kColumns <= columns; i += kColumns)
        add_columns<kColumns>(row + i, result + i, sums + i);
      for (; i < columns; ++i) add_columns<1>(row + i, result + i, sums + i);
      stored(to + first, result, columns);
    }
  }

  template <int64_t count>
  void add_columns(const T* from, T* to, Sum* sums) const {
    // All sums are read before one is written, so the compiler need not fear that the pointers
    // overlap.
    Sum before[count], after[count];
    for (int64_t i = 0; i < count; ++i) before[i] = sums[i];
    for (int64_t i = 0; i < count; ++i) after[i] = joined(before[i], static_cast<Sum>(from[i]));
    for (int64_t i = 0; i < count; ++i) sums[i] = after[i];
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(params_.exclusive ? before[i] : after[i]);
  }

  const CumulativeParams params_;
  const int size_;
  const TileFunction load_, store_;
  const bool converts_;
  int64_t outer_ = 0, extent_ = 0, inner_ = 0;
};

std::vector<Candidate> cumulative_candidates(const Operator&, const CandidateQuery& query) {
  std::vector<Candidate> result;
  if (!kCumulativeTypes.has(query.inputs[0].type.dtype)) return result;
  result = {linear_candidate(query, "loops")};
  add_lower_precisions(query, query.inputs[0], result);
  return result;
}

void check_cumulative(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kCumulativeTypes, kLinear);
  rules.require_same(rules.output(0), rules.input(0));
}

std::unique_ptr<Kernel> make_cumulative(const Operator& op, const KernelArgs& args) {
  const CumulativeParams& params = static_cast<const Cumulative&>(op).params();
  const auto make = [&]<class T>() -> std::unique_ptr<Kernel> {
    if (params.product) return std::make_unique<CumulativeKernel<T, true>>(params, args);
    return std::make_unique<CumulativeKernel<T, false>>(params, args);
  };
  switch (sum_type(args.inputs[0].type.dtype)) {
    case DataType::kINT32:
      return make.operator()<int32_t>();
    case DataType::kINT64:
      return make.operator()<int64_t>();
    default:
      return make.operator()<float>();
  }
}

const RegisteredKernels<Cumulative> kCumulativeKernels({cumulative_candidates, make_cumulative,
                                                        check_cumulative});

}  // namespace
}  // namespace opwright
