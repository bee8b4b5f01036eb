#include "control/loop_count.h"

#include <algorithm>

#include "base/error.h"
#include "control/body.h"
#include "operators/elementwise.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// An integer that is `first` in the first iteration and grows by `step` in each further one.
struct Progression {
  Expr first;
  int64_t step = 0;
};

class LoopReader {
 public:
  explicit LoopReader(const ConditionalLoop& loop) : loop_(loop), extents_(loop.body) {
    for (size_t i = 0; i < loop.begin.size(); ++i)
      extents_.add(state_input(static_cast<int>(i)), loop.begin[i]->info());
    for (size_t i = 0; i < loop.captured.size(); ++i)
      extents_.add(capture_input(static_cast<int>(i)), loop.captured[i]->info());
  }

  /// The number of iterations by this condition.
  std::optional<LoopCount> count(const Tensor& condition, int depth = 0) {
    if (depth > kMostDepth) return std::nullopt;
    if (const auto known = known_element(condition))
      return known->is_constant() && known->constant() != 0 ? std::optional(LoopCount{kEver, true})
                                                            : std::nullopt;
    const Layer* const layer = condition.producer();
    if (layer == nullptr) return std::nullopt;
    if (const Tensor* same = handed_on(*layer)) return count(*same, depth + 1);
    const auto* const op = dynamic_cast<const ElementWise*>(layer->op().get());
    if (op == nullptr) return std::nullopt;
    const Tensor &a = *layer->input(0), &b = *layer->input(1);
    switch (op->params().op) {
      case ElementWiseOperation::kAND:
        return both(count(a, depth + 1), count(b, depth + 1));
      case ElementWiseOperation::kOR:
        return count_not_above(a, b);
      case ElementWiseOperation::kLESS:
        return count_below(a, b, 0);
      case ElementWiseOperation::kGREATER:
        return count_below(b, a, 0);
      default:
        return std::nullopt;
    }
  }

  static bool is_bounded(const LoopCount& count) { return count.most != Expr(kEver); }

 private:
  static constexpr int kMostDepth = 32;
  static constexpr int64_t kEver = -1;  ///< a condition that never ends a loop

  static std::optional<LoopCount> both(const std::optional<LoopCount>& a,
                                       const std::optional<LoopCount>& b) {
    if (!a || !b) {
      std::optional<LoopCount> one = a ? a : b;
      if (one) one->is_exact = false;
      return one;
    }
    if (!is_bounded(*a)) return b;
    if (!is_bounded(*b)) return a;
    return LoopCount{min(a->most, b->most), a->is_exact && b->is_exact};
  }

  /// Counts iterations of a loop that goes on while a < b + more.
  std::optional<LoopCount> count_below(const Tensor& a, const Tensor& b, int64_t more) {
    const std::optional<Progression> low = read(a), high = read(b);
    if (!low || !high) return std::nullopt;
    int64_t closer = 0;
    if (__builtin_sub_overflow(low->step, high->step, &closer) || closer <= 0) return std::nullopt;
    return LoopCount{max(ceil_div(high->first - low->first + more, closer), 0) + 1, true};
  }

  /// Reads "or equal" comparisons as ONNX's are written: a comparison or an equality.
  std::optional<LoopCount> count_not_above(const Tensor& x, const Tensor& y) {
    const auto comparison = [](const Tensor& tensor, ElementWiseOperation wanted) -> const Layer* {
      const Layer* const layer = tensor.producer();
      const auto* op =
          layer == nullptr ? nullptr : dynamic_cast<const ElementWise*>(layer->op().get());
      return op != nullptr && op->params().op == wanted ? layer : nullptr;
    };
    for (const auto& [first, second] : {std::pair(&x, &y), std::pair(&y, &x)}) {
      const Layer* const equal = comparison(*second, ElementWiseOperation::kEQUAL);
      const Layer* const less = comparison(*first, ElementWiseOperation::kLESS);
      const Layer* const greater = comparison(*first, ElementWiseOperation::kGREATER);
      const Layer* const order = less != nullptr ? less : greater;
      if (equal == nullptr || order == nullptr) continue;
      const Tensor *const a = order->input(0), *const b = order->input(1);
      const bool is_same = (equal->input(0) == a && equal->input(1) == b) ||
                           (equal->input(0) == b && equal->input(1) == a);
      if (is_same) return less != nullptr ? count_below(*a, *b, 1) : count_below(*b, *a, 1);
    }
    return std::nullopt;
  }

  static bool is_one_integer(const Tensor& tensor) {
    return (tensor.dtype() == DataType::kINT32 || tensor.dtype() == DataType::kINT64) &&
           numel(tensor.dims()) == Expr(1);
  }

