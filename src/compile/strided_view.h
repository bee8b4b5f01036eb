#pragma once

#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// A tensor as a view of a dense one, in whose memory its elements lie: what transposes, reshapes,
/// slices, expansions and the choice of an index make of it.
class StridedView {
 public:
  /// A run of positions; an axis is one or several of them, the last one counting fastest.
  struct Part {
    Expr extent, stride;
  };

  /// The dense tensor itself.
  explicit StridedView(const SymShape& dims);

  /// What the node makes of it, whose first input it is; false, and nothing changes, where that is
  /// no view.
  bool apply(const GraphNode& node);
  /// The same elements with other extents; false where axes would have to become one that have no
  /// common stride, or extents do not divide each other.
  bool reshape(const SymShape& dims);
  void transpose(const Ints& permutation);

  size_t rank() const { return axes_.size(); }
  /// The parts of an axis, neighbours that have a common stride put together, without extents of 1.
  std::vector<Part> parts(size_t axis) const;
  /// From the dense tensor's first element to this one's.
  const Expr& offset() const { return offset_; }

 private:
  bool slice(const GraphNode& node);
  bool gather(const GraphNode& node);

  std::vector<std::vector<Part>> axes_;
  Expr offset_;
};

}  // namespace opwright
