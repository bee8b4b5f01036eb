#include "operators/window_reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ordered_bits.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

constexpr Types kMaxTypes = kFloats | Types{DataType::kINT8, DataType::kUINT8};

/// Windows over three spatial axes. Missing axes come first and have extent 1.
class Windows {
 public:
  void prepare(std::string_view layer, const PoolingParams& params, const Shape& x,
               const Shape& y) {
    planes_ = 0;
    const ResolvedPadding padding = resolve_padding(params, x);
    const int spatial = x.rank() - 2;
    require(spatial >= 1 && spatial <= 3 && y.rank() == x.rank() && y[0] == x[0] && y[1] == x[1],
            "Layer '", layer, "': windows over ", x, " do not give ", y);
    for (int i = 0; i < 3; ++i) {
      const int from = i - (3 - spatial);
      const bool is_there = from >= 0;
      Axis& axis = axes_[i] = Axis();
      if (!is_there) continue;
      axis.in = x[from + 2], axis.out = y[from + 2];
      axis.window = params.window[static_cast<size_t>(from)];
      if (!params.stride.empty()) axis.stride = params.stride[static_cast<size_t>(from)];
      if (!params.dilation.empty()) axis.dilation = params.dilation[static_cast<size_t>(from)];
      axis.pad = padding.pre[static_cast<size_t>(from)];
    }
    size_ = x.numel(2, x.rank()), count_ = y.numel(2, y.rank());
    planes_ = x[0] * x[1];
  }

  int64_t outputs() const { return planes_ * count_; }

  /// A window, given by its plane and its place in the output.
  struct Cursor {
    int64_t plane, at[3];
  };
  Cursor cursor(int64_t i) const {
    Cursor cursor{i / count_, {}};
    int64_t rest = i % count_;
    for (int axis = 2; axis >= 0; --axis) {
      cursor.at[axis] = rest % axes_[axis].out;
      rest /= axes_[axis].out;
    }
    return cursor;
  }
  void advance(Cursor& cursor) const {
    for (int axis = 2; axis >= 0; --axis) {
      if (++cursor.at[axis] < axes_[axis].out) return;
      cursor.at[axis] = 0;
    }
    ++cursor.plane;
  }

  /// Calls visit(place in x) for each element of the window.
  template <class Visit>
  void each(const Cursor& cursor, Visit&& visit) const {
    Range ranges[3];
    for (int axis = 0; axis < 3; ++axis) ranges[axis] = axes_[axis].range(cursor.at[axis]);
    const int64_t plane = cursor.plane * size_;
    const int64_t da = axes_[0].dilation, db = axes_[1].dilation, dc = axes_[2].dilation;
    for (int64_t a = ranges[0].begin; a < ranges[0].end; a += da)
      for (int64_t b = ranges[1].begin; b < ranges[1].end; b += db) {
        const int64_t row = plane + (a * axes_[1].in + b) * axes_[2].in;
        for (int64_t c = ranges[2].begin; c < ranges[2].end; c += dc) visit(row + c);
      }
  }

  /// The index of an element in a numbering that counts along the first axis of the plane first.
  int64_t column_major(int64_t plane, int64_t place) const {
    const int64_t within = place - plane * size_, c = within % axes_[2].in;
    const int64_t b = within / axes_[2].in % axes_[1].in, a = within / axes_[2].in / axes_[1].in;
    return plane * size_ + (c * axes_[1].in + b) * axes_[0].in + a;
  }

  int64_t grain() const {
    const int64_t work = axes_[0].window * axes_[1].window * axes_[2].window;
    return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, work));
  }

 private:
  struct Range {
    int64_t begin, end;  ///< in x; elements are `dilation` apart
  };
  struct Axis {
    int64_t in = 1, out = 1, window = 1, stride = 1, dilation = 1, pad = 0;
    Range range(int64_t at) const {
      const int64_t first = at * stride - pad;
      const int64_t skipped = first >= 0      ? 0
                              : dilation == 1 ? -first
                                              : (-first + dilation - 1) / dilation * dilation;
      return {first + skipped, std::min(in, first + (window - 1) * dilation + 1)};
    }
  };
  Axis axes_[3];
  int64_t planes_ = 0, size_ = 0, count_ = 0;
};

