#include <algorithm>
#include <cstdlib>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/moved_axes.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

std::string_view function_of(SampleMode mode) {
  switch (mode) {
    case SampleMode::kCLAMP:
      return "clamp";
    case SampleMode::kWRAP:
      return "wrap";
    default:
      return "reflect";
  }
}

constexpr int64_t kMaxNarrowExtent = 1 << 30;

/// Writes the kernel of one slice.
class SliceWriter {
 public:
  SliceWriter(const Slice& op, const KernelArgs& args)
      : source_("slice", args),
        args_(args),
        params_(op.params()),
        mode_(params_.mode),
        size_(element_size(args.outputs[0].type.dtype)),
        has_fill_value_(args.inputs.size() > 4 && args.inputs[4].present) {
    const int rank = args.outputs[0].max.rank();
    const SymShape& dims = source_.dims(0);
    std::vector<int> axes;
    for (const int64_t axis : params_.axes)
      axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
    if (params_.axes.empty())
      for (int i = 0; i < rank; ++i) axes.push_back(i);
    const std::vector<Expr> start = given(1, params_.start, axes.size(), 0);
    const std::vector<Expr> size = given(2, params_.size, axes.size(), 0);
    const std::vector<Expr> stride = given(3, params_.stride, axes.size(), 1);
    shape_ = dims;
    for (size_t i = 0; i < axes.size(); ++i) shape_[axes[i]] = size[i];

    const SymShape pitches = row_major_strides(dims);
    std::vector<MovedAxis> moved;
    for (int i = 0; i < rank; ++i)
      moved.push_back({shape_[i], pitches[i], args.outputs[0].opt[i], std::nullopt});
    for (size_t i = 0; i < axes.size(); ++i) sample(axes[i], start[i], stride[i], moved[axes[i]]);
    axes_ = merge(moved);
    describe();
  }

  const RowMove& move() const { return move_; }

  GeneratedKernel write(const RowPlan& plan) {
    source_.add_declarations(include("slice.cuh"));
    source_.set_input_type(0, carrier_type(size_));
    if (args_.inputs.size() > 4) source_.set_input_type(4, carrier_type(size_));
    return generate_rows(source_, move_, plan);
  }

 private:
  /// Start, size or stride per sliced axis: the values of the input where it is given, else the
  /// parameter.
  std::vector<Expr> given(int input, const Ints& parameter, size_t count, int64_t otherwise) {
    if (static_cast<size_t>(input) < args_.inputs.size() && args_.inputs[input].present)
      return source_.shape_values(input);
    std::vector<Expr> values(parameter.begin(), parameter.end());
    values.resize(count, Expr(otherwise));
    return values;
  }

  static Expr is_inside(const Expr& index, const Expr& extent) {
    return (Expr(1) - Expr::make(ExprOp::kLess, index, 0)) *
           Expr::make(ExprOp::kLess, index, extent);
  }

  /// Finds the place of the sliced axis in the input.
  void sample(int axis, const Expr& start, const Expr& stride, MovedAxis& moved) {
    const Expr extent = source_.dims(0)[axis], size = moved.extent;
    const Expr last = start + (size - Expr(1)) * stride;
    const bool is_known =
        start.is_constant() && stride.is_constant() && size.is_constant() && extent.is_constant();
    const Expr is_empty = Expr::make(ExprOp::kEqual, size, 0);
    const Expr is_within = max(is_empty, is_inside(start, extent) * is_inside(last, extent));
    if (mode_ == SampleMode::kSTRICT_BOUNDS || (is_known && is_within == Expr(1)) ||
        (start == Expr(0) && stride == Expr(1) && size == extent)) {
      if (mode_ == SampleMode::kSTRICT_BOUNDS &&
          !(start == Expr(0) && stride == Expr(1) && size == extent))
        source_.check(
            is_within,
            str("the slice reads beyond the bounds of axis ", axis,
                "; use a sample mode other than strict bounds or correct start and size"));
      // Start and stride of an empty slice may have any value, so they are bounded.
      offset_ = offset_ + min(max(start, Expr(0)), extent) * moved.pitch;
      moved.pitch = moved.pitch * min(max(stride, Expr(0) - extent), extent);
      return;
    }
    if (mode_ != SampleMode::kFILL && args_.inputs[0].min[axis] == 0)
      source_.check(max(Expr::make(ExprOp::kLess, 0, extent), is_empty),
                    str("axis ", axis, " has no elements to sample from"));
    const bool is_contiguous = stride == Expr(1);
    const bool keeps_runs = mode_ == SampleMode::kFILL || mode_ == SampleMode::kWRAP;
    moved.sampling = MovedAxis::Sampling{start, stride, extent, is_contiguous && keeps_runs};
    if (!is_small(axis, start, stride)) {
      source_.widen();
      // An overflow in the sum is detected when the condition is evaluated.
      source_.check(Expr::make(ExprOp::kLess, max(start, last), int64_t{1} << 62),
                    str("start and stride of axis ", axis, " overflow"));
    }
  }

  /// Whether offsets by these indices fit a 32-bit Index.
  bool is_small(int axis, const Expr& start, const Expr& stride) const {
    if (!start.is_constant() || !stride.is_constant()) return false;
    const Shape& input = args_.inputs[0].max;
    const auto most = static_cast<__int128>(input.numel(axis + 1, input.rank()));
    const auto magnitude = [](int64_t v) { return v < 0 ? -static_cast<__int128>(v) : v; };
    return (magnitude(start.constant()) +
            magnitude(stride.constant()) * args_.outputs[0].max[axis]) *
               std::max<__int128>(1, most) <
           kMaxNarrowExtent;
  }

