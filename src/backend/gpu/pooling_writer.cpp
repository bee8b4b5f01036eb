#include "backend/gpu/pooling_writer.h"

#include <limits>

#include "backend/gpu/windows.h"
#include "base/types.h"
#include "operators/infer.h"
#include "operators/window.h"

namespace opwright::gpu {
namespace {

/// The least number of a type, which is the maximum of an empty set.
std::string least_of(DataType type) {
  return is_floating(type)         ? float_literal(-std::numeric_limits<float>::infinity())
         : type == DataType::kINT8 ? "-128"
                                   : "0";
}

/// Whether all windows are known to be inside the input.
bool is_inside(const WindowAxis& axis, const Expr& input, const Expr& window, const Expr& count,
               const Expr& before) {
  const Expr end = (count - Expr(1)) * Expr(axis.stride) + dilated(window, axis.dilation);
  return before == Expr(0) && Expr::make(ExprOp::kLess, input, end) == Expr(0);
}

}  // namespace

PoolingWriter::PoolingWriter(std::string_view name, const PoolingParams& params,
                             const KernelArgs& args, int lanes)
    : source_(std::string(name), args), x_(source_.dims(0)), lanes_(lanes) {
  const auto spatial = static_cast<int>(x_.size()) - 2;
  const Ints window = per_axis(name, "window", params.window, spatial, 1, 1);
  const std::vector<WindowAxis> axes =
      window_axes(name, spatial, params.stride, params.dilation, params.pre_padding,
                  params.post_padding, params.padding_mode);
  Windows windows;
  windows.axes = axes;
  for (const int64_t extent : window) windows.window.emplace_back(extent);
  if (windows.reaches_far()) source_.widen();

  std::string text;
  Expr outputs = 1;
  int inside = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    const Expr &in = x_[i + 2], extent = Expr(window[i]);
    const Expr count = pooling_window_count(axis, params.padding_mode, in, extent);
    const Expr before = padding_before(axis, params.padding_mode, in, extent, count);
    outputs = outputs * count;
    inside |= is_inside(axis, in, extent, count, before) << i;
    text += str(i > 0 ? ", {" : "{",
                source_.values({in, count, extent, axis.stride, axis.dilation, before, axis.post}),
                "}");
  }
  count_ = x_[0] * x_[1] * outputs;
  windows_ = str(source_.values({count_, x_[1], numel(windows.window)}), ", {", text, "}");

  const DataType type = args.inputs[0].type.dtype;
  config_.type("Element", storage_type(type)), config_.type("Value", register_type(type));
  config_.function("Value least()", str("return ", least_of(type), ";\n"));
  config_.number("kAxes", spatial), config_.number("kLanes", lanes);
  config_.number("kThreads", kThreads);
  config_.flag("kIsChannelsLast", layout_of(args.inputs[0].type.format).channels_last);
  config_.number("kInside", inside);
  config_.flag("kIsRoundedUp", params.padding_mode == PaddingMode::kEXPLICIT_ROUND_UP);
}

GeneratedKernel PoolingWriter::write(std::string_view function, std::string_view arguments) {
  source_.add_declarations(include("pooling.cuh") + config_.write());
  return source_.finish(str("const PoolingWindows<Config> all = {", windows_, "};\n", function,
                            "(all, ", arguments, ");\n"),
                        blocks_for(count_, kThreads / lanes_), kThreads);
}

}  // namespace opwright::gpu
