#include <numeric>

#include "backend/gpu/convolution.h"
#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright::gpu {

ConvolutionShape::ConvolutionShape(const ConvolutionParams& params, bool is_transposed,
                                   const SymShape& x, const SymShape& kernel)
    : images(x[0]), groups(params.groups) {
  const std::string_view who = is_transposed ? Deconvolution::kKind : Convolution::kKind;
  const int count = static_cast<int>(x.size()) - 2;
  channels = is_transposed ? floor_div(x[1], groups) : kernel[1];
  maps = is_transposed ? kernel[1] : floor_div(kernel[0], groups);
  windows.axes = window_axes(who, count, params.stride, params.dilation, params.pre_padding,
                             params.post_padding, params.padding_mode);
  windows.x.assign(x.begin() + 2, x.end());
  windows.window.assign(kernel.begin() + 2, kernel.end());
  windows.is_transposed = is_transposed;
  const Ints extra = per_axis(who, "output padding", params.output_padding, count, 0, 0);
  const PaddingMode mode = params.padding_mode;
  const bool is_same = mode == PaddingMode::kSAME_UPPER || mode == PaddingMode::kSAME_LOWER;
  for (int i = 0; i < count; ++i) {
    const WindowAxis& axis = windows.axes[i];
    const Expr &in = windows.x[i], &window = windows.window[i];
    if (!is_transposed) {
      const Expr extent = window_count(axis, mode, in, window);
      windows.y.push_back(extent);
      windows.padding.push_back(padding_before(axis, mode, in, window, extent));
      continue;
    }
    const Expr reach = dilated(window, axis.dilation);
    windows.y.push_back(is_same ? in * Expr(axis.stride)
                                : (in - Expr(1)) * Expr(axis.stride) + reach +
                                      Expr(extra[i] - axis.pre - axis.post));
    const Expr surplus = max(reach + Expr(extra[i] - axis.stride), Expr(0));
    const Expr less = floor_div(surplus, Expr(2));
    windows.padding.push_back(!is_same                           ? Expr(axis.pre)
                              : mode == PaddingMode::kSAME_UPPER ? less
                                                                 : surplus - less);
  }
}

void find_epilogue_inputs(ConvolutionShape& shape, const ConvolutionParams& params,
                          std::span<const PortDesc> inputs) {
  const int count = static_cast<int>(inputs.size()) - params.fused.inputs();
  if (params.has_residual) shape.residual = count - 1;
  if (count > 2 && shape.residual != 2 && inputs[2].present) shape.bias = 2;
}

bool is_pointwise(const Windows& windows) {
  for (size_t i = 0; i < windows.axes.size(); ++i)
    if (windows.window[i] != Expr(1) || windows.axes[i].stride != 1 ||
        windows.padding[i] != Expr(0) || windows.y[i] != windows.x[i])
      return false;
  return true;
}

int64_t patch_piece(const ConvolutionShape& shape, const ConvolutionParams& params, DataType type) {
  const Windows& windows = shape.windows;
  const PaddingMode mode = params.padding_mode;
  if (windows.is_transposed || shape.groups != Expr(1) || mode == PaddingMode::kSAME_UPPER ||
      mode == PaddingMode::kSAME_LOWER || !is_constant(windows.window))
    return 0;
  for (const WindowAxis& axis : windows.axes)
    if (axis.dilation != 1 || axis.pre != 0 || axis.post != 0) return 0;
  const int64_t piece =
      std::gcd(std::gcd(windows.window.back().constant(), windows.axes.back().stride),
               kMostPieceBytes * 8 / bits(type));
  return piece * bits(type) / 8 >= kLeastPieceBytes ? piece : 0;
}

Windows windows_of_phase(const Windows& windows) {
  Windows phase = windows;
  phase.is_transposed = false;
  for (size_t i = 0; i < windows.axes.size(); ++i) {
    const Expr stride = windows.axes[i].stride;
    phase.axes[i] = {};
    phase.window[i] = ceil_div(windows.window[i], stride);
    phase.y[i] = ceil_div(windows.y[i], stride);
    phase.padding[i] = phase.window[i] - Expr(1) - floor_div(windows.padding[i], stride);
  }
  return phase;
}

}  // namespace opwright::gpu
