#include "backend/cpu/max_pooling.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/candidates.h"
#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/kernel_workspace.h"
#include "backend/cpu/max_pooling_tile.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/window_axis.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"

namespace opwright {
namespace {

std::vector<WindowAxis::Taps> all_taps(const WindowAxis& axis) {
  std::vector<WindowAxis::Taps> all(static_cast<size_t>(axis.out));
  for (int64_t at = 0; at < axis.out; ++at) all[static_cast<size_t>(at)] = axis.taps(at);
  return all;
}

/// Computes a row of windows at a time: first the maximum over the rows that the windows cover,
/// then each window's maximum of that.
class MaxPoolingKernel final : public Kernel {
 public:
  MaxPoolingKernel(const PoolingParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        type_(args.inputs[0].type),
        size_(element_size(type_.dtype)),
        pool_(max_pooling_function(type_.dtype)),
        workers_(thread_count()) {
    const Shape &x = args.inputs[0].max, &y = args.outputs[0].max;
    if (x.numel() > 0 && y.numel() > 0) workspace_.plan(scratch_of(geometry_of(x, y)));
  }

  size_t workspace_size() const override { return workspace_.planned(); }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &y = outputs[0];
    is_empty_ = true;
    if (y.numel() == 0) return;
    require(x.numel() > 0, "Layer '", layer_, "': there is nothing to pool in ", x);
    Geometry geometry = geometry_of(x, y);
    workspace_.need(scratch_of(geometry));
    geometry_ = std::move(geometry);
    is_empty_ = false;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (is_empty_) return;
    const Geometry& g = geometry_;
    auto* const scratch = static_cast<std::byte*>(workspace_.of(workspace));
    const auto per_worker = static_cast<int64_t>(scratch_of(g)) / workers_;
    const int64_t rows = g.planes * g.axes[0].out * g.axes[1].out;
    constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
    const int64_t work = std::max<int64_t>(1, rows * g.row.in * g.row.inner);
    parallel_for(workers_, std::max<int64_t>(1, kGrain * workers_ / work),
                 [&](int64_t begin, int64_t end) {
                   run(g, inputs[0], outputs[0], rows * begin / workers_, rows * end / workers_,
                       scratch + begin * per_worker);
                 });
  }

  std::string description() const override { return "rows"; }

 private:
  using Taps = WindowAxis::Taps;
  struct Geometry {
    WindowAxis axes[3];
    int64_t planes = 0;
    MaxPoolingRow row;  ///< fields that all rows have in common
    int64_t blocks = 1, last_block = 0;
    bool clears = false;
    std::vector<Taps> taps[2];  ///< taps of the windows along the first two axes
  };

  Geometry geometry_of(const Shape& x, const Shape& y) const {
    const ResolvedPadding padding = resolve_padding(params_, x);
    const int spatial = x.rank() - 2;
    require(spatial >= 1 && spatial <= 3 && y.rank() == x.rank() && y[0] == x[0] && y[1] == x[1],
            "Layer '", layer_, "': windows over ", x, " do not give ", y);
    Geometry g;
    std::vector<DnnlWindow> reaches;
    for (int i = 0; i < spatial; ++i) {
      WindowAxis& axis = g.axes[i + 3 - spatial];
      const auto at = static_cast<size_t>(i);
      axis.in = x[i + 2], axis.out = y[i + 2], axis.window = params_.window[at];
      if (!params_.stride.empty()) axis.stride = params_.stride[at];
      if (!params_.dilation.empty()) axis.dilation = params_.dilation[at];
      axis.pre = padding.pre[at];
      reaches.push_back(
          {axis.in, axis.out, axis.window, axis.stride, axis.dilation, axis.pre, padding.post[at]});
    }
    require_dnnl_windows(reaches);
    const FormatLayout layout = layout_of(type_.format);
    g.blocks = layout.channels_last ? 1 : (x[1] + layout.block - 1) / layout.block;
    g.planes = x[0] * g.blocks;
    g.row.inner = layout.channels_last ? x[1] : layout.block;
    const WindowAxis& along = g.axes[2];
    g.row.in = along.in, g.row.out = along.out, g.row.window = along.window;
    g.row.stride = along.stride, g.row.dilation = along.dilation, g.row.pre = along.pre;
    // The padding of the last block of channels stays 0, also where a window is all padding.
    g.last_block = layout.channels_last ? 0 : x[1] % layout.block;
    const auto is_idle = [](const Taps& taps) { return taps.count == 0; };
    bool has_idle = false;
    for (const WindowAxis& axis : g.axes) has_idle |= std::ranges::any_of(all_taps(axis), is_idle);
    g.clears = g.last_block != 0 && has_idle;
    g.taps[0] = all_taps(g.axes[0]), g.taps[1] = all_taps(g.axes[1]);
    return g;
  }

  size_t scratch_of(const Geometry& g) const {
    return static_cast<size_t>(checked_product(
        "the memory to pool in",
        {workers_, static_cast<int64_t>(max_pooling_scratch(g.row) / 64 + 1), int64_t{64}}));
  }

  void run(const Geometry& g, const void* x, void* y, int64_t begin, int64_t end,
           void* scratch) const {
    const WindowAxis &a = g.axes[0], &b = g.axes[1];
    const int64_t line = g.row.in * g.row.inner, result = g.row.out * g.row.inner;
    const auto* const bytes = static_cast<const std::byte*>(x);
    auto* to = static_cast<std::byte*>(y) + begin * result * size_;
    MaxPoolingRow row = g.row;
    row.end = bytes + g.planes * a.in * b.in * line * size_;
    row.plane_step = a.dilation * b.in * line, row.row_step = b.dilation * line;
    int64_t plane = begin / (a.out * b.out), i = begin / b.out % a.out, j = begin % b.out;
    for (int64_t number = begin; number < end; ++number, to += result * size_) {
      const Taps& planes = g.taps[0][static_cast<size_t>(i)];
      const Taps& rows = g.taps[1][static_cast<size_t>(j)];
      row.planes = rows.count > 0 ? planes.count : 0, row.rows = rows.count;
      row.x = bytes;
      if (row.planes > 0)
        row.x = bytes + ((plane * a.in + planes.first) * b.in + rows.first) * line * size_;
      pool_(row, scratch, to);
      if (g.clears && plane % g.blocks == g.blocks - 1)
        for (int64_t at = 0; at < row.out; ++at)
          std::memset(to + (at * row.inner + g.last_block) * size_, 0,
                      static_cast<size_t>((row.inner - g.last_block) * size_));
      if (++j < b.out) continue;
      j = 0;
      if (++i < a.out) continue;
      i = 0, ++plane;
    }
  }

  const std::string layer_;
  const PoolingParams params_;
  const PortType type_;
  const int64_t size_;
  const MaxPoolingFunction pool_;
  const int64_t workers_;
  KernelWorkspace workspace_;
  Geometry geometry_;
  bool is_empty_ = true;
};

}  // namespace

std::unique_ptr<Kernel> make_max_pooling(const PoolingParams& params, const KernelArgs& args) {
  return std::make_unique<MaxPoolingKernel>(params, args);
}

}  // namespace opwright
