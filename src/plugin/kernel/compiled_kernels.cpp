#include "plugin/kernel/compiled_kernels.h"

#include <utility>

#include "backend/backend.h"
#include "base/error.h"

namespace opwright {

namespace {

/// All that code compiled for `args` may depend on.
std::string compilation_key(const KernelArgs& args) {
  std::string key =
      str(args.candidate->tactic, ' ', args.device ? args.device->architecture() : "");
  for (const auto ports : {args.inputs, args.outputs})
    for (const PortDesc& port : ports)
      key += str(" | ", static_cast<int>(port.type.dtype), ' ', static_cast<int>(port.type.format),
                 ' ', port.present, ' ', port.min, ' ', port.opt, ' ', port.max);
  return key;
}

}  // namespace

PlannedOperatorPtr CompiledKernels::get(const KernelArgs& args,
                                        const std::function<KernelCode()>& compile) {
  const std::string key = compilation_key(args);
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) return found->second;
  }
  // Compiling runs code of the plugin, so no lock is held; what a second thread compiled
  // meanwhile is as good.
  KernelCode code = compile();
  if (args.device != nullptr)
    code.object.target = args.device->backend().code_format().target(code.object);
  PlannedOperatorPtr kernel = make_compiled_kernel(std::move(code));
  const std::lock_guard lock(mutex_);
  return by_key_.emplace(key, std::move(kernel)).first->second;
}

}  // namespace opwright
