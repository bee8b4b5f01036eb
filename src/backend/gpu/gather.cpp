#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// Writes the kernel of one gathering. Rows go along the indices where an index selects one
/// element, else along the slice that an index selects.
class GatherWriter {
 public:
  GatherWriter(const Gather& op, const KernelArgs& args)
      : source_("gather", args),
        args_(args),
        data_(source_.dims(0)),
        indices_(source_.dims(1)),
        batch_(static_cast<int>(op.params().num_elementwise_dims)),
        size_(element_size(args.outputs[0].type.dtype)) {
    for (int i = 0; i < batch_; ++i)
      source_.check_equal(data_[i], indices_[i],
                          str("data and indices must agree in axis ", i, ", which is elementwise"));
    move_.element_size = size_;
    const int64_t axis = op.params().axis;
    const int at = static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(data_.size()) : axis);
    switch (op.params().mode) {
      case GatherMode::kDEFAULT:
        slices(at);
        break;
      case GatherMode::kELEMENT:
        elements(at);
        break;
      case GatherMode::kND:
        tuples();
        break;
    }
  }

  const RowMove& move() const { return move_; }

  GeneratedKernel write(const RowPlan& plan) {
    source_.add_declarations(include("indexing.cuh"));
    source_.set_input_type(0, carrier_type(size_));
    return generate_rows(source_, move_, plan);
  }

 private:
  /// The product of the extents from axis `first` to before axis `last`, of the data or of the
  /// indices.
  static Expr count(const SymShape& dims, int first, int last) {
    return numel(std::span(dims).subspan(first, last - first));
  }
  static int rank(const SymShape& dims) { return static_cast<int>(dims.size()); }

  /// Makes rows of the slices behind data axis `first`.
  void set_slice_rows(int first) {
    move_.length = count(data_, first, rank(data_));
    move_.typical_length = args_.inputs[0].opt.numel(first, rank(data_));
    move_.width = vector_width(source_, size_, std::span(&move_.length, 1), move_.conditions);
    if (move_.width > 1) move_.conditions.push_back(alignment_condition(size_, move_.width, "in0"));
  }
  /// Makes rows of the elements that the indices from axis `first` to before axis `last` select.
  void set_index_rows(int first, int last) {
    move_.length = count(indices_, first, last);
    move_.typical_length = args_.inputs[1].opt.numel(first, last);
  }

  /// Statements that read the slice at `offset`, zeros where `found` is negative.
  static std::string fetch_slice(std::string_view offset) {
    return str("const Element* const from = (const Element*)(in0 + (found < 0 ? 0 : ", offset,
               "));\nreturn [=](Index i) { return found < 0 ? Element() : from[i]; };\n");
  }
  /// Statements that read single elements. For each element, `statements` run first and define
  /// `found`.
  static std::string fetch_elements(std::string_view statements, std::string_view offset) {
    return str("return [=](Index i) -> Element {\n", statements,
               "return found < 0 ? Element() : in0[", offset, "];\n};\n");
  }

  /// Moves output [batch, outer, indices, inner] from data [batch, outer, extent, inner].
  void slices(int axis) {
    const Expr batch = count(data_, 0, batch_), outer = count(data_, batch_, axis);
    const Expr selected = count(indices_, batch_, rank(indices_));
    const std::string extent = source_.value(data_[axis]);
    const std::string inner = source_.value(count(data_, axis + 1, rank(data_)));
    // An axis of one element needs no division.
    const std::string number =
        outer == Expr(1) ? "c0" : str("(c0 * ", source_.value(outer), " + c1)");
    const std::string first = str("c0 * ", source_.value(selected));
    if (count(data_, axis + 1, rank(data_)) == Expr(1)) {
      move_.outer = {batch, outer};
      set_index_rows(batch_, rank(indices_));
      move_.row = [=](int) {
        return fetch_elements(
            str("const Index found = find(in1[", first, " + i], ", extent, ");\n"),
            str(number, " * ", extent, " + found"));
      };
      return;
    }
    move_.outer = {batch, outer, selected};
    set_slice_rows(axis + 1);
    move_.row = [=](int) {
      return str("const Index found = find(in1[", first, " + c2], ", extent, ");\n",
                 fetch_slice(str("(", number, " * ", extent, " + found) * ", inner)));
    };
  }

  /// Moves output elements with the shape of the indices. Each comes from its own place, except
  /// along one axis.
  void elements(int axis) {
    const int last = rank(indices_) - 1;
    for (int i = 0; i <= last; ++i)
      if (i != axis)
        source_.check(Expr(1) - Expr::make(ExprOp::kLess, data_[i], indices_[i]),
                      str("the indices reach beyond the data in axis ", i));
    const SymShape strides = row_major_strides(data_);
    std::vector<std::string> names;
    SymShape kept;
    for (int i = 0; i < last; ++i) {
      move_.outer.push_back(indices_[i]);
      names.push_back(str("c", i));
      kept.push_back(i == axis ? Expr(0) : strides[i]);
    }
    names.emplace_back("i");
    kept.push_back(last == axis ? Expr(0) : strides[last]);
    const std::string length = source_.value(indices_[last]);
    const std::string place = source_.offset(names, kept);
    const std::string extent = source_.value(data_[axis]), stride = source_.value(strides[axis]);
    set_index_rows(last, last + 1);
    move_.row = [=](int) {
      return fetch_elements(
          str("const Index found = find(in1[row * ", length, " + i], ", extent, ");\n"),
          str(place, " + found * ", stride));
    };
  }

  /// Moves output [batch, tuples, inner] from data [batch, one axis per index of a tuple, inner].
  void tuples() {
    const int last = rank(indices_) - 1, depth = static_cast<int>(indices_[last].constant());
    const Expr batch = count(data_, 0, batch_), selected = count(indices_, batch_, last);
    const SymShape strides = row_major_strides(data_);
    const bool is_element = count(data_, batch_ + depth, rank(data_)) == Expr(1);
    const std::string tuple =
        str("(c0 * ", source_.value(selected), is_element ? " + i) * " : " + c1) * ", depth);
    std::string find = str("Index found = 0;\nIndex offset = c0 * ",
                           source_.value(count(data_, batch_, rank(data_))), ";\n");
    for (int k = 0; k < depth; ++k)
      find += str("{\nconst Index index = find(in1[", tuple, " + ", k, "], ",
                  source_.value(data_[batch_ + k]),
                  ");\nif (index < 0) found = -1;\noffset += index * ",
                  source_.value(strides[batch_ + k]), ";\n}\n");
    if (is_element) {
      move_.outer = {batch};
      set_index_rows(batch_, last);
      move_.row = [=](int) { return fetch_elements(find, "offset"); };
      return;
    }
    move_.outer = {batch, selected};
    set_slice_rows(batch_ + depth);
    move_.row = [=](int) { return find + fetch_slice("offset"); };
  }

  KernelSource source_;
  const KernelArgs& args_;
  const SymShape &data_, &indices_;
  const int batch_, size_;
  RowMove move_;
};

const RegisteredKernels<Gather> kGatherKernels({.candidates = row_candidates<GatherWriter, Gather>,
                                                .generate = generate_row_move<GatherWriter, Gather>,
                                                .make = nullptr,
                                                .tactics = row_plan_names});

}  // namespace
}  // namespace opwright::gpu
