#pragma once

#include <string>
#include <vector>

#include "backend/gpu/product.h"
#include "backend/gpu/source.h"
#include "backend/gpu/windows.h"
#include "operators/convolution.h"

namespace opwright::gpu {

/// A convolution, or a transposed one, as kernels see it: `groups` convolutions of `channels`
/// channels of x, which give `maps` channels of y each.
struct ConvolutionShape {
  Windows windows;
  Expr images, channels, maps, groups;
  bool is_channels_last = false;  ///< x, y and the kernel, whose outermost axis stays; else linear
  int bias = -1, residual = -1;   ///< the inputs; -1: none

  /// `x` and `kernel`: the extents as the network has them.
  ConvolutionShape(const ConvolutionParams& params, bool is_transposed, const SymShape& x,
                   const SymShape& kernel);

  Expr taps() const { return numel(windows.window); }
  Expr pixels() const { return numel(windows.y); }
};

/// The tactic of convolutions whose threads compute elements of the output one by one. Lower ones
/// are tiles of products.
inline constexpr int64_t kDirectConvolution = kProductTacticsEnd;
GeneratedKernel generate_direct_convolution(KernelSource& source, const ConvolutionShape& shape,
                                            const ConvolutionParams& params,
                                            const KernelArgs& args);

/// The tactic of images of few channels, by warpgroups: a linear x, a y that is channels-last.
/// What a stride along a row goes over, all channels of it, fits into 16 bytes.
inline constexpr int64_t kImageConvolution = 1001;
/// Whether there is that kernel. Of fixed shapes.
bool is_image_convolution(const ConvolutionShape& shape, const ConvolutionParams& params,
                          DataType type, int architecture);
GeneratedKernel generate_image_convolution(KernelSource& source, const ConvolutionShape& shape,
                                           const ConvolutionParams& params, const KernelArgs& args);

/// The first tactic of convolutions of one channel each, channels-last and floating, whose threads
/// have neighbouring channels of some pixels in a row.
inline constexpr int64_t kDepthwiseConvolution = 1100;
struct DepthwiseTactic {
  int64_t number = 0;
  std::string name;
};
/// Those worth timing, or all, for extents that are constant; none where the convolution is another
/// one, or its channels do not make whole vectors.
std::vector<DepthwiseTactic> depthwise_tactics(const ConvolutionShape& shape, DataType type,
                                               bool all);
/// KernelTactics::names of them.
std::vector<std::string> depthwise_names();
GeneratedKernel generate_depthwise_convolution(KernelSource& source, const ConvolutionShape& shape,
                                               const ConvolutionParams& params,
                                               const KernelArgs& args);

}  // namespace opwright::gpu
