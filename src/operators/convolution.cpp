#include "operators/convolution.h"

#include <algorithm>

#include "operators/infer.h"
#include "operators/type_rules.h"
#include "operators/window.h"

namespace opwright {
namespace {

std::vector<WindowAxis> axes_of(std::string_view who, const ConvolutionParams& params, int count) {
  return window_axes(who, count, params.stride, params.dilation, params.pre_padding,
                     params.post_padding, params.padding_mode);
}

/// Checks the inputs of both directions: x and kernel of one floating type and 1 to 3 spatial axes,
/// bias of `outputs` elements.
void check_inputs(const Inference& inference, const ConvolutionParams& params) {
  const int own_inputs = inference.count() - params.fused.inputs();
  inference.require(
      !is_quantized(inference.input(0).dtype) ||
          (!(own_inputs > 2 && inference.optional(2)) && !params.has_residual &&
           !params.activation.present()),
      "convolutions of bytes and of FP8 take neither a bias, a residual nor an activation");
  if (is_byte(inference.input(0).dtype)) {
    inference.require_type(1, inference.input(1).dtype == DataType::kINT8, "INT8 beside bytes");
    const bool is_signed = inference.input(0).dtype == DataType::kINT8;
    inference.require(
        params.zero_point >= (is_signed ? -128 : 0) && params.zero_point <= (is_signed ? 127 : 255),
        "the zero point must be a value of ", name(inference.input(0).dtype), ", but is ",
        params.zero_point);
  } else {
    inference.require_floating(0);
    inference.require_same_type(1, 0);
    inference.require(params.zero_point == 0, "only bytes have a zero point");
  }
  inference.require_rank(0, 3, 5);
  inference.require_rank(1, inference.rank(0), inference.rank(0));
  inference.require(params.groups >= 1, "groups must be at least 1, but is ", params.groups);
  inference.require(is_valid(params.activation), "unknown fused activation ",
                    params.activation.type);
  inference.require(
      !params.fused.present() || (!params.activation.present() && !params.has_residual),
      "a convolution takes a fused program, or a residual and an activation");
  for (int i = 2; i < inference.rank(1); ++i) {
    const Expr& extent = inference.input(1).dims[i];
    inference.require(!extent.is_constant() || extent.constant() >= 1, inference.port(1),
                      " must have spatial extents of at least 1, but has shape ",
                      str(inference.input(1).dims));
  }
}

void check_bias(const Inference& inference, const Expr& channels) {
  inference.require_same_type_or_fp32(2, 0);
  inference.require_rank(2, 1, 1);
  inference.require_extent(2, 0, channels, "output channels");
}

void check_divisible(const Inference& inference, int input, int axis, int64_t groups) {
  const Expr& extent = inference.input(input).dims[axis];
  inference.require(!extent.is_constant() || extent.constant() % groups == 0, "groups (", groups,
                    ") must divide extent ", axis, " of ", inference.port(input),
                    ", whose shape is ", str(inference.input(input).dims));
}

void check_residual(const Inference& inference, int input, std::span<const Expr> shape) {
  inference.require_same_type(input, 0);
  inference.require_rank(input, static_cast<int>(shape.size()), static_cast<int>(shape.size()));
  for (size_t i = 0; i < shape.size(); ++i)
    inference.require_extent(input, static_cast<int>(i), shape[i], "that of the output");
}

/// The inputs. x and the kernel must be present. Fused inputs come last.
Inference convolution_inputs(InferContext& context, std::string_view kind,
                             const ConvolutionParams& params) {
  Inference inference(context, kind, {"x", "kernel", "bias", "residual"}, 2,
                      (params.has_residual ? 4 : 3) + params.fused.inputs());
  inference.require(!params.fused.present() || inference.count() == 3 + params.fused.inputs(),
                    "the inputs of a fused program come behind x, the kernel and the bias");
  return inference;
}

/// The result for sums of the type `sums` and the given shape. Checks the bias of `channels`
/// channels, and the fused parameters.
std::vector<OutputInfo> result_of_sums(const Inference& inference, const ConvolutionParams& params,
                                       const Expr& channels, DataType sums, SymShape shape) {
  const int residual = params.has_residual ? inference.count() - 1 : -1;
  if (inference.optional(2) && residual != 2) check_bias(inference, channels);
  if (residual >= 0) {
    inference.require(residual >= 2 && inference.optional(residual) != nullptr,
                      inference.port(residual), " is the residual and must be there");
    check_residual(inference, residual, shape);
  }
  params.fused.check(inference, sums, shape, 1);
  return {make_output(params.fused.present() ? params.fused.result : sums, std::move(shape))};
}

}  // namespace

std::vector<OutputInfo> Convolution::infer(InferContext& context) const {
  const ConvolutionParams& params = this->params();
  const Inference inference = convolution_inputs(context, kKind, params);
  check_inputs(inference, params);
  const SymShape &x = inference.input(0).dims, &kernel = inference.input(1).dims;
  inference.require_extent(0, 1, kernel[1] * Expr(params.groups),
                           "channels: extent 1 of the kernel times groups");
  check_divisible(inference, 1, 0, params.groups);

  const auto axes = axes_of(inference.who(), params, inference.rank(0) - 2);
  SymShape shape = {x[0], kernel[0]};
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr extent = window_count(axes[i], params.padding_mode, x[i + 2], kernel[i + 2]);
    inference.require(!extent.is_constant() || extent.constant() >= (x[i + 2] == Expr(0) ? 0 : 1),
                      "the kernel of shape ", str(kernel),
                      " does not fit the padded input of shape ", str(x), " on axis ", i + 2,
                      ": the output would have extent ", extent.str());
    shape.push_back(extent);
  }
  return result_of_sums(inference, params, kernel[0], type_of_product(inference.input(0).dtype),
                        std::move(shape));
}

