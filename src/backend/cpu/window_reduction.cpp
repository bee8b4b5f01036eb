#include "operators/window_reduction.h"

#include <algorithm>
#include <cmath>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

constexpr Types kMaxTypes = kFloats | Types{DataType::kINT8, DataType::kUINT8};

/// Windows over three spatial axes, the first of which have extent 1 where there are fewer.
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

  int64_t size() const { return size_; }
  int64_t extent(int axis) const { return axes_[axis].in; }
  int64_t outputs() const { return planes_ * count_; }

  /// Calls visit(place in x, positions) for each element of window `i` of all.
  template <class Visit>
  void each(int64_t i, Visit&& visit) const {
    const int64_t plane = i / count_;
    int64_t rest = i % count_, at[3];
    for (int axis = 2; axis >= 0; --axis) {
      at[axis] = rest % axes_[axis].out * axes_[axis].stride - axes_[axis].pad;
      rest /= axes_[axis].out;
    }
    int64_t p[3];
    for (int64_t a = 0; a < axes_[0].window; ++a) {
      p[0] = at[0] + a * axes_[0].dilation;
      if (p[0] < 0 || p[0] >= axes_[0].in) continue;
      for (int64_t b = 0; b < axes_[1].window; ++b) {
        p[1] = at[1] + b * axes_[1].dilation;
        if (p[1] < 0 || p[1] >= axes_[1].in) continue;
        for (int64_t c = 0; c < axes_[2].window; ++c) {
          p[2] = at[2] + c * axes_[2].dilation;
          if (p[2] < 0 || p[2] >= axes_[2].in) continue;
          visit(plane * size_ + (p[0] * axes_[1].in + p[1]) * axes_[2].in + p[2], plane, p);
        }
      }
    }
  }

  int64_t grain() const {
    const int64_t work = axes_[0].window * axes_[1].window * axes_[2].window;
    return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, work));
  }

 private:
  struct Axis {
    int64_t in = 1, out = 1, window = 1, stride = 1, dilation = 1, pad = 0;
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
      for (int64_t i = begin; i < end; ++i) pool(inputs[0], outputs[0], outputs[1], i);
    });
  }

 private:
  void pool(const void* x, void* y, void* indices, int64_t i) const {
    typename Element::Value most = 0;
    int64_t index = -1;
    windows_.each(i, [&](int64_t place, int64_t plane, const int64_t* p) {
      const auto value = load_element<Element>(x, place);
      // NaN stays: it is no more compared.
      if (index >= 0 && !(value > most) && value == value) return;
      if (index >= 0 && most != most) return;
      most = value;
      index = place;
      if (params_.column_major)
        index = plane * windows_.size() + (p[2] * windows_.extent(1) + p[1]) * windows_.extent(0) +
                p[0];
    });
    store_element<Element>(y, i, most);
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
      for (int64_t i = begin; i < end; ++i)
        store_element<Element>(outputs[0], i, static_cast<float>(norm(inputs[0], i)));
    });
  }

 private:
  double norm(const void* x, int64_t i) const {
    double sum = 0;
    windows_.each(i, [&](int64_t place, int64_t, const int64_t*) {
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
