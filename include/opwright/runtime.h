#pragma once

/// \file
/// Loading and running engines from C++. Methods do not throw. On failure they return null, false
/// or the value that they document, and report to the logger and the error recorder. Delete the
/// objects that are returned by pointer: contexts and inspectors before their engine, engines
/// before their runtime.

#include "logger.h"
#include "plugin_base.h"
#include "registry.h"
#include "resource_limits.h"
#include "runtime_callbacks.h"
#include "types.h"

namespace opwright {

class ICudaEngine;
class IExecutionContext;

/// Bytes that the library allocated.
class IHostMemory : public INoCopy {
 public:
  ~IHostMemory() noexcept override = default;
  virtual void* data() const noexcept = 0;
  /// In bytes.
  virtual std::size_t size() const noexcept = 0;
  virtual DataType type() const noexcept = 0;
};

enum class LayerInformationFormat : int32_t {
  kONELINE = 0,  ///< A line of text for each layer.
  kJSON = 1,
};

/// The source of a context's working memory. On the CPU the contexts of an engine lend it to each
/// other between their runs, except for memory of the user.
enum class ExecutionContextAllocationStrategy : int32_t {
  kSTATIC = 0,             ///< Allocated once, for the largest of all profiles.
  kON_PROFILE_CHANGE = 1,  ///< Allocated for the chosen profile.
  kUSER_MANAGED = 2,       ///< Set by the user with setDeviceMemoryV2().
};

/// The other GPUs on which an engine is to run. Without meaning for engines for the CPU, which run
/// on every computer with a processor of the kind on which they were built.
enum class HardwareCompatibilityLevel : int32_t {
  kNONE = 0,
  kAMPERE_PLUS = 1,  ///< GPUs of compute capability 8.0 and newer.
  kSAME_COMPUTE_CAPABILITY = 2,
};

/// Sources from which a build may take kernels. Opwright has its own kernels. Of these sources, it
/// also takes kernels of kCUBLAS_LT and kCUDNN, if they are set.
enum class TacticSource : int32_t {
  kCUBLAS = 0,
  kCUBLAS_LT = 1,
  kCUDNN = 2,
  kEDGE_MASK_CONVOLUTIONS = 3,
  kJIT_CONVOLUTIONS = 4,
};
/// A set of sources: bit `1U << int(source)` for each.
using TacticSources = uint32_t;

/// The files that a runtime may create to load the host code of engines.
enum class TempfileControlFlag : int32_t {
  kALLOW_IN_MEMORY_FILES = 0,  ///< Files that exist only in memory; Opwright loads code from these.
  kALLOW_TEMPORARY_FILES = 1,  ///< Named files in a folder; Opwright creates none.
};
/// A set of flags: bit `1U << int(flag)` for each.
using TempfileControlFlags = uint32_t;

/// How ICudaEngine::serializeWithConfig() stores an engine.
enum class SerializationFlag : int32_t {
  kEXCLUDE_WEIGHTS = 0,       ///< Leaves out the weights that refitting sets.
  kEXCLUDE_LEAN_RUNTIME = 1,  ///< Without effect: engines contain no runtime.
  /// An engine that was built with BuilderFlag::kSTRIP_PLAN, and is stored with its weights, can be
  /// refitted again.
  kINCLUDE_REFIT = 2,
};
/// A set of flags: bit `1U << int(flag)` for each.
using SerializationFlags = uint32_t;

/// A number about an engine.
enum class EngineStat : int32_t {
  kTOTAL_WEIGHTS_SIZE = 0,     ///< Bytes of all weights in the engine.
  kSTRIPPED_WEIGHTS_SIZE = 1,  ///< Bytes of the weights that were left out of it.
};

namespace impl {
template <>
struct EnumMaxImpl<HardwareCompatibilityLevel> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<TacticSource> {
  static constexpr int32_t kVALUE = 5;
};
template <>
struct EnumMaxImpl<TempfileControlFlag> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<SerializationFlag> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<EngineStat> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<LayerInformationFormat> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<ExecutionContextAllocationStrategy> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

/// Describes an engine. The strings that it returns are valid until the next call.
class IEngineInspector : public INoCopy {
 public:
  ~IEngineInspector() noexcept override = default;

