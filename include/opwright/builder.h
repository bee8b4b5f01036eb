#pragma once

/// \file
/// Building engines from networks in C++. Methods do not throw: on failure they return null, false
/// or what is said there, and tell the logger and the error recorder.

#include "network.h"
#include "runtime.h"

namespace opwright {

/// What a build may do, or must.
enum class BuilderFlag : int32_t {
  kFP16 = 0,                  ///< Weakly typed networks: the tuner may choose half precision.
  kINT8 = 1,                  ///< Weakly typed networks: the tuner may choose 8-bit integers.
  kDEBUG = 2,                 ///< Without effect; see IBuilderConfig::setDebugPlugins().
  kGPU_FALLBACK = 3,          ///< Without effect: there is no DLA to fall back from.
  kREFIT = 4,                 ///< All weights can be given anew: IRefitter.
  kDISABLE_TIMING_CACHE = 5,  ///< Everything is timed afresh.
  kTF32 = 6,                  ///< On a GPU, products of FP32 may round their operands to TF32.
  kSPARSE_WEIGHTS = 7,        ///< A permission; without effect.
  kSAFETY_SCOPE = 8,          ///< Building is an error: there are no engines for safety.
  kOBEY_PRECISION_CONSTRAINTS = 9,
  kPREFER_PRECISION_CONSTRAINTS = 10,
  /// Inputs and outputs for which ITensor::setAllowedFormats() was called are not converted: a
  /// build fails where no kernel of a layer takes them as they are.
  kDIRECT_IO = 11,
  /// A permission; without effect: other versions of Opwright that know the engine file's format
  /// run it, those that do not say so.
  kVERSION_COMPATIBLE = 13,
  kEXCLUDE_LEAN_RUNTIME = 14,        ///< Without effect: engines contain no runtime.
  kFP8 = 15,                         ///< Weakly typed networks: the tuner may choose 8-bit floats.
  kERROR_ON_TIMING_CACHE_MISS = 16,  ///< What the timing cache could have and has not is an error.
  kBF16 = 17,                        ///< Weakly typed networks: the tuner may choose bfloat16.
  kDISABLE_COMPILATION_CACHE = 18,   ///< Without effect: timing caches contain no code.
  kSTRIP_PLAN = 19,       ///< The engine is stored without the weights that refitting gives.
  kREFIT_IDENTICAL = 20,  ///< Weights can be given again, the same ones.
  /// On a GPU weights may stay in the host's memory: ICudaEngine::setWeightStreamingBudgetV2().
  kWEIGHT_STREAMING = 21,
  kINT4 = 22,                   ///< A permission; without effect.
  kREFIT_INDIVIDUAL = 23,       ///< As kREFIT, for those of markWeightsRefittable().
  kSTRICT_NANS = 24,            ///< Building is an error: no kernel is built otherwise for it.
  kMONITOR_MEMORY = 25,         ///< Without effect: in TensorRT the log tells the memory in use.
  kFP4 = 26,                    ///< A permission; without effect.
  kEDITABLE_TIMING_CACHE = 27,  ///< Without effect: timing caches can always be edited.
  kDISTRIBUTIVE_INDEPENDENCE = 28,  ///< Building is an error: kernels do not promise it.
};
/// A set of flags: bit `1U << int(flag)` for each.
using BuilderFlags = uint32_t;

/// Memory whose use a build can limit. Opwright's kernels need no limit on any: limits are kept and
/// given back.
enum class MemoryPoolType : int32_t {
  kWORKSPACE = 0,
  kDLA_MANAGED_SRAM = 1,
  kDLA_LOCAL_DRAM = 2,
  kDLA_GLOBAL_DRAM = 3,
  kTACTIC_DRAM = 4,
  kTACTIC_SHARED_MEMORY = 5,
};

/// Features that TensorRT has behind a switch. Here they are always there.
enum class PreviewFeature : int32_t {
  kALIASED_PLUGIN_IO_10_03 = 0,  ///< Plugin outputs that share the memory of an input.
  /// IExecutionContext::updateDeviceMemorySizeForShapes().
  kRUNTIME_ACTIVATION_RESIZE_10_10 = 1,
};

/// How far a build goes in dividing layers into tiles that stay in the L2 cache; a hint, without
/// effect.
enum class TilingOptimizationLevel : int32_t {
  kNONE = 0,
  kFAST = 1,
  kMODERATE = 2,
  kFULL = 3,
};

/// The system that an engine is to run on.
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
/// which an engine is made. Made and owned by a builder.
class IOptimizationProfile : public INoCopy {
 public:
  /// \return false for extents that are negative or that contradict min <= opt <= max.
  virtual bool setDimensions(char const* inputName, OptProfileSelector select,
                             Dims const& dims) noexcept = 0;
  /// nbDims is -1 where nothing was set.
  virtual Dims getDimensions(char const* inputName, OptProfileSelector select) const noexcept = 0;

