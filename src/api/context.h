#pragma once

#include <memory>
#include <string>

#include "api/border.h"
#include "api/engine_configs.h"
#include "opwright/runtime.h"
#include "runtime/context.h"

namespace opwright {

/// The public face of a Context.
class ContextApi final : public IExecutionContext {
 public:
  ContextApi(ICudaEngine const& api, const std::shared_ptr<Engine>& engine,
             ExecutionContextAllocationStrategy strategy)
      : api_(api), context_(engine, 0, strategy), errors_(context_.errors()), config_(strategy) {}

  ICudaEngine const& getEngine() const noexcept override { return api_; }
  void setName(char const* name) noexcept override {
    errors_.run([&] { context_.notes().name = name == nullptr ? "" : name; });
  }
  char const* getName() const noexcept override { return context_.notes().name.c_str(); }
  int32_t getOptimizationProfile() const noexcept override { return context_.profile(); }
  bool setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t) noexcept override {
    return errors_.run([&] { context_.set_profile(profileIndex); });
  }
  bool setInputShape(char const* name, Dims const& dims) noexcept override {
    return errors_.run([&] { context_.set_input_shape(checked_name(name), Shape(dims)); });
  }
  Dims getTensorShape(char const* name) const noexcept override {
    return errors_.guard(kNoDims, [&] { return context_.tensor_shape(checked_name(name)).dims(); });
  }
  Dims getTensorStrides(char const* name) const noexcept override {
    return errors_.guard(kNoDims, [&] { return context_.tensor_strides(checked_name(name)); });
  }
  bool allInputDimensionsSpecified() const noexcept override { return context_.all_shapes_set(); }
  int32_t inferShapes(int32_t nbMaxNames, char const** names) noexcept override {
    return errors_.guard(-1, [&] {
      const std::vector<int> missing = context_.infer_shapes();
      const auto& inputs = context_.engine()->plan().inputs;
      for (size_t i = 0; i < missing.size() && std::cmp_less(i, nbMaxNames); ++i)
        if (names != nullptr) names[i] = inputs[missing[i]].name.c_str();
      return static_cast<int32_t>(missing.size());
    });
  }
  bool setTensorAddress(char const* name, void* data) noexcept override {
    return errors_.run([&] { context_.set_tensor_address(checked_name(name), data); });
  }
  void const* getTensorAddress(char const* name) const noexcept override {
    return errors_.guard<void const*>(nullptr,
                                      [&] { return context_.tensor_address(checked_name(name)); });
  }
  bool setInputTensorAddress(char const* name, void const* data) noexcept override {
    return errors_.run(
        [&] { context_.set_input_address(engine().input(checked_name(name)), data); });
  }
  bool setOutputTensorAddress(char const* name, void* data) noexcept override {
    return errors_.run(
        [&] { context_.set_output_address(engine().output(checked_name(name)), data); });
  }
  void* getOutputTensorAddress(char const* name) const noexcept override {
    return errors_.guard<void*>(
        nullptr, [&] { return context_.output_address(engine().output(checked_name(name))); });
  }
  bool setOutputAllocator(char const* name, IOutputAllocator* allocator) noexcept override {
    return errors_.run([&] {
      context_.set_output_allocator(
          checked_name(name),
          allocator == nullptr ? nullptr : std::make_shared<Allocator>(*allocator));
    });
  }
  IOutputAllocator* getOutputAllocator(char const* name) const noexcept override {
    return errors_.guard<IOutputAllocator*>(nullptr, [&] {
      auto* const memory = static_cast<Allocator*>(context_.output_allocator(checked_name(name)));
      return memory == nullptr ? nullptr : &memory->user;
    });
  }
  bool setInputConsumedEvent(cudaEvent_t event) noexcept override {
    return errors_.run([&] { context_.set_input_consumed_event(event); });
  }
  cudaEvent_t getInputConsumedEvent() const noexcept override {
    return static_cast<cudaEvent_t>(context_.input_consumed_event());
  }
  int64_t getMaxOutputSize(char const* name) const noexcept override {
    return errors_.guard<int64_t>(-1, [&] { return context_.max_output_size(checked_name(name)); });
  }
  void setDeviceMemoryV2(void* memory, int64_t size) noexcept override {
    errors_.run([&] {
      require(size >= 0, "the size of the context's memory must not be negative, it is ", size);
      context_.set_memory(memory, static_cast<size_t>(size));
    });
  }
  size_t updateDeviceMemorySizeForShapes() noexcept override {
    return errors_.guard<size_t>(0, [&] { return context_.memory_size_for_shapes(); });
  }
  bool enqueueV3(cudaStream_t stream) noexcept override {
    return errors_.run([&] { context_.enqueue(stream); });
  }
  bool executeV2(void* const* bindings) noexcept override {
    return errors_.run([&] {
      context_.execute(std::span(bindings, static_cast<size_t>(engine().num_io_tensors())));
    });
  }
  void setProfiler(IProfiler* profiler) noexcept override {
    errors_.run([&] {
      LayerTimeCallback report;
      if (profiler != nullptr)
        report = [profiler](const std::string& layer, float milliseconds) {
          profiler->reportLayerTime(layer.c_str(), milliseconds);
        };
      context_.set_layer_time_callback(std::move(report));
      profiler_ = profiler;
    });
  }
  IProfiler* getProfiler() const noexcept override { return profiler_; }
  void setEnqueueEmitsProfile(bool emits) noexcept override {
    context_.set_emits_layer_times(emits);
  }
  bool getEnqueueEmitsProfile() const noexcept override { return context_.emits_layer_times(); }
  bool reportToProfiler() const noexcept override {
    return errors_.run([&] { context_.report_layer_times(); });
  }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    context_.set_error_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool setTemporaryStorageAllocator(IGpuAllocator* allocator) noexcept override {
    context_.set_allocator(unowned(allocator));
    return true;
  }
  IGpuAllocator* getTemporaryStorageAllocator() const noexcept override {
    return context_.allocator().get();
  }
  void setAuxStreams(cudaStream_t* auxStreams, int32_t nbStreams) noexcept override {
    errors_.run([&] {
      require(nbStreams >= 0 && (auxStreams != nullptr || nbStreams == 0),
              "setAuxStreams: ", nbStreams, " streams, whose array is ",
              auxStreams == nullptr ? "null" : "there");
      context_.set_aux_queues(
          {reinterpret_cast<Queue*>(auxStreams), static_cast<size_t>(nbStreams)});
    });
  }
  void setPersistentCacheLimit(size_t size) noexcept override {
    context_.notes().persistent_cache_limit = size;
  }
  size_t getPersistentCacheLimit() const noexcept override {
    return context_.notes().persistent_cache_limit;
  }
  void setDeviceMemory(void* memory) noexcept override {
    errors_.run([&] { context_.set_memory(memory); });
  }
  void setDebugSync(bool sync) noexcept override {
    errors_.run([&] { context_.set_debug_sync(sync); });
  }
  bool getDebugSync() const noexcept override { return context_.debug_sync(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { context_.set_max_threads(maxThreads); });
  }
  int32_t getMaxThreads() const noexcept override { return context_.max_threads(); }
  bool setDebugListener(IDebugListener* listener) noexcept override {
    return errors_.run([&] {
      DebugListener show;
      if (listener != nullptr)
        show = [listener](const DebugView& view) {
          return listener->processDebugTensor(view.address, view.location, view.type,
                                              view.shape.dims(), view.name.c_str(),
                                              static_cast<cudaStream_t>(view.queue));
        };
      context_.set_debug_listener(std::move(show));
      debug_listener_ = listener;
    });
  }
  IDebugListener* getDebugListener() noexcept override { return debug_listener_; }
  bool setTensorDebugState(char const* name, bool flag) noexcept override {
    return errors_.run([&] { context_.set_debug_state(std::string(checked_name(name)), flag); });
  }
  bool getDebugState(char const* name) const noexcept override {
    return name != nullptr && errors_.guard(false, [&] { return context_.debug().state(name); });
  }
  bool setAllTensorsDebugState(bool flag) noexcept override {
    return errors_.run([&] { context_.set_all_debug_states(flag); });
  }
  bool setUnfusedTensorsDebugState(bool flag) noexcept override {
    return errors_.run([&] { context_.set_unfused_debug_state(flag); });
  }
  bool getUnfusedTensorsDebugState() const noexcept override { return context_.debug().unfused(); }
  bool setNvtxVerbosity(ProfilingVerbosity verbosity) noexcept override {
    context_.notes().nvtx_verbosity = verbosity;
    return true;
  }
  ProfilingVerbosity getNvtxVerbosity() const noexcept override {
    return context_.notes().nvtx_verbosity;
  }
  IRuntimeConfig* getRuntimeConfig() const noexcept override { return &config_; }
  bool setCommunicator(void* communicator) noexcept override {
    return errors_.run([&] { context_.set_communicator(communicator); });
  }

 private:
  /// Passes the context's memory requests for one output to the user's allocator.
  struct Allocator final : OutputMemory {
    explicit Allocator(IOutputAllocator& user) : user(user) {}
    void* reallocate(const OutputRequest& request) override {
      return user.reallocateOutputAsync(request.name.c_str(), request.current, request.bytes,
                                        request.alignment,
                                        static_cast<cudaStream_t>(request.queue));
    }
    void notify_shape(const std::string& name, const Shape& shape) override {
      user.notifyShape(name.c_str(), shape.dims());
    }
    IOutputAllocator& user;
  };

  const Engine& engine() const { return *context_.engine(); }

  ICudaEngine const& api_;
  mutable Context context_;  // asking for a shape may compute it
  const ErrorReport& errors_;
  mutable RuntimeConfigApi config_;  // getRuntimeConfig() is const in the interface
  IDebugListener* debug_listener_ = nullptr;
  IProfiler* profiler_ = nullptr;
};

}  // namespace opwright
