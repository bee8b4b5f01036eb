#include <algorithm>
#include <cstring>

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/plain/operation.h"
#include "backend/cpu/transpose_tile.h"
#include "base/parallel.h"

/// \file
/// Products of matrices. Convolutions are products of the weights and the elements under their taps
/// (im2col, Chellapilla et al. 2006), tile by tile. A sum is made in parts of kDepth products, so
/// that long sums lose little precision.

namespace dnnl::plain {
namespace {

constexpr int64_t kWidth = 128;    ///< columns of a tile, whole vectors
constexpr int64_t kDepth = 512;    ///< products of a part of a sum
constexpr int64_t kHeight = 96;    ///< rows of a tile of a product
constexpr int64_t kMaps = 512;     ///< rows of a tile of a convolution
constexpr int64_t kFewRows = 4;    ///< fewer rows are not worth transposing columns for
constexpr double kWork = 1 << 16;  ///< products that are worth a thread

int64_t whole_vectors(int64_t columns) {
  return (columns + opwright::kAttentionLanes - 1) / opwright::kAttentionLanes *
         opwright::kAttentionLanes;
}

/// Runs tasks 0 to `count`, with `products` products each, in up to `shares` shares as run(first,
/// last, share).
template <class Run>
void share_tasks(int64_t count, int64_t shares, double products, const Run& run) {
  if (count == 0) return;
  const double worth = static_cast<double>(count) * products / kWork;
  const auto used =
      static_cast<int64_t>(std::clamp(worth, 1.0, static_cast<double>(std::min(shares, count))));
  opwright::parallel_for(used, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share)
      run(share * count / used, (share + 1) * count / used, share);
  });
}

/// Memory of a tile of sums. Rows have `width` columns and are kWidth apart.
struct TileMemory {
  float *sums, *part, *a, *b;

  static int64_t size(int64_t rows) { return kWidth * (2 * rows + kDepth) + rows * kDepth; }
  TileMemory(float* memory, int64_t rows)
      : sums(memory), part(sums + rows * kWidth), a(part + rows * kWidth), b(a + rows * kDepth) {}
  /// The memory for the sums of the part that begins with product `k`.
  float* target(int64_t k) const { return k == 0 ? sums : part; }
  void add_part(int64_t k, int64_t rows, int64_t width) const {
    if (k == 0) return;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) sums[row * kWidth + i] += part[row * kWidth + i];
  }
};

void multiply(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t b_stride,
              int64_t width, int64_t depth, float* to) {
  opwright::attention_functions().multiply(
      {a, a_stride, rows, b, b_stride, whole_vectors(width), depth, to, kWidth, false});
}

/// Stacks of matrices; extents of 1 are broadcast.
class MatmulOperation final : public Operation {
 public:
  explicit MatmulOperation(const post_ops& steps)
      : epilogue_(steps), shares_(opwright::thread_count()) {}

  int64_t scratch_size() const override { return shares_ * TileMemory::size(height()); }

  void run(const Arguments& arguments) const override {
    const int rank = dst.get_ndims();
    const int64_t m = dst.extent(rank - 2), n = dst.extent(rank - 1), k = src.extent(rank - 1);
    const int64_t row_tiles = (m + kHeight - 1) / kHeight, column_tiles = (n + kWidth - 1) / kWidth;
    int64_t stack = 1;
    for (int axis = 0; axis < rank - 2; ++axis) stack *= dst.extent(axis);
    float* const scratch = arguments.scratch();
    share_tasks(stack * row_tiles * column_tiles, shares_,
                static_cast<double>(std::min(m, kHeight) * std::min(n, kWidth)) * k,
                [&](int64_t first, int64_t last, int64_t share) {
                  const TileMemory memory(scratch + share * TileMemory::size(height()), height());
                  for (int64_t task = first; task < last; ++task) {
                    const int64_t column = task % column_tiles * kWidth;
                    const int64_t row = task / column_tiles % row_tiles * kHeight;
                    compute(arguments, memory, task / column_tiles / row_tiles, row,
                            std::min(kHeight, m - row), column, std::min(kWidth, n - column));
                  }
                });
  }

 private:
  /// Rows of a tile.
  int64_t height() const { return std::min(kHeight, dst.extent(dst.get_ndims() - 2)); }
  /// Offset of the first element of matrix `number` of the stack.
  static int64_t matrix(const memory::desc& desc, const memory::desc& like, int64_t number) {
    int64_t offset = 0;
    for (int axis = like.get_ndims() - 2; axis-- > 0;) {
      if (desc.extent(axis) > 1) offset += desc.offset(axis, number % like.extent(axis));
      number /= like.extent(axis);
    }
    return offset;
  }

