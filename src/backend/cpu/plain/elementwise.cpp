#include <algorithm>
#include <cmath>

#include "backend/cpu/plain/operation.h"
#include "base/parallel.h"

namespace dnnl::plain {
namespace {

constexpr int64_t kElementGrain = 1 << 12;  ///< elements that are worth a thread
constexpr int64_t kRow = 256;               ///< elements that a stack holds

template <class F>
void for_each_element(const float* x, float* y, int64_t count, F&& f) {
  for (int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}

/// Computes all elements of a tensor one after another, in memory order.
class EltwiseOperation final : public Operation {
 public:
  EltwiseOperation(algorithm kind, float alpha, float beta)
      : kind_(kind), alpha_(alpha), beta_(beta) {}
  void run(const Arguments& arguments) const override {
    const float* const x = arguments.in(DNNL_ARG_SRC);
    float* const y = arguments.out();
    const auto count = static_cast<int64_t>(src.get_size() / sizeof(float));
    opwright::parallel_for(count, kElementGrain, [&](int64_t begin, int64_t end) {
      apply_eltwise(kind_, alpha_, beta_, x + begin, y + begin, end - begin);
    });
  }

 private:
  const algorithm kind_;
  const float alpha_, beta_;
};

/// An element of `b` is combined with all elements of `a` along axes where b's extent is 1.
class BinaryOperation final : public Operation {
 public:
  BinaryOperation(algorithm kind, const post_ops& steps) : kind_(kind), epilogue_(steps) {}
  void run(const Arguments& arguments) const override {
    const float* const a = arguments.in(DNNL_ARG_SRC_0);
    const float* const b = arguments.in(DNNL_ARG_SRC_1);
    float* const y = arguments.out();
    const int last = dst.get_ndims() - 1;
    int64_t rows = 1;
    for (int axis = 0; axis < last; ++axis) rows *= dst.extent(axis);
    const int64_t width = dst.extent(last);
    opwright::parallel_for(rows, kElementGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row, of_a = 0, of_b = 0, of_y = 0;
        for (int axis = last; axis-- > 0;) {
          const int64_t at = rest % dst.extent(axis);
          rest /= dst.extent(axis);
          of_a += src.offset(axis, at), of_y += dst.offset(axis, at);
          if (weights.extent(axis) > 1) of_b += weights.offset(axis, at);
        }
        run_row(a + of_a, b + of_b, y + of_y, last, width);
      }
    });
  }

 private:
  void run_row(const float* a, const float* b, float* y, int axis, int64_t width) const {
    float values[kRow];
    const bool same = weights.extent(axis) == 1;
    for (int64_t first = 0; first < width; first += kRow) {
      const int64_t count = std::min(kRow, width - first);
      for (int64_t i = 0; i < count; ++i) {
        const float left = a[src.offset(axis, first + i)];
        const float right = b[same ? 0 : weights.offset(axis, first + i)];
        values[i] = kind_ == algorithm::binary_add ? left + right : left * right;
      }
      epilogue_.apply(values, count, nullptr);
      for (int64_t i = 0; i < count; ++i) y[dst.offset(axis, first + i)] = values[i];
    }
  }

  const algorithm kind_;
  const Epilogue epilogue_;
};

/// Adds tensors of one layout.
class SumOperation final : public Operation {
 public:
  explicit SumOperation(std::vector<float> scales) : scales_(std::move(scales)) {}
  void run(const Arguments& arguments) const override {
    float* const y = arguments.out();
    const auto count = static_cast<int64_t>(dst.get_size() / sizeof(float));
    opwright::parallel_for(count, kElementGrain, [&](int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, 0.0f);
      for (size_t i = 0; i < scales_.size(); ++i) {
        const float* const x = arguments.in(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i));
        for (int64_t at = begin; at < end; ++at) y[at] += scales_[i] * x[at];
      }
    });
  }

 private:
  const std::vector<float> scales_;
};

std::shared_ptr<const Operation> make_eltwise(algorithm kind, float alpha, float beta,
                                              const memory::desc& x, const memory::desc& y) {
  if (!is_float(x) || !(x == y)) return nothing(false);
  auto operation = std::make_shared<EltwiseOperation>(kind, alpha, beta);
  operation->src = x, operation->dst = y;
  return operation;
}

