#pragma once

/// \file
/// Building engines from networks in C++. Methods do not throw. On failure they return null, false
/// or the value that they document, and report to the logger and the error recorder.

#include "network.h"
#include "runtime.h"

namespace opwright {

/// Permissions and obligations of a build.
enum class BuilderFlag : int32_t {
  kFP16 = 0,                  ///< Weakly typed networks: the tuner may choose half precision.
  kINT8 = 1,                  ///< Weakly typed networks: the tuner may choose 8-bit integers.
  kDEBUG = 2,                 ///< Without effect; see IBuilderConfig::setDebugPlugins().
  kGPU_FALLBACK = 3,          ///< Without effect: there is no DLA to fall back from.
  kREFIT = 4,                 ///< All weights can be replaced with IRefitter.
  kDISABLE_TIMING_CACHE = 5,  ///< Everything is timed again.
  kTF32 = 6,                  ///< On a GPU, products of FP32 may round their operands to TF32.
  kSPARSE_WEIGHTS = 7,        ///< A permission; without effect.
  kSAFETY_SCOPE = 8,          ///< Building is an error: there are no engines for safety.
  kOBEY_PRECISION_CONSTRAINTS = 9,
  kPREFER_PRECISION_CONSTRAINTS = 10,
  /// Inputs and outputs for which ITensor::setAllowedFormats() was called are not converted. A
  /// build fails where no kernel of a layer accepts them as they are.
  kDIRECT_IO = 11,
  /// A permission, without effect. Other versions of Opwright that know the engine file's format
  /// run the engine; other versions report an error.
  kVERSION_COMPATIBLE = 13,
  kEXCLUDE_LEAN_RUNTIME = 14,        ///< Without effect: engines contain no runtime.
  kFP8 = 15,                         ///< Weakly typed networks: the tuner may choose 8-bit floats.
  kERROR_ON_TIMING_CACHE_MISS = 16,  ///< A time that the timing cache lacks is an error.
  kBF16 = 17,                        ///< Weakly typed networks: the tuner may choose bfloat16.
  kDISABLE_COMPILATION_CACHE = 18,   ///< Without effect: timing caches contain no code.
  kSTRIP_PLAN = 19,       ///< The engine is stored without the weights that refitting sets.
  kREFIT_IDENTICAL = 20,  ///< Weights can be set again, with the same values.
  /// On a GPU weights may stay in the host's memory: ICudaEngine::setWeightStreamingBudgetV2().
  kWEIGHT_STREAMING = 21,
  kINT4 = 22,                       ///< A permission; without effect.
  kREFIT_INDIVIDUAL = 23,           ///< As kREFIT, for the weights of markWeightsRefittable().
  kSTRICT_NANS = 24,                ///< Building is an error: there are no special kernels for it.
  kMONITOR_MEMORY = 25,             ///< Without effect: TensorRT logs the memory in use.
  kFP4 = 26,                        ///< A permission; without effect.
  kEDITABLE_TIMING_CACHE = 27,      ///< Without effect: timing caches can always be edited.
  kDISTRIBUTIVE_INDEPENDENCE = 28,  ///< Building is an error: kernels do not guarantee it.
};
/// A set of flags: bit `1U << int(flag)` for each.
using BuilderFlags = uint32_t;

/// Memory whose use a build can limit. kWORKSPACE limits the scratch memory of one layer: kernels
/// that want more are left out. The limits of the other pools are kept and returned, without
/// effect.
enum class MemoryPoolType : int32_t {
  kWORKSPACE = 0,
  kDLA_MANAGED_SRAM = 1,
  kDLA_LOCAL_DRAM = 2,
  kDLA_GLOBAL_DRAM = 3,
  kTACTIC_DRAM = 4,
  kTACTIC_SHARED_MEMORY = 5,
};

/// Features that TensorRT enables by a switch. In Opwright they are always enabled.
enum class PreviewFeature : int32_t {
  kALIASED_PLUGIN_IO_10_03 = 0,  ///< Plugin outputs that share the memory of an input.
  /// IExecutionContext::updateDeviceMemorySizeForShapes().
  kRUNTIME_ACTIVATION_RESIZE_10_10 = 1,
};

/// How far a build divides layers into tiles that stay in the L2 cache. A hint, without effect.
enum class TilingOptimizationLevel : int32_t {
  kNONE = 0,
  kFAST = 1,
  kMODERATE = 2,
  kFULL = 3,
};

/// The system on which an engine is to run.
enum class RuntimePlatform : int32_t {
  kSAME_AS_BUILD = 0,
  kWINDOWS_AMD64 = 1,  ///< Named for compatibility; an error.
};

namespace impl {
template <>
struct EnumMaxImpl<TilingOptimizationLevel> {
  static constexpr int32_t kVALUE = 4;
};
template <>
struct EnumMaxImpl<RuntimePlatform> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<BuilderFlag> {
  static constexpr int32_t kVALUE = 29;
};
template <>
struct EnumMaxImpl<MemoryPoolType> {
  static constexpr int32_t kVALUE = 6;
};
template <>
struct EnumMaxImpl<PreviewFeature> {
  static constexpr int32_t kVALUE = 2;
};
}  // namespace impl

/// The shapes of inputs with dynamic extents, and the values of inputs that determine shapes, for
/// which an engine is made. Created and owned by a builder.
class IOptimizationProfile : public INoCopy {
 public:
  /// \return false for extents that are negative or that contradict min <= opt <= max.
  virtual bool setDimensions(char const* inputName, OptProfileSelector select,
                             Dims const& dims) noexcept = 0;
  /// nbDims is -1 if nothing was set.
  virtual Dims getDimensions(char const* inputName, OptProfileSelector select) const noexcept = 0;

