#pragma once

#include <vector>

#include "backend/gpu/source.h"
#include "network/operator.h"
#include "symbolic/expr.h"

namespace opwright::gpu {

/// Broadcasting of inputs over an output's axes. A profile may leave open whether an extent is 1.
/// The extent is then presumed to be the output's, and `presumption` tells whether that holds.
struct Broadcast {
  /// The output's axes; neighbours along which every input behaves alike are merged. Never empty.
  struct Axes {
    SymShape extents;
    std::vector<SymShape> strides;  ///< per input, in elements; 0 where the input is repeated
    bool is_repeated(int input, int axis) const { return strides[input][axis] == Expr(0); }
    /// Whether one element of the input serves the whole output.
    bool is_scalar(int input) const;
  };
  Axes presumed;
  /// 1 where `presumed` holds; the constant 1 when it always holds.
  Expr presumption = 1;
  /// Axes that hold in any case, with strides that depend on extents. Empty when `presumed` always
  /// holds.
  Axes general;
  Expr count;  ///< elements of the output
};

Broadcast analyze_broadcast(const KernelSource& source, const KernelArgs& args);

}  // namespace opwright::gpu
