#include "backend/cpu/widened_product.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/kernel_workspace.h"
#include "backend/cpu/matrix_product.h"
#include "backend/cpu/shape_checks.h"
#include "base/aligned_memory.h"
#include "base/error.h"
#include "base/parallel.h"

namespace opwright {

void WeightLayout::pack(const int8_t* weights, int8_t* to) const {
  std::fill_n(to, group_bytes(), int8_t{0});
  for (int64_t column = 0; column < columns; ++column) {
    int8_t* const panel = to + column / kWidenedColumns * row_words() * kWidenedColumns;
    const int8_t* const from = weights + column * column_stride;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t channel = 0; channel < channels; ++channel)
        panel[widened_place(tap * channels + channel, column % kWidenedColumns)] =
            from[channel * channel_stride + tap];
  }
}

void WeightLayout::multiply(const int16_t* a, int64_t a_row, int64_t rows, const int8_t* panels,
                            int64_t begin, int64_t end, int32_t* sums, int64_t y_row) const {
  constexpr int64_t kDepth = 1024;  // the part of a panel stays in the nearest cache
  for (int64_t row = 0; depth() == 0 && row < rows; ++row)
    std::fill_n(sums + row * y_row, columns, 0);
  WidenedTile tile;
  tile.a_row = a_row, tile.y_row = y_row, tile.rows = rows;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panel * kWidenedColumns;
    tile.columns = std::min(kWidenedColumns, columns - first), tile.y = sums + first;
    for (int64_t k = 0; k < row_words(); k += kDepth) {
      tile.depth = std::min(kDepth, row_words() - k);
      tile.panel = panels + (panel * row_words() + k) * kWidenedColumns;
      tile.a = a + k, tile.adds = k > 0;
      multiply_widened(tile);
    }
  }
}

const int8_t* weights_of(const KernelArgs& args) {
  const PortDesc& port = args.inputs[1];
  require(port.constant && static_cast<int64_t>(port.constant.size()) >= port.opt.numel(),
          "Layer '", args.layer, "': the weights of input 1 are missing from the engine");
  return port.constant.as<int8_t>();
}

bool has_widened_ports(const FusedProgram& fused, std::span<const PortDesc> inputs) {
  const bool repeats_with_rows = std::ranges::all_of(fused.places, [](int64_t place) {
    return place == static_cast<int64_t>(FusedPlace::kScalar) ||
           place == static_cast<int64_t>(FusedPlace::kChannel) ||
           place == static_cast<int64_t>(FusedPlace::kElement);
  });
  return repeats_with_rows && inputs[1].is_constant && inputs[1].type.dtype == DataType::kINT8 &&
         inputs[1].opt.numel() > 0;
}

namespace {

/// Bytes of a widened row.
int64_t bytes_of_row(const WeightLayout& layout) {
  return layout.groups * layout.row_words() * int64_t{sizeof(int16_t)};
}

}  // namespace

WidenedKernel::WidenedKernel(const KernelArgs& args, const FusedProgram& fused,
                             const WeightLayout& layout)
    : SumRowsKernel(args, fused, layout.groups * layout.columns, bytes_of_row(layout)),
      layout_(layout),
      is_signed_(args.inputs[0].type.dtype == DataType::kINT8),
      panels_(static_cast<size_t>(layout.groups * layout.group_bytes())) {
  const int8_t* const weights = weights_of(args);
  for (int64_t group = 0; group < layout.groups; ++group)
    layout.pack(weights + group * layout.columns * layout.column_stride,
                panels_.data() + group * layout.group_bytes());
}

void WidenedKernel::add_up(const Block& block, int64_t begin, int64_t end) const {
  const int16_t* const words = words_of(block);
  for (int64_t part = begin; part < end;) {
    const int64_t group = part / layout_.panels(), first = part % layout_.panels();
    const int64_t last = std::min(layout_.panels(), first + end - part);
    layout_.multiply(words + group * layout_.row_words(), words_of_row(), block.count,
                     panels_.data() + group * layout_.group_bytes(), first, last,
                     block.sums + group * layout_.columns, layout_.groups * layout_.columns);
    part += last - first;
  }
}