  /// As setDimensions(), for the values of a shape input in C order.
  virtual bool setShapeValuesV2(char const* inputName, OptProfileSelector select,
                                int64_t const* values, int32_t nbValues) noexcept = 0;
  virtual bool setShapeValues(char const* inputName, OptProfileSelector select,
                              int32_t const* values, int32_t nbValues) noexcept = 0;
  /// -1 if nothing was set.
  virtual int32_t getNbShapeValues(char const* inputName) const noexcept = 0;
  /// Valid until the values are set again; null if nothing was set.
  virtual int64_t const* getShapeValuesV2(char const* inputName,
                                          OptProfileSelector select) const noexcept = 0;

  /// How much memory beyond that of the first profile this one may take, from 0 to 1 (default 1). A
  /// hint, kept without effect: profiles share the weights.
  /// \return false for other numbers.
  virtual bool setExtraMemoryTarget(float target) noexcept = 0;
  virtual float getExtraMemoryTarget() const noexcept = 0;

  /// Whether each input has min, opt and max, in this order.
  virtual bool isValid() const noexcept = 0;

 protected:
  ~IOptimizationProfile() noexcept override = default;
};

/// Names an entry of a timing cache: a candidate of a layer, with shapes, types and formats.
struct TimingCacheKey {
  uint8_t data[16];
};

/// A timing cache's entry of a candidate.
struct TimingCacheValue {
  uint64_t tacticHash;  ///< The number of the tactic, which the key determines.
  float timingMSec;     ///< In milliseconds.
  static constexpr uint64_t kINVALID_TACTIC_HASH = UINT64_MAX;
};

/// Measured times of kernels on one device, for later builds. Created by
/// IBuilderConfig::createTimingCache(), deleted by the caller.
class ITimingCache : public INoCopy {
 public:
  ~ITimingCache() noexcept override = default;

  virtual IHostMemory* serialize() const noexcept = 0;
  /// Adds the times that this cache lacks.
  /// \param ignoreMismatch whether to accept times of another device.
  virtual bool combine(ITimingCache const& inputCache, bool ignoreMismatch) noexcept = 0;
  virtual bool reset() noexcept = 0;

  /// Writes the keys, at most `capacity`, always in the same order.
  /// \param keyBuffer null: nothing is written.
  /// \return the number of entries; -1 on error.
  virtual int64_t queryKeys(TimingCacheKey* keyBuffer, int64_t capacity) const noexcept = 0;
  /// \return the entry; kINVALID_TACTIC_HASH and NaN where the cache has no entry with this key.
  virtual TimingCacheValue query(TimingCacheKey const& key) const noexcept = 0;
  /// Sets the time of an entry, by which later builds choose, or removes the entry if the time is
  /// NaN.
  /// \return false where there is no such entry, the tactic is not the key's, or the time is
  ///     negative or infinite.
  virtual bool update(TimingCacheKey const& key, TimingCacheValue const& value) noexcept = 0;
};

namespace v_1_0 {

/// Implemented by the application to follow and to cancel a build.
class IProgressMonitor : public IVersionedInterface {
 public:
  IProgressMonitor() = default;
  ~IProgressMonitor() noexcept override = default;

  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"IProgressMonitor", 1, 0};
  }

  /// \param parentPhase the phase that contains this one; null if none does.
  virtual void phaseStart(char const* phaseName, char const* parentPhase,
                          int32_t nbSteps) noexcept = 0;
  /// \return false to cancel the build.
  virtual bool stepComplete(char const* phaseName, int32_t step) noexcept = 0;
  virtual void phaseFinish(char const* phaseName) noexcept = 0;
};

}  // namespace v_1_0
using IProgressMonitor = v_1_0::IProgressMonitor;

