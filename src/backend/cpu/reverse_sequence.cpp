#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/indexing.h"

namespace opwright {
namespace {

/// Copies slices behind both axes, each from the place in its reversed sequence.
class ReverseSequenceKernel final : public Kernel {
 public:
  ReverseSequenceKernel(const ReverseSequenceParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        size_(element_size(args.inputs[0].type.dtype)),
        wide_(args.inputs[1].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape& x = inputs[0];
    const int batch = static_cast<int>(params_.batch_axis);
    const int sequence = static_cast<int>(params_.sequence_axis);
    slices_ = 0;
    require(outputs[0] == x && inputs[1].numel() == x[batch], "Layer '", layer_,
            "': lengths of shape ", inputs[1], " do not fit ", x, ", which gives ", outputs[0]);
    const int first = std::min(batch, sequence), second = std::max(batch, sequence);
    length_ = x[sequence];
    first_ = x[first], between_ = x.numel(first + 1, second), second_ = x[second];
    slice_ = x.numel(second + 1, x.rank()) * size_;
    // Distance between neighbouring elements of a sequence, in slices.
    step_ = sequence == second ? 1 : between_ * second_;
    slices_ = slice_ == 0 ? 0 : x.numel(0, second + 1);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const IndexReader lengths(inputs[1], wide_);
    const auto* const from = static_cast<const std::byte*>(inputs[0]);
    auto* const to = static_cast<std::byte*>(outputs[0]);
    const bool is_batch_first = params_.batch_axis < params_.sequence_axis;
    parallel_for(
        slices_, std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(16, slice_)),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t second = i % second_, first = i / (second_ * between_) % first_;
            const int64_t count =
                std::clamp<int64_t>(lengths.raw(is_batch_first ? first : second), 0, length_);
            const int64_t t = is_batch_first ? second : first;
            const int64_t source = t < count ? i + (count - 1 - 2 * t) * step_ : i;
            std::memcpy(to + i * slice_, from + source * slice_, static_cast<size_t>(slice_));
          }
        });
  }

 private:
  const std::string layer_;
  const ReverseSequenceParams params_;
  const int size_;
  const bool wide_;
  int64_t length_ = 0, first_ = 1, between_ = 1, second_ = 1, slice_ = 0, step_ = 1, slices_ = 0;
};

const RegisteredKernels<ReverseSequence> kReverseSequenceKernels(
    {indexed_copy_candidates, make_kernel<ReverseSequenceKernel, ReverseSequence>,
     check_indexed_copy});

}  // namespace
}  // namespace opwright