  /// As setDimensions(), for the values of a shape input in C order.
  virtual bool setShapeValuesV2(char const* inputName, OptProfileSelector select,
                                int64_t const* values, int32_t nbValues) noexcept = 0;
  virtual bool setShapeValues(char const* inputName, OptProfileSelector select,
                              int32_t const* values, int32_t nbValues) noexcept = 0;
  /// -1 where nothing was set.
  virtual int32_t getNbShapeValues(char const* inputName) const noexcept = 0;
  /// Valid until the values are set again; null where nothing was set.
  virtual int64_t const* getShapeValuesV2(char const* inputName,
                                          OptProfileSelector select) const noexcept = 0;

  /// How much memory beyond that of the first profile this one may take, from 0 to 1, as at first.
  /// A hint, kept without effect: profiles share the weights.
  /// \return false for another number.
  virtual bool setExtraMemoryTarget(float target) noexcept = 0;
  virtual float getExtraMemoryTarget() const noexcept = 0;

  /// Whether each input has all of min, opt and max, and they are in this order.
  virtual bool isValid() const noexcept = 0;

 protected:
  ~IOptimizationProfile() noexcept override = default;
};

/// Names an entry of a timing cache: a candidate of a layer, with shapes, types and formats.
struct TimingCacheKey {
  uint8_t data[16];
};

/// What a timing cache knows of a candidate.
struct TimingCacheValue {
  uint64_t tacticHash;  ///< The number of the tactic, which the key determines.
  float timingMSec;     ///< In milliseconds.
  static constexpr uint64_t kINVALID_TACTIC_HASH = UINT64_MAX;
};

/// Measured times of kernels on one device, used again by later builds. Made by
/// IBuilderConfig::createTimingCache(), deleted by the caller.
class ITimingCache : public INoCopy {
 public:
  ~ITimingCache() noexcept override = default;

  virtual IHostMemory* serialize() const noexcept = 0;
  /// Adds the times that this cache does not have.
  /// \param ignoreMismatch whether times of another device are taken.
  virtual bool combine(ITimingCache const& inputCache, bool ignoreMismatch) noexcept = 0;
  virtual bool reset() noexcept = 0;

  /// Writes as many keys as there are and `capacity` allows, always in the same order.
  /// \param keyBuffer null: nothing is written.
  /// \return the number of entries; -1 on error.
  virtual int64_t queryKeys(TimingCacheKey* keyBuffer, int64_t capacity) const noexcept = 0;
  /// \return an entry; kINVALID_TACTIC_HASH and NaN where the cache has none of that key.
  virtual TimingCacheValue query(TimingCacheKey const& key) const noexcept = 0;
  /// Sets the time of an entry, which later builds choose by, or removes it if the time is NaN.
  /// \return false where there is no such entry, the tactic is not the key's, or the time is
  ///     negative or infinite.
  virtual bool update(TimingCacheKey const& key, TimingCacheValue const& value) noexcept = 0;
};

namespace v_1_0 {

/// Implemented by the application to follow, and to cancel, a build.
class IProgressMonitor : public IVersionedInterface {
 public:
  IProgressMonitor() = default;
  ~IProgressMonitor() noexcept override = default;

  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"IProgressMonitor", 1, 0};
  }

  /// \param parentPhase the phase that this one is a part of; null if it is none.
  virtual void phaseStart(char const* phaseName, char const* parentPhase,
                          int32_t nbSteps) noexcept = 0;
  /// \return false to cancel the build.
  virtual bool stepComplete(char const* phaseName, int32_t step) noexcept = 0;
  virtual void phaseFinish(char const* phaseName) noexcept = 0;
};

}  // namespace v_1_0
using IProgressMonitor = v_1_0::IProgressMonitor;

