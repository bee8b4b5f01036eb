#include <algorithm>
#include <iterator>
#include <vector>

#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/widened_product.h"
#include "backend/cpu/window_axis.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright {
namespace {

WeightLayout layout_of_kernel(const ConvolutionParams& params, const Shape& kernel) {
  WeightLayout layout;
  layout.groups = params.groups;
  layout.columns = kernel[0] / params.groups, layout.channels = kernel[1];
  layout.taps = kernel.numel(2, kernel.rank());
  layout.channel_stride = layout.taps;
  layout.column_stride = layout.taps * layout.channels;
  return layout;
}

/// The windows of a convolution of HWC tensors: three axes, whose missing ones have one element.
struct ConvolutionWindows {
  WindowAxis axes[3];
  int64_t channels = 0;     ///< of x
  bool are_pixels = false;  ///< whether each window is the pixel of the same number

  /// The taps of a window's line that meet the image, for a position of the output in the last
  /// axis: `count` from number `before` on, the first on element `first`.
  struct Line {
    int64_t before = 0, count = 0, first = 0;
  };
  std::vector<Line> lines;

  /// Throws Error where the shapes do not fit each other.
  void set(const ConvolutionParams& params, std::string_view layer, std::span<const Shape> inputs,
           const Shape& weights, const Shape& y) {
    require_countable(inputs), require_countable(std::span(&y, 1));
    const Shape &x = inputs[0], &kernel = inputs[1];
    const int spatial = x.rank() - 2;
    require(spatial >= 1 && spatial <= 3 && kernel == weights && kernel.rank() == x.rank() &&
                y.rank() == x.rank() && x[1] == kernel[1] * params.groups && y[1] == kernel[0] &&
                x[0] == y[0],
            "Layer '", layer, "': a kernel of ", kernel, " does not fit an input of ", x,
            " and an output of ", y);
    const ResolvedPadding padding = resolve_padding(params, x, kernel);
    channels = x[1], are_pixels = true;
    std::fill(std::begin(axes), std::end(axes), WindowAxis());
    std::vector<DnnlWindow> reaches;
    for (int i = 0; i < spatial; ++i) {
      WindowAxis& axis = axes[3 - spatial + i];
      axis.in = x[i + 2], axis.out = y[i + 2], axis.window = kernel[i + 2];
      axis.stride = params.stride.empty() ? 1 : params.stride[i];
      axis.dilation = params.dilation.empty() ? 1 : params.dilation[i];
      axis.pre = padding.pre[i];
      are_pixels &= axis.window == 1 && axis.stride == 1 && axis.pre == 0 && axis.in == axis.out;
      reaches.push_back(
          {axis.in, axis.out, axis.window, axis.stride, axis.dilation, axis.pre, padding.post[i]});
    }
    require_dnnl_windows(reaches);
    set_lines();
  }

  void set_lines() {
    const WindowAxis& width = axes[2];
    lines.clear();
    for (int64_t at = 0; at < width.out; ++at) {
      const WindowAxis::Taps inside = width.taps(at);
      const int64_t skipped = inside.first - (at * width.stride - width.pre);
      const bool is_empty = inside.count == 0;
      lines.push_back(
          {is_empty ? width.window : skipped / width.dilation, inside.count, inside.first});
    }
  }

  int64_t rows_of(const Shape& y) const { return y.numel() == 0 ? 0 : y.numel() / y[1]; }

  /// The position of each axis in the output, and the image, of a row.
  struct Pixel {
    int64_t image, at[3];
  };
  Pixel pixel_of(int64_t row) const {
    Pixel pixel{};
    for (int axis = 2; axis >= 0; --axis) {
      pixel.at[axis] = row % axes[axis].out;
      row /= axes[axis].out;
    }
    pixel.image = row;
    return pixel;
  }
  /// Moves to the next row. Divisions would cost as much as a narrow row.
  void advance(Pixel& pixel) const {
    for (int axis = 2; axis >= 0; --axis) {
      if (++pixel.at[axis] < axes[axis].out) return;
      pixel.at[axis] = 0;
    }
    ++pixel.image;
  }
  /// The index of the first element under a tap along an axis; -1 where the tap meets padding.
  int64_t under(int axis, int64_t at, int64_t tap) const {
    const WindowAxis& own = axes[axis];
    const int64_t place = at * own.stride - own.pre + tap * own.dilation;
    return place >= 0 && place < own.in ? place : -1;
  }
};

class WidenedConvolutionKernel final : public WidenedKernel {
 public:
  WidenedConvolutionKernel(const ConvolutionParams& params, const KernelArgs& args)
      : WidenedKernel(args, params.fused, layout_of_kernel(params, args.inputs[1].opt)),
        params_(params),
        kernel_(args.inputs[1].opt),
        is_linear_(args.inputs[0].type.format == TensorFormat::kLINEAR) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    set_shapes(0, inputs, outputs);
    windows_.set(params_, layer(), inputs, kernel_, outputs[0]);
    set_shapes(windows_.rows_of(outputs[0]), inputs, outputs);
  }

