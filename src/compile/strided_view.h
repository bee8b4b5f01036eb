#pragma once

#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// The elements of a small integer input; those of the parameter where the input is absent. Nothing
/// where they are not known.
std::optional<std::vector<Expr>> integers_of(const GraphNode& node, size_t input,
                                             const Ints& given);
/// What a slice takes of an axis of its input.
struct SlicedAxis {
  size_t axis = 0;
  Expr start, stride;
};
/// The axes that a Slice names. Nothing where it may read beyond its input, or where its starts or
/// strides are not known.
std::optional<std::vector<SlicedAxis>> sliced_axes(const GraphNode& slice);
/// Where each axis of a reshape's output comes from, if the reshape only adds and removes axes of
/// extent 1; -1: it is added.
std::optional<std::vector<int>> kept_axes(const SymShape& in, const SymShape& out);
/// Whether the node is a slice that repeats axes of extent 1 and leaves the others unchanged.
bool only_repeats(const GraphNode& node);

/// A tensor as a view of a dense tensor, in whose memory its elements lie. Transposes, reshapes,
/// slices, expansions and the choice of an index make such views.
class StridedView {
 public:
  /// A run of positions. An axis has one or several parts; the last one counts fastest.
  struct Part {
    Expr extent, stride;
  };

  /// The dense tensor itself.
  explicit StridedView(const SymShape& dims);

  /// Applies the node, whose first input is this tensor. Returns false, and changes nothing, where
  /// the result is no view.
  bool apply(const GraphNode& node);
  /// Gives the same elements other extents. Returns false where axes without a common stride would
  /// have to become one, or extents do not divide each other.
  bool reshape(const SymShape& dims);
  void transpose(const Ints& permutation);

  size_t rank() const { return axes_.size(); }
  /// The parts of an axis. Neighbours with a common stride are joined; parts of extent 1 are left
  /// out.
  std::vector<Part> parts(size_t axis) const;
  /// Elements from the dense tensor's first element to this tensor's.
  const Expr& offset() const { return offset_; }

 private:
  bool slice(const GraphNode& node);
  bool gather(const GraphNode& node);

  std::vector<std::vector<Part>> axes_;
  Expr offset_;
};

}  // namespace opwright
