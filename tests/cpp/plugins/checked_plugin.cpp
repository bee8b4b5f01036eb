// Plugins y = k x, of which all but one do something wrong that checking a plugin is to find.

#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "NvInfer.h"

using namespace nvinfer1;

namespace {

class Plugin final : public IPluginV3,
                     public IPluginV3OneCore,
                     public IPluginV3OneBuild,
                     public IPluginV3OneRuntime {
 public:
  Plugin(char const* name, float k) : name_(name), k_(k) {}
  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    if (type == PluginCapabilityType::kCORE) return static_cast<IPluginV3OneCore*>(this);
    if (type == PluginCapabilityType::kBUILD) return static_cast<IPluginV3OneBuild*>(this);
    return static_cast<IPluginV3OneRuntime*>(this);
  }
  IPluginV3* clone() noexcept override {
    return new (std::nothrow) Plugin(name_, is("forgets") ? 1 : k_);
  }
  char const* getPluginName() const noexcept override { return name_; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return "checked"; }
  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  int32_t getOutputDataTypes(DataType* outputs, int32_t, DataType const* inputs,
                             int32_t) const noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t, IExprBuilder&) noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out, int32_t,
                                 int32_t) noexcept override {
    PluginTensorDesc const& desc = in_out[pos].desc;
    return desc.type == DataType::kFLOAT && desc.format == TensorFormat::kLINEAR;
  }
  int32_t onShapeChange(PluginTensorDesc const* inputs, int32_t, PluginTensorDesc const*,
                        int32_t) noexcept override {
    count_ = 1;
    for (int32_t i = 0; i < inputs[0].dims.nbDims; ++i) count_ *= inputs[0].dims.d[i];
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                  void* const* outputs, void*, cudaStream_t) noexcept override {
    auto const* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    static volatile float shared = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (is("shares")) {
        shared = x[i];
        std::this_thread::sleep_for(std::chrono::microseconds(10));
        y[i] = k_ * shared;
      } else {
        y[i] = k_ * x[i];
      }
    }
    if (is("behind")) y[count_] = 1;
    return 0;
  }
  IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    stored_ = is("stores") ? 1 : k_;
    return &fields_;
  }

 private:
  bool is(char const* name) const { return std::strcmp(name_, name) == 0; }
  char const* name_;
  float k_;
  float stored_ = 0;
  int64_t count_ = 0;
  PluginField field_{"k", &stored_, PluginFieldType::kFLOAT32, 1};
  PluginFieldCollection fields_{1, &field_};
};

template <int N>
class Creator final : public IPluginCreatorV3One {
 public:
  IPluginV3* createPlugin(char const*, PluginFieldCollection const* given,
                          TensorRTPhase) noexcept override {
    if (given->nbFields != 1) return nullptr;
    return new (std::nothrow) Plugin(name(), *static_cast<float const*>(given->fields[0].data));
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &fields_; }
  char const* getPluginName() const noexcept override { return name(); }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return "checked"; }

 private:
  static char const* name() {
    static constexpr char const* kNames[] = {"good", "forgets", "behind", "shares", "stores"};
    return kNames[N];
  }
  PluginField field_{"k", nullptr, PluginFieldType::kFLOAT32, 1};
  PluginFieldCollection fields_{1, &field_};
};

using Creator0 = Creator<0>;
using Creator1 = Creator<1>;
using Creator2 = Creator<2>;
using Creator3 = Creator<3>;
using Creator4 = Creator<4>;

}  // namespace

REGISTER_TENSORRT_PLUGIN(Creator0);
REGISTER_TENSORRT_PLUGIN(Creator1);
REGISTER_TENSORRT_PLUGIN(Creator2);
REGISTER_TENSORRT_PLUGIN(Creator3);
REGISTER_TENSORRT_PLUGIN(Creator4);