/// Beyond TensorRT: what a build compares while it times candidates. What computes something else
/// is left out, with a warning that names it.
enum class VerificationLevel : int32_t {
  kPLUGINS = 0,  ///< The candidates of a plugin with each other, or with its reference.
  kALL = 1,      ///< Those of other layers, too: with the CPU's kernel in FP32.
  kSTRICT = 2,   ///< The same, and what computes something else ends the build.
};
namespace impl {
template <>
struct EnumMaxImpl<VerificationLevel> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

/// How a network is built. Made by IBuilder::createBuilderConfig(), deleted by the caller.
class IBuilderConfig : public INoCopy {
 public:
  ~IBuilderConfig() noexcept override = default;

  virtual void setFlags(BuilderFlags builderFlags) noexcept = 0;
  virtual BuilderFlags getFlags() const noexcept = 0;
  virtual void setFlag(BuilderFlag builderFlag) noexcept = 0;
  virtual void clearFlag(BuilderFlag builderFlag) noexcept = 0;
  virtual bool getFlag(BuilderFlag builderFlag) const noexcept = 0;

  /// Where the engine is to run. At first the GPU where one is usable, else kCPU;
  /// OPWRIGHT_DEVICE=cpu|cuda decides where it is set.
  virtual void setDefaultDeviceType(DeviceType deviceType) noexcept = 0;
  virtual DeviceType getDefaultDeviceType() const noexcept = 0;

  /// Says where a layer of the network is to run. An engine runs on one device, the default one, so
  /// for any other the build fails.
  virtual void setDeviceType(ILayer const* layer, DeviceType deviceType) noexcept = 0;
  /// The default where nothing was set.
  virtual DeviceType getDeviceType(ILayer const* layer) const noexcept = 0;
  virtual bool isDeviceTypeSet(ILayer const* layer) const noexcept = 0;
  virtual void resetDeviceType(ILayer const* layer) noexcept = 0;
  /// False: no DLA is driven.
  virtual bool canRunOnDLA(ILayer const* layer) const noexcept = 0;
  /// -1 is the only core: no DLA is driven.
  virtual void setDLACore(int32_t dlaCore) noexcept = 0;
  /// -1.
  virtual int32_t getDLACore() const noexcept = 0;

  /// \param profile must stay until the build.
  /// \return the profile's index; -1 if it is not valid.
  virtual int32_t addOptimizationProfile(IOptimizationProfile const* profile) noexcept = 0;
  virtual int32_t getNbOptimizationProfiles() const noexcept = 0;

  /// In bytes.
  virtual void setMemoryPoolLimit(MemoryPoolType pool, std::size_t poolSize) noexcept = 0;
  virtual std::size_t getMemoryPoolLimit(MemoryPoolType pool) const noexcept = 0;

  /// The runs over which a kernel's time is taken; at first 4.
  virtual void setAvgTimingIterations(int32_t avgTiming) noexcept = 0;
  virtual int32_t getAvgTimingIterations() const noexcept = 0;

  /// 0: nothing is timed, as with setTiming(false). 1 and 2: of each layer the first 2 or 4
  /// candidates that work are timed. 3 to 5: all are. At first 3.
  virtual void setBuilderOptimizationLevel(int32_t level) noexcept = 0;
  virtual int32_t getBuilderOptimizationLevel() const noexcept = 0;

  /// A cache for this config's device; a fresh one for a `size` of 0.
  /// \param blob what ITimingCache::serialize() gave.
  /// \return null for bytes that are no timing cache.
  virtual ITimingCache* createTimingCache(void const* blob, std::size_t size) const noexcept = 0;
  /// Lets builds use and extend the cache, which must stay.
  /// \param ignoreMismatch whether a cache of another device is taken (its times are copied).
  virtual bool setTimingCache(ITimingCache const& cache, bool ignoreMismatch) noexcept = 0;
  /// Null if none is set.
  virtual ITimingCache const* getTimingCache() const noexcept = 0;

