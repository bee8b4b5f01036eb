#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// A row is a channel of the output; channels-last, it is a pixel.
class ShuffleWriter {
 public:
  ShuffleWriter(const ChannelShuffle& op, const KernelArgs& args)
      : source_("channel_shuffle", args), size_(element_size(args.outputs[0].type.dtype)) {
    const ChannelShuffleParams& params = op.params();
    const SymShape& x = source_.dims(0);
    const Shape& typical = args.inputs[0].opt;
    const std::string channels = source_.value(x[1]);
    const Expr of_group = floor_div(x[1], Expr(params.groups));
    const std::string per_group = source_.value(of_group);
    source_.check_equal(of_group * params.groups, x[1],
                        str(params.groups, " groups must share the channels evenly"));
    move_.element_size = size_;
    if (layout_of(args.outputs[0].type.format).channels_last) {
      move_.outer = {x[0], numel(std::span(x).subspan(2))};
      move_.length = x[1];
      move_.typical_length = typical[1];
      move_.row = [=, groups = params.groups](int) {
        return str("const auto* const from = in0 + row * ", channels,
                   ";\nreturn [=](Index i) -> Element { return from[i % ", groups, " * ", per_group,
                   " + i / ", groups, "]; };\n");
      };
      return;
    }
    move_.outer = {x[0], x[1]};
    move_.length = numel(std::span(x).subspan(2));
    move_.typical_length = typical.numel(2, typical.rank());
    move_.width = vector_width(source_, size_, std::span(&move_.length, 1), move_.conditions);
    if (move_.width > 1) move_.conditions.push_back(alignment_condition(size_, move_.width, "in0"));
    const std::string pixels = source_.value(move_.length);
    move_.row = [=, groups = params.groups](int) {
      return str("const Index from_channel = c1 % ", groups, " * ", per_group, " + c1 / ", groups,
                 ";\nconst Element* const from = (const Element*)(in0 + (c0 * ", channels,
                 " + from_channel) * ", pixels, ");\nreturn [=](Index i) { return from[i]; };\n");
    };
  }

  const RowMove& move() const { return move_; }

  GeneratedKernel write(const RowPlan& plan) {
    source_.set_input_type(0, carrier_type(size_));
    return generate_rows(source_, move_, plan);
  }

 private:
  KernelSource source_;
  const int size_;
  RowMove move_;
};

std::vector<Candidate> shuffle_candidates(const Operator& op, const CandidateQuery& query) {
  const std::vector<TensorFormat> formats = formats_of(query, query.outputs[0].opt.rank());
  return moving_candidates(query, formats, [&](const KernelArgs& args) {
    return row_tactics<ShuffleWriter, ChannelShuffle>(op, args);
  });
}

const RegisteredKernels<ChannelShuffle> kChannelShuffleKernels(
    {shuffle_candidates, generate_row_move<ShuffleWriter, ChannelShuffle>, nullptr});

}  // namespace
}  // namespace opwright::gpu
