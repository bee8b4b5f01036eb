#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "operators/indexing.h"

namespace opwright::gpu {
namespace {

/// A row is a slice behind both axes, or goes along the second axis where the slice is one element.
class ReverseWriter {
 public:
  ReverseWriter(const ReverseSequence& op, const KernelArgs& args)
      : source_("reverse_sequence", args), size_(element_size(args.outputs[0].type.dtype)) {
    const ReverseSequenceParams& params = op.params();
    const SymShape& x = source_.dims(0);
    const auto batch = static_cast<size_t>(params.batch_axis);
    const auto sequence = static_cast<size_t>(params.sequence_axis);
    const size_t first = std::min(batch, sequence), second = std::max(batch, sequence);
    source_.check_equal(source_.dims(1)[0], x[batch],
                        "a length for each element of the batch axis is expected");
    const std::span<const Expr> dims(x);
    const Expr slice = numel(dims.subspan(second + 1));
    const Expr between = numel(dims.subspan(first + 1, second - first - 1));
    move_.element_size = size_;
    move_.outer = {numel(dims.first(first)), x[first], between};
    const std::string length = source_.value(x[sequence]);
    const std::string extents[] = {source_.value(x[first]), source_.value(between),
                                   source_.value(x[second]), source_.value(slice)};
    const bool is_element = slice == Expr(1);
    const std::string at_second = is_element ? "i" : "c3";
    const bool is_second = sequence == second;
    const std::string find =
        str("const auto count = in1[", is_second ? "c1" : at_second,
            "];\nconst Index t = ", is_second ? at_second : "c1",
            ", last = (count < 0 ? 0 : count > ", length, " ? ", length,
            " : (Index)count) - 1;\nconst Index found = t <= last ? last - t : t;\n",
            "const Index offset = ((c0 * ", extents[0], " + ", is_second ? "c1" : "found", ") * ",
            extents[1], " + c2) * ", extents[2], " + ", is_second ? "found" : at_second, ";\n");
    if (is_element) {
      move_.length = x[second];
      move_.typical_length = args.inputs[0].opt[static_cast<int>(second)];
      move_.row = [=](int) {
        return str("return [=](Index i) -> Element {\n", find, "return in0[offset];\n};\n");
      };
      return;
    }
    move_.outer.push_back(x[second]);
    move_.length = slice;
    move_.typical_length =
        args.inputs[0].opt.numel(static_cast<int>(second) + 1, args.inputs[0].opt.rank());
    move_.width = vector_width(source_, size_, std::span(&move_.length, 1), move_.conditions);
    if (move_.width > 1) move_.conditions.push_back(alignment_condition(size_, move_.width, "in0"));
    move_.row = [=](int) {
      return str(find, "const Element* const from = (const Element*)(in0 + offset * ", extents[3],
                 ");\nreturn [=](Index i) { return from[i]; };\n");
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

const RegisteredKernels<ReverseSequence> kReverseSequenceKernels(
    {.candidates = row_candidates<ReverseWriter, ReverseSequence>,
     .generate = generate_row_move<ReverseWriter, ReverseSequence>,
     .make = nullptr,
     .tactics = row_plan_names});

}  // namespace
}  // namespace opwright::gpu
