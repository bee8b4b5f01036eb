#include "control/element_bounds.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/half.h"
#include "operators/activation.h"
#include "operators/elementwise.h"
#include "operators/infer.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "operators/selection.h"

namespace opwright {
namespace {

using Bound = std::optional<Expr>;

constexpr int kMaxBoundsDepth = 256;
constexpr int64_t kMaxBoundsConstant = int64_t{1} << 20;  ///< most elements that are read
constexpr double kLargest = 0x1p53;

Bound integer(double value) {
  if (!(std::abs(value) <= kLargest)) return std::nullopt;
  return Expr(static_cast<int64_t>(value));
}

ElementBounds between(double low, double high) {
  return {integer(std::floor(low)), integer(std::ceil(high))};
}

template <class Combine>
Bound combined(const Bound& a, const Bound& b, const Combine& combine) {
  return a && b ? Bound(combine(*a, *b)) : std::nullopt;
}
Bound larger(const Bound& a, const Bound& b) {
  return combined(a, b, [](const Expr& x, const Expr& y) { return max(x, y); });
}
Bound smaller(const Bound& a, const Bound& b) {
  return combined(a, b, [](const Expr& x, const Expr& y) { return min(x, y); });
}
Bound product(const Bound& a, const Bound& b) {
  return combined(a, b, [](const Expr& x, const Expr& y) { return x * y; });
}
Bound negative(const Bound& a) { return a ? Bound(Expr(0) - *a) : std::nullopt; }

/// The wider bounds of both.
ElementBounds hull(const ElementBounds& a, const ElementBounds& b) {
  return {smaller(a.low, b.low), larger(a.high, b.high)};
}
/// The tighter bounds of both. Bounds of one suffice.
ElementBounds tightened(const ElementBounds& a, const ElementBounds& b) {
  return {!a.low   ? b.low
          : !b.low ? a.low
                   : larger(a.low, b.low),
          !a.high   ? b.high
          : !b.high ? a.high
                    : smaller(a.high, b.high)};
}
ElementBounds opposite(const ElementBounds& x) { return {negative(x.high), negative(x.low)}; }
ElementBounds sum(const ElementBounds& a, const ElementBounds& b) {
  const auto add = [](const Expr& x, const Expr& y) { return x + y; };
  return {combined(a.low, b.low, add), combined(a.high, b.high, add)};
}
/// Bounds of the sum of `count` elements.
ElementBounds sum_of(const ElementBounds& x, const Expr& count) {
  return {x.low ? Bound(min(*x.low, 0) * count) : std::nullopt,
          x.high ? Bound(max(*x.high, 0) * count) : std::nullopt};
}

bool is_at_least(const Bound& bound, int64_t value) {
  return bound && bound->is_constant() && bound->constant() >= value;
}

ElementBounds of_constant(const TensorInfo& info) {
  const int64_t count = constant_shape(info.dims).numel();
  if (count == 0 || count > kMaxBoundsConstant || bits(info.dtype) < 8) return {};
  std::vector<float> elements(static_cast<size_t>(count));
  convert(info.constant.data(), info.dtype, elements.data(), DataType::kFLOAT, count);
  const auto [low, high] = std::ranges::minmax(elements);
  return between(low, high);
}

ElementBounds of_type(DataType type) {
  if (type == DataType::kBOOL) return between(0, 1);
  if (type == DataType::kUINT8) return between(0, 255);
  if (type == DataType::kINT8) return between(-128, 127);
  return {};
}

ElementBounds of_activation(const ActivationParams& params, const ElementBounds& x) {
  switch (params.type) {
    case ActivationType::kSIGMOID:
    case ActivationType::kHARD_SIGMOID:
      return between(0, 1);
    case ActivationType::kTANH:
    case ActivationType::kSOFTSIGN:
      return between(-1, 1);
    case ActivationType::kRELU:
      return {Expr(0), x.high ? Bound(max(*x.high, 0)) : std::nullopt};
    case ActivationType::kCLIP:
      return tightened(x, between(params.alpha, params.beta));
    default:
      return {};
  }
}

ElementBounds of_unary(UnaryOperation op, const ElementBounds& x) {
  switch (op) {
    case UnaryOperation::kABS:
      return {Expr(0), larger(x.high, negative(x.low))};
    case UnaryOperation::kNEG:
      return opposite(x);
    case UnaryOperation::kCEIL:
    case UnaryOperation::kFLOOR:
    case UnaryOperation::kROUND:
      return x;
    case UnaryOperation::kSQRT:
      return {Expr(0), x.high ? Bound(max(*x.high, 1)) : std::nullopt};
    case UnaryOperation::kEXP:
      return {Expr(0), std::nullopt};
    case UnaryOperation::kERF:
    case UnaryOperation::kSIN:
    case UnaryOperation::kCOS:
    case UnaryOperation::kSIGN:
      return between(-1, 1);
    default:
      return {};
  }
}

/// The exact element of a constant of one element. A quotient needs it.
std::optional<double> single_constant(const TensorInfo& info) {
  if (info.constant.empty() || !(numel(info.dims) == Expr(1)) || bits(info.dtype) < 8)
    return std::nullopt;
  float element = 0;
  convert(info.constant.data(), info.dtype, &element, DataType::kFLOAT, 1);
  return element;
}

/// Bounds of the quotient by a constant, or by a divisor of at least 1.
ElementBounds quotient(const ElementBounds& x, const TensorInfo& divisor,
                       const ElementBounds& divisor_bounds) {
  const std::optional<double> by = single_constant(divisor);
  if (by && *by < 0) {
    const Bound least = integer(std::floor(-*by));
    return is_at_least(least, 1) ? opposite(quotient(x, {}, {least, std::nullopt}))
                                 : ElementBounds();
  }
  Expr factor = 1;  // no quotient is farther from 0 than this times x
  Expr least = 1;
  if (by && *by > 0 && *by < 1) {
    const Bound inverse = integer(std::ceil(1 / *by));
    if (!inverse) return {};
    factor = *inverse;
  } else if (by && *by >= 1) {
    least = *integer(std::floor(std::min(*by, kLargest)));
  } else if (is_at_least(divisor_bounds.low, 1)) {
    least = *divisor_bounds.low;
  } else {
    return {};
  }
  const auto divided = [&](const Expr& value) { return ceil_div(value * factor, least); };
  return {x.low ? Bound(Expr(0) - divided(max(Expr(0) - *x.low, 0))) : std::nullopt,
          x.high ? Bound(divided(max(*x.high, 0))) : std::nullopt};
}

ElementBounds of_product(const ElementBounds& a, const ElementBounds& b) {
  // One factor is not negative, so one bound of the other suffices for a bound of the product.
  if (is_at_least(a.low, 0) && a.high)
    return {b.low ? Bound(*a.high * min(*b.low, 0)) : std::nullopt,
            b.high ? Bound(*a.high * max(*b.high, 0)) : std::nullopt};
  if (is_at_least(b.low, 0) && b.high) return of_product(b, a);
  const Bound corners[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low),
                           product(a.high, b.high)};
  ElementBounds result = {corners[0], corners[0]};
  for (const Bound& corner : corners) result = hull(result, {corner, corner});
  return result;
}

class Analysis {
 public:
  explicit Analysis(const GivenBounds& given) : given_(given) {}

