#pragma once

#include <memory>

#include "api/border.h"
#include "api/dla.h"
#include "api/profile.h"
#include "api/timing_cache.h"
#include "compile/builder_config.h"
#include "opwright/builder.h"
#include "opwright/version.h"

namespace opwright {

/// The public face of a BuilderConfig.
class BuilderConfigApi final : public IBuilderConfig {
 public:
  BuilderConfigApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  static const BuilderConfig& of(IBuilderConfig const& config) {
    return static_cast<const BuilderConfigApi&>(config).config_;
  }

  void setFlags(BuilderFlags builderFlags) noexcept override { config_.flags.bits = builderFlags; }
  BuilderFlags getFlags() const noexcept override { return config_.flags.bits; }
  void setFlag(BuilderFlag flag) noexcept override {
    errors_.run([&] { config_.flags.set(flag); });
  }
  void clearFlag(BuilderFlag flag) noexcept override {
    errors_.run([&] { config_.flags.clear(flag); });
  }
  bool getFlag(BuilderFlag flag) const noexcept override {
    return errors_.guard(false, [&] { return config_.flags.has(flag); });
  }
  void setDefaultDeviceType(DeviceType deviceType) noexcept override {
    errors_.run([&] { config_.set_default_device_type(deviceType); });
  }
  DeviceType getDefaultDeviceType() const noexcept override {
    return config_.default_device_type();
  }
  void setDeviceType(ILayer const* layer, DeviceType deviceType) noexcept override {
    errors_.run([&] {
      require(layer != nullptr, "setDeviceType: the layer is null");
      config_.set_device_type(layer, layer->getName(), deviceType);
    });
  }
  DeviceType getDeviceType(ILayer const* layer) const noexcept override {
    return config_.device_type(layer);
  }
  bool isDeviceTypeSet(ILayer const* layer) const noexcept override {
    return config_.is_device_type_set(layer);
  }
  void resetDeviceType(ILayer const* layer) noexcept override { config_.reset_device_type(layer); }
  bool canRunOnDLA(ILayer const*) const noexcept override { return false; }
  void setDLACore(int32_t dlaCore) noexcept override {
    errors_.run([&] { require_no_dla(dlaCore); });
  }
  int32_t getDLACore() const noexcept override { return kNoDla; }
  int32_t addOptimizationProfile(IOptimizationProfile const* profile) noexcept override {
    return errors_.guard(-1, [&] {
      require(profile != nullptr, "addOptimizationProfile: the profile is null");
      return config_.add_optimization_profile(static_cast<const ProfileApi&>(*profile).profile());
    });
  }
  int32_t getNbOptimizationProfiles() const noexcept override {
    return config_.num_optimization_profiles();
  }
  void setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept override {
    errors_.run([&] { config_.set_memory_pool_limit(pool, poolSize); });
  }
  std::size_t getMemoryPoolLimit(MemoryPoolType pool) const noexcept override {
    return errors_.guard<std::size_t>(0, [&] { return config_.memory_pool_limit(pool); });
  }
  void setAvgTimingIterations(int32_t avgTiming) noexcept override {
    errors_.run([&] { set(config_, &BuilderConfig::avg_timing_iterations, avgTiming); });
  }
  int32_t getAvgTimingIterations() const noexcept override { return config_.avg_timing_iterations; }
  void setBuilderOptimizationLevel(int32_t level) noexcept override {
    errors_.run([&] { set(config_, &BuilderConfig::optimization_level, level); });
  }
  int32_t getBuilderOptimizationLevel() const noexcept override {
    return config_.optimization_level;
  }
  ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept override {
    return errors_.guard<ITimingCache*>(nullptr, [&] {
      return new TimingCacheApi(
          config_.create_timing_cache({static_cast<const std::byte*>(blob), size}), errors_.log());
    });
  }
  bool setTimingCache(ITimingCache const& cache, bool ignoreMismatch) noexcept override {
    return errors_.run([&] {
      config_.set_timing_cache(static_cast<const TimingCacheApi&>(cache).cache(), ignoreMismatch);
      timing_cache_ = std::make_unique<TimingCacheApi>(config_.timing_cache, errors_.log());
    });
  }
  ITimingCache const* getTimingCache() const noexcept override { return timing_cache_.get(); }
  void setProfilingVerbosity(ProfilingVerbosity verbosity) noexcept override {
    config_.verbosity = verbosity;
  }
  ProfilingVerbosity getProfilingVerbosity() const noexcept override { return config_.verbosity; }
  void setPluginsToSerialize(char const* const* paths, int32_t nbPaths) noexcept override {
    errors_.run([&] {
      require(nbPaths >= 0 && (nbPaths == 0 || paths != nullptr),
              "setPluginsToSerialize: the paths are null or their number ", nbPaths,
              " is negative");
      std::vector<std::string> plugins;
      for (int32_t i = 0; i < nbPaths; ++i) {
        require(paths[i] != nullptr, "setPluginsToSerialize: path ", i, " of ", nbPaths,
                " is null");
        plugins.emplace_back(paths[i]);
      }
      config_.plugins_to_serialize = std::move(plugins);
    });
  }
  char const* getPluginToSerialize(int32_t index) const noexcept override {
    return index >= 0 && index < getNbPluginsToSerialize()
               ? config_.plugins_to_serialize[index].c_str()
               : nullptr;
  }
  int32_t getNbPluginsToSerialize() const noexcept override {
    return static_cast<int32_t>(config_.plugins_to_serialize.size());
  }
  void setProgressMonitor(IProgressMonitor* monitor) noexcept override {
    errors_.run([&] {
      config_.monitor = monitor == nullptr ? nullptr : std::make_shared<Monitor>(*monitor);
      monitor_ = monitor;
    });
  }
  IProgressMonitor* getProgressMonitor() const noexcept override { return monitor_; }
  void setProfileStream(cudaStream_t stream) noexcept override { config_.profile_stream = stream; }
  cudaStream_t getProfileStream() const noexcept override {
    return static_cast<cudaStream_t>(config_.profile_stream);
  }
  void setEngineCapability(EngineCapability capability) noexcept override {
    errors_.run([&] { BuilderConfig::set_engine_capability(capability); });
  }
  EngineCapability getEngineCapability() const noexcept override {
    return EngineCapability::kSTANDARD;
  }
  void setPreviewFeature(PreviewFeature feature, bool enable) noexcept override {
    errors_.run([&] { config_.preview_features.set(feature, enable); });
  }
  bool getPreviewFeature(PreviewFeature feature) const noexcept override {
    return errors_.guard(false, [&] { return config_.preview_features.has(feature); });
  }
  void reset() noexcept override {
    errors_.run([&] {
      config_ = BuilderConfig();
      timing_cache_ = nullptr;
      monitor_ = nullptr;
    });
  }
  void setTiming(bool timing) noexcept override { config_.timing = timing; }
  bool getTiming() const noexcept override { return config_.timing; }
  void setDebugPlugins(bool debug) noexcept override { config_.debug_plugins = debug; }
  bool getDebugPlugins() const noexcept override { return config_.debug_plugins; }
  void setCudaGraphs(bool graphs) noexcept override { config_.graphs = graphs; }
  bool getCudaGraphs() const noexcept override { return config_.graphs; }
  void setMaxNbTactics(int32_t maxTactics) noexcept override {
    errors_.run([&] { set(config_, &BuilderConfig::max_num_tactics, maxTactics); });
  }
  bool setKernelSeconds(double seconds) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::kernel_seconds, seconds); });
  }
  double getKernelSeconds() const noexcept override { return config_.kernel_seconds; }
  bool setVerification(VerificationLevel level) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::verification, level); });
  }
  VerificationLevel getVerification() const noexcept override { return config_.verification; }
  void setAllTactics(bool all) noexcept override { config_.all_tactics = all; }
  bool getAllTactics() const noexcept override { return config_.all_tactics; }
  int32_t getMaxNbTactics() const noexcept override { return config_.max_num_tactics; }
  bool setTacticSources(TacticSources tacticSources) noexcept override {
    config_.tactic_sources = tacticSources;
    return true;
  }
  TacticSources getTacticSources() const noexcept override { return config_.tactic_sources; }
  bool setMaxAuxStreams(int32_t nbStreams) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::max_aux_streams, nbStreams); });
  }
  int32_t getMaxAuxStreams() const noexcept override { return config_.max_aux_streams; }
  bool setTilingOptimizationLevel(TilingOptimizationLevel level) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::tiling, level); });
  }
  TilingOptimizationLevel getTilingOptimizationLevel() const noexcept override {
    return config_.tiling;
  }
  bool setL2LimitForTiling(int64_t size) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::l2_limit_for_tiling, size); });
  }
  int64_t getL2LimitForTiling() const noexcept override { return config_.l2_limit_for_tiling; }
  void setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept override {
    errors_.run([&] { set(config_, &BuilderConfig::hardware_compatibility, level); });
  }
  HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override {
    return config_.hardware_compatibility;
  }
  void setRuntimePlatform(RuntimePlatform platform) noexcept override {
    errors_.run([&] { BuilderConfig::set_runtime_platform(platform); });
  }
  RuntimePlatform getRuntimePlatform() const noexcept override {
    return RuntimePlatform::kSAME_AS_BUILD;
  }
  bool setRemoteAutoTuningConfig(char const*) noexcept override {
    return errors_.run([&] { BuilderConfig::set_remote_auto_tuning_config(); });
  }
  char const* getRemoteAutoTuningConfig() const noexcept override { return nullptr; }
  bool setBuildRoute(char const* buildRoute) noexcept override {
    return errors_.run([&] {
      require(buildRoute != nullptr, "setBuildRoute: the text is null");
      BuilderConfig::set_build_route(buildRoute);
    });
  }
  char const* getBuildRoute() const noexcept override { return ""; }
  char const* getAllBuildRoutes() const noexcept override {
    return BuilderConfig::all_build_routes();
  }
  bool setLimits(Limits const& limits) noexcept override {
    return errors_.run([&] { set(config_, &BuilderConfig::limits, limits); });
  }
  Limits getLimits() const noexcept override { return config_.limits; }

 private:
  struct Monitor final : BuildMonitor {
    explicit Monitor(IProgressMonitor& user) : user(user) {}
    void phase_start(const std::string& phase, int steps) override {
      user.phaseStart(phase.c_str(), nullptr, steps);
    }
    bool step_complete(const std::string& phase, int step) override {
      return user.stepComplete(phase.c_str(), step);
    }
    void phase_finish(const std::string& phase) override { user.phaseFinish(phase.c_str()); }
    IProgressMonitor& user;
  };

  ErrorReport errors_;
  BuilderConfig config_;
  std::unique_ptr<TimingCacheApi> timing_cache_;  ///< the public face of the config's timing cache
  IProgressMonitor* monitor_ = nullptr;
};

}  // namespace opwright