template <class Element>
class IndexedMaxKernel final : public Kernel {
 public:
  IndexedMaxKernel(const IndexedMaxPoolingParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    windows_.prepare(layer_, params_.pooling, inputs[0], outputs[0]);
    require(outputs[1] == outputs[0], "Layer '", layer_, "': indices of shape ", outputs[1],
            " for maxima of shape ", outputs[0]);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    parallel_for(windows_.outputs(), windows_.grain(), [&](int64_t begin, int64_t end) {
      Windows::Cursor cursor = windows_.cursor(begin);
      for (int64_t i = begin; i < end; ++i, windows_.advance(cursor))
        pool(inputs[0], outputs[0], outputs[1], i, cursor);
    });
  }

 private:
  /// A key above 0 in the order of the values. NaN is above all numbers, and the first NaN wins.
  static uint32_t key_of(typename Element::Value value) {
    if constexpr (std::is_floating_point_v<typename Element::Value>)
      return ordered(std::bit_cast<uint32_t>(value), 0x7F800000);
    else
      return static_cast<uint32_t>(value + 256);
  }

  void pool(const void* x, void* y, void* indices, int64_t i, const Windows::Cursor& cursor) const {
    uint32_t most = 0;
    int64_t index = -1;
    // Without branches, which would be unpredictable.
    windows_.each(cursor, [&](int64_t place) {
      const uint32_t key = key_of(load_element<Element>(x, place));
      index = key > most ? place : index;
      most = std::max(most, key);
    });
    using Value = typename Element::Value;
    constexpr Value kLeast = std::is_floating_point_v<Value>
                                 ? -std::numeric_limits<Value>::infinity()
                                 : std::numeric_limits<Value>::min();
    store_element<Element>(y, i, index < 0 ? kLeast : load_element<Element>(x, index));
    if (params_.column_major && index >= 0) index = windows_.column_major(cursor.plane, index);
    static_cast<int64_t*>(indices)[i] = std::max<int64_t>(index, 0);
  }

  const std::string layer_;
  const IndexedMaxPoolingParams params_;
  Windows windows_;
};

template <class Element>
class LpKernel final : public Kernel {
 public:
  LpKernel(const LpPoolingParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    windows_.prepare(layer_, params_.pooling, inputs[0], outputs[0]);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    parallel_for(windows_.outputs(), windows_.grain(), [&](int64_t begin, int64_t end) {
      Windows::Cursor cursor = windows_.cursor(begin);
      for (int64_t i = begin; i < end; ++i, windows_.advance(cursor))
        store_element<Element>(outputs[0], i, static_cast<float>(norm(inputs[0], cursor)));
    });
  }

 private:
  double norm(const void* x, const Windows::Cursor& cursor) const {
    double sum = 0;
    windows_.each(cursor, [&](int64_t place) {
      const double value = std::abs(load_element<Element>(x, place));
      sum += params_.p == 1 ? value : params_.p == 2 ? value * value : std::pow(value, params_.p);
    });
    return params_.p == 1 ? sum : params_.p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / params_.p);
  }

  const std::string layer_;
  const LpPoolingParams params_;
  Windows windows_;
};

std::vector<Candidate> max_candidates(const Operator&, const CandidateQuery& query) {
  if (!kMaxTypes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}
std::vector<Candidate> lp_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_max(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1, 2);
  rules.require(rules.input(0), kMaxTypes);
  rules.require_same(rules.output(0), rules.input(0));
  rules.require(rules.output(1), {DataType::kINT64});
}
void check_lp(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<IndexedMaxPooling> kIndexedMaxPoolingKernels(
    {max_candidates, make_element_kernel<IndexedMaxKernel, IndexedMaxPooling>, check_max});
const RegisteredKernels<LpPooling> kLpPoolingKernels({lp_candidates,
                                                      make_floating_kernel<LpKernel, LpPooling>,
                                                      check_lp});

}  // namespace
}  // namespace opwright