  /// With a context, shows shapes and tactics as they are in the context; null for none.
  virtual bool setExecutionContext(IExecutionContext const* context) noexcept = 0;
  virtual IExecutionContext const* getExecutionContext() const noexcept = 0;
  virtual char const* getLayerInformation(int32_t layerIndex,
                                          LayerInformationFormat format) const noexcept = 0;
  virtual char const* getEngineInformation(LayerInformationFormat format) const noexcept = 0;
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
};

/// Options for storing an engine. Created by ICudaEngine::createSerializationConfig(), deleted by
/// the caller. No flag is set by default.
class ISerializationConfig : public INoCopy {
 public:
  ~ISerializationConfig() noexcept override = default;

  /// \return false for a value that is no flag, and nothing changes, here and below.
  virtual bool setFlags(SerializationFlags serializationFlags) noexcept = 0;
  virtual SerializationFlags getFlags() const noexcept = 0;
  virtual bool clearFlag(SerializationFlag serializationFlag) noexcept = 0;
  virtual bool setFlag(SerializationFlag serializationFlag) noexcept = 0;
  virtual bool getFlag(SerializationFlag serializationFlag) const noexcept = 0;
};

/// Options of execution contexts. Created by ICudaEngine::createRuntimeConfig(), deleted by the
/// caller.
class IRuntimeConfig : public INoCopy {
 public:
  ~IRuntimeConfig() noexcept override = default;

  /// kSTATIC by default.
  virtual void setExecutionContextAllocationStrategy(
      ExecutionContextAllocationStrategy strategy) noexcept = 0;
  virtual ExecutionContextAllocationStrategy getExecutionContextAllocationStrategy()
      const noexcept = 0;
};

/// The state of one sequence of runs of an engine: shapes, addresses, working memory. Several
/// threads must not use one context at once, but may use different contexts of an engine.
class IExecutionContext : public INoCopy {
 public:
  ~IExecutionContext() noexcept override = default;

  virtual ICudaEngine const& getEngine() const noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  /// The profile in use; -1 if none is.
  virtual int32_t getOptimizationProfile() const noexcept = 0;
  /// Chooses a profile. Input shapes have to be set again afterwards.
  virtual bool setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t stream) noexcept = 0;

  /// Sets the shape of an input, within the profile's range.
  virtual bool setInputShape(char const* tensorName, Dims const& dims) noexcept = 0;
  /// The shape of an input or output. Until it is set, the engine's shape, with -1 for extents that
  /// are not known (yet). nbDims is -1 if there is no such tensor.
  virtual Dims getTensorShape(char const* tensorName) const noexcept = 0;
  /// The strides in elements; nbDims is -1 if there is no such tensor.
  virtual Dims getTensorStrides(char const* tensorName) const noexcept = 0;
  /// Whether all dynamic input shapes are set.
  virtual bool allInputDimensionsSpecified() const noexcept = 0;
  /// Computes the output shapes from the input shapes.
  /// \param nbMaxNames the room in `tensorNames`, which receives the names of inputs that lack a
  ///     shape or, for shape tensors, an address.
  /// \return 0 on success, else the number of those inputs; -1 on other errors.
  virtual int32_t inferShapes(int32_t nbMaxNames, char const** tensorNames) noexcept = 0;

  /// Sets the address of an input or output: a device address on the GPU, a host address on the CPU
  /// and for tensors whose location is kHOST. An output that is aliased to an input
  /// (ICudaEngine::getAliasedInputTensor()) needs no address, or the input's. With another address,
  /// which must not overlap the input, the result is computed in the input's memory and copied
  /// there.
  virtual bool setTensorAddress(char const* tensorName, void* data) noexcept = 0;
  virtual void const* getTensorAddress(char const* tensorName) const noexcept = 0;
  virtual bool setInputTensorAddress(char const* tensorName, void const* data) noexcept = 0;
  virtual bool setOutputTensorAddress(char const* tensorName, void* data) noexcept = 0;
  virtual void* getOutputTensorAddress(char const* tensorName) const noexcept = 0;
  /// Sets an allocator that provides the memory of an output instead of an address; null for none.
  virtual bool setOutputAllocator(char const* tensorName,
                                  IOutputAllocator* outputAllocator) noexcept = 0;
  virtual IOutputAllocator* getOutputAllocator(char const* tensorName) const noexcept = 0;
  /// The bytes that suffice for an output with the present input shapes; -1 on error.
  virtual int64_t getMaxOutputSize(char const* tensorName) const noexcept = 0;

