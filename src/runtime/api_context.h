#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opwright/runtime.h"
#include "runtime/api_border.h"
#include "runtime/api_engine.h"
#include "runtime/api_runtime_config.h"
#include "runtime/context.h"

namespace opwright {

class ContextApi final : public IExecutionContext {
 public:
  ContextApi(const EngineApi& engine, ExecutionContextAllocationStrategy strategy);

  const Context& context() const { return context_; }

  ICudaEngine const& getEngine() const noexcept override { return api_; }
  void setName(char const* name) noexcept override;
  char const* getName() const noexcept override { return name_.c_str(); }
  int32_t getOptimizationProfile() const noexcept override { return context_.profile(); }
  bool setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t stream) noexcept override;
  bool setInputShape(char const* tensorName, Dims const& dims) noexcept override;
  Dims getTensorShape(char const* tensorName) const noexcept override;
  Dims getTensorStrides(char const* tensorName) const noexcept override;
  bool allInputDimensionsSpecified() const noexcept override;
  int32_t inferShapes(int32_t nbMaxNames, char const** tensorNames) noexcept override;
  bool setTensorAddress(char const* tensorName, void* data) noexcept override;
  void const* getTensorAddress(char const* tensorName) const noexcept override;
  bool setInputTensorAddress(char const* tensorName, void const* data) noexcept override;
  bool setOutputTensorAddress(char const* tensorName, void* data) noexcept override;
  void* getOutputTensorAddress(char const* tensorName) const noexcept override;
  bool setOutputAllocator(char const* tensorName,
                          IOutputAllocator* outputAllocator) noexcept override;
  IOutputAllocator* getOutputAllocator(char const* tensorName) const noexcept override;
  bool setInputConsumedEvent(cudaEvent_t event) noexcept override;
  cudaEvent_t getInputConsumedEvent() const noexcept override {
    return static_cast<cudaEvent_t>(context_.input_consumed_event());
  }
  int64_t getMaxOutputSize(char const* tensorName) const noexcept override;
  void setDeviceMemoryV2(void* memory, int64_t size) noexcept override;
  size_t updateDeviceMemorySizeForShapes() noexcept override;
  bool enqueueV3(cudaStream_t stream) noexcept override;
  bool executeV2(void* const* bindings) noexcept override;
  void setProfiler(IProfiler* profiler) noexcept override;
  IProfiler* getProfiler() const noexcept override { return profiler_; }
  void setEnqueueEmitsProfile(bool enqueueEmitsProfile) noexcept override {
    emits_profile_ = enqueueEmitsProfile;
  }
  bool getEnqueueEmitsProfile() const noexcept override { return emits_profile_; }
  bool reportToProfiler() const noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    context_.set_error_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool setTemporaryStorageAllocator(IGpuAllocator* allocator) noexcept override;
  IGpuAllocator* getTemporaryStorageAllocator() const noexcept override {
    return context_.allocator().get();
  }
  void setAuxStreams(cudaStream_t*, int32_t) noexcept override {}
  void setPersistentCacheLimit(size_t size) noexcept override { persistent_cache_limit_ = size; }
  size_t getPersistentCacheLimit() const noexcept override { return persistent_cache_limit_; }
  void setDeviceMemory(void* memory) noexcept override;
  void setDebugSync(bool sync) noexcept override;
  bool getDebugSync() const noexcept override { return context_.debug_sync(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { context_.set_max_threads(maxThreads); });
  }
  int32_t getMaxThreads() const noexcept override { return context_.max_threads(); }
  bool setDebugListener(IDebugListener* listener) noexcept override;
  IDebugListener* getDebugListener() noexcept override { return debug_listener_; }
  bool setTensorDebugState(char const* name, bool flag) noexcept override;
  bool getDebugState(char const* name) const noexcept override;
  bool setAllTensorsDebugState(bool flag) noexcept override;
  bool setUnfusedTensorsDebugState(bool flag) noexcept override;
  bool getUnfusedTensorsDebugState() const noexcept override { return context_.debug().unfused(); }
  bool setNvtxVerbosity(ProfilingVerbosity verbosity) noexcept override {
    nvtx_verbosity_ = verbosity;
    return true;
  }
  ProfilingVerbosity getNvtxVerbosity() const noexcept override { return nvtx_verbosity_; }
  IRuntimeConfig* getRuntimeConfig() const noexcept override { return &config_; }
  bool setCommunicator(void* communicator) noexcept override;

 private:
  /// The user's allocator of one output as the context calls it.
  struct Allocator final : OutputMemory {
    void* reallocate(int output, void* current, size_t bytes) override;
    void notify_shape(int output, const Shape& shape) override;
    ContextApi* owner = nullptr;
    IOutputAllocator* user = nullptr;
  };

  const Engine& engine() const { return *context_.engine(); }
  int find_input(const char* name) const;
  int find_output(const char* name) const;
  Shape shape_of(Port port) const;
  void enqueue(cudaStream_t stream);

  const EngineApi& api_;
  mutable Context context_;  // asking for a shape may compute it
  const ErrorReport& errors_;
  mutable RuntimeConfigApi config_;  // getRuntimeConfig() is const in the interface
  size_t persistent_cache_limit_ = 0;
  ProfilingVerbosity nvtx_verbosity_ = ProfilingVerbosity::kLAYER_NAMES_ONLY;
  IDebugListener* debug_listener_ = nullptr;
  std::string name_;
  std::vector<std::unique_ptr<Allocator>> allocators_;  ///< per output, null: none
  cudaStream_t stream_ = nullptr;                       ///< of the run
  IProfiler* profiler_ = nullptr;
  bool emits_profile_ = true;
  std::vector<std::pair<std::string, float>> layer_times_;  ///< of the last run
};

}  // namespace opwright