/// Beyond TensorRT: candidates whose results a build compares while it times them. A candidate that
/// computes a wrong result is left out, with a warning that names it.
enum class VerificationLevel : int32_t {
  kPLUGINS = 0,  ///< The candidates of a plugin, with each other or with the plugin's reference.
  kALL = 1,      ///< Also those of other layers, with the CPU's kernel in FP32.
  kSTRICT = 2,   ///< As kALL, and a candidate with a wrong result ends the build.
};
namespace impl {
template <>
struct EnumMaxImpl<VerificationLevel> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

/// Settings of a build. Created by IBuilder::createBuilderConfig(), deleted by the caller.
class IBuilderConfig : public INoCopy {
 public:
  ~IBuilderConfig() noexcept override = default;

  virtual void setFlags(BuilderFlags builderFlags) noexcept = 0;
  virtual BuilderFlags getFlags() const noexcept = 0;
  virtual void setFlag(BuilderFlag builderFlag) noexcept = 0;
  virtual void clearFlag(BuilderFlag builderFlag) noexcept = 0;
  virtual bool getFlag(BuilderFlag builderFlag) const noexcept = 0;

  /// The type of device on which the engine is to run. The default is the GPU if one is usable,
  /// else kCPU; the environment variable OPWRIGHT_DEVICE=cpu|cuda overrides it.
  virtual void setDefaultDeviceType(DeviceType deviceType) noexcept = 0;
  virtual DeviceType getDefaultDeviceType() const noexcept = 0;

  /// Sets the device of a layer of the network. An engine runs on one device, the default one, so
  /// the build fails for any other.
  virtual void setDeviceType(ILayer const* layer, DeviceType deviceType) noexcept = 0;
  /// The default if nothing was set.
  virtual DeviceType getDeviceType(ILayer const* layer) const noexcept = 0;
  virtual bool isDeviceTypeSet(ILayer const* layer) const noexcept = 0;
  virtual void resetDeviceType(ILayer const* layer) noexcept = 0;
  /// False: no DLA is driven.
  virtual bool canRunOnDLA(ILayer const* layer) const noexcept = 0;
  /// -1 is the only core: no DLA is driven.
  virtual void setDLACore(int32_t dlaCore) noexcept = 0;
  /// -1.
  virtual int32_t getDLACore() const noexcept = 0;

  /// \param profile must live until the build.
  /// \return the profile's index; -1 if it is not valid.
  virtual int32_t addOptimizationProfile(IOptimizationProfile const* profile) noexcept = 0;
  virtual int32_t getNbOptimizationProfiles() const noexcept = 0;

  /// Sets a limit in bytes.
  virtual void setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept = 0;
  virtual std::size_t getMemoryPoolLimit(MemoryPoolType pool) const noexcept = 0;

  /// Number of runs over which a kernel's time is measured; 4 by default.
  virtual void setAvgTimingIterations(int32_t avgTiming) noexcept = 0;
  virtual int32_t getAvgTimingIterations() const noexcept = 0;

  /// 0: nothing is timed, as with setTiming(false). 1 and 2: the first 2 or 4 candidates of each
  /// layer that work are timed. 3 to 5: all are timed. The default is 3.
  virtual void setBuilderOptimizationLevel(int32_t level) noexcept = 0;
  virtual int32_t getBuilderOptimizationLevel() const noexcept = 0;

  /// A cache for this config's device; a new one for a `size` of 0.
  /// \param blob the bytes of ITimingCache::serialize().
  /// \return null for bytes that are no timing cache.
  virtual ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept = 0;
  /// Lets builds use and extend the cache, which must outlive them.
  /// \param ignoreMismatch whether to accept a cache of another device (its times are copied).
  virtual bool setTimingCache(ITimingCache const& cache, bool ignoreMismatch) noexcept = 0;
  /// Null if none is set.
  virtual ITimingCache const* getTimingCache() const noexcept = 0;

  /// How much the engine keeps about its layers; kDETAILED by default.
  virtual void setProfilingVerbosity(ProfilingVerbosity verbosity) noexcept = 0;
  virtual ProfilingVerbosity getProfilingVerbosity() const noexcept = 0;

  /// Plugin libraries that are stored in the engine, so that it runs where they are not installed.
  /// \param paths null-terminated; copied.
  virtual void setPluginsToSerialize(char const* const* paths, int32_t nbPaths) noexcept = 0;
  /// Null if there is no such path.
  virtual char const* getPluginToSerialize(int32_t index) const noexcept = 0;
  virtual int32_t getNbPluginsToSerialize() const noexcept = 0;

