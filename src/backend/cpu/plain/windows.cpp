#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/plain/operation.h"
#include "backend/cpu/window_axis.h"
#include "base/parallel.h"

namespace dnnl::plain {
namespace {

constexpr int64_t kWindowGrain = 1 << 13;  ///< elements that are worth a thread

using opwright::WindowAxis;

class PoolingOperation final : public Operation {
 public:
  PoolingOperation(algorithm kind, const memory::desc& x, const memory::desc& y,
                   const memory::dims& strides, const memory::dims& window,
                   const memory::dims& dilates, const memory::dims& pre)
      : kind_(kind) {
    src = x, dst = y;
    const int spatial = x.get_ndims() - 2;
    first_axis_ = 3 - spatial;
    for (int i = 0; i < spatial; ++i) {
      const auto at = static_cast<size_t>(i);
      axes_[first_axis_ + i] = {x.extent(i + 2), y.extent(i + 2), window[at],
                                strides[at],     dilates[at] + 1, pre[at]};
    }
  }

  void run(const Arguments& arguments) const override {
    const float* const x = arguments.in(DNNL_ARG_SRC);
    float* const y = arguments.out();
    const int64_t channels = dst.extent(1), lines = axes_[0].out * axes_[1].out;
    const int64_t work = axes_[2].out * axes_[0].window * axes_[1].window * axes_[2].window;
    opwright::parallel_for(dst.extent(0) * channels * lines, kWindowGrain / work + 1,
                           [&](int64_t begin, int64_t end) {
                             for (int64_t i = begin; i < end; ++i)
                               pool_line(x, y, i / lines / channels, i / lines % channels,
                                         i % lines / axes_[1].out, i % axes_[1].out);
                           });
  }

 private:
  int64_t spatial_offset(const memory::desc& desc, int axis, int64_t at) const {
    return axis < first_axis_ ? 0 : desc.offset(axis - first_axis_ + 2, at);
  }

  void pool_line(const float* x, float* y, int64_t image, int64_t channel, int64_t plane,
                 int64_t row) const {
    const WindowAxis::Taps planes = axes_[0].taps(plane), rows = axes_[1].taps(row);
    x += src.offset(0, image) + src.offset(1, channel);
    y += dst.offset(0, image) + dst.offset(1, channel) + spatial_offset(dst, 0, plane) +
         spatial_offset(dst, 1, row);
    const bool is_max = kind_ == algorithm::pooling_max;
    const int64_t step = spatial_offset(src, 2, axes_[2].dilation);
    for (int64_t at = 0; at < axes_[2].out; ++at) {
      const WindowAxis::Taps columns = axes_[2].taps(at);
      const int64_t inside = planes.count * rows.count * columns.count;
      using Limits = std::numeric_limits<float>;
      float result = !is_max ? 0 : inside > 0 ? -Limits::infinity() : Limits::lowest();
      for (int64_t d = 0; d < planes.count && inside > 0; ++d)
        for (int64_t h = 0; h < rows.count; ++h) {
          const float* from = x + spatial_offset(src, 0, planes.first + d * axes_[0].dilation) +
                              spatial_offset(src, 1, rows.first + h * axes_[1].dilation) +
                              spatial_offset(src, 2, columns.first);
          for (int64_t w = 0; w < columns.count; ++w, from += step) {
            if (!is_max)
              result += *from;
            else if (*from > result || *from != *from)
              result = *from;
          }
        }
      const int64_t all = axes_[0].window * axes_[1].window * axes_[2].window;
      const int64_t count = kind_ == algorithm::pooling_avg_include_padding ? all : inside;
      if (!is_max) result = count > 0 ? result / static_cast<float>(count) : 0;
      y[spatial_offset(dst, 2, at)] = result;
    }
  }

  const algorithm kind_;
  int first_axis_ = 0;
  WindowAxis axes_[3];
};

/// x (k + alpha / window * sum of the squares of `window` neighbouring channels)^-beta.
class LrnOperation final : public Operation {
 public:
  LrnOperation(int64_t window, float alpha, float beta, float k)
      : reach_(window / 2), alpha_(alpha / static_cast<float>(window)), beta_(beta), k_(k) {}

  void run(const Arguments& arguments) const override {
    const float* const x = arguments.in(DNNL_ARG_SRC);
    float* const y = arguments.out();
    const int64_t channels = src.extent(1);
    const int64_t positions = src.extent(2) * src.extent(3);
    opwright::parallel_for(
        src.extent(0) * positions, kWindowGrain / channels + 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i % positions / src.extent(3), column = i % src.extent(3);
            const auto place = [&](const memory::desc& desc) {
              return desc.offset(0, i / positions) + desc.offset(2, row) + desc.offset(3, column);
            };
            normalize(x + place(src), y + place(dst));
          }
        });
  }

 private:
  void normalize(const float* x, float* y) const {
    const int64_t channels = src.extent(1);
    for (int64_t c = 0; c < channels; ++c) {
      double squares = 0;
      const int64_t last = std::min(channels - 1, c + std::min(reach_, channels));
      for (int64_t i = std::max<int64_t>(0, c - reach_); i <= last; ++i) {
        const double value = x[src.offset(1, i)];
        squares += value * value;
      }
      const double base = k_ + alpha_ * squares;
      y[dst.offset(1, c)] = static_cast<float>(x[src.offset(1, c)] * std::pow(base, -beta_));
    }
  }

  const int64_t reach_;
  const double alpha_, beta_, k_;
};

std::shared_ptr<const Operation> make_pooling(algorithm kind, const memory::desc& x,
                                              const memory::desc& y, const memory::dims& strides,
                                              const memory::dims& window,
                                              const memory::dims& dilates, const memory::dims& pre,
                                              bool allow_empty) {
  const int spatial = x.get_ndims() - 2;
  if (!is_float(x) || !is_float(y) || spatial < 1 || spatial > 3) return nothing(allow_empty);
  return std::make_shared<PoolingOperation>(kind, x, y, strides, window, dilates, pre);
}

std::shared_ptr<const Operation> make_lrn(const memory::desc& x, const memory::desc& y,
                                          int64_t window, float alpha, float beta, float k,
                                          bool allow_empty) {
  if (!is_float(x) || !is_float(y) || x.get_ndims() != 4) return nothing(allow_empty);
  auto operation = std::make_shared<LrnOperation>(window, alpha, beta, k);
  operation->src = x, operation->dst = y;
  return operation;
}

}  // namespace
}  // namespace dnnl::plain

namespace dnnl {

pooling_forward::primitive_desc::primitive_desc(
    const engine&, prop_kind, algorithm kind, const memory::desc& x, const memory::desc& y,
    const memory::dims& strides, const memory::dims& window, const memory::dims& dilates,
    const memory::dims& pre, const memory::dims&, const primitive_attr&, bool allow_empty)
    : primitive_desc_base(
          plain::make_pooling(kind, x, y, strides, window, dilates, pre, allow_empty)) {}

lrn_forward::primitive_desc::primitive_desc(const engine&, prop_kind, algorithm,
                                            const memory::desc& x, const memory::desc& y,
                                            int64_t window, float alpha, float beta, float k,
                                            const primitive_attr&, bool allow_empty)
    : primitive_desc_base(plain::make_lrn(x, y, window, alpha, beta, k, allow_empty)) {}

}  // namespace dnnl
