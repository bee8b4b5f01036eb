#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/profile.h"
#include "api/timing_cache.h"
#include "backend/backend.h"
#include "compile/config.h"
#include "opwright/builder.h"
#include "runtime/api_border.h"

namespace opwright {

/// The public face of a BuildConfig.
class BuilderConfigApi final : public IBuilderConfig {
 public:
  BuilderConfigApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  static const BuilderConfigApi& of(IBuilderConfig const& config) {
    return static_cast<const BuilderConfigApi&>(config);
  }
  /// What compile() is given. Throws Error for profiles that lack something.
  BuildConfig build_config(bool strongly_typed, Log log) const;

  void setFlags(BuilderFlags builderFlags) noexcept override { choices_.flags = builderFlags; }
  BuilderFlags getFlags() const noexcept override { return choices_.flags; }
  void setFlag(BuilderFlag builderFlag) noexcept override { choices_.flags |= bit(builderFlag); }
  void clearFlag(BuilderFlag builderFlag) noexcept override { choices_.flags &= ~bit(builderFlag); }
  bool getFlag(BuilderFlag builderFlag) const noexcept override {
    return (choices_.flags & bit(builderFlag)) != 0;
  }
  void setDefaultDeviceType(DeviceType deviceType) noexcept override {
    choices_.device = deviceType;
    choices_.device_is_chosen = true;
  }
  DeviceType getDefaultDeviceType() const noexcept override { return choices_.device; }
  void setDeviceType(ILayer const* layer, DeviceType deviceType) noexcept override;
  DeviceType getDeviceType(ILayer const* layer) const noexcept override;
  bool isDeviceTypeSet(ILayer const* layer) const noexcept override;
  void resetDeviceType(ILayer const* layer) noexcept override;
  bool canRunOnDLA(ILayer const*) const noexcept override { return false; }
  void setDLACore(int32_t dlaCore) noexcept override;
  int32_t getDLACore() const noexcept override { return -1; }
  int32_t addOptimizationProfile(IOptimizationProfile const* profile) noexcept override;
  int32_t getNbOptimizationProfiles() const noexcept override {
    return static_cast<int32_t>(choices_.profiles.size());
  }
  void setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept override;
  std::size_t getMemoryPoolLimit(MemoryPoolType pool) const noexcept override;
  void setAvgTimingIterations(int32_t avgTiming) noexcept override;
  int32_t getAvgTimingIterations() const noexcept override { return choices_.avg_timing; }
  void setBuilderOptimizationLevel(int32_t level) noexcept override;
  int32_t getBuilderOptimizationLevel() const noexcept override { return choices_.level; }
  ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept override;
  bool setTimingCache(ITimingCache const& cache, bool ignoreMismatch) noexcept override;
  ITimingCache const* getTimingCache() const noexcept override {
    return choices_.timing_cache.get();
  }
  void setProfilingVerbosity(ProfilingVerbosity verbosity) noexcept override {
    choices_.verbosity = verbosity;
  }
  ProfilingVerbosity getProfilingVerbosity() const noexcept override { return choices_.verbosity; }
  void setPluginsToSerialize(char const* const* paths, int32_t nbPaths) noexcept override;
  char const* getPluginToSerialize(int32_t index) const noexcept override;
  int32_t getNbPluginsToSerialize() const noexcept override {
    return static_cast<int32_t>(choices_.plugins.size());
  }
  void setProgressMonitor(IProgressMonitor* monitor) noexcept override {
    choices_.monitor = monitor;
  }
  IProgressMonitor* getProgressMonitor() const noexcept override { return choices_.monitor; }
  void setProfileStream(cudaStream_t stream) noexcept override { choices_.stream = stream; }
  cudaStream_t getProfileStream() const noexcept override { return choices_.stream; }
  void setEngineCapability(EngineCapability capability) noexcept override;
  EngineCapability getEngineCapability() const noexcept override {
    return EngineCapability::kSTANDARD;
  }
  void setPreviewFeature(PreviewFeature feature, bool enable) noexcept override {
    const uint32_t bit = 1U << static_cast<int32_t>(feature);
    choices_.preview_features =
        enable ? choices_.preview_features | bit : choices_.preview_features & ~bit;
  }
  bool getPreviewFeature(PreviewFeature feature) const noexcept override {
    return (choices_.preview_features >> static_cast<int32_t>(feature) & 1U) != 0;
  }
  void reset() noexcept override;
  void setTiming(bool timing) noexcept override { choices_.timing = timing; }
  bool getTiming() const noexcept override { return choices_.timing; }
  void setDebugPlugins(bool debug) noexcept override { choices_.debug_plugins = debug; }
  bool getDebugPlugins() const noexcept override { return choices_.debug_plugins; }
  void setCudaGraphs(bool graphs) noexcept override { choices_.cuda_graphs = graphs; }
  bool getCudaGraphs() const noexcept override { return choices_.cuda_graphs; }
  void setMaxNbTactics(int32_t maxTactics) noexcept override;
  int32_t getMaxNbTactics() const noexcept override { return choices_.max_tactics; }
  bool setTacticSources(TacticSources tacticSources) noexcept override {
    choices_.tactic_sources = tacticSources;
    return true;
  }
  TacticSources getTacticSources() const noexcept override { return choices_.tactic_sources; }
  bool setMaxAuxStreams(int32_t nbStreams) noexcept override;
  int32_t getMaxAuxStreams() const noexcept override { return choices_.max_aux_streams; }
  bool setTilingOptimizationLevel(TilingOptimizationLevel level) noexcept override;
  TilingOptimizationLevel getTilingOptimizationLevel() const noexcept override {
    return choices_.tiling;
  }
  bool setL2LimitForTiling(int64_t size) noexcept override;
  int64_t getL2LimitForTiling() const noexcept override { return choices_.l2_limit; }
  void setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept override;
  HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override {
    return choices_.hardware_compatibility;
  }
  void setRuntimePlatform(RuntimePlatform platform) noexcept override;
  RuntimePlatform getRuntimePlatform() const noexcept override {
    return RuntimePlatform::kSAME_AS_BUILD;
  }
  bool setRemoteAutoTuningConfig(char const* config) noexcept override;
  char const* getRemoteAutoTuningConfig() const noexcept override { return nullptr; }
  bool setBuildRoute(char const* buildRoute) noexcept override;
  char const* getBuildRoute() const noexcept override { return ""; }
  char const* getAllBuildRoutes() const noexcept override;
  bool setLimits(Limits const& limits) noexcept override;
  Limits getLimits() const noexcept override { return choices_.limits; }