  /// Null for none.
  virtual void setProgressMonitor(IProgressMonitor* monitor) noexcept = 0;
  virtual IProgressMonitor* getProgressMonitor() const noexcept = 0;

  /// The stream on which kernels are timed. A build for the CPU needs none.
  virtual void setProfileStream(cudaStream_t stream) noexcept = 0;
  virtual cudaStream_t getProfileStream() const noexcept = 0;

  /// Opwright builds EngineCapability::kSTANDARD. Others are errors.
  virtual void setEngineCapability(EngineCapability capability) noexcept = 0;
  virtual EngineCapability getEngineCapability() const noexcept = 0;
  virtual void setPreviewFeature(PreviewFeature feature, bool enable) noexcept = 0;
  virtual bool getPreviewFeature(PreviewFeature feature) const noexcept = 0;

  /// Restores the defaults.
  virtual void reset() noexcept = 0;

  /// False: nothing is timed and no plugin is run during the build. Each layer gets its fastest
  /// candidate in the timing cache, or else its first one. True by default.
  virtual void setTiming(bool timing) noexcept = 0;
  virtual bool getTiming() const noexcept = 0;

  /// Beyond TensorRT: whether the engine checks every call of a plugin of any kind. These are
  /// errors: writes beside outputs and workspace, writes to inputs, unwritten outputs, and sizes
  /// out of range. NaN and infinity from finite inputs are a warning. False by default;
  /// IRuntime::setDebugPlugins() overrides it.
  virtual void setDebugPlugins(bool debug) noexcept = 0;
  virtual bool getDebugPlugins() const noexcept = 0;

  /// Beyond TensorRT: whether execution contexts on a GPU capture their runs into CUDA graphs, once
  /// shapes have been the same for a few runs, and replay these. True by default.
  virtual void setCudaGraphs(bool graphs) noexcept = 0;
  virtual bool getCudaGraphs() const noexcept = 0;

  /// The most candidates of each layer that are timed: the first that work. -1, the default:
  /// decided by the optimization level.
  virtual void setMaxNbTactics(int32_t maxTactics) noexcept = 0;
  virtual int32_t getMaxNbTactics() const noexcept = 0;

  /// The libraries whose kernels may be candidates: kCUBLAS_LT for products on a GPU, kCUDNN for
  /// convolutions. An engine with such kernels needs that library, in that version, where it runs.
  /// Other sources are kept and returned, without effect.
  virtual bool setTacticSources(TacticSources tacticSources) noexcept = 0;
  virtual TacticSources getTacticSources() const noexcept = 0;
  /// Number of streams, beside that of the run, on which an engine for a GPU may run layers beside
  /// each other, where measured times show a gain. -1, the default: the builder decides.
  /// \return false for a negative number.
  virtual bool setMaxAuxStreams(int32_t nbStreams) noexcept = 0;
  virtual int32_t getMaxAuxStreams() const noexcept = 0;
  virtual bool setTilingOptimizationLevel(TilingOptimizationLevel level) noexcept = 0;
  virtual TilingOptimizationLevel getTilingOptimizationLevel() const noexcept = 0;
  /// In bytes; -1, the default: the builder decides. A hint, without effect.
  virtual bool setL2LimitForTiling(int64_t size) noexcept = 0;
  virtual int64_t getL2LimitForTiling() const noexcept = 0;
  /// The other GPUs on which an engine for the GPU is to run; kNONE by default. For kAMPERE_PLUS
  /// its kernels are stored as PTX, and a build fails if a plugin has a kernel compiled for fewer
  /// GPUs. kSAME_COMPUTE_CAPABILITY is always met. Plugins are responsible for their own code.
  virtual void setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept = 0;
  virtual HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept = 0;
  /// kSAME_AS_BUILD; others are errors.
  virtual void setRuntimePlatform(RuntimePlatform platform) noexcept = 0;
  virtual RuntimePlatform getRuntimePlatform() const noexcept = 0;

  /// For engines for safety, which Opwright lacks.
  /// \return false for any text, and nothing is set.
  virtual bool setRemoteAutoTuningConfig(char const* config) noexcept = 0;
  /// Null.
  virtual char const* getRemoteAutoTuningConfig() const noexcept = 0;
  /// Options of TensorRT's compiler. Opwright has none.
  /// \return false for any text but an empty one, and nothing is set.
  virtual bool setBuildRoute(char const* buildRoute) noexcept = 0;
  /// An empty text.
  virtual char const* getBuildRoute() const noexcept = 0;
  /// A JSON object with the version of Opwright and an empty list of options.
  virtual char const* getAllBuildRoutes() const noexcept = 0;

