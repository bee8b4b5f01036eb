#pragma once

#include <string>
#include <vector>

namespace emulation {

struct KernelName {
  std::string name;
  /// The expression in __launch_bounds__.
  std::string max_threads = "1024";
  /// The first argument of __cluster_dims__: blocks along x. Blocks along y and z are not
  /// supported.
  std::string cluster = "1";
};

/// Preprocessed CUDA C++, translated to C++ for the host.
struct Translation {
  std::string source;
  std::vector<KernelName> kernels;
  /// Whether threads wait for each other.
  bool collective = false;
};

/// Translates preprocessed source, which still contains `__global__`, `__shared__` and
/// `__launch_bounds__`.
Translation translate(std::string source);

}  // namespace emulation
