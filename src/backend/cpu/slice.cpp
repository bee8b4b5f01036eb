#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/copy_table.h"
#include "backend/cpu/kernels.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Every mode and stride becomes a table of indices per axis.
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
    copy_.reserve(physical_extents(output_, TensorFormat::kLINEAR));
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
    static constexpr uint64_t kZero = 0;
    copy_.run(inputs[0], outputs[0], given_[4] ? inputs[4] : &kZero);
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
    if (params_.mode == SampleMode::kFILL) return TableCopy::kFill;
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
    const auto is_whole = [&](int axis) {
      return start_[axis] == 0 && input_[axis] == output_[axis] &&
             (stride_[axis] == 1 || output_[axis] == 1);
    };
    const auto fill_table = [&](int axis, int64_t* table) {
      for (int64_t k = 0; k < output_[axis]; ++k) {
        int64_t index;
        if (__builtin_mul_overflow(k, stride_[axis], &index) ||
            __builtin_add_overflow(index, start_[axis], &index))
          fail("Layer '", layer_, "': start ", start_[axis], " and stride ", stride_[axis],
               " of axis ", axis, " overflow");
        table[k] = resolve(index, input_[axis], axis);
      }
    };
    copy_.prepare(physical_extents(input_, TensorFormat::kLINEAR),
                  physical_extents(output_, TensorFormat::kLINEAR), element_size_, is_whole,
                  fill_table);
  }

  std::string layer_;
  SliceParams params_;
  int element_size_;
  bool given_[5] = {}, wide_[4] = {};
  bool planned_ = false;
  Shape input_, output_;
  int64_t start_[Dims::MAX_DIMS] = {}, stride_[Dims::MAX_DIMS] = {};

  TableCopy copy_;
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