 private:
  /// Everything that reset() takes back.
  struct Choices {
    BuilderFlags flags = 0;
    DeviceType device = type_of(default_device());
    bool device_is_chosen = is_default_device_chosen();
    /// Of layers that have one; with the name that the layer had then.
    struct LayerDevice {
      DeviceType type;
      std::string layer;
    };
    std::map<const ILayer*, LayerDevice> layer_devices;
    std::vector<const ProfileApi*> profiles;
    std::array<size_t, EnumMax<MemoryPoolType>()> memory_limits{};
    int32_t avg_timing = BuildConfig().avg_timing_iterations;
    int32_t level = 3;
    int32_t max_tactics = -1;
    int32_t max_aux_streams = -1;
    TacticSources tactic_sources = default_tactic_sources();
    uint32_t preview_features = ~0U;
    TilingOptimizationLevel tiling = TilingOptimizationLevel::kNONE;
    int64_t l2_limit = -1;
    HardwareCompatibilityLevel hardware_compatibility = HardwareCompatibilityLevel::kNONE;
    bool timing = true;
    std::shared_ptr<TimingCacheApi> timing_cache;
    ProfilingVerbosity verbosity = ProfilingVerbosity::kDETAILED;
    std::vector<std::string> plugins;
    IProgressMonitor* monitor = nullptr;
    cudaStream_t stream = nullptr;
    bool debug_plugins = false;
    bool cuda_graphs = true;
    Limits limits;
  };
  static BuilderFlags bit(BuilderFlag flag) { return 1U << static_cast<int32_t>(flag); }

  ErrorReport errors_;
  Choices choices_;
};

}  // namespace opwright
