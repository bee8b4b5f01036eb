#include "backend/gpu/window_writer.h"

#include <limits>

#include "backend/gpu/windows.h"
#include "base/types.h"
#include "operators/infer.h"
#include "operators/window.h"

namespace opwright::gpu {

std::string least_of(DataType type) {
  return is_floating(type)         ? float_literal(-std::numeric_limits<float>::infinity())
         : type == DataType::kINT8 ? "-128"
                                   : "0";
}

WindowWriter::WindowWriter(std::string_view name, const PoolingParams& params,
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
  const bool is_channels_last = layout_of(args.inputs[0].type.format).channels_last;
  SymShape extents = {is_channels_last ? x_[0] : x_[0] * x_[1]};
  std::vector<std::string> names = {"plane"};
  std::string starts, place = "plane", taps;
  std::vector<std::string> tap_names;
  SymShape tap_extents;
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    const Expr& in = x_[i + 2];
    const Expr count = pooling_window_count(axis, params.padding_mode, in, Expr(window[i]));
    const std::string extent = source_.value(in), k = str("k", i), p = str("p", i);
    extents.push_back(count), names.push_back(str("c", i));
    tap_extents.emplace_back(window[i]), tap_names.push_back(k);
    starts +=
        str("const Index start", i, " = c", i, " * ", axis.stride, " - ",
            source_.value(padding_before(axis, params.padding_mode, in, Expr(window[i]), count)),
            ";\n");
    const std::string position =
        str("const Index ", p, " = start", i, " + ", k, " * ", axis.dilation, ";\n");
    if (lanes_ == 1) {
      loops_ += str("for (int ", k, " = 0; ", k, " < ", window[i], "; ++", k, ") {\n", position,
                    "if (", p, " < 0) continue;\n", "if (", p, " >= ", extent, ") break;\n");
      end_ += "}\n";
    } else {
      taps += str(position, "if (", p, " < 0 || ", p, " >= ", extent, ") continue;\n");
    }
    if (params.padding_mode == PaddingMode::kEXPLICIT_ROUND_UP)
      padded_ += str(padded_.empty() ? "" : " * ", "taps_before(", extent, " + ", axis.post,
                     " - start", i, ", ", axis.dilation, ", ", window[i], ")");
    place = str("(", place, " * ", extent, " + ", p, ")");
  }
  if (is_channels_last) {
    extents.push_back(x_[1]), names.emplace_back("channel");
    place = str(place, " * ", source_.value(x_[1]), " + channel");
  }
  if (padded_.empty()) padded_ = source_.value(numel(tap_extents));
  count_ = numel(extents);
  const std::string count = source_.value(count_);
  if (lanes_ == 1) {
    begin_ = str("for (Index at = first_index(); at < ", count, "; at += index_step()) {\n");
  } else {
    begin_ = str("const int lane = (int)threadIdx.x % ", lanes_,
                 ";\nfor (Index at = (Index)blockIdx.x * ", kThreads / lanes_,
                 " + (Index)threadIdx.x / ", lanes_, "; at < ", count,
                 "; at += (Index)gridDim.x * ", kThreads / lanes_, ") {\n");
    loops_ =
        str("for (Index tap = lane; tap < ", source_.value(numel(tap_extents)), "; tap += ", lanes_,
            ") {\n", source_.decompose("tap", tap_names, tap_extents), taps);
    end_ = "}\n";
  }
  begin_ += source_.decompose("at", names, extents) + starts;
  loops_ += str("const Index place = ", place, ";\n");
}

std::string WindowWriter::padded_count() {
  source_.add_declarations(include("window_taps.cuh"));
  return padded_;
}

GeneratedKernel WindowWriter::write(std::string_view before, std::string_view visit,
                                    std::string_view after) {
  return source_.finish(str(begin_, before, loops_, visit, end_, after, "}\n"),
                        blocks_for(count_, kThreads / lanes_), kThreads);
}

}  // namespace opwright::gpu
