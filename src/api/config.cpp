#include "api/config.h"

#include "base/limits.h"

namespace opwright {
namespace {

/// Tells an IProgressMonitor of the phases that a ProgressCallback hears of.
class ProgressReport {
 public:
  explicit ProgressReport(IProgressMonitor& monitor) : monitor_(monitor) {}
  ~ProgressReport() { finish(); }
  ProgressReport(const ProgressReport&) = delete;
  ProgressReport& operator=(const ProgressReport&) = delete;

  bool step(const std::string& phase, int done, int total) {
    if (phase != phase_) {
      finish();
      phase_ = phase;
      monitor_.phaseStart(phase_.c_str(), nullptr, total);
    }
    return monitor_.stepComplete(phase_.c_str(), done);
  }

 private:
  void finish() {
    if (!phase_.empty()) monitor_.phaseFinish(phase_.c_str());
    phase_.clear();
  }
  IProgressMonitor& monitor_;
  std::string phase_;
};

}  // namespace

BuildConfig BuilderConfigApi::build_config(bool strongly_typed, Log log) const {
  check_builder_flags(choices_.flags);
  BuildConfig build;
  build.device = device_of(choices_.device);
  build.hardware_compatibility = choices_.hardware_compatibility;
  for (const auto& [layer, chosen] : choices_.layer_devices)
    check_layer_device(chosen.layer, chosen.type, choices_.device);
  build.may_fall_back = !choices_.device_is_chosen && choices_.layer_devices.empty();
  build.set_precisions(getFlags(), strongly_typed);
  for (const ProfileApi* profile : choices_.profiles) build.profiles.push_back(profile->profile());
  build.avg_timing_iterations = choices_.avg_timing;
  const TuningEffort effort = tuning_effort(choices_.level, choices_.max_tactics);
  build.timing = choices_.timing && effort.timing;
  build.max_candidates = effort.max_candidates;
  build.error_on_timing_cache_miss = getFlag(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS);
  if (choices_.timing_cache != nullptr && !getFlag(BuilderFlag::kDISABLE_TIMING_CACHE)) {
    build.timing_cache = choices_.timing_cache->cache();
  }
  build.detailed_inspection = choices_.verbosity == ProfilingVerbosity::kDETAILED;
  build.plugins_to_serialize = choices_.plugins;
  build.refit = refit_mode(choices_.flags);
  build.strip = strips_plan(choices_.flags);
  build.debug_plugins = choices_.debug_plugins;
  build.graphs = choices_.cuda_graphs;
  build.limits = choices_.limits;
  if (choices_.monitor != nullptr) {
    build.progress = [report = std::make_shared<ProgressReport>(*choices_.monitor)](
                         const std::string& phase, int done, int total) {
      return report->step(phase, done, total);
    };
  }
  build.log = log;
  return build;
}

void BuilderConfigApi::setDeviceType(ILayer const* layer, DeviceType deviceType) noexcept {
  errors_.run([&] {
    const auto number = static_cast<int32_t>(deviceType);
    require(layer != nullptr, "setDeviceType: the layer is null");
    require(number >= 0 && number < EnumMax<DeviceType>(),
            "setDeviceType: there is no device type ", number);
    choices_.layer_devices[layer] = {deviceType, layer->getName()};
  });
}

DeviceType BuilderConfigApi::getDeviceType(ILayer const* layer) const noexcept {
  const auto found = choices_.layer_devices.find(layer);
  return found == choices_.layer_devices.end() ? choices_.device : found->second.type;
}

bool BuilderConfigApi::isDeviceTypeSet(ILayer const* layer) const noexcept {
  return choices_.layer_devices.count(layer) != 0;
}

void BuilderConfigApi::resetDeviceType(ILayer const* layer) noexcept {
  choices_.layer_devices.erase(layer);
}

void BuilderConfigApi::setDLACore(int32_t dlaCore) noexcept {
  errors_.run([&] { require_no_dla("IBuilderConfig::setDLACore", dlaCore); });
}

int32_t BuilderConfigApi::addOptimizationProfile(IOptimizationProfile const* profile) noexcept {
  return errors_.guard(-1, [&] {
    require(profile != nullptr, "addOptimizationProfile: the profile is null");
    const auto& added = static_cast<const ProfileApi&>(*profile);
    added.profile();
    choices_.profiles.push_back(&added);
    return getNbOptimizationProfiles() - 1;
  });
}

void BuilderConfigApi::setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept {
  errors_.run([&] {
    const auto index = static_cast<size_t>(pool);
    require(index < choices_.memory_limits.size(), "setMemoryPoolLimit: there is no memory pool ",
            static_cast<int32_t>(pool));
    choices_.memory_limits[index] = poolSize;
  });
}

std::size_t BuilderConfigApi::getMemoryPoolLimit(MemoryPoolType pool) const noexcept {
  const auto index = static_cast<size_t>(pool);
  return index < choices_.memory_limits.size() ? choices_.memory_limits[index] : 0;
}

void BuilderConfigApi::setAvgTimingIterations(int32_t avgTiming) noexcept {
  errors_.run([&] {
    require(avgTiming > 0, "setAvgTimingIterations: ", avgTiming, " is not positive");
    choices_.avg_timing = avgTiming;
  });
}

void BuilderConfigApi::setBuilderOptimizationLevel(int32_t level) noexcept {
  errors_.run([&] {
    tuning_effort(level, choices_.max_tactics);
    choices_.level = level;
  });
}

void BuilderConfigApi::setMaxNbTactics(int32_t maxTactics) noexcept {
  errors_.run([&] {
    tuning_effort(choices_.level, maxTactics);
    choices_.max_tactics = maxTactics;
  });
}

bool BuilderConfigApi::setMaxAuxStreams(int32_t nbStreams) noexcept {
  return errors_.run([&] {
    require(nbStreams >= 0, "setMaxAuxStreams: ", nbStreams, " is negative");
    choices_.max_aux_streams = nbStreams;
  });
}

bool BuilderConfigApi::setTilingOptimizationLevel(TilingOptimizationLevel level) noexcept {
  return errors_.run([&] {
    const auto number = static_cast<int32_t>(level);
    require(number >= 0 && number < EnumMax<TilingOptimizationLevel>(),
            "setTilingOptimizationLevel: there is no level ", number);
    choices_.tiling = level;
  });
}

bool BuilderConfigApi::setL2LimitForTiling(int64_t size) noexcept {
  return errors_.run([&] {
    require(size >= -1, "setL2LimitForTiling: ", size, " is no size");
    choices_.l2_limit = size;
  });
}

void BuilderConfigApi::setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept {
  errors_.run([&] {
    const auto number = static_cast<int32_t>(level);
    require(number >= 0 && number < EnumMax<HardwareCompatibilityLevel>(),
            "setHardwareCompatibilityLevel: there is no level ", number);
    choices_.hardware_compatibility = level;
  });
}

void BuilderConfigApi::setRuntimePlatform(RuntimePlatform platform) noexcept {
  errors_.run([&] {
    require(platform == RuntimePlatform::kSAME_AS_BUILD, "setRuntimePlatform: platform ",
            static_cast<int32_t>(platform),
            " is not RuntimePlatform::kSAME_AS_BUILD, the only one; build the engine there");
  });
}

bool BuilderConfigApi::setRemoteAutoTuningConfig(char const*) noexcept {
  return errors_.run([&] {
    fail(
        "setRemoteAutoTuningConfig: only engines for safety are tuned elsewhere, and they are not "
        "here");
  });
}

bool BuilderConfigApi::setBuildRoute(char const* buildRoute) noexcept {
  return errors_.run([&] {
    require(buildRoute != nullptr && *buildRoute == '\0',
            "setBuildRoute: there are no options of the compiler to set; expected an empty text");
  });
}

char const* BuilderConfigApi::getAllBuildRoutes() const noexcept {
  return R"({"tuner_version": ")" OPWRIGHT_VERSION R"(", "tuner_options": []})";
}

ITimingCache* BuilderConfigApi::createTimingCache(void const* blob,
                                                  std::size_t size) const noexcept {
  return errors_.guard<ITimingCache*>(nullptr, [&] {
    std::shared_ptr<TimingCache> cache;
    if (size == 0) {
      cache = std::make_shared<TimingCache>(get_device(choices_.device).identity());
    } else {
      require(blob != nullptr, "createTimingCache: the bytes are null");
      cache = TimingCache::deserialize({static_cast<const std::byte*>(blob), size});
    }
    return new TimingCacheApi(std::move(cache), errors_.log());
  });
}

bool BuilderConfigApi::setTimingCache(ITimingCache const& cache, bool ignoreMismatch) noexcept {
  return errors_.run([&] {
    choices_.timing_cache = std::make_shared<TimingCacheApi>(
        adapt_timing_cache(static_cast<const TimingCacheApi&>(cache).cache(),
                           get_device(choices_.device).identity(), ignoreMismatch),
        errors_.log());
  });
}

void BuilderConfigApi::setPluginsToSerialize(char const* const* paths, int32_t nbPaths) noexcept {
  errors_.run([&] {
    require(nbPaths >= 0 && (nbPaths == 0 || paths != nullptr),
            "setPluginsToSerialize: the paths are null or their number ", nbPaths, " is negative");
    std::vector<std::string> plugins;
    for (int32_t i = 0; i < nbPaths; ++i) {
      require(paths[i] != nullptr, "setPluginsToSerialize: path ", i, " of ", nbPaths, " is null");
      plugins.emplace_back(paths[i]);
    }
    choices_.plugins = std::move(plugins);
  });
}

char const* BuilderConfigApi::getPluginToSerialize(int32_t index) const noexcept {
  return index >= 0 && index < getNbPluginsToSerialize() ? choices_.plugins[index].c_str()
                                                         : nullptr;
}

void BuilderConfigApi::setEngineCapability(EngineCapability capability) noexcept {
  errors_.run([&] {
    require(capability == EngineCapability::kSTANDARD,
            "setEngineCapability: ", static_cast<int32_t>(capability),
            " is not EngineCapability::kSTANDARD, the only one");
  });
}

bool BuilderConfigApi::setLimits(Limits const& limits) noexcept {
  return errors_.run([&] {
    check_limits(limits);
    choices_.limits = limits;
  });
}

void BuilderConfigApi::reset() noexcept {
  errors_.run([&] { choices_ = Choices(); });
}

}  // namespace opwright