  void compute(const Arguments& arguments, const TileMemory& memory, int64_t number, int64_t row,
               int64_t rows, int64_t column, int64_t width) const {
    const int rank = dst.get_ndims();
    const int64_t depth = src.extent(rank - 1);
    const int64_t a_row = src.offset(rank - 2, 1), a_step = src.offset(rank - 1, 1);
    const int64_t b_row = weights.offset(rank - 2, 1), b_step = weights.offset(rank - 1, 1);
    const float* const a = arguments.in(DNNL_ARG_SRC) + matrix(src, dst, number) + row * a_row;
    const float* const b =
        arguments.in(DNNL_ARG_WEIGHTS) + matrix(weights, dst, number) + column * b_step;
    const bool dots = rows <= kFewRows && b_row == 1 && a_step == 1;
    for (int64_t k = 0; k < depth; k += kDepth) {
      const int64_t count = std::min(kDepth, depth - k);
      const float* left = a + k * a_step;
      const float* right = b + k * b_row;
      int64_t left_stride = a_row, right_stride = b_row;
      if (dots) {
        opwright::attention_functions().dots(left, a_row, rows, right, b_step, width, count,
                                             memory.target(k), kWidth);
        memory.add_part(k, rows, width);
        continue;
      }
      if (a_step != 1) {
        gather(left, a_row, a_step, rows, count, memory.a, kDepth);
        left = memory.a, left_stride = kDepth;
      }
      if (b_step != 1 || whole_vectors(width) != width) {
        gather(right, b_row, b_step, count, width, memory.b, kWidth);
        right = memory.b, right_stride = kWidth;
      }
      multiply(left, left_stride, rows, right, right_stride, width, count, memory.target(k));
      memory.add_part(k, rows, width);
    }
    finish(arguments, memory.sums, number, row, rows, column, width);
  }

  /// Copies a matrix so that neighbours in a row are contiguous. Zeros fill the last vector up.
  static void gather(const float* from, int64_t row_stride, int64_t step, int64_t rows,
                     int64_t columns, float* to, int64_t to_stride) {
    if (step != 1 && row_stride == 1)
      opwright::transpose_matrix(from, step, to, to_stride, columns, rows, sizeof(float));
    else
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          to[r * to_stride + c] = from[r * row_stride + c * step];
    const int64_t end = std::min(whole_vectors(columns), to_stride);
    for (int64_t r = 0; r < rows; ++r)
      std::fill(to + r * to_stride + columns, to + r * to_stride + end, 0.0f);
  }

  void finish(const Arguments& arguments, float* sums, int64_t number, int64_t row, int64_t rows,
              int64_t column, int64_t width) const {
    const int rank = dst.get_ndims();
    const float* const added = arguments.in(DNNL_ARG_BIAS);
    float* const y = arguments.out() + matrix(dst, dst, number);
    for (int64_t r = 0; r < rows; ++r) {
      float* const own = sums + r * kWidth;
      if (added) {
        const float* from = added + matrix(bias, dst, number);
        if (bias.extent(rank - 2) > 1) from += bias.offset(rank - 2, row + r);
        const bool one = bias.extent(rank - 1) == 1;
        for (int64_t i = 0; i < width; ++i)
          own[i] += from[one ? 0 : bias.offset(rank - 1, column + i)];
      }
      epilogue_.apply(own, width, nullptr);
      float* const to = y + dst.offset(rank - 2, row + r);
      for (int64_t i = 0; i < width; ++i) to[dst.offset(rank - 1, column + i)] = own[i];
    }
  }

  const Epilogue epilogue_;
  const int64_t shares_;
};

std::shared_ptr<const Operation> make_matmul(const memory::desc& a, const memory::desc& b,
                                             const memory::desc& bias, const memory::desc& y,
                                             const primitive_attr& attributes, bool allow_empty) {
  if (!is_float(a) || !is_float(b) || !is_float(y)) return nothing(allow_empty);
  auto operation = std::make_shared<MatmulOperation>(attributes.get_post_ops());
  operation->src = a, operation->weights = b, operation->bias = bias, operation->dst = y;
  if (b.get_format_kind() == memory::format_kind::any)
    operation->weights = {b.get_dims(), b.get_data_type(), b.get_strides()};
  return operation;
}

/// One axis of windows. source() returns the input position under a tap. In a transposed
/// convolution, an input lies under a tap only where its distance is a multiple of the stride.
struct Axis {
  int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, pre = 0;

  int64_t source(bool is_transposed, int64_t at, int64_t tap) const {
    if (!is_transposed) {
      const int64_t position = at * stride - pre + tap * dilation;
      return position < in ? position : -1;
    }
    const int64_t way = at + pre - tap * dilation;
    return way >= 0 && way % stride == 0 && way / stride < in ? way / stride : -1;
  }
};