namespace {

/// b's matrix of a product.
WeightLayout layout_of_matrix(const MatrixMultiplyParams& params, const Shape& b) {
  const bool is_transposed = params.op1 == MatrixOperation::kTRANSPOSE;
  const int64_t rows = b[b.rank() - 2], columns = b[b.rank() - 1];
  WeightLayout layout;
  layout.columns = is_transposed ? rows : columns;
  layout.channels = is_transposed ? columns : rows;
  layout.channel_stride = is_transposed ? 1 : columns;
  layout.column_stride = is_transposed ? columns : 1;
  return layout;
}

class WidenedMatrixKernel final : public WidenedKernel {
 public:
  WidenedMatrixKernel(const MatrixMultiplyParams& params, const KernelArgs& args)
      : WidenedKernel(args, params.fused, layout_of_matrix(params, args.inputs[1].opt)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &y = outputs[0];
    const int64_t k = layout().channels, rows = k == 0 ? 0 : x.numel() / k;
    set_shapes(0, inputs, outputs);
    require(x.rank() > 0 && x[x.rank() - 1] == k && y.numel() == rows * layout().columns, "Layer '",
            layer(), "': a product of ", x, " with ", inputs[1], " does not give ", y);
    set_shapes(rows, inputs, outputs);
  }

 private:
  void read(const Block& block) const override {
    const int64_t k = layout().channels;
    const uint8_t* from = static_cast<const uint8_t*>(block.x) + block.first * k;
    int16_t* to = words_of(block);
    for (int64_t row = 0; row < block.count; ++row, from += k, to += words_of_row()) {
      widen_bytes(from, is_signed(), 0, k, to);
      std::fill(to + k, to + layout().row_words(), int16_t{0});
    }
  }
};

/// A stack of products whose matrices b are packed in each run.
class WidenedStackKernel final : public Kernel {
 public:
  WidenedStackKernel(const MatrixMultiplyParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        is_signed_(args.inputs[0].type.dtype == DataType::kINT8),
        workers_(thread_count()) {
    workspace_.plan(arrange(args.inputs[1].max));
  }

  size_t workspace_size() const override { return workspace_.planned(); }
  std::string description() const override { return std::string(kWidenedBytes); }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    tasks_ = 0;
    require_countable(inputs), require_countable(outputs);
    product_ = analyze_product(params_, inputs[0], inputs[1]);
    workspace_.need(arrange(inputs[1]));
    const int last = product_.rank() - 1;
    int64_t items = 1;
    for (int axis = 0; axis < last - 1; ++axis) items *= product_.output.extents[axis];
    require(items * product_.m * product_.n == outputs[0].numel(), "Layer '", layer_,
            "': products of ", inputs[0], " with ", inputs[1], " do not give ", outputs[0]);
    // Threads that share a product each pack its matrix.
    parts_ = std::clamp<int64_t>(workers_ / std::max<int64_t>(1, items), 1,
                                 std::max<int64_t>(1, product_.m / kWidenedRows));
    tasks_ = items * product_.m * product_.n == 0 ? 0 : items * parts_;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const int64_t workers = std::min<int64_t>({workers_, thread_count(), tasks_});
    parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
      auto* const scratch = static_cast<std::byte*>(workspace_.of(workspace)) +
                            begin * static_cast<int64_t>(per_worker_);
      for (int64_t task = tasks_ * begin / workers; task < tasks_ * end / workers; ++task)
        compute(static_cast<const uint8_t*>(inputs[0]), static_cast<const int8_t*>(inputs[1]),
                static_cast<int32_t*>(outputs[0]), task, scratch);
    });
  }

 private:
  /// Chooses the layout of matrices like these, and returns the bytes of the workspace.
  size_t arrange(const Shape& b) {
    layout_ = layout_of_matrix(params_, b);
    row_bytes_ = static_cast<int64_t>(aligned_size(static_cast<size_t>(bytes_of_row(layout_))));
    panel_bytes_ = static_cast<int64_t>(aligned_size(static_cast<size_t>(layout_.group_bytes())));
    per_worker_ = static_cast<size_t>(panel_bytes_ + kWidenedRows * kTiles * row_bytes_);
    return per_worker_ * static_cast<size_t>(workers_);
  }

  void compute(const uint8_t* a, const int8_t* b, int32_t* y, int64_t task,
               std::byte* scratch) const {
    const int last = product_.rank() - 1;
    const int64_t item = task / parts_, part = task % parts_;
    int64_t rest = item;
    for (int axis = last - 2; axis >= 0; --axis) {
      const int64_t at = rest % product_.output.extents[axis];
      rest /= product_.output.extents[axis];
      if (product_.a.extents[axis] > 1) a += at * product_.a.strides[axis];
      if (product_.b.extents[axis] > 1) b += at * product_.b.strides[axis];
    }
    auto* const panels = reinterpret_cast<int8_t*>(scratch);
    auto* const words = reinterpret_cast<int16_t*>(scratch + panel_bytes_);
    layout_.pack(b, panels);
    const int64_t k = layout_.channels, row_words = row_bytes_ / int64_t{sizeof(int16_t)};
    const int64_t end = product_.m * (part + 1) / parts_;
    for (int64_t row = product_.m * part / parts_, count = 0; row < end; row += count) {
      count = std::min(kWidenedRows * kTiles, end - row);
      for (int64_t i = 0; i < count; ++i) {
        int16_t* const to = words + i * row_words;
        widen_bytes(a + (row + i) * product_.a.strides[last - 1], is_signed_, 0, k, to);
        std::fill(to + k, to + layout_.row_words(), int16_t{0});
      }
      layout_.multiply(words, row_words, count, panels, 0, layout_.panels(),
                       y + (item * product_.m + row) * product_.n, product_.n);
    }
  }

  static constexpr int64_t kTiles = 4;  ///< of rows that are widened at a time

  const std::string layer_;
  const MatrixMultiplyParams params_;
  const bool is_signed_;
  const int workers_;
  MatrixProduct product_;
  WeightLayout layout_;
  int64_t row_bytes_ = 0, panel_bytes_ = 0, parts_ = 1, tasks_ = 0;
  size_t per_worker_ = 0;
  KernelWorkspace workspace_;
};

