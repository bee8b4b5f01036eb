#pragma once

/// \file
/// Loading and running engines from C++. Methods do not throw: on failure they return null, false
/// or what is said there, and tell the logger and the error recorder. Delete the objects that are
/// returned by pointer, contexts and inspectors before their engine, engines before their runtime.

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

/// Where a context's working memory comes from. On the CPU the contexts of an engine lend it to
/// each other between their runs, but for the user's.
enum class ExecutionContextAllocationStrategy : int32_t {
  kSTATIC = 0,             ///< Allocated once, for the largest of all profiles.
  kON_PROFILE_CHANGE = 1,  ///< Allocated for the profile that is chosen.
  kUSER_MANAGED = 2,       ///< Given by the user with setDeviceMemoryV2().
};

/// Other GPUs that an engine is to run on. It says nothing about engines for the CPU, which run on
/// every computer with a processor of the kind that they were built on.
enum class HardwareCompatibilityLevel : int32_t {
  kNONE = 0,
  kAMPERE_PLUS = 1,  ///< Those of compute capability 8.0 and newer.
  kSAME_COMPUTE_CAPABILITY = 2,
};

/// Sources of kernels that a build of TensorRT may take some from. Opwright has kernels of its own,
/// and takes those of kCUBLAS_LT alone, where it is set.
enum class TacticSource : int32_t {
  kCUBLAS = 0,
  kCUBLAS_LT = 1,
  kCUDNN = 2,
  kEDGE_MASK_CONVOLUTIONS = 3,
  kJIT_CONVOLUTIONS = 4,
};
/// A set of sources: bit `1U << int(source)` for each.
using TacticSources = uint32_t;

/// Which files a runtime may make to load the host code of engines from.
enum class TempfileControlFlag : int32_t {
  kALLOW_IN_MEMORY_FILES = 0,  ///< Files that are in memory only: what Opwright loads code from.
  kALLOW_TEMPORARY_FILES = 1,  ///< Named files in a folder; Opwright makes none.
};
/// A set of flags: bit `1U << int(flag)` for each.
using TempfileControlFlags = uint32_t;

/// How ICudaEngine::serializeWithConfig() stores an engine.
enum class SerializationFlag : int32_t {
  kEXCLUDE_WEIGHTS = 0,       ///< Leaves out the weights that refitting gives.
  kEXCLUDE_LEAN_RUNTIME = 1,  ///< Without effect: engines contain no runtime.
  /// An engine that was built with BuilderFlag::kSTRIP_PLAN, and is stored with its weights, can be
  /// refitted again.
  kINCLUDE_REFIT = 2,
};
/// A set of flags: bit `1U << int(flag)` for each.
using SerializationFlags = uint32_t;

/// A number that an engine can tell.
enum class EngineStat : int32_t {
  kTOTAL_WEIGHTS_SIZE = 0,     ///< Bytes of all weights in the engine.
  kSTRIPPED_WEIGHTS_SIZE = 1,  ///< Bytes of the weights that were left out of it: none.
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

  /// With a context, shapes and tactics are shown as they are in it; null for none.
  virtual bool setExecutionContext(IExecutionContext const* context) noexcept = 0;
  virtual IExecutionContext const* getExecutionContext() const noexcept = 0;
  virtual char const* getLayerInformation(int32_t layerIndex,
                                          LayerInformationFormat format) const noexcept = 0;
  virtual char const* getEngineInformation(LayerInformationFormat format) const noexcept = 0;
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
};

/// How an engine is stored. Made by ICudaEngine::createSerializationConfig(), deleted by the
/// caller. No flag is set at first.
class ISerializationConfig : public INoCopy {
 public:
  ~ISerializationConfig() noexcept override = default;

