#pragma once

#include <string_view>
#include <vector>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/source.h"
#include "operators/window.h"

namespace opwright::gpu {

/// The padding before the first element with which `count` windows of `window` elements fit; see
/// padding_for().
Expr padding_before(const WindowAxis& axis, PaddingMode mode, const Expr& input, const Expr& window,
                    const Expr& count);

/// The windows of a convolution, or of a transposed one, in its input. Extents are those of the
/// spatial axes.
struct Windows {
  std::vector<WindowAxis> axes;
  SymShape x, window, y;
  SymShape padding;  ///< before the first element; in a transposed convolution, the elements that
                     ///< are cut off there
  bool is_transposed = false;

  /// Whether positions may need Index to be 64 bits wide.
  bool reaches_far() const;
  /// The initializer of an object of the type `Windows<Config>` of windows.cuh.
  std::string make(KernelSource& source) const;
  /// Adds the members of Config that windows.cuh names.
  void configure(ConfigWriter& config) const;
};

}  // namespace opwright::gpu
