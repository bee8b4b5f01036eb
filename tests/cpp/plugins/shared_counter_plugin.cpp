// A plugin for the CPU that copies its input and counts its runs in a resource that all instances
// share. The library exports getCreators() instead of registering its creator itself. The plugin
// asks its context for memory and tells the context's recorder of inputs that are not numbers.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "NvInfer.h"

namespace {

using nvinfer1::DataType;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginTensorDesc;

constexpr char const* kName = "shared_counter_plugin";
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "";
constexpr char const* kKey = "shared_counter_plugin:counter";

/// Only the clone that the registry keeps has a counter.
class Counter final : public nvinfer1::IPluginResource {
 public:
  int32_t release() noexcept override {
    runs.reset();
    return 0;
  }
  Counter* clone() noexcept override {
    auto* made = new (std::nothrow) Counter;
    if (made != nullptr) made->runs = std::make_unique<int64_t>(0);
    return made;
  }
  std::unique_ptr<int64_t> runs;
};

class SharedCounterPlugin final : public nvinfer1::IPluginV3,
                                  public nvinfer1::IPluginV3OneCore,
                                  public nvinfer1::IPluginV3OneBuild,
                                  public nvinfer1::IPluginV3OneRuntime {
 public:
  SharedCounterPlugin() = default;
  ~SharedCounterPlugin() noexcept override {
    if (memory_ != nullptr) allocator_->deallocate(memory_);
    if (counter_ != nullptr) getPluginRegistry()->releasePluginResource(kKey);
  }

  // IPluginV3
  nvinfer1::IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case PluginCapabilityType::kBUILD:
        return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      case PluginCapabilityType::kRUNTIME:
        return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }
  SharedCounterPlugin* clone() noexcept override { return new (std::nothrow) SharedCounterPlugin; }

  // IPluginV3OneCore
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

  // IPluginV3OneBuild
  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out, int32_t,
                                 int32_t) noexcept override {
    PluginTensorDesc const& desc = in_out[pos].desc;
    return desc.format == nvinfer1::TensorFormat::kLINEAR && desc.type == DataType::kFLOAT;
  }
  int32_t getOutputDataTypes(DataType* output_types, int32_t, DataType const* input_types,
                             int32_t) const noexcept override {
    output_types[0] = input_types[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t, nvinfer1::IExprBuilder&) noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }

  // IPluginV3OneRuntime
  int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*,
                        int32_t) noexcept override {
    count_ = 1;
    for (int32_t i = 0; i < in[0].dims.nbDims; ++i) count_ *= static_cast<size_t>(in[0].dims.d[i]);
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                  void* const* outputs, void*, cudaStream_t) noexcept override {
    auto const* x = static_cast<float const*>(inputs[0]);
    if (count_ > 0 && std::isnan(x[0])) {
      if (nvinfer1::IErrorRecorder* recorder = context_->getErrorRecorder())
        recorder->reportError(nvinfer1::ErrorCode::kFAILED_COMPUTATION,
                              "the input is not a number");
      return -1;
    }
    std::memcpy(memory_, &count_, sizeof(count_));
    std::memcpy(outputs[0], x, count_ * sizeof(float));
    ++*counter_->runs;
    return 0;
  }
  nvinfer1::IPluginV3* attachToContext(
      nvinfer1::IPluginResourceContext* context) noexcept override {
    std::unique_ptr<SharedCounterPlugin> attached(clone());
    Counter counter;
    attached->context_ = context;
    attached->allocator_ = context->getGpuAllocator();
    attached->memory_ = attached->allocator_->allocate(sizeof(count_), 256, 0);
    attached->counter_ =
        static_cast<Counter*>(getPluginRegistry()->acquirePluginResource(kKey, &counter));
    if (attached->memory_ == nullptr || attached->counter_ == nullptr) return nullptr;
    return attached.release();
  }
  int32_t setTactic(int32_t) noexcept override { return 0; }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &no_fields_; }

 private:
  nvinfer1::IPluginResourceContext* context_ = nullptr;
  nvinfer1::IGpuAllocator* allocator_ = nullptr;
  void* memory_ = nullptr;
  Counter* counter_ = nullptr;
  size_t count_ = 0;
  PluginFieldCollection no_fields_{};
};

class SharedCounterCreator final : public nvinfer1::IPluginCreatorV3One {
 public:
  nvinfer1::IPluginV3* createPlugin(char const*, PluginFieldCollection const*,
                                    nvinfer1::TensorRTPhase) noexcept override {
    return new (std::nothrow) SharedCounterPlugin;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &no_fields_; }
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

 private:
  PluginFieldCollection no_fields_{};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const*
getCreators(int32_t& count) {
  static SharedCounterCreator creator;
  static nvinfer1::IPluginCreatorInterface* const creators[] = {&creator};
  count = 1;
  return creators;
}

/// Runs of all instances since the first of those that are alive, for tests.
extern "C" __attribute__((visibility("default"))) int64_t shared_counter_runs() {
  Counter none;
  auto* counter = static_cast<Counter*>(getPluginRegistry()->acquirePluginResource(kKey, &none));
  int64_t const runs = counter != nullptr ? *counter->runs : -1;
  getPluginRegistry()->releasePluginResource(kKey);
  return runs;
}