  /// Sets the CUDA event that a run records on its stream once it has read the inputs. Then their
  /// memory may be written again. Null, the default: none. The event must stay valid while runs use
  /// it.
  /// \return false on the CPU, where nothing waits for events.
  virtual bool setInputConsumedEvent(cudaEvent_t event) noexcept = 0;
  virtual cudaEvent_t getInputConsumedEvent() const noexcept = 0;

  /// Sets the context's working memory, which a kUSER_MANAGED context needs before it runs: device
  /// memory, aligned to 64 bytes, that stays until the context gets other memory or is deleted.
  /// Null: none.
  /// \param size in bytes, at least ICudaEngine::getDeviceMemorySizeForProfileV2() for the
  ///     context's profile.
  virtual void setDeviceMemoryV2(void* memory, int64_t size) noexcept = 0;
  /// TensorRT 10's method for memory that is as large as the context's profile needs.
  virtual void setDeviceMemory(void* memory) noexcept = 0;
  /// The bytes of working memory for the present input shapes; 0 on error.
  virtual size_t updateDeviceMemorySizeForShapes() noexcept = 0;

  /// Runs with the addresses that were set. On the GPU the work goes to `stream`. On the CPU
  /// `stream` is ignored, and the work is done on return.
  virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
  /// Runs and waits.
  /// \param bindings an address for each input and output, in the order of getIOTensorName().
  virtual bool executeV2(void* const* bindings) noexcept = 0;

  /// Sets the profiler that receives the layers' times; null for none.
  virtual void setProfiler(IProfiler* profiler) noexcept = 0;
  virtual IProfiler* getProfiler() const noexcept = 0;
  /// Whether enqueueV3() reports to the profiler (and waits for the work to do so). If not,
  /// reportToProfiler() does. True by default.
  virtual void setEnqueueEmitsProfile(bool enqueueEmitsProfile) noexcept = 0;
  virtual bool getEnqueueEmitsProfile() const noexcept = 0;
  /// Reports the last run's times.
  virtual bool reportToProfiler() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// The allocator from which plugins get memory through their resource context. Set it before the
  /// first run. Null: the device. The default is the runtime's allocator. Must outlive the context.
  virtual bool setTemporaryStorageAllocator(IGpuAllocator* allocator) noexcept = 0;
  virtual IGpuAllocator* getTemporaryStorageAllocator() const noexcept = 0;

  /// Streams that runs use beside their own (ICudaEngine::getNbAuxStreams()). All are different,
  /// and none is the default stream. Missing ones are the context's own, further ones are not used.
  /// A replayed CUDA graph runs on the run's stream. The streams must outlive the runs.
  virtual void setAuxStreams(cudaStream_t* auxStreams, int32_t nbStreams) noexcept = 0;
  /// A hint on how much of the L2 cache may hold intermediate tensors from layer to layer, in
  /// bytes; kept and returned, without effect.
  virtual void setPersistentCacheLimit(size_t size) noexcept = 0;
  virtual size_t getPersistentCacheLimit() const noexcept = 0;

  /// Whether runs wait for each layer, so that an error of the device names the layer whose work
  /// failed. False by default. Without effect on the CPU.
  virtual void setDebugSync(bool sync) noexcept = 0;
  virtual bool getDebugSync() const noexcept = 0;

  /// Sets the listener that sees debug tensors while the context runs; null for none. It must live
  /// until then. Runs in which it sees tensors are not replayed as CUDA graphs.
  virtual bool setDebugListener(IDebugListener* listener) noexcept = 0;
  virtual IDebugListener* getDebugListener() noexcept = 0;
  /// Whether the listener sees the tensor. False by default.
  /// \return false if the engine has no debug tensor of that name.
  virtual bool setTensorDebugState(char const* name, bool flag) noexcept = 0;
  virtual bool getDebugState(char const* name) const noexcept = 0;
  /// The same for all debug tensors, including those of setUnfusedTensorsDebugState().
  virtual bool setAllTensorsDebugState(bool flag) noexcept = 0;
  /// Whether the listener sees all tensors that the engine writes, if
  /// INetworkDefinition::markUnfusedTensorsAsDebugTensors() was called, and all that are marked.
  /// False by default.
  virtual bool setUnfusedTensorsDebugState(bool flag) noexcept = 0;
  virtual bool getUnfusedTensorsDebugState() const noexcept = 0;

