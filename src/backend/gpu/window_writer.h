#pragma once

#include <string>
#include <string_view>

#include "backend/gpu/source.h"
#include "operators/pooling.h"

namespace opwright::gpu {

/// Writes kernels that make each output from a window of an input [N, C, spatial...]. A loop over
/// the outputs contains a loop over the elements of each window.
class WindowWriter {
 public:
  /// `lanes` neighbouring threads share a window: 1, a warp, or a block of kThreads.
  WindowWriter(std::string_view name, const PoolingParams& params, const KernelArgs& args,
               int lanes = 1);

  KernelSource& source() { return source_; }
  const SymShape& x() const { return x_; }
  /// The number of outputs, which are numbered `at`.
  const Expr& count() const { return count_; }
  /// Code for the number of the window's elements in the input or the padding around it, beyond
  /// which rounding up goes. It may be used behind `before`.
  std::string padded_count();

  /// Writes the kernel with statements before, in and after the loops over the window. `visit` has
  /// the element's position as `place`, and along each spatial axis as `p0`, `p1`, .... `plane`
  /// numbers images and channels together, channels-last only images. All lanes run `after`; the
  /// one whose `lane` is 0 stores.
  GeneratedKernel write(std::string_view before, std::string_view visit, std::string_view after);

 private:
  KernelSource source_;
  const SymShape& x_;
  const int lanes_;
  Expr count_ = 1;
  std::string begin_, loops_, end_, padded_;
};

/// The least number of a type, which is the maximum of an empty set.
std::string least_of(DataType type);

}  // namespace opwright::gpu