 private:
  void read(const Block& block) const override {
    const auto* const x = static_cast<const uint8_t*>(block.x);
    const bool are_pixels = windows_.are_pixels && layout().groups == 1 && !is_linear_;
    const int64_t own = layout().depth(), words = layout().row_words();
    ConvolutionWindows::Pixel pixel = windows_.pixel_of(block.first);
    int16_t* to = words_of(block);
    for (int64_t row = 0; row < block.count; ++row, to += words_of_row()) {
      if (are_pixels)
        read_taps(x + (block.first + row) * windows_.channels, 0, 1, to);
      else
        read_window(x, pixel, to);
      windows_.advance(pixel);
      for (int64_t group = 0; own < words && group < layout().groups; ++group)
        to[group * words + own] = 0;
    }
  }

  void read_window(const uint8_t* x, const ConvolutionWindows::Pixel& pixel, int16_t* to) const {
    const auto& [depth_axis, height, width] = windows_.axes;
    int64_t tap = 0;
    for (int64_t d = 0; d < depth_axis.window; ++d) {
      const int64_t z = windows_.under(0, pixel.at[0], d);
      for (int64_t h = 0; h < height.window; ++h, tap += width.window) {
        const int64_t v = windows_.under(1, pixel.at[1], h);
        if (z < 0 || v < 0) {
          fill_taps(to, tap, width.window);
          continue;
        }
        const int64_t planes = pixel.image * (is_linear_ ? windows_.channels : 1);
        const int64_t line = ((planes * depth_axis.in + z) * height.in + v) * width.in;
        read_line(x + line * (is_linear_ ? 1 : windows_.channels), pixel.at[2], tap, to);
      }
    }
  }

  /// Reads the taps of a window's line, the first of which is number `tap` of the window.
  void read_line(const uint8_t* line, int64_t at, int64_t tap, int16_t* to) const {
    const WindowAxis& width = windows_.axes[2];
    const auto [before, count, first] = windows_.lines[static_cast<size_t>(at)];
    if (before > 0) fill_taps(to, tap, before);
    const int64_t behind = width.window - before - count;
    if (behind > 0) fill_taps(to, tap + before + count, behind);
    if (count == 0) return;
    if (is_linear_) return gather_taps(line + first, tap + before, count, to);
    const uint8_t* from = line + first * windows_.channels;
    if (layout().groups == 1 && width.dilation == 1)
      return read_taps(from, tap + before, count, to);
    for (int64_t i = 0; i < count; ++i, from += width.dilation * windows_.channels)
      read_taps(from, tap + before + i, 1, to);
  }

  /// Widens pixels that follow each other: several of one group, or one of all groups.
  void read_taps(const uint8_t* from, int64_t tap, int64_t count, int16_t* to) const {
    const int64_t channels = layout().channels;
    for (int64_t group = 0; group < layout().groups; ++group)
      widen_bytes(from + group * channels, is_signed(), static_cast<int>(params_.zero_point),
                  count * channels, to + group * layout().row_words() + tap * channels);
  }

  /// Widens taps of a line whose channels lie in planes.
  void gather_taps(const uint8_t* from, int64_t tap, int64_t count, int16_t* to) const {
    const int64_t channels = layout().channels;
    const int64_t plane = windows_.axes[0].in * windows_.axes[1].in * windows_.axes[2].in;
    const auto zero = static_cast<int>(params_.zero_point);
    for (int64_t channel = 0; channel < windows_.channels; ++channel) {
      int16_t* const own = to + channel / channels * layout().row_words() + channel % channels;
      for (int64_t i = 0; i < count; ++i) {
        const uint8_t byte = from[channel * plane + i * windows_.axes[2].dilation];
        const int value = is_signed() ? static_cast<int8_t>(byte) : byte;
        own[(tap + i) * channels] = static_cast<int16_t>(value - zero);
      }
    }
  }

  /// Taps that meet padding, which stands for the zero point.
  void fill_taps(int16_t* to, int64_t tap, int64_t count) const {
    for (int64_t group = 0; group < layout().groups; ++group)
      std::fill_n(to + group * layout().row_words() + tap * layout().channels,
                  count * layout().channels, int16_t{0});
  }

  const ConvolutionParams params_;
  const Shape kernel_;
  const bool is_linear_;
  ConvolutionWindows windows_;
};

/// Whether each channel has taps of its own, and one result.
bool is_depthwise(const Shape& kernel, int64_t groups) {
  return kernel[1] == 1 && kernel[0] == groups;
}

/// Each channel has taps of its own, and one result.
class WidenedDepthwiseKernel final : public SumRowsKernel {
 public:
  std::string description() const override { return std::string(kWidenedBytes); }