  /// Content of the ranges that mark the layers for NVIDIA's tools: names by default; kDETAILED
  /// adds kind, types and tactic; kNONE means no ranges. Without effect if no tool listens. If one
  /// does, ranges keep CUDA graphs from being replayed.
  virtual bool setNvtxVerbosity(ProfilingVerbosity verbosity) noexcept = 0;
  virtual ProfilingVerbosity getNvtxVerbosity() const noexcept = 0;
  /// The options with which the context was created. Owned by the context.
  virtual IRuntimeConfig* getRuntimeConfig() const noexcept = 0;
  /// The communicator of collective layers in the next runs; null: none. It outlives the runs. It
  /// is an ICommunicator of the engine's device. An engine on a GPU also takes an `ncclComm_t` of
  /// that GPU.
  /// \return false, and an error, for an ICommunicator of another device, and for any other object
  /// where the engine runs on the CPU.
  virtual bool setCommunicator(void* communicator) noexcept = 0;

  /// Beyond TensorRT: the most threads that a run on the CPU uses, including the caller's. The
  /// default is IRuntime::setMaxThreads() or, if nothing was set, getMaxThreads() when the context
  /// was created. Results may differ in their last bits between numbers. The next run makes the
  /// kernels again.
  /// \return false for less than 1 or more than 4096, and nothing is set.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;
};

/// A built network. Safe for use by several threads at once.
class ICudaEngine : public INoCopy {
 public:
  ~ICudaEngine() noexcept override = default;

  virtual char const* getName() const noexcept = 0;
  virtual int32_t getNbLayers() const noexcept = 0;
  virtual IHostMemory* serialize() const noexcept = 0;
  virtual ISerializationConfig* createSerializationConfig() noexcept = 0;
  /// \return null for flags that Opwright does not support.
  virtual IHostMemory* serializeWithConfig(ISerializationConfig& config) const noexcept = 0;
  virtual IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy =
          ExecutionContextAllocationStrategy::kSTATIC) noexcept = 0;
  virtual IRuntimeConfig* createRuntimeConfig() noexcept = 0;
  virtual IExecutionContext* createExecutionContext(IRuntimeConfig* runtimeConfig) noexcept = 0;
  virtual IEngineInspector* createEngineInspector() const noexcept = 0;
  virtual ProfilingVerbosity getProfilingVerbosity() const noexcept = 0;

  virtual int32_t getNbIOTensors() const noexcept = 0;
  /// The name of input or output `index`; null if there is none.
  virtual char const* getIOTensorName(int32_t index) const noexcept = 0;
  /// The shape in the network, -1 for dynamic extents; nbDims is -1 if there is no such tensor.
  virtual Dims getTensorShape(char const* tensorName) const noexcept = 0;
  virtual DataType getTensorDataType(char const* tensorName) const noexcept = 0;
  virtual TensorIOMode getTensorIOMode(char const* tensorName) const noexcept = 0;
  virtual TensorLocation getTensorLocation(char const* tensorName) const noexcept = 0;
  /// Whether shapes depend on the tensor's values, or it is computed only from shapes.
  virtual bool isShapeInferenceIO(char const* tensorName) const noexcept = 0;
  /// The name of the input whose memory an output shares; null if it shares none.
  virtual char const* getAliasedInputTensor(char const* tensorName) const noexcept = 0;

  /// The layout in a profile. Without a profile, here and below, it is the first one's.
  virtual TensorFormat getTensorFormat(char const* tensorName,
                                       int32_t profileIndex) const noexcept = 0;
  /// The layout in words.
  virtual char const* getTensorFormatDesc(char const* tensorName,
                                          int32_t profileIndex) const noexcept = 0;
  /// Bytes of one element of a vectorized format; -1 for other formats.
  virtual int32_t getTensorBytesPerComponent(char const* tensorName,
                                             int32_t profileIndex) const noexcept = 0;
  /// Elements in a vector of a vectorized format; -1 for other formats.
  virtual int32_t getTensorComponentsPerElement(char const* tensorName,
                                                int32_t profileIndex) const noexcept = 0;
  /// The dimension that is vectorized; -1 for other formats.
  virtual int32_t getTensorVectorizedDim(char const* tensorName,
                                         int32_t profileIndex) const noexcept = 0;
  TensorFormat getTensorFormat(char const* tensorName) const noexcept {
    return getTensorFormat(tensorName, 0);
  }
  char const* getTensorFormatDesc(char const* tensorName) const noexcept {
    return getTensorFormatDesc(tensorName, 0);
  }
  int32_t getTensorBytesPerComponent(char const* tensorName) const noexcept {
    return getTensorBytesPerComponent(tensorName, 0);
  }
  int32_t getTensorComponentsPerElement(char const* tensorName) const noexcept {
    return getTensorComponentsPerElement(tensorName, 0);
  }
  int32_t getTensorVectorizedDim(char const* tensorName) const noexcept {
    return getTensorVectorizedDim(tensorName, 0);
  }