  /// Fills in the description of the moved rows.
  void describe() {
    const MovedAxis& inner = axes_.back();
    const size_t outer = axes_.size() - 1;
    for (size_t i = 0; i < outer; ++i) move_.outer.push_back(axes_[i].extent);
    move_.length = inner.extent;
    move_.typical_length = inner.typical;
    move_.element_size = size_;
    move_.row = [this](int width) { return row(width); };

    std::vector<Expr> multiples = {inner.extent};
    const bool is_run = inner.pitch == Expr(1);
    const bool is_vector = inner.sampling ? is_run && inner.sampling->keeps_runs : is_run;
    if (is_vector) {
      multiples.push_back(offset_);
      for (size_t i = 0; i < outer; ++i) multiples.push_back(axes_[i].pitch);
      if (inner.sampling) {
        multiples.push_back(inner.sampling->start);
        multiples.push_back(inner.sampling->extent);
      }
    } else if (inner.sampling || inner.pitch != Expr(0)) {
      return;
    }
    move_.width = vector_width(source_, size_, multiples, move_.conditions);
    if (is_vector && move_.width > 1)
      move_.conditions.push_back(alignment_condition(size_, move_.width, "in0"));
  }

  /// start + position * stride
  std::string index_of(const MovedAxis::Sampling& sampling, std::string_view position) {
    std::string text(position);
    if (sampling.stride != Expr(1)) text += " * " + source_.value(sampling.stride);
    return sampling.start == Expr(0) ? text : source_.value(sampling.start) + " + " + text;
  }

  std::string row(int width) {
    const size_t outer = axes_.size() - 1;
    const bool fills = mode_ == SampleMode::kFILL;
    bool streams = true, may_be_outside = false;
    std::string text, base = source_.value(offset_);
    for (size_t i = 0; i < outer; ++i) {
      const MovedAxis& axis = axes_[i];
      std::string position = str("c", i);
      if (axis.sampling) {
        position = str("p", i);
        const std::string extent = source_.value(axis.sampling->extent);
        const std::string index = index_of(*axis.sampling, str("c", i));
        text += fills ? str("const Index ", position, " = ", index, ";\n",
                            may_be_outside ? "inside = inside && " : "bool inside = ", "(UIndex)",
                            position, " < (UIndex)", extent, ";\n")
                      : str("const Index ", position, " = ", function_of(mode_), "(", index, ", ",
                            extent, ");\n");
        may_be_outside |= fills;
      }
      streams &= axis.pitch != Expr(0) && (!axis.sampling || axis.sampling->stride != Expr(0));
      if (axis.pitch != Expr(0)) base += str(" + ", position, " * ", source_.value(axis.pitch));
    }
    text += str("const Index base = ", base, ";\n");
    return text + fetch(axes_.back(), width, streams, may_be_outside);
  }

  /// Statements that define the function that reads a row. They define `inside` where rows may lie
  /// beyond the bounds.
  std::string fetch(const MovedAxis& inner, int width, bool streams, bool may_be_outside) {
    const bool fills = may_be_outside || (inner.sampling && mode_ == SampleMode::kFILL);
    std::string text;
    if (fills)
      text += has_fill_value_ ? "const Element fill = repeat<Element>(in4[0]);\n"
                              : "const Element fill = Element();\n";
    if (!inner.sampling && inner.pitch == Expr(0)) {
      text += str("const Element value = ", may_be_outside ? "!inside ? fill : " : "",
                  "repeat<Element>(in0[base]);\n");
      return text + "return [=](Index) { return value; };\n";
    }
    const bool is_run = inner.pitch == Expr(1);
    text += "const Element* const from = (const Element*)(in0 + base);\n";
    text += "return [=](Index i) -> Element {\n";
    std::string at = "i";
    if (may_be_outside) text += "if (!inside) return fill;\n";
    if (inner.sampling) {
      const auto in_accesses = [&](const Expr& number) {
        return source_.value(number) + (width > 1 ? str(" / ", width) : std::string());
      };
      const std::string extent = in_accesses(inner.sampling->extent);
      std::string index = index_of(*inner.sampling, "i");
      if (width > 1) index = str(in_accesses(inner.sampling->start), " + i");
      at = "at";
      if (mode_ == SampleMode::kFILL)
        text += str("const Index at = ", index, ";\nif ((UIndex)at >= (UIndex)(", extent,
                    ")) return fill;\n");
      else
        text += str("const Index at = ", function_of(mode_), "(", index, ", ", extent, ");\n");
      streams &= inner.sampling->stride != Expr(0);
    }
    if (!is_run) at += " * " + source_.value(inner.pitch);
    text += is_run && streams ? str("return __ldcs(from + ", at, ");\n")
                              : str("return from[", at, "];\n");
    return text + "};\n";
  }

  KernelSource source_;
  const KernelArgs& args_;
  const SliceParams& params_;
  const SampleMode mode_;
  const int size_;
  const bool has_fill_value_;
  SymShape shape_;
  Expr offset_ = 0;  ///< offset of the first element, from axes without sampling
  std::vector<MovedAxis> axes_;
  RowMove move_;
};

const RegisteredKernels<Slice> kSliceKernels({.candidates = row_candidates<SliceWriter, Slice>,
                                              .generate = generate_row_move<SliceWriter, Slice>,
                                              .make = nullptr,
                                              .tactics = row_plan_names});

}  // namespace
}  // namespace opwright::gpu