class ConvolutionOperation final : public Operation {
 public:
  ConvolutionOperation(bool is_transposed, const memory::desc& x, const memory::desc& own_weights,
                       const memory::desc& own_bias, const memory::desc& y,
                       const memory::dims& strides, const memory::dims& dilates,
                       const memory::dims& pre, const post_ops& steps)
      : is_transposed_(is_transposed), epilogue_(steps), shares_(opwright::thread_count()) {
    src = x, weights = own_weights, bias = own_bias, dst = y;
    const int spatial = x.get_ndims() - 2, extra = own_weights.get_ndims() - x.get_ndims();
    groups_ = extra > 0 ? own_weights.extent(0) : 1;
    maps_ = own_weights.extent(extra), channels_ = own_weights.extent(extra + 1);
    first_axis_ = 3 - spatial;
    for (int i = 0; i < spatial; ++i) {
      const auto at = static_cast<size_t>(i);
      axes_[first_axis_ + i] = {x.extent(i + 2), y.extent(i + 2), own_weights.extent(extra + i + 2),
                                strides[at],     dilates[at] + 1, pre[at]};
    }
    rows_ = std::min(maps_, kMaps);
  }

  int64_t scratch_size() const override { return shares_ * TileMemory::size(rows_); }

  void run(const Arguments& arguments) const override {
    const int64_t positions = axes_[0].out * axes_[1].out * axes_[2].out;
    const int64_t position_tiles = (positions + kWidth - 1) / kWidth;
    const int64_t map_tiles = (maps_ + rows_ - 1) / rows_;
    const int64_t tasks = dst.extent(0) * groups_ * position_tiles * map_tiles;
    float* const scratch = arguments.scratch();
    share_tasks(tasks, shares_, static_cast<double>(rows_ * std::min(positions, kWidth)) * depth(),
                [&](int64_t first, int64_t last, int64_t share) {
                  const TileMemory memory(scratch + share * TileMemory::size(rows_), rows_);
                  for (int64_t task = first; task < last; ++task) {
                    Tile tile;
                    tile.map = task % map_tiles * rows_;
                    tile.maps = std::min(rows_, maps_ - tile.map);
                    tile.first = task / map_tiles % position_tiles * kWidth;
                    tile.width = std::min(kWidth, positions - tile.first);
                    tile.group = task / map_tiles / position_tiles % groups_;
                    tile.image = task / map_tiles / position_tiles / groups_;
                    compute(arguments, memory, tile);
                  }
                });
  }

 private:
  /// Maps of a group, and positions in the order of the output.
  struct Tile {
    int64_t image, group, map, maps, first, width;
  };

  int64_t depth() const { return channels_ * axes_[0].taps * axes_[1].taps * axes_[2].taps; }

  void compute(const Arguments& arguments, const TileMemory& memory, const Tile& tile) const {
    const float* const a =
        arguments.in(DNNL_ARG_WEIGHTS) + (tile.group * maps_ + tile.map) * depth();
    for (int64_t k = 0; k < depth(); k += kDepth) {
      const int64_t count = std::min(kDepth, depth() - k);
      for (int64_t i = 0; i < count; ++i)
        collect(arguments.in(DNNL_ARG_SRC), tile, k + i, memory.b + i * kWidth);
      multiply(a + k, depth(), tile.maps, memory.b, kWidth, tile.width, count, memory.target(k));
      memory.add_part(k, tile.maps, tile.width);
    }
    finish(arguments, memory, tile);
  }

  int64_t spatial_offset(const memory::desc& desc, int axis, int64_t at) const {
    return axis < first_axis_ ? 0 : desc.offset(axis - first_axis_ + 2, at);
  }

