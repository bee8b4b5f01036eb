#pragma once

#include <functional>
#include <memory>

#include "base/error_report.h"
#include "compile/builder_config.h"
#include "network/network.h"
#include "plugin/registry/registry.h"
#include "runtime/engine.h"

namespace opwright {

/// Builds networks, as IBuilder does; methods throw.
class Builder {
 public:
  using InterruptCheck = std::function<void()>;
  explicit Builder(Log log)
      : errors_(log), registry_(std::make_shared<PluginRegistry>(&PluginRegistry::global(), log)) {}

  ErrorReport& errors() const { return errors_; }
  const Log& log() const { return errors_.log(); }
  /// Where plugins of its networks are looked up, as long as those live.
  const std::shared_ptr<PluginRegistry>& registry() const { return registry_; }
  /// For plugins; null: the device's memory.
  const std::shared_ptr<IGpuAllocator>& allocator() const { return allocator_; }
  void set_allocator(std::shared_ptr<IGpuAllocator> allocator) {
    allocator_ = std::move(allocator);
  }
  /// Of builds and of the engines of build_engine(): at first those of the thread that calls.
  int max_threads() const;
  /// Throws Error as checked_threads() does.
  void set_max_threads(int threads);
  /// Takes back what was set.
  void reset();

  /// `check` is called between runs of kernels; what it throws ends the build.
  Plan build(const Network& network, const BuilderConfig& config, InterruptCheck check = {}) const;
  using TimingFilter = std::function<bool(const std::string& layer, const std::string& key)>;
  /// Times what a build would and the config's timing cache lacks, as far as the filter says so of
  /// a candidate's layer and of its key in that cache, and puts it there. Nothing is built.
  void time_candidates(const Network& network, const BuilderConfig& config, TimingFilter filter,
                       InterruptCheck check = {}) const;
  /// Makes the plan an engine.
  std::shared_ptr<Engine> load(Plan plan, const Network& network,
                               const BuilderConfig& config) const;
  /// Throws the Error of a build, which times nothing here.
  void check_supported(const Network& network, const BuilderConfig& config) const;

 private:
  /// The config of one build of the network.
  BuilderConfig checked(const Network& network, const BuilderConfig& config) const;

  mutable ErrorReport errors_;
  std::shared_ptr<PluginRegistry> registry_;
  std::shared_ptr<IGpuAllocator> allocator_;
  int max_threads_ = 0;  ///< 0: what the calling thread has
};

}  // namespace opwright
