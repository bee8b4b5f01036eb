#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Copies a slice, or clears it where `from` is null.
void put(std::byte* to, const std::byte* from, int64_t bytes) {
  if (!from)
    std::memset(to, 0, bytes);
  else if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes == 8)
    std::memcpy(to, from, 8);
  else
    std::memcpy(to, from, bytes);
}

class GatherKernel final : public Kernel {
 public:
  GatherKernel(const Gather& op, const KernelArgs& args)
      : params_(op.params()),
        element_size_(element_size(args.inputs[0].type.dtype)),
        wide_(args.inputs[1].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape &data = inputs[0], &indices = inputs[1];
    const int batch = static_cast<int>(params_.num_elementwise_dims);
    const int axis = static_cast<int>(params_.axis < 0 ? params_.axis + data.rank() : params_.axis);
    numel_ = 0;
    require_countable(inputs), require_countable(outputs);
    for (int i = 0; i < batch; ++i) require_equal_extent(i, data, 1, indices);
    switch (params_.mode) {
      case GatherMode::kDEFAULT:
        outer_ = data.numel(batch, axis);
        extent_ = data[axis];
        inner_bytes_ = data.numel(axis + 1, data.rank()) * element_size_;
        count_ = indices.numel(batch, indices.rank());
        break;
      case GatherMode::kELEMENT: {
        // Rows of the indices. Counters walk all axes but the last.
        rows_ = indices;
        for (int i = 0; i < data.rank(); ++i)
          require(i == axis || indices[i] <= data[i], "indices of shape ", indices,
                  " reach beyond data of shape ", data, " in extent ", i);
        int64_t stride = 1;
        for (int i = data.rank() - 1; i >= 0; --i) {
          strides_[i] = stride;
          stride *= data[i];
        }
        axis_ = axis;
        extent_ = data[axis];
        count_ = indices.rank() == 0 ? 1 : indices[indices.rank() - 1];
        inner_bytes_ = element_size_;
        break;
      }
      case GatherMode::kND: {
        tuple_ = static_cast<int>(indices[indices.rank() - 1]);
        count_ = indices.numel(batch, indices.rank() - 1);
        int64_t stride = data.numel(batch + tuple_, data.rank()) * element_size_;
        inner_bytes_ = stride;
        for (int i = tuple_ - 1; i >= 0; --i) {
          extents_[i] = data[batch + i];
          strides_[i] = stride;
          stride *= data[batch + i];
        }
        batch_bytes_ = stride;
        break;
      }
    }
    const int64_t slice = std::max<int64_t>(1, inner_bytes_);
    numel_ = outputs[0].numel();
    slices_ = numel_ * element_size_ / slice;
    // A slice costs a few nanoseconds, even a short one.
    grain_ = std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(16, slice));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (numel_ == 0) return;
    const auto* data = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    const IndexReader index(inputs[1], wide_);
    switch (params_.mode) {
      case GatherMode::kDEFAULT:
        if (slices_ == count_ && (inner_bytes_ == 4 || inner_bytes_ == 8))
          return parallel_for(slices_, grain_, [&](int64_t begin, int64_t end) {
            if (inner_bytes_ == 4)
              gather_numbers<uint32_t>(data, inputs[1], to, begin, end);
            else
              gather_numbers<uint64_t>(data, inputs[1], to, begin, end);
          });
        return parallel_for(slices_, grain_, [&](int64_t begin, int64_t end) {
          gather_slices(data, index, to, begin, end);
        });
      case GatherMode::kELEMENT:
        return parallel_for(slices_ / count_, std::max<int64_t>(1, grain_ / count_),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t row = begin; row < end; ++row)
                                gather_row(data, inputs[1], to, row);
                            });
      case GatherMode::kND:
        return parallel_for(slices_, grain_, [&](int64_t begin, int64_t end) {
          gather_tuples(data, index, to, begin, end);
        });
    }
  }

 private:
  /// Slice i of the output [batch, outer, count] is slice [batch, outer, index] of the data.
  void gather_slices(const std::byte* data, const IndexReader& index, std::byte* to, int64_t begin,
                     int64_t end) const {
    int64_t i = begin % count_, outer = begin / count_;
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t found = index(outer / outer_ * count_ + i, extent_);
      put(to + slice * inner_bytes_,
          found < 0 ? nullptr : data + (outer * extent_ + found) * inner_bytes_, inner_bytes_);
      if (++i == count_) i = 0, ++outer;
    }
  }

  /// Gathers slices as large as one number, in a single row. A slice may be several smaller
  /// elements, so it may be aligned only to those.
  template <class Element>
  void gather_numbers(const std::byte* data, const void* indices, std::byte* to, int64_t begin,
                      int64_t end) const {
    constexpr size_t kSize = sizeof(Element);
    with_index_reader(indices, wide_, [&, extent = extent_](const auto& index) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t found = index(i, extent);
        Element element{0};
        if (found >= 0) std::memcpy(&element, data + found * int64_t{kSize}, kSize);
        std::memcpy(to + i * int64_t{kSize}, &element, kSize);
      }
    });
  }

  void gather_row(const std::byte* data, const void* indices, std::byte* to, int64_t row) const {
    const int last = rows_.rank() - 1;
    int64_t offset = 0, rest = row;
    for (int i = last - 1; i >= 0; --i) {
      if (i != axis_) offset += rest % rows_[i] * strides_[i];
      rest /= rows_[i];
    }
    const int64_t step = axis_ == last || last < 0 ? 0 : strides_[last];
    const int64_t stride = strides_[axis_];
    const auto run = [&]<class Element>(Element) {
      const Element* from = reinterpret_cast<const Element*>(data) + offset;
      Element* out = reinterpret_cast<Element*>(to) + row * count_;
      with_index_reader(indices, wide_, [&](const auto& index) {
        for (int64_t i = 0; i < count_; ++i) {
          const int64_t found = index(row * count_ + i, extent_);
          out[i] = found < 0 ? Element{0} : from[i * step + found * stride];
        }
      });
    };
    // With sizes that the compiler knows, a copy of an element is one instruction.
    switch (element_size_) {
      case 1:
        return run(uint8_t{});
      case 2:
        return run(uint16_t{});
      case 4:
        return run(uint32_t{});
      default:
        return run(uint64_t{});
    }
  }

  void gather_tuples(const std::byte* data, const IndexReader& index, std::byte* to, int64_t begin,
                     int64_t end) const {
    for (int64_t slice = begin; slice < end; ++slice) {
      const std::byte* from = data + slice / count_ * batch_bytes_;
      for (int k = 0; k < tuple_ && from; ++k) {
        const int64_t found = index(slice * tuple_ + k, extents_[k]);
        from = found < 0 ? nullptr : from + found * strides_[k];
      }
      put(to + slice * inner_bytes_, from, inner_bytes_);
    }
  }

  GatherParams params_;
  int element_size_;
  bool wide_;
  int64_t numel_ = 0, outer_ = 1, extent_ = 0, inner_bytes_ = 0, count_ = 0;
  int64_t slices_ = 0, grain_ = 1, batch_bytes_ = 0;
  int axis_ = 0, tuple_ = 0;
  Shape rows_;
  int64_t strides_[Dims::MAX_DIMS] = {}, extents_[Dims::MAX_DIMS] = {};
};

const RegisteredKernels<Gather> kGatherKernels({indexed_copy_candidates,
                                                make_kernel<GatherKernel, Gather>,
                                                check_indexed_copy});

}  // namespace
}  // namespace opwright