  const ElementBounds& of(const Tensor& tensor) {
    if (const auto found = known_.find(&tensor); found != known_.end()) return found->second;
    ElementBounds bounds = of_type(tensor.dtype());
    if (const TensorInfo& info = tensor.info(); info.values && !info.values->empty()) {
      bounds = {info.values->front(), info.values->front()};
      for (const Expr& value : *info.values) bounds = hull(bounds, {value, value});
    } else if (!info.constant.empty()) {
      bounds = of_constant(info);
    } else if (tensor.producer() != nullptr && depth_ < kMaxBoundsDepth) {
      ++depth_;
      bounds = tightened(bounds, of_layer(*tensor.producer(), tensor.producer_output()));
      --depth_;
    }
    if (const auto given = given_.find(tensor.name()); given != given_.end())
      bounds = tightened(bounds, {std::nullopt, Expr(given->second)});
    return known_[&tensor] = std::move(bounds);
  }

 private:
  ElementBounds input(const Layer& layer, int i) {
    return i < layer.num_inputs() && layer.input(i) != nullptr ? of(*layer.input(i))
                                                               : ElementBounds();
  }

  ElementBounds of_elementwise(const Layer& layer, ElementWiseOperation op) {
    const ElementBounds a = input(layer, 0), b = input(layer, 1);
    switch (op) {
      case ElementWiseOperation::kSUM:
        return sum(a, b);
      case ElementWiseOperation::kSUB:
        return sum(a, opposite(b));
      case ElementWiseOperation::kMIN:
        return {smaller(a.low, b.low), tightened(a, b).high};
      case ElementWiseOperation::kMAX:
        return {tightened(a, b).low, larger(a.high, b.high)};
      case ElementWiseOperation::kPROD:
        return of_product(a, b);
      case ElementWiseOperation::kDIV:
      case ElementWiseOperation::kFLOOR_DIV:
        return quotient(a, layer.input(1)->info(), b);
      default:
        return {};
    }
  }

