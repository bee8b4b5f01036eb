#pragma once

#include <string>
#include <vector>

namespace emulation {

struct KernelName {
  std::string name;
  /// The expression in __launch_bounds__.
  std::string max_threads = "1024";
  /// The first one in __cluster_dims__: blocks along x. There are none along y and z.
  std::string cluster = "1";
};

/// CUDA C++ after preprocessing, as C++ for the host.
struct Translation {
  std::string source;
  std::vector<KernelName> kernels;
  /// Whether threads wait for each other.
  bool collective = false;
};

/// `source` is preprocessed, `__global__`, `__shared__` and `__launch_bounds__` still being in it.
Translation translate(std::string source);

}  // namespace emulation