  /// The input of a layer that changes neither an integer nor whether a BOOL is true; null for any
  /// other layer.
  static const Tensor* handed_on(const Layer& layer) {
    const Operator& op = *layer.op();
    const bool is_whole = dynamic_cast<const Identity*>(&op) || dynamic_cast<const Shuffle*>(&op) ||
                          dynamic_cast<const Cast*>(&op);
    if (!is_whole || layer.input(0) == nullptr) return nullptr;
    const Tensor &from = *layer.input(0), &to = *layer.output(0);
    const bool is_integer = is_one_integer(from) && is_one_integer(to);
    return from.dtype() == to.dtype() || is_integer ? &from : nullptr;
  }

  /// The only element, if shapes outside of the body give it.
  std::optional<Expr> known_element(const Tensor& tensor) {
    const auto& values = tensor.info().values;
    if (values == nullptr || values->size() != 1) return std::nullopt;
    try {
      return extents_(values->front());
    } catch (const Error&) {  // the element depends on what the body computes
      return std::nullopt;
    }
  }

  std::optional<Progression> read(const Tensor& tensor, int depth = 0) {
    if (depth > kMostDepth || !is_one_integer(tensor)) return std::nullopt;
    if (const auto known = known_element(tensor)) return Progression{*known, 0};
    if (&tensor == loop_.iteration) return Progression{0, 1};
    if (const auto state = std::ranges::find(loop_.states, &tensor); state != loop_.states.end())
      return read_state(static_cast<size_t>(state - loop_.states.begin()));
    if (tensor.is_network_input()) return read_captured(tensor);
    const Layer& layer = *tensor.producer();
    if (const Tensor* same = handed_on(layer)) return read(*same, depth + 1);
    const auto* const op = dynamic_cast<const ElementWise*>(layer.op().get());
    if (op == nullptr) return std::nullopt;
    const std::optional<Progression> a = read(*layer.input(0), depth + 1),
                                     b = read(*layer.input(1), depth + 1);
    if (!a || !b) return std::nullopt;
    Progression result;
    switch (op->params().op) {
      case ElementWiseOperation::kSUM:
        result.first = a->first + b->first;
        if (__builtin_add_overflow(a->step, b->step, &result.step)) return std::nullopt;
        return result;
      case ElementWiseOperation::kSUB:
        result.first = a->first - b->first;
        if (__builtin_sub_overflow(a->step, b->step, &result.step)) return std::nullopt;
        return result;
      case ElementWiseOperation::kMIN:
        if (a->step != b->step) return std::nullopt;
        return Progression{min(a->first, b->first), a->step};
      case ElementWiseOperation::kMAX:
        if (a->step != b->step) return std::nullopt;
        return Progression{max(a->first, b->first), a->step};
      default:
        return std::nullopt;
    }
  }

  /// Reads a state that stays, or to which each iteration adds a constant.
  std::optional<Progression> read_state(size_t index) {
    const Tensor* next = loop_.next[index];
    const auto& begin = loop_.begin[index]->info().values;
    if (next == nullptr || begin == nullptr || begin->size() != 1) return std::nullopt;
    int64_t step = 0;
    for (int depth = 0; next != loop_.states[index]; ++depth) {
      const Layer* const layer = next->producer();
      if (depth > kMostDepth || layer == nullptr) return std::nullopt;
      if (const Tensor* same = handed_on(*layer)) {
        next = same;
        continue;
      }
      const auto* const op = dynamic_cast<const ElementWise*>(layer->op().get());
      if (op == nullptr) return std::nullopt;
      const bool adds = op->params().op == ElementWiseOperation::kSUM;
      if (!adds && op->params().op != ElementWiseOperation::kSUB) return std::nullopt;
      const auto a = known_element(*layer->input(0)), b = known_element(*layer->input(1));
      const std::optional<Expr>& known = b || !adds ? b : a;
      if (!known || !known->is_constant()) return std::nullopt;
      const int64_t more = known->constant();
      if (adds ? __builtin_add_overflow(step, more, &step)
               : __builtin_sub_overflow(step, more, &step))
        return std::nullopt;
      next = layer->input(b || !adds ? 0 : 1);
    }
    return Progression{begin->front(), step};
  }

  std::optional<Progression> read_captured(const Tensor& input) const {
    for (size_t i = 0; i < loop_.captured.size(); ++i) {
      if (input.name() != capture_input(static_cast<int>(i))) continue;
      const auto& values = loop_.captured[i]->info().values;
      if (values != nullptr && values->size() == 1) return Progression{values->front(), 0};
    }
    return std::nullopt;
  }

  const ConditionalLoop& loop_;
  BodyExtents extents_;
};

}  // namespace

std::optional<LoopCount> count_iterations(const ConditionalLoop& loop) {
  try {
    LoopReader reader(loop);
    const std::optional<LoopCount> count = reader.count(loop.goes_on);
    return count && LoopReader::is_bounded(*count) ? count : std::nullopt;
  } catch (const Error&) {  // numbers overflow
    return std::nullopt;
  }
}

}  // namespace opwright