  ElementBounds of_reduce(const Layer& layer, const ReduceParams& params) {
    const ElementBounds x = input(layer, 0);
    if (params.op == ReduceOperation::kSUM) {
      Expr count = 1;
      const std::span<const Expr> dims = layer.input(0)->dims();
      for (size_t axis = 0; axis < dims.size(); ++axis)
        if (params.axes >> axis & 1) count = count * dims[axis];
      return sum_of(x, count);
    }
    const bool keeps_range = params.op == ReduceOperation::kMAX ||
                             params.op == ReduceOperation::kMIN ||
                             params.op == ReduceOperation::kAVG;
    return keeps_range ? x : ElementBounds();
  }

  ElementBounds of_layer(const Layer& layer, int output) {
    const Operator* const op = layer.op().get();
    if (dynamic_cast<const Identity*>(op) || dynamic_cast<const Cast*>(op) ||
        dynamic_cast<const Shuffle*>(op) || dynamic_cast<const Squeeze*>(op) ||
        dynamic_cast<const Unsqueeze*>(op) || dynamic_cast<const Gather*>(op))
      return input(layer, 0);
    if (const auto* slice = dynamic_cast<const Slice*>(op)) {
      const ElementBounds fill = layer.num_inputs() > 4 ? input(layer, 4) : between(0, 0);
      const ElementBounds x = input(layer, 0);
      return slice->params().mode == SampleMode::kFILL ? hull(x, fill) : x;
    }
    if (dynamic_cast<const Concatenation*>(op)) {
      ElementBounds all = input(layer, 0);
      for (int i = 1; i < layer.num_inputs(); ++i) all = hull(all, input(layer, i));
      return all;
    }
    if (dynamic_cast<const Select*>(op)) return hull(input(layer, 1), input(layer, 2));
    if (const auto* unary = dynamic_cast<const Unary*>(op))
      return of_unary(unary->params().op, input(layer, 0));
    if (const auto* activation = dynamic_cast<const Activation*>(op))
      return of_activation(activation->params(), input(layer, 0));
    if (const auto* elementwise = dynamic_cast<const ElementWise*>(op))
      return of_elementwise(layer, elementwise->params().op);
    if (const auto* softmax = dynamic_cast<const Softmax*>(op))
      return softmax->params().log ? ElementBounds{std::nullopt, Expr(0)} : between(0, 1);
    if (const auto* reduce = dynamic_cast<const Reduce*>(op))
      return of_reduce(layer, reduce->params());
    if (const auto* cumulative = dynamic_cast<const Cumulative*>(op)) {
      return cumulative->params().product ? ElementBounds()
                                          : sum_of(input(layer, 0), numel(layer.input(0)->dims()));
    }
    if (dynamic_cast<const TopK*>(op) && output == 0) return input(layer, 0);
    if (dynamic_cast<const TopK*>(op) || (dynamic_cast<const NonZero*>(op) && output == 0)) {
      Expr last = 0;
      for (const Expr& extent : layer.input(0)->dims()) last = max(last, extent - 1);
      return {Expr(0), last};
    }
    return {};
  }

  const GivenBounds& given_;
  std::unordered_map<const Tensor*, ElementBounds> known_;
  int depth_ = 0;
};

}  // namespace

ElementBounds bounds_of(const Tensor& tensor, const GivenBounds& given) {
  return Analysis(given).of(tensor);
}

}  // namespace opwright