  /// What the engine keeps to say about its layers; at first kDETAILED.
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

  /// The stream that kernels are timed on; a build for the CPU needs none.
  virtual void setProfileStream(cudaStream_t stream) noexcept = 0;
  virtual cudaStream_t getProfileStream() const noexcept = 0;

  /// Opwright builds EngineCapability::kSTANDARD; any other is an error.
  virtual void setEngineCapability(EngineCapability capability) noexcept = 0;
  virtual EngineCapability getEngineCapability() const noexcept = 0;
  virtual void setPreviewFeature(PreviewFeature feature, bool enable) noexcept = 0;
  virtual bool getPreviewFeature(PreviewFeature feature) const noexcept = 0;

  /// Everything as at first.
  virtual void reset() noexcept = 0;

  /// False: nothing is timed and no plugin is run during the build; each layer gets the fastest of
  /// its candidates that the timing cache has, or else its first one. At first true.
  virtual void setTiming(bool timing) noexcept = 0;
  virtual bool getTiming() const noexcept = 0;

  /// Beyond TensorRT: whether the engine checks every call of a plugin, of any kind. Writes beside
  /// its outputs and workspace, to its inputs, outputs that it leaves unwritten, and sizes out of
  /// range are errors, NaN and infinity that come of finite inputs a warning. False at first;
  /// IRuntime::setDebugPlugins() overrides it.
  virtual void setDebugPlugins(bool debug) noexcept = 0;
  virtual bool getDebugPlugins() const noexcept = 0;

  /// Beyond TensorRT: whether execution contexts on a GPU capture what they run into CUDA graphs,
  /// once shapes have stayed for a few runs, and replay them. True at first.
  virtual void setCudaGraphs(bool graphs) noexcept = 0;
  virtual bool getCudaGraphs() const noexcept = 0;

  /// The candidates of each layer that are timed at most: the first ones that work. -1, as at
  /// first: as many as the optimization level says.
  virtual void setMaxNbTactics(int32_t maxTactics) noexcept = 0;
  virtual int32_t getMaxNbTactics() const noexcept = 0;

  /// The libraries whose kernels may be among the candidates: kCUBLAS_LT for products on a GPU,
  /// kCUDNN for convolutions; an engine then needs that library where it runs, in that version.
  /// The others are kept and given back, without effect.
  virtual bool setTacticSources(TacticSources tacticSources) noexcept = 0;
  virtual TacticSources getTacticSources() const noexcept = 0;
  /// On so many streams beside that of the run an engine for a GPU may run layers beside each
  /// other, where the times that were measured say that it pays; at first -1, as the builder likes.
  /// \return false for a negative number.
  virtual bool setMaxAuxStreams(int32_t nbStreams) noexcept = 0;
  virtual int32_t getMaxAuxStreams() const noexcept = 0;
  virtual bool setTilingOptimizationLevel(TilingOptimizationLevel level) noexcept = 0;
  virtual TilingOptimizationLevel getTilingOptimizationLevel() const noexcept = 0;
  /// In bytes; -1, as at first: as the builder likes. A hint, without effect.
  virtual bool setL2LimitForTiling(int64_t size) noexcept = 0;
  virtual int64_t getL2LimitForTiling() const noexcept = 0;
  /// The GPUs that an engine for the GPU is to run on beside this one; at first kNONE. For
  /// kAMPERE_PLUS its kernels are stored as PTX, and a build fails that has a compiled kernel of a
  /// plugin for less. kSAME_COMPUTE_CAPABILITY is always met. What plugins do by themselves is
  /// theirs to keep.
  virtual void setHardwareCompatibilityLevel(HardwareCompatibilityLevel level) noexcept = 0;
  virtual HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept = 0;
  /// kSAME_AS_BUILD; any other is an error.
  virtual void setRuntimePlatform(RuntimePlatform platform) noexcept = 0;
  virtual RuntimePlatform getRuntimePlatform() const noexcept = 0;

