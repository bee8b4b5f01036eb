#include "operators/normalization.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/normalization_tile.h"
#include "backend/cpu/pointwise_broadcast.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/reduce_axes.h"
#include "backend/cpu/reduce_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {
namespace {

/// Computes mean and variance in two passes and writes in a third one. The variance is the mean
/// square of the deviations from the mean, so nothing cancels. A normalized group is either
/// contiguous pieces, or columns of rows that lie apart.
class NormalizationKernel final : public Kernel {
 public:
  NormalizationKernel(const Normalization& op, const KernelArgs& args)
      : params_(op.params()),
        x_(args.inputs[0].type),
        y_(args.outputs[0].type),
        load_x_(x_.dtype == DataType::kFLOAT ? nullptr : find_cast(x_.dtype, DataType::kFLOAT)),
        store_y_(y_.dtype == DataType::kFLOAT ? nullptr : find_cast(DataType::kFLOAT, y_.dtype)),
        sums_(reduce_functions(ReduceOperation::kSUM, DataType::kFLOAT)),
        x_size_(element_size(x_.dtype)),
        y_size_(element_size(y_.dtype)) {
    for (int i = 0; i < 2; ++i) {
      Affine& affine = affine_[i];
      affine.present =
          args.inputs.size() > static_cast<size_t>(i) + 1 && args.inputs[i + 1].present;
      if (!affine.present) continue;
      const DataType type = args.inputs[i + 1].type.dtype;
      affine.size = element_size(type);
      if (type != DataType::kFLOAT) affine.load = find_cast(type, DataType::kFLOAT);
    }
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    const Shape& shape = inputs[0];
    numel_ = 0;
    require_countable(inputs);
    for (size_t i = 1; i < inputs.size(); ++i)
      if (affine_[i - 1].present) require_broadcast(static_cast<int>(i), inputs[i], shape);
    const Axes extents = physical_extents(shape, x_.format);
    const int rank = shape.rank();
    int64_t numel = 1;
    for (int i = 0; i < extents.count; ++i) numel *= extents[i];
    if (numel == 0) return;
    for (size_t i = 1; i < inputs.size(); ++i)
      if (affine_[i - 1].present)
        affine_[i - 1].view =
            BroadcastView(extents, broadcast_strides(inputs[i], shape, x_.format));

    group_ = 1;
    Axes split;
    bool reduced[Axes::kMax + 1] = {};
    for (int i = 0; i < extents.count; ++i) {
      int axis = i;  // the logical axis
      for (int k = 0; k < rank; ++k)
        if (physical_axis(k, rank, x_.format) == i) axis = k;
      const bool whole = params_.axes >> axis & 1;
      if (axis == 1 && params_.num_groups > 1 && groups_columns(extents[i], rank)) {
        // Columns are summed on their own, and groups of sums are merged afterwards.
        group_ = extents[i] / params_.num_groups;
        reduced[split.count] = false;
        split.push_back(extents[i]);
      } else if (axis == 1 && params_.num_groups > 1) {
        reduced[split.count] = false;
        split.push_back(params_.num_groups);
        reduced[split.count] = true;
        split.push_back(extents[i] / params_.num_groups);
      } else {
        reduced[split.count] = whole;
        split.push_back(extents[i]);
      }
    }
    axes_ = ReductionAxes(split, reduced);
    kept_ = 1;
    for (const ReductionAxes::Axis& axis : axes_.kept) kept_ *= axis.extent;
    width_ = kColumns / group_ * group_;
    tiles_ = axes_.inner.reduced ? 1 : (axes_.inner.extent + width_ - 1) / width_;
    grain_ = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, numel / (kept_ * tiles_)));
    numel_ = numel;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (numel_ == 0) return;
    parallel_for(kept_ * tiles_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = ReductionAxes::offset_of(axes_.kept, i / tiles_);
        if (axes_.inner.reduced)
          normalize_pieces(inputs, outputs[0], first);
        else
          normalize_columns(inputs, outputs[0], first + i % tiles_ * width_,
                            std::min(width_, axes_.inner.extent - i % tiles_ * width_));
      }
    });
  }

 private:
  static constexpr int64_t kColumns = 256;  ///< columns of a tile
  static constexpr int64_t kBlock = 1024;   ///< elements that are converted at a time

  /// Whether the groups of a channels-last image are too narrow to be taken as pieces.
  bool groups_columns(int64_t channels, int rank) const {
    constexpr int64_t kNarrow = 64;
    const int64_t spatial = ((int64_t{1} << rank) - 1) & ~int64_t{3};
    return layout_of(x_.format).channels_last && (params_.axes & spatial) == spatial &&
           channels / params_.num_groups <= kNarrow;
  }

  /// Replaces every total with the total of its column's group.
  void merge_groups(double* totals, int64_t columns) const {
    for (int64_t i = 0; group_ > 1 && i < columns; i += group_) {
      const double sum = std::accumulate(totals + i, totals + i + group_, 0.0);
      std::fill_n(totals + i, group_, sum);
    }
  }

  /// Scale or bias.
  struct Affine {
    bool present = false;
    int size = 4;
    TileFunction load = nullptr;
    BroadcastView view;
  };

  const float* load_x(const void* x, int64_t first, int64_t count, float* buffer) const {
    const std::byte* from = static_cast<const std::byte*>(x) + first * x_size_;
    if (!load_x_) return reinterpret_cast<const float*>(from);
    load_x_(buffer, from, nullptr, nullptr, count, nullptr);
    return buffer;
  }

  const float* load_affine(int which, void const* const* inputs, int64_t first, int64_t count,
                           float* buffer) const {
    const Affine& affine = affine_[which];
    if (!affine.present) return nullptr;
    alignas(64) std::byte raw[kBlock * sizeof(float)];
    const void* elements = affine.view.elements(inputs[which + 1], affine.size, first, count,
                                                affine.load ? static_cast<void*>(raw) : buffer);
    if (!affine.load) return static_cast<const float*>(elements);
    affine.load(buffer, elements, nullptr, nullptr, count, nullptr);
    return buffer;
  }

  /// Calls body(x, first, count) for runs of at most kBlock contiguous elements of one group.
  template <class Body>
  void for_each_block(const void* x, int64_t first, Body&& body) const {
    alignas(64) float buffer[kBlock];
    // Without a conversion, only the ends of pieces cut the runs.
    const int64_t most = load_x_ ? kBlock : axes_.inner.extent;
    for (int64_t row = 0; row < axes_.rows; ++row) {
      const int64_t offset = first + ReductionAxes::offset_of(axes_.reduced, row);
      for (int64_t i = 0; i < axes_.inner.extent; i += most) {
        const int64_t count = std::min(most, axes_.inner.extent - i);
        body(load_x(x, offset + i, count, buffer), offset + i, count);
      }
    }
  }

  float factor_of(double sum_of_squares) const {
    return static_cast<float>(
        1 /
        std::sqrt(sum_of_squares / static_cast<double>(axes_.count * group_) + params_.epsilon));
  }

  /// Writes (x - mean) * factor * scale + bias for [first, first + count), at most kBlock.
  void write(void const* const* inputs, void* y, const float* x, const float* means,
             const float* factors, bool per_element, int64_t first, int64_t count) const {
    alignas(64) float scales[kBlock], biases[kBlock], results[kBlock];
    std::byte* to = static_cast<std::byte*>(y) + first * y_size_;
    normalize(x, means, factors, per_element, load_affine(0, inputs, first, count, scales),
              load_affine(1, inputs, first, count, biases), count,
              store_y_ ? results : reinterpret_cast<float*>(to));
    if (store_y_) store_y_(to, results, nullptr, nullptr, count, nullptr);
  }

  void normalize_pieces(void const* const* inputs, void* y, int64_t first) const {
    double sum = 0;
    if (!params_.rms)
      for_each_block(inputs[0], first,
                     [&](const float* x, int64_t, int64_t count) { sums_.reduce(x, count, &sum); });
    const auto mean = static_cast<float>(sum / static_cast<double>(axes_.count));
    double squares = 0;
    for_each_block(inputs[0], first, [&](const float* x, int64_t, int64_t count) {
      squares += squared_deviations(x, count, mean);
    });
    const float factor = factor_of(squares);
    for_each_block(inputs[0], first, [&](const float* x, int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; i += kBlock)
        write(inputs, y, x + i, &mean, &factor, false, offset + i, std::min(kBlock, count - i));
    });
  }

  /// Normalizes `columns` neighbouring columns, each over its own rows.
  void normalize_columns(void const* const* inputs, void* y, int64_t first, int64_t columns) const {
    alignas(64) float means[kColumns], factors[kColumns], block[kColumns], buffer[kColumns];
    alignas(64) double totals[kColumns];
    const auto row_offset = [&](int64_t row) {
      return first + ReductionAxes::offset_of(axes_.reduced, row);
    };
    // Sums are collected in short FP32 blocks and added to totals in double.
    const auto sum_rows = [&](auto&& add) {
      sums_.clear_block(block, columns);
      sums_.clear_totals(totals, columns);
      for (int64_t row = 0; row < axes_.rows; ++row) {
        add(load_x(inputs[0], row_offset(row), columns, buffer));
        if ((row + 1) % ReduceFunctions::kRowsPerBlock == 0 || row + 1 == axes_.rows)
          sums_.flush(block, columns, totals);
      }
      merge_groups(totals, columns);
    };
    std::fill_n(means, columns, 0.0f);
    if (!params_.rms) {
      sum_rows([&](const float* x) {
        const void* row = x;
        sums_.add_rows(&row, 1, columns, block);
      });
      for (int64_t i = 0; i < columns; ++i)
        means[i] = static_cast<float>(totals[i] / static_cast<double>(axes_.count * group_));
    }
    sum_rows([&](const float* x) { add_squared_deviations(x, means, columns, block); });
    for (int64_t i = 0; i < columns; ++i) factors[i] = factor_of(totals[i]);
    for (int64_t row = 0; row < axes_.rows; ++row)
      write(inputs, y, load_x(inputs[0], row_offset(row), columns, buffer), means, factors, true,
            row_offset(row), columns);
  }

  NormalizationParams params_;
  PortType x_, y_;
  TileFunction load_x_, store_y_;
  const ReduceFunctions& sums_;
  int x_size_, y_size_;
  Affine affine_[2];
  ReductionAxes axes_;
  int64_t numel_ = 0, kept_ = 1, tiles_ = 1, width_ = kColumns, grain_ = 1;
  int64_t group_ = 1;  ///< columns that are normalized together
};

