#include "operators/window.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {

std::vector<WindowAxis> window_axes(std::string_view who, int count, const Ints& stride,
                                    const Ints& dilation, const Ints& pre_padding,
                                    const Ints& post_padding, PaddingMode mode) {
  require(mode >= PaddingMode::kEXPLICIT_ROUND_DOWN && mode <= PaddingMode::kSAME_LOWER, who,
          ": unknown padding mode ", static_cast<int32_t>(mode));
  const Ints strides = per_axis(who, "stride", stride, count, 1, 1);
  const Ints dilations = per_axis(who, "dilation", dilation, count, 1, 1);
  const Ints pre = per_axis(who, "pre-padding", pre_padding, count, 0, 0);
  const Ints post = per_axis(who, "post-padding", post_padding, count, 0, 0);
  std::vector<WindowAxis> axes(count);
  for (int i = 0; i < count; ++i) axes[i] = {strides[i], dilations[i], pre[i], post[i]};
  return axes;
}

Expr dilated(const Expr& window, int64_t dilation) {
  return dilation == 1 ? window : (window - Expr(1)) * Expr(dilation) + Expr(1);
}

Expr window_count(const WindowAxis& axis, PaddingMode mode, const Expr& input, const Expr& window) {
  if (mode == PaddingMode::kSAME_UPPER || mode == PaddingMode::kSAME_LOWER)
    return ceil_div(input, Expr(axis.stride));
  const Expr slack = input + Expr(axis.pre + axis.post) - dilated(window, axis.dilation);
  const Expr steps = mode == PaddingMode::kEXPLICIT_ROUND_UP ? ceil_div(slack, Expr(axis.stride))
                                                             : floor_div(slack, Expr(axis.stride));
  return steps + Expr(1);
}

Expr pooling_window_count(const WindowAxis& axis, PaddingMode mode, const Expr& input,
                          const Expr& window) {
  const Expr count = window_count(axis, mode, input, window);
  if (mode != PaddingMode::kEXPLICIT_ROUND_UP) return count;
  // Window i begins at i * stride, which must lie before input + pre.
  return min(count, ceil_div(input + Expr(axis.pre), Expr(axis.stride)));
}

AxisPadding padding_for(const WindowAxis& axis, PaddingMode mode, int64_t input, int64_t window,
                        int64_t count) {
  const int64_t span =
      (Expr(count - 1) * Expr(axis.stride) + dilated(Expr(window), axis.dilation)).constant();
  switch (mode) {
    case PaddingMode::kSAME_UPPER:
    case PaddingMode::kSAME_LOWER: {
      const int64_t total = std::max<int64_t>(span - input, 0);
      const int64_t less = total / 2, more = total - less;
      return mode == PaddingMode::kSAME_UPPER ? AxisPadding{less, more} : AxisPadding{more, less};
    }
    case PaddingMode::kEXPLICIT_ROUND_UP:
      return {axis.pre, std::max<int64_t>(span - input - axis.pre, 0)};
    case PaddingMode::kEXPLICIT_ROUND_DOWN:
      break;
  }
  return {axis.pre, axis.post};
}

}  // namespace opwright