  /// For engines for safety, which are not here.
  /// \return false, and nothing is set, for any text.
  virtual bool setRemoteAutoTuningConfig(char const* config) noexcept = 0;
  /// Null.
  virtual char const* getRemoteAutoTuningConfig() const noexcept = 0;
  /// Options of TensorRT's compiler, of which there are none here.
  /// \return false, and nothing is set, for any but an empty text.
  virtual bool setBuildRoute(char const* buildRoute) noexcept = 0;
  /// An empty text.
  virtual char const* getBuildRoute() const noexcept = 0;
  /// A JSON object with the version of Opwright and an empty list of options.
  virtual char const* getAllBuildRoutes() const noexcept = 0;

  /// Beyond TensorRT: what the model may make the build spend (Limits::build_memory, build_seconds,
  /// steps), and what the engine of buildEngineWithConfig() may ask for. At first the defaults.
  /// \return false, and nothing is set, for a limit that is negative or not a number.
  virtual bool setLimits(Limits const& limits) noexcept = 0;
  virtual Limits getLimits() const noexcept = 0;

  /// Beyond TensorRT: seconds that a kernel for a GPU may take to be compiled, and where candidates
  /// are verified to run in another process. One that takes longer is left out, with the reason in
  /// the log. At first 60. NVRTC before 13 cannot be ended, and takes the time it takes.
  /// \return false, and nothing is set, for what is not more than 0.
  virtual bool setKernelSeconds(double seconds) noexcept = 0;
  virtual double getKernelSeconds() const noexcept = 0;

  /// Beyond TensorRT: which candidates the build compares with a reference. At first kPLUGINS.
  /// \return false, and nothing is set, for what is no level.
  virtual bool setVerification(VerificationLevel level) noexcept = 0;
  virtual VerificationLevel getVerification() const noexcept = 0;
  /// Beyond TensorRT: whether all candidates that can compute a layer are timed, not only those
  /// that may be the fastest for its sizes. False at first.
  virtual void setAllTactics(bool all) noexcept = 0;
  virtual bool getAllTactics() const noexcept = 0;
};

/// Makes networks and builds engines from them. Must outlive its networks, profiles and configs.
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
  /// The same for engines for safety, of which the text of the kernels could be had.
  /// \param kernelText set to null: there are none.
  virtual IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config,
                                              IHostMemory*& kernelText) noexcept = 0;
  /// \return an engine that the caller deletes; null on failure.
  virtual ICudaEngine* buildEngineWithConfig(INetworkDefinition& network,
                                             IBuilderConfig& config) noexcept = 0;
  /// Whether the network can be built.
  virtual bool isNetworkSupported(INetworkDefinition const& network,
                                  IBuilderConfig const& config) const noexcept = 0;

  /// The registry that parsers of this builder's networks look plugins up in.
  virtual IPluginRegistry& getPluginRegistry() noexcept = 0;
  virtual ILogger* getLogger() const noexcept = 0;

  /// The most threads that a build for the CPU uses, the caller's included.
  /// \return false, and nothing is set, for less than 1 or more than 4096.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;

  /// 0: no DLA is driven.
  virtual int32_t getMaxDLABatchSize() const noexcept = 0;
  virtual int32_t getNbDLACores() const noexcept = 0;

  virtual bool platformHasFastFp16() const noexcept = 0;
  virtual bool platformHasFastInt8() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Where plugins get memory through their resource context, while they are timed and in engines
  /// of buildEngineWithConfig(); null: from the device. Must outlive these engines.
  virtual void setGpuAllocator(IGpuAllocator* allocator) noexcept = 0;

  /// As buildSerializedNetwork(), with the bytes written to a stream.
  /// \return false on failure, also of the writer.
  virtual bool buildSerializedNetworkToStream(INetworkDefinition& network, IBuilderConfig& config,
                                              IStreamWriter& writer) noexcept = 0;
  /// Everything that was set as at first.
  virtual void reset() noexcept = 0;
};

}  // namespace opwright

/// Behind createInferBuilder(): takes an ILogger and the API level that the caller was compiled
/// for, returns an IBuilder; null if the level does not fit.
extern "C" OPWRIGHT_API void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept;

namespace opwright {

/// \return a builder that the caller deletes; null on failure.
inline IBuilder* createInferBuilder(ILogger& logger) noexcept {
  return static_cast<IBuilder*>(createInferBuilder_INTERNAL(&logger, NV_TENSORRT_VERSION));
}

}  // namespace opwright