  /// \return false, and nothing changes, for what is no flag, here and below.
  virtual bool setFlags(SerializationFlags serializationFlags) noexcept = 0;
  virtual SerializationFlags getFlags() const noexcept = 0;
  virtual bool clearFlag(SerializationFlag serializationFlag) noexcept = 0;
  virtual bool setFlag(SerializationFlag serializationFlag) noexcept = 0;
  virtual bool getFlag(SerializationFlag serializationFlag) const noexcept = 0;
};

/// How execution contexts are made. Made by ICudaEngine::createRuntimeConfig(), deleted by the
/// caller.
class IRuntimeConfig : public INoCopy {
 public:
  ~IRuntimeConfig() noexcept override = default;

  /// At first kSTATIC.
  virtual void setExecutionContextAllocationStrategy(
      ExecutionContextAllocationStrategy strategy) noexcept = 0;
  virtual ExecutionContextAllocationStrategy getExecutionContextAllocationStrategy()
      const noexcept = 0;
};

/// The state of one sequence of runs of an engine: shapes, addresses, working memory. Not safe for
/// use by several threads at once; different contexts of an engine are.
class IExecutionContext : public INoCopy {
 public:
  ~IExecutionContext() noexcept override = default;

  virtual ICudaEngine const& getEngine() const noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  /// The profile in use; -1 if none is.
  virtual int32_t getOptimizationProfile() const noexcept = 0;
  /// Chooses a profile; input shapes are to be set again afterwards.
  virtual bool setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t stream) noexcept = 0;

  /// Sets the shape of an input, within the profile's range.
  virtual bool setInputShape(char const* tensorName, Dims const& dims) noexcept = 0;
  /// The shape of an input or output: that of the engine while it is not set, with -1 for extents
  /// that are not known (yet); nbDims is -1 if there is no such tensor.
  virtual Dims getTensorShape(char const* tensorName) const noexcept = 0;
  /// The strides in elements; nbDims is -1 if there is no such tensor.
  virtual Dims getTensorStrides(char const* tensorName) const noexcept = 0;
  /// Whether all dynamic input shapes are set.
  virtual bool allInputDimensionsSpecified() const noexcept = 0;
  /// Computes the output shapes from the input shapes.
  /// \param nbMaxNames the room in `tensorNames`, which gets the names of inputs that miss a shape
  ///     or, for shape tensors, an address.
  /// \return 0 on success, else the number of those inputs; -1 on any other error.
  virtual int32_t inferShapes(int32_t nbMaxNames, char const** tensorNames) noexcept = 0;

  /// Sets the address of an input or output: a device address on the GPU, a host address on the CPU
  /// and for tensors whose location is kHOST. An output that is aliased to an input
  /// (ICudaEngine::getAliasedInputTensor()) needs none, or the input's; with another one, which
  /// must not overlap the input, the result is computed in the input's memory and copied there.
  virtual bool setTensorAddress(char const* tensorName, void* data) noexcept = 0;
  virtual void const* getTensorAddress(char const* tensorName) const noexcept = 0;
  virtual bool setInputTensorAddress(char const* tensorName, void const* data) noexcept = 0;
  virtual bool setOutputTensorAddress(char const* tensorName, void* data) noexcept = 0;
  virtual void* getOutputTensorAddress(char const* tensorName) const noexcept = 0;
  /// Sets what provides the memory of an output instead of an address; null for none.
  virtual bool setOutputAllocator(char const* tensorName,
                                  IOutputAllocator* outputAllocator) noexcept = 0;
  virtual IOutputAllocator* getOutputAllocator(char const* tensorName) const noexcept = 0;
  /// The bytes that suffice for an output with the input shapes as they are set; -1 on error.
  virtual int64_t getMaxOutputSize(char const* tensorName) const noexcept = 0;

  /// Sets the CUDA event that a run records on its stream once it has read the inputs, after which
  /// their memory may be written again; null: none, as at first. It stays valid while runs use it.
  /// \return false on the CPU, where nobody waits for events.
  virtual bool setInputConsumedEvent(cudaEvent_t event) noexcept = 0;
  virtual cudaEvent_t getInputConsumedEvent() const noexcept = 0;

  /// Gives working memory to a context, which a kUSER_MANAGED one needs before it runs: device
  /// memory, aligned to 64 bytes, that stays until the context gets other memory or is deleted.
  /// Null: none.
  /// \param size in bytes, at least what ICudaEngine::getDeviceMemorySizeForProfileV2() says for
  ///     the context's profile.
  virtual void setDeviceMemoryV2(void* memory, int64_t size) noexcept = 0;
  /// Of TensorRT 10: the same for memory that is as large as the context's profile needs.
  virtual void setDeviceMemory(void* memory) noexcept = 0;
  /// The bytes of working memory for the input shapes as they are set; 0 on error.
  virtual size_t updateDeviceMemorySizeForShapes() noexcept = 0;

  /// Runs with the addresses that were set. On the GPU the work is put on `stream`; on the CPU
  /// `stream` is ignored, and the work is done on return.
  virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
  /// Runs and waits.
  /// \param bindings an address for each input and output, in the order of getIOTensorName().
  virtual bool executeV2(void* const* bindings) noexcept = 0;

  /// Sets what hears the layers' times; null for none.
  virtual void setProfiler(IProfiler* profiler) noexcept = 0;
  virtual IProfiler* getProfiler() const noexcept = 0;
  /// Whether enqueueV3() reports to the profiler (and waits for the work to do so). True at first;
  /// otherwise reportToProfiler() does.
  virtual void setEnqueueEmitsProfile(bool enqueueEmitsProfile) noexcept = 0;
  virtual bool getEnqueueEmitsProfile() const noexcept = 0;
  /// Reports the last run's times.
  virtual bool reportToProfiler() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Where plugins get memory through their resource context; to be set before the first run. Null:
  /// from the device. It is the runtime's allocator at first. Must outlive the context.
  virtual bool setTemporaryStorageAllocator(IGpuAllocator* allocator) noexcept = 0;
  virtual IGpuAllocator* getTemporaryStorageAllocator() const noexcept = 0;

  /// Streams that runs use beside their own (ICudaEngine::getNbAuxStreams()), each another one and
  /// none the default stream: of fewer the others are the context's, more are left alone. What is
  /// replayed as a CUDA graph runs on the run's stream. They must outlive the runs.
  virtual void setAuxStreams(cudaStream_t* auxStreams, int32_t nbStreams) noexcept = 0;
  /// A hint on how much of the L2 cache may hold intermediate tensors from layer to layer, in
  /// bytes; kept and given back, without effect.
  virtual void setPersistentCacheLimit(size_t size) noexcept = 0;
  virtual size_t getPersistentCacheLimit() const noexcept = 0;

  /// Whether runs wait for each layer, so that an error of the device names the layer whose work
  /// failed. False at first. On the CPU it changes nothing.
  virtual void setDebugSync(bool sync) noexcept = 0;
  virtual bool getDebugSync() const noexcept = 0;

  /// Sets what sees debug tensors while the context runs; null for none. It must stay until then.
  /// Runs in which it has something to see are not replayed as CUDA graphs.
  virtual bool setDebugListener(IDebugListener* listener) noexcept = 0;
  virtual IDebugListener* getDebugListener() noexcept = 0;
  /// Whether the listener sees the tensor. Off at first.
  /// \return false if the engine has no debug tensor of that name.
  virtual bool setTensorDebugState(char const* name, bool flag) noexcept = 0;
  virtual bool getDebugState(char const* name) const noexcept = 0;
  /// The same for all debug tensors, those of setUnfusedTensorsDebugState() among them.
  virtual bool setAllTensorsDebugState(bool flag) noexcept = 0;
  /// Whether the listener sees all tensors that the engine writes, where
  /// INetworkDefinition::markUnfusedTensorsAsDebugTensors() was called, and all that are marked.
  /// Off at first.
  virtual bool setUnfusedTensorsDebugState(bool flag) noexcept = 0;
  virtual bool getUnfusedTensorsDebugState() const noexcept = 0;

  /// How much ranges say that mark the layers for NVIDIA's tools: names at first, kDETAILED with
  /// kind, types and tactic, kNONE for no ranges. Without effect where no tool listens; where one
  /// does, ranges keep CUDA graphs from being replayed.
  virtual bool setNvtxVerbosity(ProfilingVerbosity verbosity) noexcept = 0;
  virtual ProfilingVerbosity getNvtxVerbosity() const noexcept = 0;
  /// How the context was made. Owned by the context.
  virtual IRuntimeConfig* getRuntimeConfig() const noexcept = 0;
  /// For engines that run on several devices at once, which there are none of.
  /// \return false for a communicator.
  virtual bool setCommunicator(void* communicator) noexcept = 0;

  /// Beyond TensorRT: threads that a run on the CPU uses at most, the caller's among them. At first
  /// IRuntime::setMaxThreads() or, where nothing was set, getMaxThreads() when the context was
  /// made. Results may differ in their last bits between numbers. The next run makes the kernels
  /// anew. \return false, and nothing is set, for less than 1 or more than 4096.
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
  /// \return null for flags that ask for what is not here.
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
  /// The shape as the network has it, -1 for dynamic extents; nbDims is -1 if there is no such
  /// tensor.
  virtual Dims getTensorShape(char const* tensorName) const noexcept = 0;
  virtual DataType getTensorDataType(char const* tensorName) const noexcept = 0;
  virtual TensorIOMode getTensorIOMode(char const* tensorName) const noexcept = 0;
  virtual TensorLocation getTensorLocation(char const* tensorName) const noexcept = 0;
  /// Whether shapes depend on the tensor's values, or it is computed from shapes alone.
  virtual bool isShapeInferenceIO(char const* tensorName) const noexcept = 0;
  /// The name of the input whose memory an output shares; null if it shares none.
  virtual char const* getAliasedInputTensor(char const* tensorName) const noexcept = 0;

  /// The layout in a profile. Where the profile is left out, here and below, it is the first one.
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
  /// Bytes of working memory of a context: the largest over the profiles, or of one.
  virtual int64_t getDeviceMemorySizeV2() const noexcept = 0;
  virtual int64_t getDeviceMemorySizeForProfileV2(int32_t profileIndex) const noexcept = 0;
  /// The same of TensorRT 10.
  size_t getDeviceMemorySize() const noexcept {
    return static_cast<size_t>(getDeviceMemorySizeV2());
  }
  size_t getDeviceMemorySizeForProfile(int32_t profileIndex) const noexcept {
    return static_cast<size_t>(getDeviceMemorySizeForProfileV2(profileIndex));
  }

  /// Whether INetworkDefinition::markDebug() marked a tensor of that name.
  virtual bool isDebugTensor(char const* name) const noexcept = 0;

  /// Bytes of the weights that may stay in the host's memory; 0 of an engine that was built without
  /// BuilderFlag::kWEIGHT_STREAMING.
  virtual int64_t getStreamableWeightsSize() const noexcept = 0;
  /// How many of these bytes a GPU's memory may hold; at first all. The other weights are copied to
  /// it in each run, while the layer before runs. On the CPU it has no effect.
  /// \return false for a negative budget, while there are contexts, or where the engine was built
  ///     without the flag.
  virtual bool setWeightStreamingBudgetV2(int64_t gpuMemoryBudget) noexcept = 0;
  virtual int64_t getWeightStreamingBudgetV2() const noexcept = 0;
  /// A budget that the GPU has memory for now, with some left for contexts and others.
  virtual int64_t getWeightStreamingAutomaticBudget() const noexcept = 0;
  /// Bytes of the GPU's memory that each context takes, beside getDeviceMemorySizeV2(), for the
  /// weights that are copied. 0 where none are.
  virtual int64_t getWeightStreamingScratchMemorySize() const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Whether weights can be replaced: false.
  virtual bool isRefittable() const noexcept = 0;
  virtual EngineCapability getEngineCapability() const noexcept = 0;
  /// The GPUs that the engine's own code serves, whatever was asked for: kAMPERE_PLUS where all of
  /// it is PTX for them, kSAME_COMPUTE_CAPABILITY for other code of GPUs, kNONE without such code.
  virtual HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept = 0;
  /// The sources that the engine has kernels from, which it needs to be loaded: none, or
  /// kCUBLAS_LT.
  virtual TacticSources getTacticSources() const noexcept = 0;
  /// On so many streams beside that of the run layers run beside each other that need nothing of
  /// each other; 0 on the CPU.
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
  /// The same from a stream, of which the engine's bytes are read and none that follow.
  virtual ICudaEngine* deserializeCudaEngine(IStreamReader& streamReader) noexcept = 0;
  virtual ICudaEngine* deserializeCudaEngine(IStreamReaderV2& streamReader) noexcept = 0;

  /// Whether engines may bring code that runs on the host: compiled CPU kernels, plugin libraries,
  /// Python source. False at first, unless the environment variable OPWRIGHT_ALLOW_HOST_CODE is 1;
  /// such an engine is refused then.
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

  /// The most threads that loading and running on the CPU use, the caller's included.
  /// \return false, and nothing is set, for less than 1 or more than 4096.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;

  /// Counted as a reference. Engines inherit the recorder, contexts and inspectors that of their
  /// engine; a plugin gets its context's.
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Where plugins of engines that are loaded from now on get memory, through their resource
  /// context; null: from the device. Must outlive these engines.
  virtual void setGpuAllocator(IGpuAllocator* allocator) noexcept = 0;

  /// Where temporary files may be made; null: where the system has them, as at first. Kept and
  /// given back: Opwright makes none.
  virtual void setTemporaryDirectory(char const* path) noexcept = 0;
  virtual char const* getTemporaryDirectory() const noexcept = 0;
  /// All flags at first. Without kALLOW_IN_MEMORY_FILES an engine that brings host code is refused.
  virtual void setTempfileControlFlags(TempfileControlFlags flags) noexcept = 0;
  virtual TempfileControlFlags getTempfileControlFlags() const noexcept = 0;

  /// Loads a runtime of another version from a library, for engines of that version.
  /// \return null: there is no other runtime, and this one runs every engine that it can read.
  virtual IRuntime* loadRuntime(char const* path) noexcept = 0;

  /// Beyond TensorRT: whether engines that are loaded from now on check every call of a plugin, as
  /// IBuilderConfig::setDebugPlugins() says. Until it is called, each engine does as it was built.
  virtual void setDebugPlugins(bool debug) noexcept = 0;
  /// What was set; false at first.
  virtual bool getDebugPlugins() const noexcept = 0;

  /// Beyond TensorRT: whether engines that another process built may bring code for a GPU, PTX or
  /// cubins, as nearly all engines for a GPU do. Such code can read and change whatever the GPU
  /// reaches of the process's memory. False at first, unless the environment variable
  /// OPWRIGHT_ALLOW_DEVICE_CODE is 1; such an engine is refused then. Where host code is allowed,
  /// this is, too.
  virtual void setEngineDeviceCodeAllowed(bool allowed) noexcept = 0;
  /// What was set.
  virtual bool getEngineDeviceCodeAllowed() const noexcept = 0;

  /// Beyond TensorRT: what engines that are loaded from now on may ask for. At first the defaults.
  /// \return false, and nothing is set, for a limit that is negative or not a number.
  virtual bool setLimits(Limits const& limits) noexcept = 0;
  virtual Limits getLimits() const noexcept = 0;
};

}  // namespace opwright

/// Behind createInferRuntime(): takes an ILogger and the API level that the caller was compiled
/// for, returns an IRuntime; null if the level does not fit.
extern "C" OPWRIGHT_API void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept;

/// The library's API level, to be compared with NV_TENSORRT_VERSION.
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