std::shared_ptr<const Operation> make_binary(algorithm kind, const memory::desc& a,
                                             const memory::desc& b, const memory::desc& y,
                                             const post_ops& steps) {
  if (!is_float(a) || !is_float(b) || !is_float(y)) return nothing(false);
  auto operation = std::make_shared<BinaryOperation>(kind, steps);
  operation->src = a, operation->weights = b, operation->dst = y;
  return operation;
}

std::shared_ptr<const Operation> make_sum(const memory::desc& y, const std::vector<float>& scales,
                                          const std::vector<memory::desc>& of) {
  if (!is_float(y)) return nothing(false);
  for (const memory::desc& each : of)
    if (!(each == y)) return nothing(false);
  auto operation = std::make_shared<SumOperation>(scales);
  operation->dst = y;
  return operation;
}

}  // namespace

void apply_eltwise(algorithm kind, float alpha, float beta, const float* x, float* y,
                   int64_t count) {
  switch (kind) {
    case algorithm::eltwise_relu:
      return for_each_element(x, y, count,
                              [&](float v) { return v > 0 || v != v ? v : alpha * v; });
    case algorithm::eltwise_logistic:
      return for_each_element(x, y, count, [](float v) { return 1 / (1 + std::exp(-v)); });
    case algorithm::eltwise_tanh:
      return for_each_element(x, y, count, [](float v) { return std::tanh(v); });
    case algorithm::eltwise_elu:
      return for_each_element(x, y, count,
                              [&](float v) { return v > 0 ? v : alpha * std::expm1(v); });
    case algorithm::eltwise_linear:
      return for_each_element(x, y, count, [&](float v) { return alpha * v + beta; });
    case algorithm::eltwise_clip:
      return for_each_element(x, y, count, [&](float v) {
        return v < alpha ? alpha : v > beta ? beta : v;
      });
    case algorithm::eltwise_hardsigmoid:
      return for_each_element(x, y, count, [&](float v) {
        const float line = alpha * v + beta;
        return line < 0 ? 0 : line > 1 ? 1 : line;
      });
    case algorithm::eltwise_hardswish:
      return for_each_element(x, y, count, [&](float v) {
        const float line = alpha * v + beta;
        return v * (line < 0 ? 0 : line > 1 ? 1 : line);
      });
    case algorithm::eltwise_swish:
      return for_each_element(x, y, count, [&](float v) { return v / (1 + std::exp(-alpha * v)); });
    case algorithm::eltwise_gelu_erf:
      return for_each_element(x, y, count, [](float v) {
        constexpr float kRootOfHalf = 0.70710678f;
        return 0.5f * v * std::erfc(-v * kRootOfHalf);
      });
    case algorithm::eltwise_gelu_tanh:
      return for_each_element(x, y, count, [](float v) {
        constexpr float kRootOfTwoOverPi = 0.79788456f, kCubes = 0.044715f;
        return 0.5f * v * (1 + std::tanh(kRootOfTwoOverPi * v * (1 + kCubes * v * v)));
      });
    default:
      throw error(dnnl_unimplemented, "this is no element-wise function");
  }
}

void Epilogue::apply(float* values, int64_t count, const float* sums) const {
  for (const post_ops::Step& step : steps_) {
    if (!step.is_sum)
      apply_eltwise(step.kind, step.alpha, step.beta, values, values, count);
    else
      for (int64_t i = 0; i < count; ++i) values[i] += sums[i];
  }
}

}  // namespace dnnl::plain

namespace dnnl {

eltwise_forward::primitive_desc::primitive_desc(const engine&, prop_kind, algorithm kind,
                                                const memory::desc& x, const memory::desc& y,
                                                float alpha, float beta, const primitive_attr&)
    : primitive_desc_base(plain::make_eltwise(kind, alpha, beta, x, y)) {}

binary::primitive_desc::primitive_desc(const engine&, algorithm kind, const memory::desc& a,
                                       const memory::desc& b, const memory::desc& y,
                                       const primitive_attr& attributes)
    : primitive_desc_base(plain::make_binary(kind, a, b, y, attributes.get_post_ops())) {}

sum::primitive_desc::primitive_desc(const engine&, const memory::desc& y,
                                    const std::vector<float>& scales,
                                    const std::vector<memory::desc>& of, const primitive_attr&)
    : primitive_desc_base(plain::make_sum(y, scales, of)) {}

}  // namespace dnnl
