#include "operators/pooling.h"

#include "operators/infer.h"
#include "operators/window.h"

namespace opwright {
namespace {

struct PoolingAxes {
  std::vector<WindowAxis> axes;
  Ints window;
};

PoolingAxes axes_of(std::string_view who, const PoolingParams& params, int count) {
  require(!params.window.empty(), who, ": the window must be given");
  PoolingAxes result;
  result.window = per_axis(who, "window", params.window, count, 1, 1);
  result.axes = window_axes(who, count, params.stride, params.dilation, params.pre_padding,
                            params.post_padding, params.padding_mode);
  for (int i = 0; i < count; ++i) {
    const WindowAxis& axis = result.axes[i];
    const int64_t covered = (result.window[i] - 1) * axis.dilation + 1;
    require(axis.pre < covered && axis.post < covered, who, ": padding (", axis.pre, " and ",
            axis.post, " on spatial axis ", i, ") must be smaller than the window, which covers ",
            covered, ", so that each window covers more than padding");
  }
  return result;
}

}  // namespace

std::vector<OutputInfo> Pooling::infer(InferContext& context) const {
  const PoolingParams& params = this->params();
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require(
      params.type >= PoolingType::kMAX && params.type <= PoolingType::kMAX_AVERAGE_BLEND,
      "unknown pooling type ", static_cast<int32_t>(params.type));
  const DataType dtype = inference.input(0).dtype;
  if (params.type == PoolingType::kMAX)
    inference.require_type(
        0, is_floating(dtype) || dtype == DataType::kINT8 || dtype == DataType::kUINT8,
        "FP32, FP16, BF16, FP8, INT8 or UINT8");
  else
    inference.require_floating(0);
  inference.require(params.blend_factor >= 0 && params.blend_factor <= 1,
                    "the blend factor must be in [0, 1], but is ", params.blend_factor);
  inference.require_rank(0, 3, 5);
  const SymShape& x = inference.input(0).dims;
  const PoolingAxes pooling = axes_of(inference.who(), params, inference.rank(0) - 2);
  SymShape shape = {x[0], x[1]};
  for (size_t i = 0; i < pooling.axes.size(); ++i) {
    const Expr extent = pooling_window_count(pooling.axes[i], params.padding_mode, x[i + 2],
                                             Expr(pooling.window[i]));
    inference.require(!extent.is_constant() || extent.constant() >= (x[i + 2] == Expr(0) ? 0 : 1),
                      "the window ", str(params.window), " does not fit the padded input of shape ",
                      str(x), " on axis ", i + 2, ": the output would have extent ", extent.str());
    shape.push_back(extent);
  }
  return {make_output(dtype, std::move(shape))};
}

ResolvedPadding resolve_padding(const PoolingParams& params, const Shape& input) {
  constexpr std::string_view kWho = "Pooling";
  require(input.rank() >= 3, kWho, ": x must have rank 3 or more, but has shape ", input);
  const PoolingAxes pooling = axes_of(kWho, params, input.rank() - 2);
  ResolvedPadding resolved;
  for (size_t i = 0; i < pooling.axes.size(); ++i) {
    const int64_t in = input[i + 2], window = pooling.window[i];
    const int64_t count =
        pooling_window_count(pooling.axes[i], params.padding_mode, Expr(in), Expr(window))
            .constant();
    const AxisPadding padding =
        padding_for(pooling.axes[i], params.padding_mode, in, window, count);
    resolved.pre.push_back(padding.pre);
    resolved.post.push_back(padding.post);
  }
  return resolved;
}

}  // namespace opwright
