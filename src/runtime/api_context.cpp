#include "runtime/api_context.h"

#include "base/types.h"

namespace opwright {
namespace {

constexpr uint64_t kOutputAlignment = 64;

}  // namespace

void* ContextApi::Allocator::reallocate(int output, void* current, size_t bytes) {
  const std::string& name = owner->engine().plan().outputs[output].name;
  return user->reallocateOutputAsync(name.c_str(), current, bytes, kOutputAlignment,
                                     owner->stream_);
}

void ContextApi::Allocator::notify_shape(int output, const Shape& shape) {
  user->notifyShape(owner->engine().plan().outputs[output].name.c_str(), shape.dims());
}

ContextApi::ContextApi(const EngineApi& engine, ExecutionContextAllocationStrategy strategy)
    : api_(engine),
      context_(engine.engine()),
      errors_(context_.errors()),
      config_(strategy),
      allocators_(engine.engine()->plan().outputs.size()) {
  context_.set_memory_strategy(strategy);
}

int ContextApi::find_input(const char* name) const {
  const Port port = find_port(engine(), name);
  require(port.input >= 0, "'", name, "' is an output, not an input");
  return port.input;
}

int ContextApi::find_output(const char* name) const {
  const Port port = find_port(engine(), name);
  require(port.output >= 0, "'", name, "' is an input, not an output");
  return port.output;
}

void ContextApi::setName(char const* name) noexcept {
  errors_.guard(false, [&] {
    name_ = name == nullptr ? "" : name;
    return true;
  });
}

bool ContextApi::setOptimizationProfileAsync(int32_t profileIndex, cudaStream_t) noexcept {
  return errors_.guard(false, [&] {
    context_.set_profile(profileIndex);
    return true;
  });
}

bool ContextApi::setTemporaryStorageAllocator(IGpuAllocator* allocator) noexcept {
  context_.set_allocator(unowned(allocator));
  return true;
}

bool ContextApi::setInputShape(char const* tensorName, Dims const& dims) noexcept {
  return errors_.guard(false, [&] {
    context_.set_input_shape(find_input(tensorName), Shape(dims));
    return true;
  });
}

Shape ContextApi::shape_of(Port port) const {
  return port.output >= 0 ? context_.output_shape(port.output) : context_.input_shape(port.input);
}

Dims ContextApi::getTensorShape(char const* tensorName) const noexcept {
  return errors_.guard(kNoDims, [&] { return shape_of(find_port(engine(), tensorName)).dims(); });
}

Dims ContextApi::getTensorStrides(char const* tensorName) const noexcept {
  return errors_.guard(kNoDims, [&] {
    const Port port = find_port(engine(), tensorName);
    return strides_of(shape_of(port), port_of(engine(), port).type.format);
  });
}

bool ContextApi::allInputDimensionsSpecified() const noexcept { return context_.all_shapes_set(); }

int32_t ContextApi::inferShapes(int32_t nbMaxNames, char const** tensorNames) noexcept {
  return errors_.guard(-1, [&] {
    const std::vector<int> missing = context_.infer_shapes();
    for (size_t i = 0; i < missing.size() && std::cmp_less(i, nbMaxNames); ++i)
      if (tensorNames != nullptr) tensorNames[i] = engine().plan().inputs[missing[i]].name.c_str();
    return static_cast<int32_t>(missing.size());
  });
}

bool ContextApi::setTensorAddress(char const* tensorName, void* data) noexcept {
  return errors_.guard(false, [&] {
    const Port port = find_port(engine(), tensorName);
    if (port.input >= 0) {
      context_.set_input_address(port.input, data);
    } else {
      context_.set_output_address(port.output, data);
    }
    return true;
  });
}

void const* ContextApi::getTensorAddress(char const* tensorName) const noexcept {
  return errors_.guard<void const*>(nullptr, [&]() -> void const* {
    const Port port = find_port(engine(), tensorName);
    return port.input >= 0 ? context_.input_address(port.input)
                           : context_.output_address(port.output);
  });
}

bool ContextApi::setInputTensorAddress(char const* tensorName, void const* data) noexcept {
  return errors_.guard(false, [&] {
    context_.set_input_address(find_input(tensorName), data);
    return true;
  });
}

bool ContextApi::setOutputTensorAddress(char const* tensorName, void* data) noexcept {
  return errors_.guard(false, [&] {
    context_.set_output_address(find_output(tensorName), data);
    return true;
  });
}

void* ContextApi::getOutputTensorAddress(char const* tensorName) const noexcept {
  return errors_.guard<void*>(nullptr,
                              [&] { return context_.output_address(find_output(tensorName)); });
}

bool ContextApi::setOutputAllocator(char const* tensorName,
                                    IOutputAllocator* outputAllocator) noexcept {
  return errors_.guard(false, [&] {
    const int output = find_output(tensorName);
    std::unique_ptr<Allocator> allocator;
    if (outputAllocator != nullptr) {
      allocator = std::make_unique<Allocator>();
      allocator->owner = this;
      allocator->user = outputAllocator;
    }
    context_.set_output_memory(output, allocator.get());
    allocators_[output] = std::move(allocator);
    return true;
  });
}

IOutputAllocator* ContextApi::getOutputAllocator(char const* tensorName) const noexcept {
  return errors_.guard<IOutputAllocator*>(nullptr, [&] {
    const auto& allocator = allocators_[find_output(tensorName)];
    return allocator == nullptr ? nullptr : allocator->user;
  });
}

bool ContextApi::setInputConsumedEvent(cudaEvent_t event) noexcept {
  return errors_.guard(false, [&] {
    context_.set_input_consumed_event(event);
    return true;
  });
}

int64_t ContextApi::getMaxOutputSize(char const* tensorName) const noexcept {
  return errors_.guard<int64_t>(-1, [&] {
    const int output = find_output(tensorName);
    const PortType type = engine().plan().outputs[output].type;
    return tensor_bytes(context_.max_output_shape(output), type.dtype, type.format);
  });
}

void ContextApi::setDeviceMemoryV2(void* memory, int64_t size) noexcept {
  errors_.guard(false, [&] {
    require(size >= 0, "the size of the context's memory must not be negative, it is ", size);
    context_.set_memory(memory, static_cast<size_t>(size));
    return true;
  });
}

void ContextApi::setDeviceMemory(void* memory) noexcept {
  errors_.run([&] { context_.set_memory(memory); });
}

void ContextApi::setDebugSync(bool sync) noexcept {
  errors_.run([&] { context_.set_debug_sync(sync); });
}

bool ContextApi::setDebugListener(IDebugListener* listener) noexcept {
  return errors_.run([&] {
    if (listener == nullptr) {
      context_.set_debug_listener(nullptr);
    } else {
      context_.set_debug_listener([listener](const DebugView& view) {
        if (!listener->processDebugTensor(view.address, view.location, view.type, view.shape.dims(),
                                          view.name.c_str(), static_cast<cudaStream_t>(view.queue)))
          fail_refused(view);
      });
    }
    debug_listener_ = listener;
  });
}

bool ContextApi::setTensorDebugState(char const* name, bool flag) noexcept {
  return errors_.run([&] {
    require(name != nullptr, "setTensorDebugState: the tensor's name is null");
    context_.set_debug_state(name, flag);
  });
}

bool ContextApi::getDebugState(char const* name) const noexcept {
  return name != nullptr && errors_.guard(false, [&] { return context_.debug().state(name); });
}

bool ContextApi::setAllTensorsDebugState(bool flag) noexcept {
  return errors_.run([&] { context_.set_all_debug_states(flag); });
}

bool ContextApi::setUnfusedTensorsDebugState(bool flag) noexcept {
  return errors_.run([&] { context_.set_unfused_debug_state(flag); });
}

bool ContextApi::setCommunicator(void* communicator) noexcept {
  return errors_.run([&] {
    require(communicator == nullptr,
            "setCommunicator: an engine runs on one device, so that it has no use for a "
            "communicator");
  });
}

size_t ContextApi::updateDeviceMemorySizeForShapes() noexcept {
  return errors_.guard<size_t>(0, [&] {
    require(context_.all_shapes_set(), "the shapes of all inputs must be set first");
    return static_cast<size_t>(context_memory(engine().plan().schedules[context_.profile()]));
  });
}

void ContextApi::enqueue(cudaStream_t stream) {
  stream_ = stream;
  layer_times_.clear();
  context_.enqueue(stream);
  if (profiler_ != nullptr && emits_profile_) reportToProfiler();
}

bool ContextApi::enqueueV3(cudaStream_t stream) noexcept {
  return errors_.guard(false, [&] {
    enqueue(stream);
    return true;
  });
}

bool ContextApi::executeV2(void* const* bindings) noexcept {
  return errors_.guard(false, [&] {
    require(bindings != nullptr, "the array of addresses is null");
    const Plan& plan = engine().plan();
    const int inputs = static_cast<int>(plan.inputs.size());
    for (int i = 0; i < inputs; ++i) context_.set_input_address(i, bindings[i]);
    for (int i = 0; i < static_cast<int>(plan.outputs.size()); ++i) {
      context_.set_output_address(i, bindings[inputs + i]);
    }
    enqueue(nullptr);
    context_.synchronize(nullptr);
    return true;
  });
}

void ContextApi::setProfiler(IProfiler* profiler) noexcept {
  errors_.guard(false, [&] {
    profiler_ = profiler;
    if (profiler == nullptr) {
      context_.set_layer_time_callback(nullptr);
    } else {
      context_.set_layer_time_callback([this](const std::string& name, float milliseconds) {
        layer_times_.emplace_back(name, milliseconds);
      });
    }
    return true;
  });
}

bool ContextApi::reportToProfiler() const noexcept {
  return errors_.guard(false, [&] {
    require(profiler_ != nullptr, "there is no profiler to report to");
    require(!layer_times_.empty(), "there was no run with the profiler set");
    for (const auto& [name, milliseconds] : layer_times_) {
      profiler_->reportLayerTime(name.c_str(), milliseconds);
    }
    return true;
  });
}

}  // namespace opwright
