#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright {

/// The compiled kernels of one plugin, each made once, so that the kernel that was timed is the one
/// that the plan stores. Thread safe.
class CompiledKernels {
 public:
  /// The kernel for the candidate, ports and device in `args`. `compile` is called, with no lock
  /// held, where there is none yet.
  PlannedOperatorPtr get(const KernelArgs& args, const std::function<KernelCode()>& compile);

 private:
  std::mutex mutex_;
  std::map<std::string, PlannedOperatorPtr> by_key_;
};

}  // namespace opwright