  WidenedDepthwiseKernel(const ConvolutionParams& params, const KernelArgs& args)
      : SumRowsKernel(args, params.fused, params.groups,
                      even_taps(params, args) * int64_t{sizeof(uint8_t*)}),
        params_(params),
        kernel_(args.inputs[1].opt),
        taps_(even_taps(params, args)),
        is_signed_(args.inputs[0].type.dtype == DataType::kINT8),
        weights_(static_cast<size_t>(taps_ * params.groups)),
        padding_(static_cast<size_t>(params.groups), static_cast<uint8_t>(params.zero_point)) {
    const int8_t* const weights = weights_of(args);
    const int64_t taps = layout_of_kernel(params, args.inputs[1].opt).taps;
    for (int64_t channel = 0; channel < params.groups; ++channel)
      for (int64_t tap = 0; tap < taps; ++tap)
        weights_[static_cast<size_t>(tap * params.groups + channel)] =
            static_cast<int16_t>(int{weights[channel * taps + tap]});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    set_shapes(0, inputs, outputs);
    windows_.set(params_, layer(), inputs, kernel_, outputs[0]);
    set_shapes(windows_.rows_of(outputs[0]), inputs, outputs);
  }

 private:
  static int64_t even_taps(const ConvolutionParams& params, const KernelArgs& args) {
    return (layout_of_kernel(params, args.inputs[1].opt).taps + 1) / 2 * 2;
  }

  void read(const Block& block) const override {
    ConvolutionWindows::Pixel pixel = windows_.pixel_of(block.first);
    for (int64_t row = 0; row < block.count; ++row, windows_.advance(pixel))
      find_taps(static_cast<const uint8_t*>(block.x), pixel, taps_of(block, row));
  }

  void add_up(const Block& block, int64_t, int64_t) const override {
    WidenedTaps pixel;
    pixel.count = taps_, pixel.is_signed = is_signed_;
    pixel.zero = static_cast<int>(params_.zero_point);
    pixel.weights = weights_.data(), pixel.channels = windows_.channels;
    for (int64_t row = 0; row < block.count; ++row) {
      pixel.taps = taps_of(block, row);
      pixel.y = block.sums + row * windows_.channels;
      add_widened_taps(pixel);
    }
  }

  const uint8_t** taps_of(const Block& block, int64_t row) const {
    return reinterpret_cast<const uint8_t**>(block.scratch) +
           row * row_bytes() / int64_t{sizeof(uint8_t*)};
  }

  void find_taps(const uint8_t* x, const ConvolutionWindows::Pixel& pixel,
                 const uint8_t** to) const {
    const auto& [depth, height, width] = windows_.axes;
    for (int64_t d = 0; d < depth.window; ++d) {
      const int64_t z = windows_.under(0, pixel.at[0], d);
      for (int64_t h = 0; h < height.window; ++h) {
        const int64_t v = windows_.under(1, pixel.at[1], h);
        const int64_t line = ((pixel.image * depth.in + z) * height.in + v) * width.in;
        for (int64_t w = 0; w < width.window; ++w) {
          const int64_t u = windows_.under(2, pixel.at[2], w);
          const bool is_padding = z < 0 || v < 0 || u < 0;
          *to++ = is_padding ? padding_.data() : x + (line + u) * windows_.channels;
        }
      }
    }
    if (depth.window * height.window * width.window < taps_) *to = padding_.data();
  }

  const ConvolutionParams params_;
  const Shape kernel_;
  const int64_t taps_;  ///< even: a last one may have weights of 0
  const bool is_signed_;
  std::vector<int16_t> weights_;  ///< [taps, channels]
  std::vector<uint8_t> padding_;  ///< what lies under taps beyond the image
  ConvolutionWindows windows_;
};

}  // namespace

bool takes_widened(const ConvolutionParams& params, std::span<const PortDesc> inputs) {
  if (inputs.size() < 2 || !has_widened_ports(params.fused, inputs) || params.has_residual ||
      (inputs.size() > 2 + params.fused.places.size() && inputs[2].present))
    return false;
  const int rank = inputs[0].opt.rank();
  return is_valid(TensorFormat::kHWC, rank) && inputs[1].opt.rank() == rank && rank >= 3 &&
         rank <= 5 && params.groups >= 1 && inputs[1].opt[0] % params.groups == 0;
}

bool has_widened_formats(std::span<const PortDesc> inputs, const PortDesc& output) {
  const TensorFormat x = inputs[0].type.format;
  const bool is_linear = x == TensorFormat::kLINEAR && inputs[1].opt[1] > 1;
  return output.type.format == TensorFormat::kHWC && (x == TensorFormat::kHWC || is_linear);
}

std::unique_ptr<Kernel> make_widened(const ConvolutionParams& params, const KernelArgs& args) {
  if (is_depthwise(args.inputs[1].opt, params.groups))
    return std::make_unique<WidenedDepthwiseKernel>(params, args);
  return std::make_unique<WidenedConvolutionKernel>(params, args);
}

}  // namespace opwright
