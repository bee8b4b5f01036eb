#pragma once

#include <functional>
#include <memory>

#include "base/error_report.h"
#include "compile/builder_config.h"
#include "network/network.h"
#include "plugin/registry/registry.h"
#include "runtime/engine.h"

namespace opwright {

/// Builds networks, as IBuilder does. Methods throw.
class Builder {
 public:
  using InterruptCheck = std::function<void()>;
  explicit Builder(Log log)
      : errors_(log), registry_(std::make_shared<PluginRegistry>(&PluginRegistry::global(), log)) {}

  ErrorReport& errors() const { return errors_; }
  const Log& log() const { return errors_.log(); }
  /// The registry of its networks' plugins, which lives as long as these networks.
  const std::shared_ptr<PluginRegistry>& registry() const { return registry_; }
  /// The allocator for plugins; null: the device's memory.
  const std::shared_ptr<IGpuAllocator>& allocator() const { return allocator_; }
  void set_allocator(std::shared_ptr<IGpuAllocator> allocator) {
    allocator_ = std::move(allocator);
  }
  /// The most threads of builds and of the engines of build_engine(). Initially the limit of the
  /// calling thread.
  int max_threads() const;
  /// Throws Error as checked_threads() does.
  void set_max_threads(int threads);
  /// Takes back all settings.
  void reset();

  /// Builds a plan. `check` is called between runs of kernels. An exception that it throws ends the
  /// build.
  Plan build(const Network& network, const BuilderConfig& config, InterruptCheck check = {}) const;
  using TimingFilter = std::function<bool(const std::string& layer, const std::string& key)>;
  /// Times the candidates that a build would time and the config's timing cache lacks, if the
  /// filter returns true for a candidate's layer and its key in that cache. Puts the times into the
  /// cache. Builds nothing.
  void time_candidates(const Network& network, const BuilderConfig& config, TimingFilter filter,
                       InterruptCheck check = {}) const;
  /// Makes an engine of the plan.
  std::shared_ptr<Engine> load(Plan plan, const Network& network,
                               const BuilderConfig& config) const;
  /// Throws the Error that a build would throw. Times nothing.
  void check_supported(const Network& network, const BuilderConfig& config) const;

 private:
  /// The config of one build of the network.
  BuilderConfig checked(const Network& network, const BuilderConfig& config) const;

  mutable ErrorReport errors_;
  std::shared_ptr<PluginRegistry> registry_;
  std::shared_ptr<IGpuAllocator> allocator_;
  int max_threads_ = 0;  ///< 0: the limit of the calling thread
};

}  // namespace opwright
