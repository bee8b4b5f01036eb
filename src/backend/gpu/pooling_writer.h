#pragma once

#include <string>
#include <string_view>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/source.h"
#include "operators/pooling.h"

namespace opwright::gpu {

/// Writes kernels of pooling.cuh, which make each output from a window of an input [N, C,
/// spatial...].
class PoolingWriter {
 public:
  /// `lanes` neighbouring threads share a window: 1, a warp, or a block of kThreads.
  PoolingWriter(std::string_view name, const PoolingParams& params, const KernelArgs& args,
                int lanes = 1);

  KernelSource& source() { return source_; }
  const SymShape& x() const { return x_; }
  /// The number of outputs.
  const Expr& count() const { return count_; }
  /// Config, for members that a kernel adds.
  ConfigWriter& config() { return config_; }
  /// Writes a call of that function for the windows and the further arguments.
  GeneratedKernel write(std::string_view function, std::string_view arguments);

 private:
  KernelSource source_;
  const SymShape& x_;
  const int lanes_;
  Expr count_ = 1;
  ConfigWriter config_;
  std::string windows_;
};

}  // namespace opwright::gpu
