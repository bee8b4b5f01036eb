#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// With at most this number of inputs, a thread may search its input at every access.
constexpr size_t kFewShuffledInputs = 8;

/// A row is a channel of the output; channels-last, it is a pixel.
class ShuffledConcatenationWriter {
 public:
  ShuffledConcatenationWriter(const ShuffledConcatenation& op, const KernelArgs& args)
      : source_("shuffled_concatenation", args),
        params_(op.params()),
        size_(element_size(args.outputs[0].type.dtype)) {
    const SymShape& x = source_.dims(0);
    const Shape& typical = args.inputs[0].opt;
    const Expr pixels = numel(std::span(x).subspan(2));
    int64_t channels = 0;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const SymShape& dims = source_.dims(static_cast<int>(i));
      for (size_t axis = 0; axis < x.size(); ++axis)
        if (axis != 1 && dims[axis] != x[axis])
          source_.check_equal(dims[axis], x[axis],
                              str("inputs 0 and ", i, " must agree in axis ", axis));
      begins_.push_back(channels);
      channels += args.inputs[i].max[1];
    }
    begins_.push_back(channels);
    move_.element_size = size_;
    if (layout_of(args.outputs[0].type.format).channels_last) {
      move_.outer = {x[0], pixels};
      move_.length = params_.count;
      move_.typical_length = params_.count;
      move_.row = [this](int) {
        return str("return [=](Index i) -> Element {\n", source_channel("i"), choose([&](size_t i) {
                     return str("return in", i, "[row * ", extent(i), " + from - ", begins_[i],
                                "];\n");
                   }),
                   "};\n");
      };
      return;
    }
    move_.outer = {x[0], Expr(params_.count)};
    move_.length = pixels;
    move_.typical_length = typical.numel(2, typical.rank());
    move_.width = vector_width(source_, size_, std::span(&move_.length, 1), move_.conditions);
    for (size_t i = 0; i < args.inputs.size() && move_.width > 1; ++i)
      move_.conditions.push_back(alignment_condition(size_, move_.width, str("in", i)));
    const std::string of_pixels = source_.value(pixels);
    move_.row = [this, of_pixels](int) {
      return str("const Element* plane;\n", source_channel("c1"), choose([&](size_t i) {
                   return str("plane = (const Element*)(in", i, " + (c0 * ", extent(i),
                              " + from - ", begins_[i], ") * ", of_pixels, ");\n");
                 }),
                 "return [=](Index i) { return plane[i]; };\n");
    };
  }

  const RowMove& move() const { return move_; }

  GeneratedKernel write(const RowPlan& plan) {
    for (size_t i = 0; i + 1 < begins_.size(); ++i)
      source_.set_input_type(static_cast<int>(i), carrier_type(size_));
    return generate_rows(source_, move_, plan);
  }

 private:
  int64_t extent(size_t input) const { return begins_[input + 1] - begins_[input]; }
  /// Defines `from`, the joined inputs' channel that becomes channel number `channel`.
  std::string source_channel(std::string_view channel) const {
    return str("const Index at = ", channel, " + ", params_.start, ";\nconst Index from = at % ",
               params_.groups, " * ", begins_.back() / params_.groups, " + at / ", params_.groups,
               ";\n");
  }
  /// The statement of the input that has channel `from`.
  template <class Statement>
  std::string choose(const Statement& statement) const {
    std::string text;
    for (size_t i = 0; i + 1 < begins_.size(); ++i) {
      if (i + 2 < begins_.size()) text += str("if (from < ", begins_[i + 1], ")\n");
      text += statement(i);
      if (i + 2 < begins_.size()) text += "else\n";
    }
    return text;
  }

  KernelSource source_;
  const ShuffledConcatenationParams params_;
  const int size_;
  std::vector<int64_t> begins_;  ///< of the inputs' channels, and the end
  RowMove move_;
};

std::vector<Candidate> shuffled_candidates(const Operator& op, const CandidateQuery& query) {
  if (query.inputs.size() > kFewShuffledInputs) return {};
  const std::vector<TensorFormat> formats = formats_of(query, query.outputs[0].opt.rank());
  return moving_candidates(query, formats, [&](const KernelArgs& args) {
    return row_tactics<ShuffledConcatenationWriter, ShuffledConcatenation>(op, args);
  });
}

const RegisteredKernels<ShuffledConcatenation> kShuffledConcatenationKernels(
    {shuffled_candidates, generate_row_move<ShuffledConcatenationWriter, ShuffledConcatenation>,
     nullptr});

}  // namespace
}  // namespace opwright::gpu
