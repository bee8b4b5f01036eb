#pragma once

#include <vector>

#include "backend/gpu/source.h"
#include "network/operator.h"
#include "symbolic/expr.h"

namespace opwright::gpu {

/// How inputs repeat over an output's axes. Profiles may leave open whether an extent is 1: then it
/// is presumed to be the output's, and `presumption` tells whether that holds.
struct Broadcast {
  /// Axes of the output that the inputs see alike are one; never empty.
  struct Axes {
    SymShape extents;
    std::vector<SymShape> strides;  ///< per input, in elements; 0 where it is repeated
    bool is_repeated(int input, int axis) const { return strides[input][axis] == Expr(0); }
    /// Whether one element of the input stands for all of the output.
    bool is_scalar(int input) const;
  };
  Axes presumed;
  /// 1 where `presumed` is right; the constant 1 when it always is.
  Expr presumption = 1;
  /// Right in any case, with strides that depend on extents; empty when `presumed` always is.
  Axes general;
  Expr count;  ///< elements of the output
};

Broadcast analyze_broadcast(const KernelSource& source, const KernelArgs& args);

}  // namespace opwright::gpu