  virtual int32_t getNbOptimizationProfiles() const noexcept = 0;
  /// An input's shape in a profile; nbDims is -1 if there is no such input or profile.
  virtual Dims getProfileShape(char const* tensorName, int32_t profileIndex,
                               OptProfileSelector select) const noexcept = 0;
  /// A shape input's values in a profile, owned by the engine; null if there is no such input.
  virtual int64_t const* getProfileTensorValuesV2(char const* tensorName, int32_t profileIndex,
                                                  OptProfileSelector select) const noexcept = 0;
  /// Bytes of working memory of a context: the most over the profiles, or for one.
  virtual int64_t getDeviceMemorySizeV2() const noexcept = 0;
  virtual int64_t getDeviceMemorySizeForProfileV2(int32_t profileIndex) const noexcept = 0;
  /// TensorRT 10's methods for the same.
  size_t getDeviceMemorySize() const noexcept {
    return static_cast<size_t>(getDeviceMemorySizeV2());
  }
  size_t getDeviceMemorySizeForProfile(int32_t profileIndex) const noexcept {
    return static_cast<size_t>(getDeviceMemorySizeForProfileV2(profileIndex));
  }

  /// Whether INetworkDefinition::markDebug() marked a tensor of that name.
  virtual bool isDebugTensor(char const* name) const noexcept = 0;

  /// Bytes of the weights that may stay in the host's memory; 0 for an engine that was built
  /// without BuilderFlag::kWEIGHT_STREAMING.
  virtual int64_t getStreamableWeightsSize() const noexcept = 0;
  /// How many of these bytes a GPU's memory may hold; all by default. Each run copies the other
  /// weights to the GPU, while the layer before runs. Without effect on the CPU.
  /// \return false for a negative budget, while there are contexts, or if the engine was built
  ///     without the flag.
  virtual bool setWeightStreamingBudgetV2(int64_t gpuMemoryBudget) noexcept = 0;
  virtual int64_t getWeightStreamingBudgetV2() const noexcept = 0;
  /// A budget for which the GPU has memory now, with some left for contexts and others.
  virtual int64_t getWeightStreamingAutomaticBudget() const noexcept = 0;
  /// Bytes of the GPU's memory that each context takes, beside getDeviceMemorySizeV2(), for copied
  /// weights; 0 if no weights are copied.
  virtual int64_t getWeightStreamingScratchMemorySize() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Whether weights can be replaced with IRefitter.
  virtual bool isRefittable() const noexcept = 0;
  virtual EngineCapability getEngineCapability() const noexcept = 0;
  /// The GPUs that the engine's own code serves, whatever was asked for: kAMPERE_PLUS if all of it
  /// is PTX for them, kSAME_COMPUTE_CAPABILITY for other code of GPUs, kNONE without such code.
  virtual HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept = 0;
  /// The sources from which the engine has kernels, and which loading it needs: kCUBLAS_LT, kCUDNN
  /// or none.
  virtual TacticSources getTacticSources() const noexcept = 0;
  /// Number of streams, beside that of the run, on which independent layers run beside each other;
  /// 0 on the CPU.
  virtual int32_t getNbAuxStreams() const noexcept = 0;
  /// -1 if there is no such number.
  virtual int64_t getEngineStat(EngineStat stat) const noexcept = 0;
};

/// Loads engines.
class IRuntime : public INoCopy {
 public:
  ~IRuntime() noexcept override = default;

  /// Verifies and loads an engine from bytes, which may be freed afterwards.
  virtual ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept = 0;
  /// The same from a stream. Reads the engine's bytes and none behind them.
  virtual ICudaEngine* deserializeCudaEngine(IStreamReader& streamReader) noexcept = 0;
  virtual ICudaEngine* deserializeCudaEngine(IStreamReaderV2& streamReader) noexcept = 0;