  /// Collects the input elements of tap and channel number `k` for all positions of the tile.
  void collect(const float* x, const Tile& tile, int64_t k, float* to) const {
    const int64_t tap[3] = {k / axes_[2].taps / axes_[1].taps % axes_[0].taps,
                            k / axes_[2].taps % axes_[1].taps, k % axes_[2].taps};
    const int64_t channel = k / axes_[2].taps / axes_[1].taps / axes_[0].taps;
    x += src.offset(0, tile.image) + src.offset(1, tile.group * channels_ + channel);
    const int64_t step = src.offset(src.get_ndims() - 1, 1);
    std::fill(to, to + whole_vectors(tile.width), 0.0f);
    int64_t at = tile.first;
    const int64_t end = tile.first + tile.width;
    while (at < end) {
      const int64_t column = at % axes_[2].out, count = std::min(axes_[2].out - column, end - at);
      const int64_t line = at / axes_[2].out;
      const int64_t plane = axes_[0].source(is_transposed_, line / axes_[1].out, tap[0]);
      const int64_t row = axes_[1].source(is_transposed_, line % axes_[1].out, tap[1]);
      if (plane >= 0 && row >= 0) {
        const float* const from = x + spatial_offset(src, 0, plane) + spatial_offset(src, 1, row);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t source = axes_[2].source(is_transposed_, column + i, tap[2]);
          if (source >= 0) to[at - tile.first + i] = from[source * step];
        }
      }
      at += count;
    }
  }

  void finish(const Arguments& arguments, const TileMemory& memory, const Tile& tile) const {
    const float* const added = arguments.in(DNNL_ARG_BIAS);
    float* const y = arguments.out() + dst.offset(0, tile.image);
    for (int64_t map = 0; map < tile.maps; ++map) {
      float* const own = memory.sums + map * kWidth;
      const int64_t channel = tile.group * maps_ + tile.map + map;
      float* const to = y + dst.offset(1, channel);
      if (added)
        for (int64_t i = 0; i < tile.width; ++i) own[i] += added[channel];
      if (epilogue_.takes_sum())
        visit_positions(tile, [&](int64_t i, int64_t offset) { memory.part[i] = to[offset]; });
      epilogue_.apply(own, tile.width, memory.part);
      visit_positions(tile, [&](int64_t i, int64_t offset) { to[offset] = own[i]; });
    }
  }

  /// Calls visit(number in the tile, offset in the output) for each position.
  template <class Visit>
  void visit_positions(const Tile& tile, const Visit& visit) const {
    const int64_t step = dst.offset(dst.get_ndims() - 1, 1);
    for (int64_t i = 0; i < tile.width;) {
      const int64_t at = tile.first + i, column = at % axes_[2].out, line = at / axes_[2].out;
      const int64_t count = std::min(axes_[2].out - column, tile.width - i);
      const int64_t offset = spatial_offset(dst, 0, line / axes_[1].out) +
                             spatial_offset(dst, 1, line % axes_[1].out) + column * step;
      for (int64_t j = 0; j < count; ++j) visit(i + j, offset + j * step);
      i += count;
    }
  }

  const bool is_transposed_;
  const Epilogue epilogue_;
  const int64_t shares_;
  int64_t groups_ = 1, maps_ = 1, channels_ = 1, rows_ = 1;
  int first_axis_ = 0;
  Axis axes_[3];
};

/// Weights are in the order [groups, maps, channels, taps].
std::shared_ptr<const Operation> make_convolution(
    bool is_transposed, const memory::desc& x, const memory::desc& weights,
    const memory::desc& bias, const memory::desc& y, const memory::dims& strides,
    const memory::dims& dilates, const memory::dims& pre, const primitive_attr& attributes,
    bool allow_empty) {
  const memory::desc dense(weights.get_dims(), weights.get_data_type(), memory::format_tag::any);
  const memory::desc plain(weights.get_dims(), weights.get_data_type(), dense.get_strides());
  const bool any = weights.get_format_kind() == memory::format_kind::any;
  const int spatial = x.get_ndims() - 2;
  if (!is_float(x) || !is_float(weights) || !is_float(y) || !(any || weights == plain) ||
      spatial < 1 || spatial > 3 || attributes.has_zero_points())
    return nothing(allow_empty);
  return std::make_shared<ConvolutionOperation>(is_transposed, x, plain, bias, y, strides, dilates,
                                                pre, attributes.get_post_ops());
}

}  // namespace
}  // namespace dnnl::plain

namespace dnnl {

matmul::primitive_desc::primitive_desc(const engine&, const memory::desc& a, const memory::desc& b,
                                       const memory::desc& bias, const memory::desc& y,
                                       const primitive_attr& attributes, bool allow_empty)
    : primitive_desc_base(plain::make_matmul(a, b, bias, y, attributes, allow_empty)) {}

template <bool is_transposed>
convolution<is_transposed>::primitive_desc::primitive_desc(
    const engine&, prop_kind, algorithm, const memory::desc& x, const memory::desc& weights,
    const memory::desc& bias, const memory::desc& y, const memory::dims& strides,
    const memory::dims& dilates, const memory::dims& pre, const memory::dims&,
    const primitive_attr& attributes, bool allow_empty)
    : primitive_desc_base(plain::make_convolution(is_transposed, x, weights, bias, y, strides,
                                                  dilates, pre, attributes, allow_empty)) {}

template struct convolution<false>;
template struct convolution<true>;

}  // namespace dnnl
