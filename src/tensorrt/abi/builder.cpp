#include <memory>

#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {

// What TensorRT 11 and Opwright no longer have.
class IInt8Calibrator;
class IAlgorithmSelector;
enum class QuantizationFlag : int32_t;

extern const Table timing_cache_table;

namespace {

/// The config returns a view of the cache of its own. A client expects what it set. A cache of
/// another device is refused; TensorRT then builds with timings of its own.
Slot set_timing_cache() {
  const auto run = +[](Part* part, Facade* cache, bool ignores_mismatch) noexcept {
    auto& config = *static_cast<IBuilderConfig*>(part->object);
    if (config.setTimingCache(*static_cast<ITimingCache*>(cache->object()), ignores_mismatch)) {
      part->facade->keep(cache);
      return true;
    }
    if (config.getTimingCache() == nullptr) {
      const std::unique_ptr<ITimingCache> own(config.createTimingCache(nullptr, 0));
      if (own != nullptr) config.setTimingCache(*own, false);
    }
    return false;
  };
  return {"setTimingCache", reinterpret_cast<void*>(run), &typeid(bool(ITimingCache const&, bool))};
}

Slot get_timing_cache() {
  const auto run = +[](Part* part) noexcept -> Facade* {
    Facade& face = *part->facade;
    auto* const ours =
        const_cast<ITimingCache*>(static_cast<IBuilderConfig*>(part->object)->getTimingCache());
    if (ours == nullptr) return nullptr;
    if (Facade* const set = face.kept()) return set;
    static const Kind view = {{&timing_cache_table}};
    return Facade::of(ours, view, face);
  };
  return {"getTimingCache", reinterpret_cast<void*>(run), &typeid(ITimingCache const*())};
}

/// TensorRT has no CPU. Its name for the device that engines are built for by default is kGPU.
DeviceType known_device(DeviceType type) {
  return type == DeviceType::kCPU ? DeviceType::kGPU : type;
}
DeviceType own_device(const IBuilderConfig& config, DeviceType known) {
  const DeviceType type = config.getDefaultDeviceType();
  return known == known_device(type) ? type : known;
}

/// The text of kernels is a second result.
Slot build_with_kernel_text() {
  const auto run = +[](Part* part, Facade* network, Facade* config, Facade** text) noexcept {
    Facade& face = *part->facade;
    IHostMemory* ours = nullptr;
    IHostMemory* const plan =
        static_cast<IBuilder*>(part->object)
            ->buildSerializedNetwork(Crossing<INetworkDefinition&>::in(face, network),
                                     Crossing<IBuilderConfig&>::in(face, config), ours);
    *text = Crossing<IHostMemory*>::out(face, ours);
    return Crossing<IHostMemory*>::out(face, plan);
  };
  return {"buildSerializedNetworkWithKernelText", reinterpret_cast<void*>(run),
          &typeid(IHostMemory * (INetworkDefinition&, IBuilderConfig&, IHostMemory*&))};
}

}  // namespace

const Table builder_table = {
    "VBuilder",
    {
        until_10(OPWRIGHT_SAME(IBuilder, platformHasFastFp16)),
        until_10(OPWRIGHT_SAME(IBuilder, platformHasFastInt8)),
        OPWRIGHT_SAME(IBuilder, getMaxDLABatchSize),
        OPWRIGHT_SAME(IBuilder, getNbDLACores),
        OPWRIGHT_SAME(IBuilder, setGpuAllocator),
        OPWRIGHT_SAME(IBuilder, createBuilderConfig),
        OPWRIGHT_OTHER(IBuilder, createNetworkV2,
                       [](IBuilder& self, Mask<NetworkDefinitionCreationFlag> flags) {
                         return self.createNetworkV2(flags.bits);
                       }),
        OPWRIGHT_SAME(IBuilder, createOptimizationProfile),
        OPWRIGHT_PROPERTY(IBuilder, ErrorRecorder),
        OPWRIGHT_SAME(IBuilder, reset),
        until_10(OPWRIGHT_OTHER(IBuilder, platformHasTf32, [](IBuilder const&) { return true; })),
        OPWRIGHT_OTHER(IBuilder, buildSerializedNetwork,
                       [](IBuilder& self, INetworkDefinition& network, IBuilderConfig& config) {
                         return self.buildSerializedNetwork(network, config);
                       }),
        OPWRIGHT_SAME(IBuilder, isNetworkSupported),
        OPWRIGHT_SAME(IBuilder, getLogger),
        OPWRIGHT_PROPERTY(IBuilder, MaxThreads),
        OPWRIGHT_SAME(IBuilder, getPluginRegistry),
        OPWRIGHT_SAME(IBuilder, buildEngineWithConfig),
        OPWRIGHT_SAME(IBuilder, buildSerializedNetworkToStream),
        build_with_kernel_text(),
    }};

