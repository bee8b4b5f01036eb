#include "operators/reduce.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
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

/// The type in which elements of `type` are reduced.
DataType compute_type(DataType type, ReduceOperation op) {
  if (is_floating(type)) return DataType::kFLOAT;
  // The average of integers must not wrap around before it is divided.
  if (type == DataType::kINT64 || op == ReduceOperation::kAVG) return DataType::kINT64;
  return DataType::kINT32;
}

/// The operation on elements of `type`: for truth values a sum is OR and a product is AND.
ReduceOperation operation_on(DataType type, ReduceOperation op) {
  if (type != DataType::kBOOL) return op;
  return op == ReduceOperation::kPROD || op == ReduceOperation::kMIN ? ReduceOperation::kMIN
                                                                     : ReduceOperation::kMAX;
}

/// The least and the greatest value of an integer type or of truth values.
std::pair<int64_t, int64_t> limits_of(DataType type) {
  switch (type) {
    case DataType::kBOOL:
      return {0, 1};
    case DataType::kINT8:
      return {-128, 127};
    case DataType::kUINT8:
      return {0, 255};
    case DataType::kINT32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

/// Brings axes into memory order and merges neighbours of one kind. The innermost remaining axis is
/// either reduced, with contiguous elements, or kept; then whole rows are combined. A task reduces
/// one part of the elements of a tile of outputs. Where there are few tiles there are many parts,
/// which are merged in the workspace.
class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(const Reduce& op, const KernelArgs& args)
      : axes_(op.params().axes),
        op_(operation_on(args.inputs[0].type.dtype, op.params().op)),
        input_type_(args.inputs[0].type),
        output_type_(args.outputs[0].type.dtype),
        type_(compute_type(input_type_.dtype, op_)),
        functions_(reduce_functions(op_, type_)),
        convert_(input_type_.dtype == type_ ? nullptr : find_cast(input_type_.dtype, type_)),
        from_total_(find_cast(type_, output_type_)),
        lowest_(limits_of(input_type_.dtype).first),
        highest_(limits_of(input_type_.dtype).second),
        input_size_(element_size(input_type_.dtype)),
        output_size_(element_size(output_type_)),
        may_split_(args.inputs[0].max.numel() >= kSplit) {}

  size_t workspace_size() const override {
    return may_split_ ? kMaxParts * kMaxSplitTiles * kTile * sizeof(double) : 0;
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape& shape = inputs[0];
    tiles_ = 0, parts_ = 1;
    require_countable(inputs), require_countable(outputs);
    require_filled(shape, input_type_.format);
    output_numel_ = outputs[0].numel();
    const Axes extents = physical_extents(shape, input_type_.format);
    bool reduced[Axes::kMax] = {};
    for (int i = 0; i < shape.rank(); ++i)
      reduced[physical_axis(i, shape.rank(), input_type_.format)] = axes_ >> i & 1;

    split_ = ReductionAxes(extents, reduced);
    width_ = split_.inner.reduced ? 1 : std::min<int64_t>(split_.inner.extent, kTile);
    tiles_per_row_ = split_.inner.reduced
                         ? 1
                         : (split_.inner.extent + width_ - 1) / std::max<int64_t>(1, width_);
    tiles_ = output_numel_ == 0     ? 0
             : split_.inner.reduced ? output_numel_
                                    : output_numel_ / split_.inner.extent * tiles_per_row_;

    // The rows follow each other without gaps, so one call reduces many of them.
    has_short_rows_ = split_.inner.reduced && split_.rows == 1 && convert_ == nullptr &&
                      split_.inner.extent >= 1 &&
                      split_.inner.extent <= ReduceFunctions::kShortRow &&
                      split_.kept.size() == 1 && split_.kept[0].stride == split_.inner.extent;
    // The number of parts depends only on the shape, so results do not depend on the number of
    // threads.
    const int64_t work = split_.count * width_;
    parts_ = may_split_ && tiles_ > 0 && tiles_ <= kMaxSplitTiles && work >= kSplit
                 ? std::min(kMaxParts, work / (kSplit / 2))
                 : 1;
    // A single row is split within itself, several rows are split between rows.
    units_ = split_.rows == 1 && split_.inner.reduced ? split_.inner.extent : split_.rows;
    parts_ = std::max<int64_t>(1, std::min(parts_, units_));
    grain_ = std::max<int64_t>(
        1, (parts_ == 1 ? kGrain : kSplit / 2) / std::max<int64_t>(1, work / parts_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    if (parts_ == 1) {
      parallel_for(tiles_, grain_, [&](int64_t begin, int64_t end) {
        alignas(64) double totals[kTile];
        // Single outputs are stored together, since a short row costs less than a call to store its
        // output.
        const int64_t together = split_.inner.reduced ? kTile : 1;
        for (int64_t tile = begin; tile < end; tile += together) {
          const int64_t count = std::min(together, end - tile);
          if (has_short_rows_)
            functions_.reduce_short(from + tile * split_.inner.extent * input_size_, count,
                                    split_.inner.extent, totals);
          else
            for (int64_t i = 0; i < count; ++i) reduce_part(from, tile + i, 0, totals + i);
          finish(tile, split_.inner.reduced ? count : columns_of(tile), totals, to);
        }
      });
      return;
    }
    auto* totals = static_cast<double*>(workspace);
    parallel_for(tiles_ * parts_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        reduce_part(from, i / parts_, i % parts_, totals + i * kTile);
    });
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      double* first = totals + tile * parts_ * kTile;
      for (int64_t part = 1; part < parts_; ++part)
        functions_.merge(first + part * kTile, columns_of(tile), first);
      finish(tile, columns_of(tile), first, to);
    }
  }

 private:
  static constexpr int64_t kTile = 512, kMaxParts = 16, kMaxSplitTiles = 16;
  static constexpr int64_t kSplit = 1 << 17;  ///< elements of a tile from which on parts pay
  /// Elements that are worth a thread. They are few, since the operand mostly lies in the caches of
  /// the threads that made it.
  static constexpr int64_t kGrain = 1 << 14;
  static_assert(sizeof(double) == sizeof(int64_t));

  int64_t columns_of(int64_t tile) const {
    if (split_.inner.reduced) return 1;
    return std::min(width_, split_.inner.extent - tile % tiles_per_row_ * width_);
  }

  /// The elements at `from`, converted in `buffer` to the type of the computation where necessary.
  const void* converted(const std::byte* from, int64_t count, void* buffer) const {
    if (!convert_) return from;
    convert_(buffer, from, nullptr, nullptr, count, nullptr);
    return buffer;
  }

  /// Reduces units [part / parts, (part + 1) / parts) of the elements of a tile of outputs.
  void reduce_part(const std::byte* from, int64_t tile, int64_t part, void* totals) const {
    const int64_t columns = columns_of(tile);
    functions_.clear_totals(totals, columns);
    if (split_.count == 0) return;
    const int64_t begin = units_ * part / parts_, end = units_ * (part + 1) / parts_;
    from += ReductionAxes::offset_of(split_.kept, tile / tiles_per_row_) * input_size_;
    if (!split_.inner.reduced) {
      from += tile % tiles_per_row_ * width_ * input_size_;
      reduce_rows(from, begin, end, columns, totals);
    } else if (split_.rows == 1) {
      reduce_neighbours(from + begin * input_size_, end - begin, totals);
    } else {
      for (int64_t row = begin; row < end; ++row)
        reduce_neighbours(from + ReductionAxes::offset_of(split_.reduced, row) * input_size_,
                          split_.inner.extent, totals);
    }
  }

  void reduce_neighbours(const std::byte* from, int64_t count, void* total) const {
    if (!convert_) return functions_.reduce(from, count, total);
    constexpr int64_t kBuffer = 1024;
    alignas(64) std::byte buffer[kBuffer * sizeof(double)];
    for (int64_t i = 0; i < count; i += kBuffer) {
      const int64_t piece = std::min(kBuffer, count - i);
      functions_.reduce(converted(from + i * input_size_, piece, buffer), piece, total);
    }
  }

  void reduce_rows(const std::byte* from, int64_t begin, int64_t end, int64_t columns,
                   void* totals) const {
    alignas(64) double block[kTile];
    alignas(64) double buffers[ReduceFunctions::kRows][kTile];
    functions_.clear_block(block, columns);
    int in_block = 0;
    for (int64_t row = begin; row < end;) {
      const void* rows[ReduceFunctions::kRows];
      const int count = static_cast<int>(std::min<int64_t>(ReduceFunctions::kRows, end - row));
      for (int r = 0; r < count; ++r)
        rows[r] = converted(from + ReductionAxes::offset_of(split_.reduced, row + r) * input_size_,
                            columns, buffers[r]);
      functions_.add_rows(rows, count, columns, block);
      row += count;
      in_block += count;
      if (in_block >= ReduceFunctions::kRowsPerBlock || row == end) {
        functions_.flush(block, columns, totals);
        in_block = 0;
      }
    }
  }

  /// Divides an average and stores the totals in the output's type.
  void finish(int64_t tile, int64_t columns, double* totals, std::byte* to) const {
    const int64_t first = split_.inner.reduced ? tile
                                               : tile / tiles_per_row_ * split_.inner.extent +
                                                     tile % tiles_per_row_ * width_;
    alignas(64) double values[kTile];
    for (int64_t i = 0; i < columns; ++i) {
      if (type_ == DataType::kFLOAT) {
        const double total = op_ == ReduceOperation::kAVG ? totals[i] / split_.count : totals[i];
        reinterpret_cast<float*>(values)[i] = static_cast<float>(total);
      } else {
        int64_t total = reinterpret_cast<const int64_t*>(totals)[i];
        if (op_ == ReduceOperation::kAVG) total = split_.count == 0 ? 0 : total / split_.count;
        // The extreme of no elements is the neutral element, which may be outside of their type's
        // range.
        if (split_.count == 0) total = std::clamp(total, lowest_, highest_);
        if (type_ == DataType::kINT64)
          reinterpret_cast<int64_t*>(values)[i] = total;
        else
          reinterpret_cast<int32_t*>(values)[i] = static_cast<int32_t>(total);
      }
    }
    from_total_(to + first * output_size_, values, nullptr, nullptr, columns, nullptr);
  }

  int64_t axes_;
  ReduceOperation op_;
  PortType input_type_;
  DataType output_type_, type_;
  const ReduceFunctions& functions_;
  TileFunction convert_, from_total_;
  int64_t lowest_, highest_;
  int input_size_, output_size_;
  bool may_split_;

  ReductionAxes split_;
  int64_t width_ = 1, tiles_per_row_ = 1, tiles_ = 0, units_ = 1;
  int64_t parts_ = 1, grain_ = 1, output_numel_ = 0;
  bool has_short_rows_ = false;
};

/// Whether the reduction is over all spatial axes and nothing else. Then the result has the same
/// order in every format.
bool takes_images(const ReduceParams& params, int rank) {
  const int64_t spatial = ((int64_t{1} << rank) - 1) & ~int64_t{3};
  return rank >= 3 && params.axes == spatial;
}

std::vector<Candidate> reduce_candidates(const Operator& op, const CandidateQuery& query) {
  const ReduceParams& params = static_cast<const Reduce&>(op).params();
  const PortDesc& input = query.inputs[0];
  const int rank = input.max.rank();
  std::vector<Candidate> result = {linear_candidate(query, "loops")};
  if (takes_images(params, rank)) {
    for (const TensorFormat format : query.device->formats(rank)) {
      if (!fills_blocks(input, format)) continue;
      Candidate candidate = result.front();
      candidate.inputs[0].format = format;
      result.push_back(candidate);
      if (!params.keep_dims) continue;
      candidate.outputs[0].format = format;
      result.push_back(candidate);
    }
  }
  add_lower_precisions(query, input, result);
  const size_t count = result.size();
  // The output is smaller than the input. It may keep its precision or take the input's.
  for (size_t i = 0; i < count; ++i) {
    if (result[i].inputs[0].dtype == result[i].outputs[0].dtype) continue;
    Candidate candidate = result[i];
    candidate.outputs[0].dtype = candidate.inputs[0].dtype;
    result.push_back(std::move(candidate));
  }
  return result;
}

void check_reduce(const Operator& op, const KernelArgs& args) {
  const ReduceParams& params = static_cast<const Reduce&>(op).params();
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  const PortRules::Port x = rules.input(0), y = rules.output(0);
  const PortType type = x.desc.type;
  rules.require(x, kConvertible, takes_images(params, x.desc.max.rank()) ? kImageFormats : kLinear);
  rules.require_filled(x);
  rules.require(y, kFloats.has(type.dtype) ? kFloats : Types{type.dtype},
                params.keep_dims ? kLinear | Formats{type.format} : kLinear);
}

const RegisteredKernels<Reduce> kReduceKernels({reduce_candidates,
                                                make_kernel<ReduceKernel, Reduce>, check_reduce});

}  // namespace
}  // namespace opwright