/// Instance and group normalization also work on channels-last images.
Formats formats_of(const NormalizationParams& params, int rank) {
  const int64_t spatial = ((int64_t{1} << rank) - 1) & ~int64_t{3};
  const bool is_image = rank >= 3 && (params.axes & spatial) == spatial && !(params.axes & 1);
  return is_image ? Formats{TensorFormat::kLINEAR, TensorFormat::kHWC} : kLinear;
}

std::vector<Candidate> normalization_candidates(const Operator& op, const CandidateQuery& query) {
  const NormalizationParams& params = static_cast<const Normalization&>(op).params();
  const PortDesc& x = query.inputs[0];
  std::vector<Candidate> result = {linear_candidate(query, "two passes")};
  const int rank = x.max.rank();
  for (const TensorFormat format : query.device->formats(rank)) {
    if (!formats_of(params, rank).has(format)) continue;
    Candidate candidate = result.front();
    candidate.inputs[0].format = candidate.outputs[0].format = format;
    result.push_back(std::move(candidate));
  }
  add_lower_precisions(query, x, result);
  return result;
}

void check_normalization(const Operator& op, const KernelArgs& args) {
  const NormalizationParams& params = static_cast<const Normalization&>(op).params();
  const PortRules rules(op, args);
  rules.require_ports(1, 3);
  const PortRules::Port x = rules.input(0);
  rules.require(x, kFloats, formats_of(params, x.desc.max.rank()));
  rules.require_same(rules.output(0), x);
  for (size_t i = 1; i < rules.inputs(); ++i)
    if (rules.has_input(i)) rules.require(rules.input(i), kFloats);
}

const RegisteredKernels<Normalization> kNormalizationKernels(
    {normalization_candidates, make_kernel<NormalizationKernel, Normalization>,
     check_normalization});

}  // namespace
}  // namespace opwright
