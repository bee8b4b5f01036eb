#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/gpu/product.h"
#include "backend/gpu/source.h"
#include "backend/gpu/windows.h"
#include "operators/convolution.h"

namespace opwright::gpu {

/// A convolution, or a transposed one, as kernels compute it: `groups` convolutions that make
/// `maps` channels of y from `channels` channels of x each.
struct ConvolutionShape {
  Windows windows;
  Expr images, channels, maps, groups;
  bool is_channels_last = false;  ///< x, y and the kernel tensor, whose outermost axis stays; else
                                  ///< linear
  int bias = -1, residual = -1;   ///< indices of inputs; -1: none

  /// `x` and `kernel` are the extents in the network's order.
  ConvolutionShape(const ConvolutionParams& params, bool is_transposed, const SymShape& x,
                   const SymShape& kernel);

  Expr taps() const { return numel(windows.window); }
  Expr pixels() const { return numel(windows.y); }
};

/// Sets the indices of the bias and the residual among `inputs`.
void find_epilogue_inputs(ConvolutionShape& shape, const ConvolutionParams& params,
                          std::span<const PortDesc> inputs);

/// Whether each window is one element of x, in the same place.
bool is_pointwise(const Windows& windows);

/// The windows in x of the first phase of a transposed convolution; see kConvolutionByPhases.
Windows windows_of_phase(const Windows& windows);

/// Bytes that a thread copies to shared memory in one access.
inline constexpr int64_t kLeastPieceBytes = 4, kMostPieceBytes = 16;
/// The number of neighbours in a window's row that one access copies, if x is linear and every
/// window lies inside of it. 0 if windows may reach beyond x, or if the neighbours have fewer than
/// kLeastPieceBytes.
int64_t patch_piece(const ConvolutionShape& shape, const ConvolutionParams& params, DataType type);

/// CandidateQuery's candidates of a convolution, or of a transposed one.
std::vector<Candidate> list_convolutions(const ConvolutionParams& params, bool is_transposed,
                                         const CandidateQuery& query);
/// KernelTactics::names.
std::vector<std::string> convolution_tactics();
std::vector<std::string> deconvolution_tactics();

/// A tactic of one of the kernels below.
struct NamedTactic {
  int64_t number = 0;
  std::string name;
};

/// The tactic of convolutions with a thread per element of the output. Lower numbers are tiles of
/// products.
inline constexpr int64_t kDirectConvolution = kProductTacticsEnd;
/// The tactics of transposed convolutions whose results are scattered: these numbers plus those of
/// products' tactics. By taps, pixels of x are multiplied with all taps of all maps. By phases,
/// each phase of the output is a convolution of its own, with every stride-th tap.
inline constexpr int64_t kConvolutionByTaps = 2 * kProductTacticsEnd;
inline constexpr int64_t kConvolutionByPhases = 3 * kProductTacticsEnd;
GeneratedKernel generate_direct_convolution(KernelSource& source, const ConvolutionShape& shape,
                                            const ConvolutionParams& params,
                                            const KernelArgs& args);

/// The tactic of convolutions of images with few channels, on warpgroups: a linear x, a
/// channels-last y. All channels of the pixels that one stride along a row covers must fit 16
/// bytes.
inline constexpr int64_t kImageConvolution = 1001;
/// Whether that kernel can compute the convolution, whose shapes are fixed.
bool is_image_convolution(const ConvolutionShape& shape, const ConvolutionParams& params,
                          DataType type, int architecture);
GeneratedKernel generate_image_convolution(KernelSource& source, const ConvolutionShape& shape,
                                           const ConvolutionParams& params, const KernelArgs& args);

/// The first tactic of depthwise convolutions, with one channel per group, channels-last and
/// floating. Each thread has neighbouring channels of some pixels in a row.
inline constexpr int64_t kDepthwiseConvolution = 1100;
/// The tactics worth timing, or all, for constant extents. None where the convolution is not
/// depthwise, or its channels do not make whole vectors.
std::vector<NamedTactic> depthwise_tactics(const ConvolutionShape& shape, DataType type, bool all);
/// KernelTactics::names of the depthwise tactics.
std::vector<std::string> depthwise_names();
GeneratedKernel generate_depthwise_convolution(KernelSource& source, const ConvolutionShape& shape,
                                               const ConvolutionParams& params,
                                               const KernelArgs& args);

/// The first tactic of convolutions over two or three axes, channels-last and of 16 bits, whose
/// blocks keep patches of the image in shared memory. Groups may be as narrow as one channel.
inline constexpr int64_t kPatchConvolution = 1200;
/// The tactics worth timing, or all that can compute the convolution, whose kernel tensor has fixed
/// extents. The others are constants of typical size.
std::vector<NamedTactic> patch_tactics(const ConvolutionShape& shape,
                                       const ConvolutionParams& params, DataType type,
                                       int architecture, bool all);
/// KernelTactics::names of the patch tactics.
std::vector<std::string> patch_names();
GeneratedKernel generate_patch_convolution(KernelSource& source, const ConvolutionShape& shape,
                                           const ConvolutionParams& params, const KernelArgs& args);

}  // namespace opwright::gpu
