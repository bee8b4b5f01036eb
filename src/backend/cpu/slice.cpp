#include <algorithm>
#include <cstring>

#include "backend/cpu/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// For every axis a table says which input index an output index reads (-1: the fill value), so
/// every mode and stride runs alike. Trailing axes that are taken whole are merged into longer
/// elements, and the longest run of neighbours in the last table is copied at once.
class SliceKernel final : public Kernel {
 public:
  SliceKernel(const Slice& op, const KernelArgs& args)
      : layer_(args.layer),
        params_(op.params()),
        element_size_(element_size(args.outputs[0].type.dtype)) {
    for (int i = 1; i <= 3; ++i)
      wide_[i] = present(args, i) && args.inputs[i].type.dtype == DataType::kINT64;
    for (int i = 1; i <= 4; ++i) given_[i] = present(args, i);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    input_ = inputs[0];
    output_ = outputs[0];
    int64_t total = 0;
    for (const int64_t extent : output_) total += extent;
    table_.resize(total);
    // Starts and strides as the parameters have them, for all axes.
    std::fill_n(start_, Dims::MAX_DIMS, 0);
    std::fill_n(stride_, Dims::MAX_DIMS, 1);
    for (size_t i = 0; i < axis_count(); ++i) {
      if (!given_[1]) start_[axis(i)] = params_.start[i];
      if (!given_[3]) stride_[axis(i)] = params_.stride.empty() ? 1 : params_.stride[i];
    }
    if (!given_[1] && !given_[3]) plan();
    planned_ = !given_[1] && !given_[3];
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (given_[1] || given_[3]) update(inputs);
    if (rows_ == 0 || count_ == 0) return;
    static constexpr uint64_t kZero = 0;
    const auto* fill =
        static_cast<const std::byte*>(given_[4] ? inputs[4] : static_cast<const void*>(&kZero));
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    if (outer_count_ == 0 && run_end_ - run_begin_ == count_)
      return parallel_copy(to, from + inner_table_[0] * item_bytes_, count_ * item_bytes_);
    parallel_for(rows_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) copy_row(from, to, fill, row);
    });
  }

 private:
  static bool present(const KernelArgs& args, size_t i) {
    return i < args.inputs.size() && args.inputs[i].present;
  }
  size_t axis_count() const {
    return params_.axes.empty() ? static_cast<size_t>(output_.rank()) : params_.axes.size();
  }
  int axis(size_t i) const {
    if (params_.axes.empty()) return static_cast<int>(i);
    return static_cast<int>(params_.axes[i] < 0 ? params_.axes[i] + output_.rank()
                                                : params_.axes[i]);
  }

  /// Reads the shape tensors; plans anew when they differ from those of the last run.
  void update(void const* const* inputs) {
    bool changed = !planned_;
    for (const int input : {1, 3}) {
      if (!given_[input]) continue;
      int64_t* values = input == 1 ? start_ : stride_;
      for (size_t i = 0; i < axis_count(); ++i) {
        const int64_t value = wide_[input] ? static_cast<const int64_t*>(inputs[input])[i]
                                           : static_cast<const int32_t*>(inputs[input])[i];
        changed |= values[axis(i)] != value;
        values[axis(i)] = value;
      }
    }
    if (!changed) return;
    planned_ = false;
    plan();
    planned_ = true;
  }

  /// The input index that `index` stands for under the mode.
  int64_t resolve(int64_t index, int64_t extent, int axis) const {
    if (index >= 0 && index < extent) return index;
    if (params_.mode == SampleMode::kFILL) return -1;
    require(params_.mode != SampleMode::kSTRICT_BOUNDS && extent > 0, "Layer '", layer_,
            "': the slice reads index ", index, " of axis ", axis, ", which has ", extent,
            " elements; use a sample mode other than strict bounds or correct start and size");
    if (params_.mode == SampleMode::kCLAMP) return index < 0 ? 0 : extent - 1;
    if (params_.mode == SampleMode::kWRAP) return ((index % extent) + extent) % extent;
    if (extent == 1) return 0;
    const int64_t period = 2 * (extent - 1);
    const int64_t phase = ((index % period) + period) % period;
    return phase < extent ? phase : period - phase;
  }

  void plan() {
    const int rank = output_.rank();
    rows_ = count_ = 0;
    if (output_.numel() == 0) return;

    int64_t stride = element_size_;
    int merged = rank;  // axes from here on are taken whole
    for (; merged > 0; --merged) {
      const int i = merged - 1;
      const bool whole =
          start_[i] == 0 && input_[i] == output_[i] && (stride_[i] == 1 || output_[i] == 1);
      if (!whole) break;
      stride *= input_[i];
    }
    item_bytes_ = stride;
    if (merged == 0) {
      // Nothing but a copy: one row of one item.
      table_[0] = 0;
      inner_table_ = table_.data();
      outer_count_ = 0;
      rows_ = count_ = 1;
      run_begin_ = 0, run_end_ = 1;
      return;
    }
    int64_t* table = table_.data();
    for (int i = 0; i < merged; ++i) {
      for (int64_t k = 0; k < output_[i]; ++k) {
        // Far beyond the bounds is all the same, but must not overflow.
        int64_t index;
        if (__builtin_mul_overflow(k, stride_[i], &index) ||
            __builtin_add_overflow(index, start_[i], &index))
          fail("Layer '", layer_, "': start ", start_[i], " and stride ", stride_[i], " of axis ",
               i, " overflow");
        table[k] = resolve(index, input_[i], i);
      }
      if (i < merged - 1) {
        outer_[i] = {table, output_[i], 0};
        table += output_[i];
      }
    }
    inner_table_ = table;
    count_ = output_[merged - 1];
    outer_count_ = merged - 1;
    rows_ = output_.numel(0, merged - 1);
    row_bytes_ = count_ * item_bytes_;
    stride = item_bytes_ * input_[merged - 1];
    for (int i = merged - 2; i >= 0; --i) {
      outer_[i].stride = stride;
      stride *= input_[i];
    }
    find_run();
    step_ = count_ > 1 ? inner_table_[1] - inner_table_[0] : 1;
    for (int64_t k = 1; k < count_ && step_ != kIrregular; ++k)
      if (inner_table_[k] < 0 || inner_table_[k - 1] < 0 ||
          inner_table_[k] - inner_table_[k - 1] != step_)
        step_ = kIrregular;
    grain_ = std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(64, row_bytes_));
  }

  /// The longest range of the last axis that lies together in the input.
  void find_run() {
    run_begin_ = run_end_ = 0;
    for (int64_t begin = 0; begin < count_;) {
      int64_t end = begin + 1;
      while (end < count_ && inner_table_[begin] >= 0 &&
             inner_table_[end] == inner_table_[begin] + (end - begin))
        ++end;
      if (inner_table_[begin] >= 0 && end - begin > run_end_ - run_begin_)
        run_begin_ = begin, run_end_ = end;
      begin = end;
    }
  }

  void fill_items(std::byte* to, const std::byte* value, int64_t count) const {
    fill_elements(to, value, element_size_, count * item_bytes_ / element_size_);
  }

  /// Items [begin, end) of a row, one by one.
  void copy_items(const std::byte* from, std::byte* to, const std::byte* fill, int64_t begin,
                  int64_t end) const {
    for (int64_t k = begin; k < end; ++k) {
      std::byte* item = to + k * item_bytes_;
      if (inner_table_[k] < 0) {
        int64_t last = k + 1;  // padding comes in runs
        while (last < end && inner_table_[last] < 0) ++last;
        fill_items(item, fill, last - k);
        k = last - 1;
      } else if (item_bytes_ == 4) {
        std::memcpy(item, from + inner_table_[k] * 4, 4);
      } else {
        std::memcpy(item, from + inner_table_[k] * item_bytes_, item_bytes_);
      }
    }
  }

  void copy_row(const std::byte* from, std::byte* to, const std::byte* fill, int64_t row) const {
    to += row * row_bytes_;
    int64_t rest = row;
    for (int i = outer_count_ - 1; i >= 0; --i) {
      const int64_t index = outer_[i].table[rest % outer_[i].extent];
      rest /= outer_[i].extent;
      if (index < 0) return fill_items(to, fill, count_);
      from += index * outer_[i].stride;
    }
    if (step_ != 1 && step_ != kIrregular)  // strided, reversed or repeated
      return gather_elements(to, from + inner_table_[0] * item_bytes_, item_bytes_,
                             step_ * item_bytes_, count_);
    copy_items(from, to, fill, 0, run_begin_);
    if (run_end_ > run_begin_)
      std::memcpy(to + run_begin_ * item_bytes_, from + inner_table_[run_begin_] * item_bytes_,
                  (run_end_ - run_begin_) * item_bytes_);
    copy_items(from, to, fill, run_end_, count_);
  }

  static constexpr int64_t kIrregular = INT64_MIN;
  struct OuterAxis {
    const int64_t* table;
    int64_t extent, stride;  // stride in bytes
  };

  std::string layer_;
  SliceParams params_;
  int element_size_;
  bool given_[5] = {}, wide_[4] = {};
  bool planned_ = false;
  Shape input_, output_;
  int64_t start_[Dims::MAX_DIMS] = {}, stride_[Dims::MAX_DIMS] = {};

  std::vector<int64_t> table_;
  OuterAxis outer_[Dims::MAX_DIMS] = {};
  int outer_count_ = 0;
  const int64_t* inner_table_ = nullptr;
  int64_t rows_ = 0, count_ = 0, row_bytes_ = 0, item_bytes_ = 0, grain_ = 1;
  int64_t run_begin_ = 0, run_end_ = 0, step_ = 1;
};

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "copy")};
}

}  // namespace

KernelEntry slice_kernels() {
  return {candidates, [](const Operator& op, const KernelArgs& args) -> std::unique_ptr<Kernel> {
            return std::make_unique<SliceKernel>(static_cast<const Slice&>(op), args);
          }};
}

}  // namespace opwright
