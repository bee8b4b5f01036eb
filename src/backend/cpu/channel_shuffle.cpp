#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/transpose_tile.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// In LINEAR, the kernel copies whole planes. Channels-last, each pixel is a small matrix that it
/// transposes. With blocks of channels, it gathers elements.
class ChannelShuffleKernel final : public Kernel {
 public:
  ChannelShuffleKernel(const ChannelShuffle& op, const KernelArgs& args)
      : groups_(op.params().groups),
        element_size_(element_size(args.outputs[0].type.dtype)),
        layout_(layout_of(args.outputs[0].type.format)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape& x = inputs[0];
    tasks_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(x == outputs[0] && x.rank() >= 2 && x[1] % groups_ == 0, "cannot shuffle ", groups_,
            " groups of the channels of ", x, " to ", outputs[0]);
    channels_ = x[1];
    per_group_ = channels_ / groups_;
    pixels_ = x.numel(2, x.rank());
    blocks_ = (channels_ + layout_.block - 1) / layout_.block;
    int64_t task_elements = pixels_ * layout_.block;
    if (layout_.channels_last) task_elements = channels_;
    grain_ =
        std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(1, task_elements * element_size_));
    if (x.numel() > 0) tasks_ = x[0] * (layout_.channels_last ? pixels_ : blocks_);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    parallel_for(tasks_, grain_, [&](int64_t begin, int64_t end) {
      if (layout_.channels_last) {
        const int64_t offset = begin * channels_ * element_size_;
        return transpose_matrices(from + offset, to + offset, groups_, per_group_, end - begin,
                                  element_size_);
      }
      for (int64_t task = begin; task < end; ++task) {
        const int64_t image_bytes = blocks_ * pixels_ * layout_.block * element_size_;
        const int64_t image = task / blocks_, block = task % blocks_;
        shuffle_block(from + image * image_bytes, to + image * image_bytes, block);
      }
    });
  }

 private:
  /// The input channel that becomes output channel `to`.
  int64_t source_of(int64_t to) const { return to % groups_ * per_group_ + to / groups_; }

  void shuffle_block(const std::byte* from, std::byte* to, int64_t block) const {
    const int64_t width = int64_t{layout_.block} * element_size_, first = block * layout_.block;
    std::byte* target = to + block * pixels_ * width;
    if (layout_.block == 1) {
      std::memcpy(target, from + source_of(first) * pixels_ * width, pixels_ * width);
      return;
    }
    int64_t sources[kMaxBlock];  // indices of the lanes' source elements, for the first pixel
    const int64_t lanes = std::min<int64_t>(layout_.block, channels_ - first);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t source = source_of(first + lane);
      sources[lane] = (source / layout_.block * pixels_) * layout_.block + source % layout_.block;
    }
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
      std::byte* row = target + pixel * width;
      pick_elements(row, from + pixel * width, element_size_, sources, lanes);
      std::memset(row + lanes * element_size_, 0, width - lanes * element_size_);
    }
  }

  static constexpr int kMaxBlock = 16;  ///< the largest block of kImageFormats

  int64_t groups_;
  int element_size_;
  FormatLayout layout_;
  int64_t channels_ = 0, per_group_ = 0, pixels_ = 0, blocks_ = 0;
  int64_t tasks_ = 0, grain_ = 1;  ///< pixels, or blocks of channels
};

std::vector<Candidate> channel_shuffle_candidates(const Operator&, const CandidateQuery& query) {
  const PortDesc& y = query.outputs[0];
  if (!kWholeBytes.has(y.type.dtype)) return {};
  std::vector<Candidate> result;
  for (const TensorFormat format : formats_of(query, y.max.rank())) {
    Candidate candidate = linear_candidate(query, "blocks");
    candidate.inputs[0].format = candidate.outputs[0].format = format;
    result.push_back(std::move(candidate));
  }
  add_lower_precisions(query, y, result);
  return result;
}

void check_channel_shuffle(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kWholeBytes, kImageFormats);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<ChannelShuffle> kChannelShuffleKernels(
    {channel_shuffle_candidates, make_kernel<ChannelShuffleKernel, ChannelShuffle>,
     check_channel_shuffle});

}  // namespace
}  // namespace opwright
