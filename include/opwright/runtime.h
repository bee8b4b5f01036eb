#pragma once

/// \file
/// Loading and running engines from C++. Methods do not throw: on failure they return null, false
/// or what is said there, and tell the logger and the error recorder. Delete the objects that are
/// returned by pointer, contexts and inspectors before their engine, engines before their runtime.

#include "logger.h"
#include "plugin_base.h"
#include "registry.h"
#include "types.h"

namespace opwright {

class ICudaEngine;
class IExecutionContext;

/// Bytes that the library allocated.
class IHostMemory : public INoCopy {
 public:
  virtual ~IHostMemory() noexcept = default;
  virtual void* data() const noexcept = 0;
  /// In bytes.
  virtual std::size_t size() const noexcept = 0;
  virtual DataType type() const noexcept = 0;
};

namespace v_1_0 {

/// Receives the time of each layer after a run.
class IProfiler {
 public:
  /// \param ms in milliseconds.
  virtual void reportLayerTime(char const* layerName, float ms) noexcept = 0;
  virtual ~IProfiler() noexcept {}
};

/// Provides memory for an output whose size is known only when it is computed.
class IOutputAllocator : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IOutputAllocator", 1, 0}; }

  /// \param currentMemory the address that the context has for the output.
  /// \param size in bytes.
  /// \return memory of at least `size` bytes, which may be `currentMemory`; null on failure.
  virtual void* reallocateOutput(char const* /*tensorName*/, void* /*currentMemory*/,
                                 uint64_t /*size*/, uint64_t /*alignment*/) noexcept {
    return nullptr;
  }

  /// As reallocateOutput(), in the order of the work on `stream`.
  virtual void* reallocateOutputAsync(char const* tensorName, void* currentMemory, uint64_t size,
                                      uint64_t alignment, cudaStream_t /*stream*/) {
    return reallocateOutput(tensorName, currentMemory, size, alignment);
  }

  /// Tells the output's shape as soon as it is known.
  virtual void notifyShape(char const* tensorName, Dims const& dims) noexcept = 0;
};

}  // namespace v_1_0
using IProfiler = v_1_0::IProfiler;
using IOutputAllocator = v_1_0::IOutputAllocator;

enum class LayerInformationFormat : int32_t {
  kONELINE = 0,  ///< A line of text for each layer.
  kJSON = 1,
};

/// Where a context's working memory comes from.
enum class ExecutionContextAllocationStrategy : int32_t {
  kSTATIC = 0,             ///< Allocated once, for the largest of all profiles.
  kON_PROFILE_CHANGE = 1,  ///< Allocated for the profile that is chosen.
  kUSER_MANAGED = 2,       ///< Given by the user with setDeviceMemoryV2().
};

namespace impl {
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
  virtual ~IEngineInspector() noexcept = default;

  /// With a context, shapes and tactics are shown as they are in it; null for none.
  virtual bool setExecutionContext(IExecutionContext const* context) noexcept = 0;
  virtual IExecutionContext const* getExecutionContext() const noexcept = 0;
  virtual char const* getLayerInformation(int32_t layerIndex,
                                          LayerInformationFormat format) const noexcept = 0;
  virtual char const* getEngineInformation(LayerInformationFormat format) const noexcept = 0;
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
};

/// The state of one sequence of runs of an engine: shapes, addresses, working memory. Not safe for
/// use by several threads at once; different contexts of an engine are.
class IExecutionContext : public INoCopy {
 public:
  virtual ~IExecutionContext() noexcept = default;

  virtual ICudaEngine const& getEngine() const noexcept = 0;
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  /// The profile in use; -1 if none is.
  virtual int32_t getOptimizationProfile() const noexcept = 0;
  /// Chooses a profile; input shapes are to be set again afterwards.
  virtual bool setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t stream) noexcept = 0;

  /// Sets the shape of an input, within the profile's range.
  virtual bool setInputShape(char const* tensorName, Dims const& dims) noexcept = 0;
  /// The shape of an input or output, with -1 for extents that are not known (yet); nbDims is -1 if
  /// there is no such tensor.
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
  /// and for tensors whose location is kHOST.
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

  /// Gives working memory to a kUSER_MANAGED context.
  /// \param size in bytes.
  virtual void setDeviceMemoryV2(void* memory, int64_t size) noexcept = 0;
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
};

/// A built network. Safe for use by several threads at once.
class ICudaEngine : public INoCopy {
 public:
  virtual ~ICudaEngine() noexcept = default;

  virtual char const* getName() const noexcept = 0;
  virtual int32_t getNbLayers() const noexcept = 0;
  virtual IHostMemory* serialize() const noexcept = 0;
  virtual IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy =
          ExecutionContextAllocationStrategy::kSTATIC) noexcept = 0;
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

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
};

/// Loads engines.
class IRuntime : public INoCopy {
 public:
  virtual ~IRuntime() noexcept = default;

  /// Verifies and loads an engine from bytes, which may be freed afterwards.
  virtual ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept = 0;

  /// Whether engines may bring code that runs on the host: compiled CPU kernels, plugin libraries,
  /// Python source. False at first; such an engine is refused then.
  virtual void setEngineHostCodeAllowed(bool allowed) noexcept = 0;
  virtual bool getEngineHostCodeAllowed() const noexcept = 0;

  /// The registry of this runtime, whose parent is getPluginRegistry().
  virtual IPluginRegistry& getPluginRegistry() noexcept = 0;
  virtual ILogger* getLogger() const noexcept = 0;

  /// The most threads that loading and running on the CPU use, the caller's included.
  /// \return false if `maxThreads` is less than 1.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;

  /// Counted as a reference. Engines inherit the recorder, contexts and inspectors that of their
  /// engine; a plugin gets its context's.
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// Where plugins of engines that are loaded from now on get memory, through their resource
  /// context; null: from the device. Must outlive these engines.
  virtual void setGpuAllocator(IGpuAllocator* allocator) noexcept = 0;

  /// Beyond TensorRT: whether engines that are loaded from now on check every call of a plugin, as
  /// IBuilderConfig::setDebugPlugins() says. Until it is called, each engine does as it was built.
  virtual void setDebugPlugins(bool debug) noexcept = 0;
  /// What was set; false at first.
  virtual bool getDebugPlugins() const noexcept = 0;
};

}  // namespace opwright

/// Behind createInferRuntime(): takes an ILogger and the API level that the caller was compiled
/// for, returns an IRuntime; null if the level does not fit.
extern "C" OPWRIGHT_API void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept;

/// The library's API level, to be compared with NV_TENSORRT_VERSION.
extern "C" OPWRIGHT_API int32_t getInferLibVersion() noexcept;

namespace opwright {

/// \return a runtime that the caller deletes; null on failure.
inline IRuntime* createInferRuntime(ILogger& logger) noexcept {
  return static_cast<IRuntime*>(createInferRuntime_INTERNAL(&logger, NV_TENSORRT_VERSION));
}

}  // namespace opwright