std::vector<OutputInfo> Deconvolution::infer(InferContext& context) const {
  const ConvolutionParams& params = this->params();
  const Inference inference = convolution_inputs(context, kKind, params);
  inference.require_floating(0);
  check_inputs(inference, params);
  const SymShape &x = inference.input(0).dims, &kernel = inference.input(1).dims;
  inference.require_extent(1, 0, x[1], "channels of x");
  check_divisible(inference, 1, 0, params.groups);
  check_divisible(inference, 0, 1, params.groups);
  const Expr channels = kernel[1] * Expr(params.groups);

  const int count = inference.rank(0) - 2;
  const auto axes = axes_of(inference.who(), params, count);
  const Ints extra =
      per_axis(inference.who(), "output padding", params.output_padding, count, 0, 0);
  const bool same = params.padding_mode == PaddingMode::kSAME_UPPER ||
                    params.padding_mode == PaddingMode::kSAME_LOWER;
  SymShape shape = {x[0], channels};
  for (int i = 0; i < count; ++i) {
    const WindowAxis& axis = axes[i];
    const Expr stride(axis.stride);
    const Expr extent = same ? x[i + 2] * stride
                             : (x[i + 2] - Expr(1)) * stride +
                                   dilated(kernel[i + 2], axis.dilation) +
                                   Expr(extra[i] - axis.pre - axis.post);
    inference.require(!extent.is_constant() || extent.constant() >= (x[i + 2] == Expr(0) ? 0 : 1),
                      "the padding leaves nothing of axis ", i + 2,
                      ": the output would have extent ", extent.str());
    shape.push_back(extent);
  }
  return result_of_sums(inference, params, channels, inference.input(0).dtype, std::move(shape));
}

ResolvedPadding resolve_padding(const ConvolutionParams& params, const Shape& input,
                                const Shape& kernel) {
  constexpr std::string_view kWho = "Convolution";
  require(input.rank() >= 3 && input.rank() == kernel.rank(), kWho,
          ": x and kernel must have the same rank of at least 3, but have shapes ", input, " and ",
          kernel);
  const auto axes = axes_of(kWho, params, input.rank() - 2);
  ResolvedPadding resolved;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t in = input[i + 2], window = kernel[i + 2];
    const int64_t count =
        window_count(axes[i], params.padding_mode, Expr(in), Expr(window)).constant();
    const AxisPadding padding = padding_for(axes[i], params.padding_mode, in, window, count);
    resolved.pre.push_back(padding.pre);
    resolved.post.push_back(padding.post);
  }
  return resolved;
}

ResolvedPadding resolve_transposed_padding(const ConvolutionParams& params, const Shape& input,
                                           const Shape& kernel) {
  constexpr std::string_view kWho = "Deconvolution";
  require(input.rank() >= 3 && input.rank() == kernel.rank(), kWho,
          ": x and kernel must have the same rank of at least 3, but have shapes ", input, " and ",
          kernel);
  const int count = input.rank() - 2;
  const auto axes = axes_of(kWho, params, count);
  const Ints extra = per_axis(kWho, "output padding", params.output_padding, count, 0, 0);
  ResolvedPadding resolved;
  for (int i = 0; i < count; ++i) {
    int64_t pre = axes[i].pre, post = axes[i].post - extra[i];
    if (params.padding_mode == PaddingMode::kSAME_UPPER ||
        params.padding_mode == PaddingMode::kSAME_LOWER) {
      // The output has stride * input elements; the kernel reaches `surplus` elements beyond it.
      const int64_t surplus =
          dilated(Expr(kernel[i + 2]), axes[i].dilation).constant() - axes[i].stride;
      const int64_t total = std::max<int64_t>(surplus + extra[i], 0);
      pre = params.padding_mode == PaddingMode::kSAME_UPPER ? total / 2 : total - total / 2;
      post = surplus - pre;
    }
    resolved.pre.push_back(pre);
    resolved.post.push_back(post);
  }
  return resolved;
}

}  // namespace opwright