  /// Beyond TensorRT: the resources that the model may use during the build (Limits::build_memory,
  /// build_seconds, steps), and that the engine of buildEngineWithConfig() may use. The defaults
  /// initially.
  /// \return false for a limit that is negative or not a number, and nothing is set.
  virtual bool setLimits(Limits const& limits) noexcept = 0;
  virtual Limits getLimits() const noexcept = 0;

  /// Beyond TensorRT: seconds within which a kernel for a GPU must be compiled, and, where
  /// candidates are verified, must run in another process. A candidate that takes longer is left
  /// out, with the reason in the log. 60 by default. NVRTC before 13 cannot be interrupted and
  /// takes its time.
  /// \return false for numbers that are not above 0, and nothing is set.
  virtual bool setKernelSeconds(double seconds) noexcept = 0;
  virtual double getKernelSeconds() const noexcept = 0;

  /// Beyond TensorRT: which candidates the build compares with a reference. kPLUGINS by default.
  /// \return false for a value that is no level, and nothing is set.
  virtual bool setVerification(VerificationLevel level) noexcept = 0;
  virtual VerificationLevel getVerification() const noexcept = 0;
  /// Beyond TensorRT: whether all candidates that can compute a layer are timed, not only those
  /// that may be the fastest for its sizes. False by default.
  virtual void setAllTactics(bool all) noexcept = 0;
  virtual bool getAllTactics() const noexcept = 0;
};

/// Creates networks and builds engines from them. Must outlive its networks, profiles and configs.
class IBuilder : public INoCopy {
 public:
  ~IBuilder() noexcept override = default;

  virtual INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept = 0;
  virtual IBuilderConfig* createBuilderConfig() noexcept = 0;
  /// The builder owns the profile.
  virtual IOptimizationProfile* createOptimizationProfile() noexcept = 0;

  /// \return the engine file's bytes, which the caller deletes; null on failure.
  virtual IHostMemory* buildSerializedNetwork(INetworkDefinition& network,
                                              IBuilderConfig& config) noexcept = 0;
  /// The same for engines for safety, which can return the text of the kernels.
  /// \param kernelText set to null: there is no text.
  virtual IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config,
                                              IHostMemory*& kernelText) noexcept = 0;
  /// \return an engine that the caller deletes; null on failure.
  virtual ICudaEngine* buildEngineWithConfig(INetworkDefinition& network,
                                             IBuilderConfig& config) noexcept = 0;
  /// Whether the network can be built.
  virtual bool isNetworkSupported(INetworkDefinition const& network,
                                  IBuilderConfig const& config) const noexcept = 0;

  /// The registry in which parsers of this builder's networks look plugins up.
  virtual IPluginRegistry& getPluginRegistry() noexcept = 0;
  virtual ILogger* getLogger() const noexcept = 0;

  /// The most threads that a build for the CPU uses, including the caller's.
  /// \return false for less than 1 or more than 4096, and nothing is set.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;

  /// 0: no DLA is driven.
  virtual int32_t getMaxDLABatchSize() const noexcept = 0;
  virtual int32_t getNbDLACores() const noexcept = 0;

  virtual bool platformHasFastFp16() const noexcept = 0;
  virtual bool platformHasFastInt8() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// The allocator from which plugins get memory through their resource context, while they are
  /// timed and in engines of buildEngineWithConfig(); null: the device. Must outlive these engines.
  virtual void setGpuAllocator(IGpuAllocator* allocator) noexcept = 0;

  /// As buildSerializedNetwork(), but writes the bytes to a stream.
  /// \return false on failure, including failures of the writer.
  virtual bool buildSerializedNetworkToStream(INetworkDefinition& network, IBuilderConfig& config,
                                              IStreamWriter& writer) noexcept = 0;
  /// Restores the defaults of all settings.
  virtual void reset() noexcept = 0;
};

}  // namespace opwright

/// Implementation of createInferBuilder(): takes an ILogger and the API level for which the caller
/// was compiled, returns an IBuilder; null if the level does not fit.
extern "C" OPWRIGHT_API void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept;

namespace opwright {

/// \return a builder that the caller deletes; null on failure.
inline IBuilder* createInferBuilder(ILogger& logger) noexcept {
  return static_cast<IBuilder*>(createInferBuilder_INTERNAL(&logger, NV_TENSORRT_VERSION));
}

}  // namespace opwright