  /// Whether engines may bring code that runs on the host: compiled CPU kernels, plugin libraries,
  /// Python source. If not, such an engine is refused. False by default, unless the environment
  /// variable OPWRIGHT_ALLOW_HOST_CODE is 1.
  virtual void setEngineHostCodeAllowed(bool allowed) noexcept = 0;
  virtual bool getEngineHostCodeAllowed() const noexcept = 0;

  /// -1 is the only core: no DLA is driven.
  virtual void setDLACore(int32_t dlaCore) noexcept = 0;
  /// -1.
  virtual int32_t getDLACore() const noexcept = 0;
  /// 0.
  virtual int32_t getNbDLACores() const noexcept = 0;

  /// The registry of this runtime, whose parent is getPluginRegistry().
  virtual IPluginRegistry& getPluginRegistry() noexcept = 0;
  virtual ILogger* getLogger() const noexcept = 0;

  /// The most threads that loading and running on the CPU use, including the caller's.
  /// \return false for less than 1 or more than 4096, and nothing is set.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;

  /// Counts a reference on the recorder. Engines inherit the recorder. Contexts and inspectors
  /// inherit that of their engine. A plugin gets its context's.
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// The allocator from which plugins of engines that are loaded from now on get memory, through
  /// their resource context; null: the device. Must outlive these engines.
  virtual void setGpuAllocator(IGpuAllocator* allocator) noexcept = 0;

  /// The folder for temporary files; null, the default: the system's. Kept and returned: Opwright
  /// makes no temporary files.
  virtual void setTemporaryDirectory(char const* path) noexcept = 0;
  virtual char const* getTemporaryDirectory() const noexcept = 0;
  /// All flags by default. Without kALLOW_IN_MEMORY_FILES an engine that brings host code is
  /// refused.
  virtual void setTempfileControlFlags(TempfileControlFlags flags) noexcept = 0;
  virtual TempfileControlFlags getTempfileControlFlags() const noexcept = 0;

  /// Loads a runtime of another version from a library, for engines of that version.
  /// \return null: there is no other runtime, and this one runs every engine that it can read.
  virtual IRuntime* loadRuntime(char const* path) noexcept = 0;

  /// Beyond TensorRT: whether engines that are loaded from now on check every call of a plugin, as
  /// IBuilderConfig::setDebugPlugins() says. Until it is called, each engine keeps its build's
  /// setting.
  virtual void setDebugPlugins(bool debug) noexcept = 0;
  /// The setting; false by default.
  virtual bool getDebugPlugins() const noexcept = 0;

  /// Beyond TensorRT: whether engines that another process built may bring code for a GPU, PTX or
  /// cubins, as nearly all engines for a GPU do. If not, such an engine is refused. The code can
  /// read and change all of the process's memory that the GPU reaches. False by default, unless the
  /// environment variable OPWRIGHT_ALLOW_DEVICE_CODE is 1. Permission for host code includes this
  /// one.
  virtual void setEngineDeviceCodeAllowed(bool allowed) noexcept = 0;
  /// The setting.
  virtual bool getEngineDeviceCodeAllowed() const noexcept = 0;

  /// Beyond TensorRT: the resources that engines that are loaded from now on may use. The defaults
  /// initially.
  /// \return false for a limit that is negative or not a number, and nothing is set.
  virtual bool setLimits(Limits const& limits) noexcept = 0;
  virtual Limits getLimits() const noexcept = 0;
};

}  // namespace opwright

/// Implementation of createInferRuntime(): takes an ILogger and the API level for which the caller
/// was compiled, returns an IRuntime; null if the level does not fit.
extern "C" OPWRIGHT_API void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept;

/// The library's API level, to compare with NV_TENSORRT_VERSION.
extern "C" OPWRIGHT_API int32_t getInferLibVersion() noexcept;
/// The same in parts: NV_TENSORRT_MAJOR and so on, as the library was compiled.
extern "C" OPWRIGHT_API int32_t getInferLibMajorVersion() noexcept;
extern "C" OPWRIGHT_API int32_t getInferLibMinorVersion() noexcept;
extern "C" OPWRIGHT_API int32_t getInferLibPatchVersion() noexcept;
extern "C" OPWRIGHT_API int32_t getInferLibBuildVersion() noexcept;

namespace opwright {

/// \return a runtime that the caller deletes; null on failure.
inline IRuntime* createInferRuntime(ILogger& logger) noexcept {
  return static_cast<IRuntime*>(createInferRuntime_INTERNAL(&logger, NV_TENSORRT_VERSION));
}

}  // namespace opwright
