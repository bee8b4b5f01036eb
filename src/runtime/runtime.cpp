#include "runtime/runtime.h"

#include "base/limits.h"
#include "base/parallel.h"

namespace opwright {

Runtime::Runtime(Log log)
    : errors_(log), registry_(std::make_shared<PluginRegistry>(&PluginRegistry::global(), log)) {
  options_.allow_host_code = is_permitted_by_environment(kAllowHostCode);
  options_.allow_device_code = is_permitted_by_environment(kAllowDeviceCode);
}

void Runtime::set_limits(const Limits& limits) {
  check_limits(limits);
  options_.limits = limits;
}

int Runtime::max_threads() const {
  return options_.max_threads > 0 ? options_.max_threads : thread_count();
}

void Runtime::set_max_threads(int threads) {
  options_.max_threads = checked_threads(threads, "a runtime");
}

std::shared_ptr<Engine> Runtime::load(const Blob& file) const {
  const ThreadLimit limit(options_.max_threads);
  LoadOptions options = options_;
  options.plugins = registry_.get();
  options.log = errors_.log();
  options.recorder = errors_.recorder();
  return Engine::load(deserialize(file, options.weights), options);
}

}  // namespace opwright