/// Whether b is one constant matrix.
bool is_one_matrix(const MatrixMultiplyParams& params, std::span<const PortDesc> inputs) {
  const Shape& b = inputs[1].opt;
  return has_widened_ports(params.fused, inputs) && b.numel(0, b.rank() - 2) == 1;
}

}  // namespace

bool offers_widened(const FusedProgram& fused, const CandidateQuery& query) {
  return !fused.present() || !cpu_device().features().int8 || query.all_tactics;
}

bool takes_widened(const MatrixMultiplyParams& params, std::span<const PortDesc> inputs) {
  if (inputs.size() < 2 || inputs[1].type.dtype != DataType::kINT8 || inputs[1].opt.rank() < 2 ||
      params.has_bias || params.op0 == MatrixOperation::kTRANSPOSE ||
      params.op1 == MatrixOperation::kVECTOR)
    return false;
  return is_one_matrix(params, inputs) ||
         (!params.fused.present() && params.op0 == MatrixOperation::kNONE &&
          inputs[0].opt.rank() >= 2);
}

std::unique_ptr<Kernel> make_widened(const MatrixMultiplyParams& params, const KernelArgs& args) {
  if (is_one_matrix(params, args.inputs))
    return std::make_unique<WidenedMatrixKernel>(params, args);
  return std::make_unique<WidenedStackKernel>(params, args);
}

}  // namespace opwright