const Table builder_config_table = {
    "VBuilderConfig",
    {
        OPWRIGHT_PROPERTY(IBuilderConfig, AvgTimingIterations),
        OPWRIGHT_PROPERTY(IBuilderConfig, EngineCapability),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, setInt8Calibrator,
                                [](IBuilderConfig&, IInt8Calibrator* calibrator) {
                                  if (calibrator != nullptr)
                                    lacks("IBuilderConfig::setInt8Calibrator");
                                })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, getInt8Calibrator,
                                [](IBuilderConfig const&) -> IInt8Calibrator* { return nullptr; })),
        OPWRIGHT_OTHER(
            IBuilderConfig, setFlags,
            [](IBuilderConfig& self, Mask<BuilderFlag> flags) { self.setFlags(flags.bits); }),
        OPWRIGHT_OTHER(
            IBuilderConfig, getFlags,
            [](IBuilderConfig const& self) -> Mask<BuilderFlag> { return {self.getFlags()}; }),
        OPWRIGHT_SAME(IBuilderConfig, clearFlag),
        OPWRIGHT_PROPERTY(IBuilderConfig, Flag),
        OPWRIGHT_OTHER(IBuilderConfig, setDeviceType,
                       [](IBuilderConfig& self, ILayer const* layer, DeviceType type) {
                         self.setDeviceType(layer, own_device(self, type));
                       }),
        OPWRIGHT_OTHER(IBuilderConfig, getDeviceType,
                       [](IBuilderConfig const& self, ILayer const* layer) {
                         return known_device(self.getDeviceType(layer));
                       }),
        OPWRIGHT_SAME(IBuilderConfig, isDeviceTypeSet),
        OPWRIGHT_SAME(IBuilderConfig, resetDeviceType),
        OPWRIGHT_SAME(IBuilderConfig, canRunOnDLA),
        OPWRIGHT_PROPERTY(IBuilderConfig, DLACore),
        OPWRIGHT_OTHER(IBuilderConfig, setDefaultDeviceType,
                       [](IBuilderConfig& self, DeviceType type) {
                         self.setDefaultDeviceType(own_device(self, type));
                       }),
        OPWRIGHT_OTHER(
            IBuilderConfig, getDefaultDeviceType,
            [](IBuilderConfig const& self) { return known_device(self.getDefaultDeviceType()); }),
        OPWRIGHT_SAME(IBuilderConfig, reset),
        OPWRIGHT_PROPERTY(IBuilderConfig, ProfileStream),
        OPWRIGHT_SAME(IBuilderConfig, addOptimizationProfile),
        OPWRIGHT_SAME(IBuilderConfig, getNbOptimizationProfiles),
        OPWRIGHT_PROPERTY(IBuilderConfig, ProfilingVerbosity),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, setAlgorithmSelector,
                                [](IBuilderConfig&, IAlgorithmSelector* selector) {
                                  if (selector != nullptr)
                                    lacks("IBuilderConfig::setAlgorithmSelector");
                                })),
        until_10(
            OPWRIGHT_OTHER(IBuilderConfig, getAlgorithmSelector,
                           [](IBuilderConfig const&) -> IAlgorithmSelector* { return nullptr; })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, setCalibrationProfile,
                                [](IBuilderConfig&, IOptimizationProfile const*) {
                                  return lacks("IBuilderConfig::setCalibrationProfile");
                                })),
        until_10(
            OPWRIGHT_OTHER(IBuilderConfig, getCalibrationProfile,
                           [](IBuilderConfig&) -> IOptimizationProfile const* { return nullptr; })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, setQuantizationFlags,
                                [](IBuilderConfig&, uint32_t flags) {
                                  if (flags != 0) lacks("IBuilderConfig::setQuantizationFlags");
                                })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, getQuantizationFlags,
                                [](IBuilderConfig const&) -> uint32_t { return 0; })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, clearQuantizationFlag,
                                [](IBuilderConfig&, QuantizationFlag) {})),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, setQuantizationFlag,
                                [](IBuilderConfig&, QuantizationFlag) {
                                  lacks("IBuilderConfig::setQuantizationFlag");
                                })),
        until_10(OPWRIGHT_OTHER(IBuilderConfig, getQuantizationFlag,
                                [](IBuilderConfig const&, QuantizationFlag) { return false; })),
        OPWRIGHT_OTHER(IBuilderConfig, setTacticSources,
                       [](IBuilderConfig& self, Mask<TacticSource> sources) {
                         return self.setTacticSources(sources.bits);
                       }),
        OPWRIGHT_OTHER(IBuilderConfig, getTacticSources,
                       [](IBuilderConfig const& self) -> Mask<TacticSource> {
                         return {self.getTacticSources()};
                       }),
        OPWRIGHT_OTHER(IBuilderConfig, createTimingCache,
                       [](IBuilderConfig const& self, void const* blob, std::size_t size) {
                         ITimingCache* const cache = self.createTimingCache(blob, size);
                         // TensorRT builds without the timings of a file that it cannot read.
                         return cache == nullptr ? self.createTimingCache(nullptr, 0) : cache;
                       }),
        set_timing_cache(),
        get_timing_cache(),
        OPWRIGHT_PROPERTY(IBuilderConfig, MemoryPoolLimit),
        OPWRIGHT_PROPERTY(IBuilderConfig, PreviewFeature),
        OPWRIGHT_PROPERTY(IBuilderConfig, BuilderOptimizationLevel),
        OPWRIGHT_PROPERTY(IBuilderConfig, HardwareCompatibilityLevel),
        OPWRIGHT_SAME(IBuilderConfig, setPluginsToSerialize),
        OPWRIGHT_SAME(IBuilderConfig, getPluginToSerialize),
        OPWRIGHT_SAME(IBuilderConfig, getNbPluginsToSerialize),
        since_11(OPWRIGHT_SAME(IBuilderConfig, setMaxAuxStreams)),
        until_10(OPWRIGHT_OTHER(
            IBuilderConfig, setMaxAuxStreams,
            [](IBuilderConfig& self, int32_t streams) { self.setMaxAuxStreams(streams); })),
        OPWRIGHT_SAME(IBuilderConfig, getMaxAuxStreams),
        OPWRIGHT_PROPERTY(IBuilderConfig, ProgressMonitor),
        OPWRIGHT_PROPERTY(IBuilderConfig, RuntimePlatform),
        OPWRIGHT_PROPERTY(IBuilderConfig, MaxNbTactics),
        OPWRIGHT_PROPERTY(IBuilderConfig, TilingOptimizationLevel),
        OPWRIGHT_PROPERTY(IBuilderConfig, L2LimitForTiling),
        OPWRIGHT_PROPERTY(IBuilderConfig, RemoteAutoTuningConfig),
        since_11(OPWRIGHT_SAME(IBuilderConfig, setBuildRoute)),
        since_11(OPWRIGHT_SAME(IBuilderConfig, getBuildRoute)),
        since_11(OPWRIGHT_SAME(IBuilderConfig, getAllBuildRoutes)),
    }};

