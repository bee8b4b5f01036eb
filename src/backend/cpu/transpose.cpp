#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/copy_tile.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/transpose_tile.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Merges axes that stay neighbours first. If the last axis stays the last one, rows are copied.
/// Otherwise matrices of the input's and the output's last axis are transposed.
class TransposeKernel final : public Kernel {
 public:
  TransposeKernel(const Transpose& op, const KernelArgs& args)
      : permutation_(op.params().permutation),
        type_size_(element_size(args.outputs[0].type.dtype)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape& input = inputs[0];
    numel_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(input.rank() == static_cast<int>(permutation_.size()) &&
                input.numel() == outputs[0].numel(),
            "cannot transpose ", input, " to ", outputs[0]);
    numel_ = outputs[0].numel();
    if (numel_ == 0) return;
    int64_t input_strides[Dims::MAX_DIMS];
    int64_t stride = 1;
    for (int i = input.rank() - 1; i >= 0; --i) {
      input_strides[i] = stride;
      stride *= input[i];
    }
    axes_.clear();
    for (int i = 0; i < outputs[0].rank(); ++i) {
      const int64_t from = permutation_[i];
      if (input[from] == 1) continue;
      const Axis axis{input[from], input_strides[from], 0};
      if (!axes_.empty() && axes_.back().from_stride == axis.extent * axis.from_stride)
        axes_.back() = {axes_.back().extent * axis.extent, axis.from_stride, 0};
      else
        axes_.push_back(axis);
    }
    element_size_ = type_size_;
    merge_short_rows();
    if (axes_.empty()) axes_.push_back({1, 1, 1});
    stride = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      axes_[i].to_stride = stride;
      stride *= axes_[i].extent;
    }
    inner_ = axes_.back();
    axes_.pop_back();
    copies_rows_ = inner_.from_stride == 1;
    if (copies_rows_) {
      row_bytes_ = inner_.extent * element_size_;
      rows_ = numel_ * type_size_ / std::max<int64_t>(1, row_bytes_);
      grain_ = std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(1, row_bytes_));
      strips_ = chunks_ = 1;
      return;
    }
    // The axis that is contiguous in the input becomes the matrix's other side. Both sides are
    // split, so that a single matrix gives every thread work.
    const auto contiguous = std::find_if(axes_.begin(), axes_.end(),
                                         [](const Axis& axis) { return axis.from_stride == 1; });
    matrix_ = *contiguous;
    axes_.erase(contiguous);
    // The elements of pairs, as SpaceToDepth has them, go to two places. All rows of an axis are
    // done in one call.
    splits_pairs_ = element_size_ == 4 && matrix_.extent == 2 && inner_.from_stride == 2 &&
                    inner_.extent <= kChunk && !axes_.empty();
    strip_ = rows_collide(inner_.from_stride, matrix_.to_stride, element_size_)
                 ? kLine / element_size_
                 : kStrip;
    strips_ = (matrix_.extent + strip_ - 1) / strip_;
    chunks_ = (inner_.extent + kChunk - 1) / kChunk;
    rows_ = strips_ * chunks_;
    for (const Axis& axis : axes_) rows_ *= axis.extent;
    grain_ = std::max<int64_t>(
        1, kCopyGrainBytes /
               std::max<int64_t>(1, std::min(inner_.extent, kChunk) * strip_ * element_size_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (numel_ == 0) return;
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    if (copies_rows_ && axes_.empty()) return parallel_copy(to, from, numel_ * type_size_);
    parallel_for(rows_, grain_, [&](int64_t begin, int64_t end) {
      const int64_t parts = strips_ * chunks_;
      int64_t strip = begin % parts % strips_, chunk = begin % parts / strips_;
      int64_t index[Dims::MAX_DIMS], place_from = 0, place_to = 0;
      int64_t rest = begin / parts;
      for (size_t i = axes_.size(); i-- > 0;) {
        index[i] = rest % axes_[i].extent;
        rest /= axes_[i].extent;
        place_from += index[i] * axes_[i].from_stride;
        place_to += index[i] * axes_[i].to_stride;
      }
      const auto advance = [&] {
        for (size_t i = axes_.size(); i-- > 0;) {
          place_from += axes_[i].from_stride;
          place_to += axes_[i].to_stride;
          if (++index[i] < axes_[i].extent) return;
          place_from -= axes_[i].extent * axes_[i].from_stride;
          place_to -= axes_[i].extent * axes_[i].to_stride;
          index[i] = 0;
        }
      };
      const auto next = [&] {  // a division would cost as much as a short row
        if (++strip < strips_) return;
        strip = 0;
        if (++chunk < chunks_) return;
        chunk = 0;
        advance();
      };
      for (int64_t row = begin; row < end; ++row, next()) {
        int64_t from_offset = place_from, to_offset = place_to;
        if (copies_rows_) {
          std::memcpy(to + to_offset * element_size_, from + from_offset * element_size_,
                      row_bytes_);
          continue;
        }
        const int64_t column = strip * strip_, line = chunk * kChunk;
        from_offset += column + line * inner_.from_stride;
        to_offset += column * matrix_.to_stride + line;
        if (splits_pairs_) {
          const Axis& rows = axes_.back();
          const int64_t at = index[axes_.size() - 1],
                        more = std::min(end - row, rows.extent - at) - 1;
          auto* const even = reinterpret_cast<uint32_t*>(to) + to_offset;
          split_pairs(reinterpret_cast<const uint32_t*>(from) + from_offset, rows.from_stride,
                      more + 1, inner_.extent, even, even + matrix_.to_stride, rows.to_stride);
          row += more, index[axes_.size() - 1] += more;
          place_from += more * rows.from_stride, place_to += more * rows.to_stride;
          continue;
        }
        if (matrix_.extent <= kNarrow) {
          for (int64_t k = 0; k < matrix_.extent; ++k)
            gather_elements(to + (to_offset + k * matrix_.to_stride) * element_size_,
                            from + (from_offset + k) * element_size_, element_size_,
                            inner_.from_stride * element_size_,
                            std::min(kChunk, inner_.extent - line));
          continue;
        }
        transpose_matrix(from + from_offset * element_size_, inner_.from_stride,
                         to + to_offset * element_size_, matrix_.to_stride,
                         std::min(kChunk, inner_.extent - line),
                         std::min(strip_, matrix_.extent - column), element_size_);
      }
    });
  }

 private:
  static constexpr int64_t kLine = 64;  ///< bytes of a cache line
  static constexpr int64_t kStrip = 64, kChunk = 1024;
  static constexpr int64_t kNarrow = 4;  ///< columns that are too few for a tile
  static constexpr int64_t kLargestElement = 8;
  struct Axis {
    int64_t extent, from_stride, to_stride;
  };

  /// Short rows that are copied whole, as of complex numbers, become elements of the remaining
  /// axes.
  void merge_short_rows() {
    if (axes_.empty() || axes_.back().from_stride != 1) return;
    const int64_t extent = axes_.back().extent;
    if (extent * type_size_ > kLargestElement ||
        !std::has_single_bit(static_cast<uint64_t>(extent)))
      return;
    element_size_ *= static_cast<int>(extent);
    axes_.pop_back();
    for (Axis& axis : axes_) axis.from_stride /= extent;
  }

  Ints permutation_;
  const int type_size_;
  int element_size_ = 1;  ///< of what is moved: an element of the type, or a short row
  int64_t numel_ = 0;
  std::vector<Axis> axes_;  // axes of the output, without those of a row or matrix
  Axis inner_{1, 1, 1}, matrix_{1, 1, 1};
  bool copies_rows_ = true, splits_pairs_ = false;
  int64_t row_bytes_ = 0, rows_ = 0, strip_ = 1, strips_ = 1, chunks_ = 1, grain_ = 1;
};

std::vector<Candidate> transpose_candidates(const Operator&, const CandidateQuery& query) {
  if (!kWholeBytes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "blocks")};
}

void check_transpose(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kWholeBytes);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<Transpose> kTransposeKernels({transpose_candidates,
                                                      make_kernel<TransposeKernel, Transpose>,
                                                      check_transpose});

}  // namespace
}  // namespace opwright
