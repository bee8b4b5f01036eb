#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/copy_table.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Turns every mode and stride into a table of indices per axis.
class SliceKernel final : public Kernel {
 public:
  SliceKernel(const Slice& op, const KernelArgs& args)
      : layer_(args.layer),
        params_(op.params()),
        element_size_(element_size(args.outputs[0].type.dtype)),
        starts_(params_.start),
        strides_(params_.stride),
        has_fill_(args.inputs.size() > kFill && args.inputs[kFill].present) {}

  void on_values_change(int input, std::span<const int64_t> elements) override {
    if (input == kStart) starts_.assign(elements.begin(), elements.end());
    if (input == kStride) strides_.assign(elements.begin(), elements.end());
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    copy_.clear();
    whole_bytes_ = 0;
    require_countable(inputs), require_countable(outputs);
    input_ = inputs[0];
    output_ = outputs[0];
    require(input_.rank() == output_.rank(), "Layer '", layer_, "': cannot slice ", output_,
            " from ", input_);
    std::fill_n(start_, Dims::MAX_DIMS, 0);
    std::fill_n(stride_, Dims::MAX_DIMS, 1);
    const size_t count =
        params_.axes.empty() ? static_cast<size_t>(output_.rank()) : params_.axes.size();
    require(starts_.size() == count && (strides_.size() == count || strides_.empty()), "Layer '",
            layer_, "': start and stride must have ", count, " elements, one per sliced axis, not ",
            starts_.size(), " and ", strides_.size());
    for (size_t i = 0; i < count; ++i) {
      const int64_t axis = params_.axes.empty()
                               ? static_cast<int64_t>(i)
                               : params_.axes[i] + (params_.axes[i] < 0 ? output_.rank() : 0);
      require(axis >= 0 && axis < output_.rank(), "Layer '", layer_, "': there is no axis ", axis,
              " in ", output_);
      start_[axis] = starts_[i];
      stride_[axis] = strides_.empty() ? 1 : strides_[i];
    }
    plan();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (whole_bytes_ > 0) return parallel_copy(outputs[0], inputs[0], whole_bytes_);
    static constexpr uint64_t kZero = 0;
    copy_.run(inputs[0], outputs[0], has_fill_ ? inputs[kFill] : &kZero);
  }

 private:
  static constexpr int kStart = 1, kStride = 3, kFill = 4;  ///< indices of inputs

  /// The index of the input that is read for `index` in the mode.
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
    bool is_all = true;
    for (int axis = 0; axis < output_.rank(); ++axis) is_all = is_all && is_whole(axis);
    if (is_all) {
      whole_bytes_ = output_.numel() * element_size_;
      return;
    }
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
    const Axes output = physical_extents(output_, TensorFormat::kLINEAR);
    copy_.reserve(output);
    copy_.prepare(physical_extents(input_, TensorFormat::kLINEAR), output, element_size_, is_whole,
                  fill_table);
  }

  std::string layer_;
  SliceParams params_;
  int element_size_;
  Ints starts_, strides_;  ///< one per sliced axis
  bool has_fill_;
  Shape input_, output_;
  int64_t start_[Dims::MAX_DIMS] = {}, stride_[Dims::MAX_DIMS] = {};

  TableCopy copy_;
  int64_t whole_bytes_ = 0;  ///< bytes of a copy of the whole tensor
};

std::vector<Candidate> slice_candidates(const Operator&, const CandidateQuery& query) {
  if (!kWholeBytes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "copy")};
}

void check_slice(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 5);
  rules.require(rules.input(0), kWholeBytes);
  for (size_t i = 1; i < rules.inputs() && i < 4; ++i)
    if (rules.has_input(i)) rules.require(rules.input(i), kIndexTypes);
  if (rules.has_input(4)) rules.require_same(rules.input(4), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<Slice> kSliceKernels({slice_candidates, make_kernel<SliceKernel, Slice>,
                                              check_slice});

}  // namespace
}  // namespace opwright