const Table optimization_profile_table = {
    "VOptimizationProfile",
    {
        OPWRIGHT_PROPERTY(IOptimizationProfile, Dimensions),
        until_10(OPWRIGHT_SAME(IOptimizationProfile, setShapeValues)),
        OPWRIGHT_SAME(IOptimizationProfile, getNbShapeValues),
        until_10(OPWRIGHT_OTHER(
            IOptimizationProfile, getShapeValues,
            [](IOptimizationProfile const& self, char const* input, OptProfileSelector select) {
              return narrowed(self.getShapeValuesV2(input, select), self.getNbShapeValues(input));
            })),
        OPWRIGHT_PROPERTY(IOptimizationProfile, ExtraMemoryTarget),
        OPWRIGHT_SAME(IOptimizationProfile, isValid),
        OPWRIGHT_PROPERTY(IOptimizationProfile, ShapeValuesV2),
    }};

const Table timing_cache_table = {"VTimingCache",
                                  {
                                      OPWRIGHT_SAME(ITimingCache, serialize),
                                      OPWRIGHT_SAME(ITimingCache, combine),
                                      OPWRIGHT_SAME(ITimingCache, reset),
                                      OPWRIGHT_SAME(ITimingCache, queryKeys),
                                      OPWRIGHT_SAME(ITimingCache, query),
                                      OPWRIGHT_SAME(ITimingCache, update),
                                  }};

const Kind builder_kind = {{&builder_table}, destroy<IBuilder>};
const Kind config_kind = {{&builder_config_table}, destroy<IBuilderConfig>};
const Kind profile_kind = {{&optimization_profile_table}};
const Kind timing_cache_kind = {{&timing_cache_table}, destroy<ITimingCache>};

}  // namespace opwright::tensorrt
