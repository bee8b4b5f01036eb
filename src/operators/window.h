#pragma once

#include <string_view>
#include <vector>

#include "operators/convolution.h"

namespace opwright {

/// How a window moves along one spatial axis.
struct WindowAxis {
  int64_t stride = 1, dilation = 1, pre = 0, post = 0;
};

/// The checked parameters of all spatial axes; errors begin with `who`.
std::vector<WindowAxis> window_axes(std::string_view who, int count, const Ints& stride,
                                    const Ints& dilation, const Ints& pre_padding,
                                    const Ints& post_padding, PaddingMode mode);

/// The extent that a window of `window` elements covers.
Expr dilated(const Expr& window, int64_t dilation);
/// The number of windows along an axis, before windows that begin in the padding are dropped.
Expr window_count(const WindowAxis& axis, PaddingMode mode, const Expr& input, const Expr& window);
/// The number of windows without those that begin behind the input and the padding before it. A
/// pooling window there has no elements.
Expr pooling_window_count(const WindowAxis& axis, PaddingMode mode, const Expr& input,
                          const Expr& window);
/// Padding that makes exactly `count` windows fit.
struct AxisPadding {
  int64_t pre = 0, post = 0;
};
AxisPadding padding_for(const WindowAxis& axis, PaddingMode mode, int64_t input, int64_t window,
                        int64_t count);

}  // namespace opwright
