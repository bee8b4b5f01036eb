#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "plugin/behavior.h"

namespace opwright {

/// A plugin whose every answer a test can set. It serializes `configured_type`, the type of input 0
/// that configurePlugin() told.
class TestPlugin final : public IPluginV3,
                         public IPluginV3OneCore,
                         public IPluginV3OneBuildV2,
                         public IPluginV3OneRuntime,
                         public ICommunicatingPlugin {
 public:
  explicit TestPlugin(Behavior& b) : b_(b) { ++b_.live; }
  TestPlugin(TestPlugin const& other)
      : IPluginV3(other),
        IPluginV3OneCore(other),
        IPluginV3OneBuildV2(other),
        IPluginV3OneRuntime(other),
        ICommunicatingPlugin(other),
        b_(other.b_),
        configured_type_(other.configured_type_) {
    ++b_.live;
  }
  ~TestPlugin() noexcept override { --b_.live; }

  bool communicates() const noexcept override { return b_.communicates; }
  APILanguage getAPILanguage() const noexcept override { return b_.language; }
  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return b_.has_core ? static_cast<IPluginV3OneCore*>(this) : nullptr;
      case PluginCapabilityType::kBUILD:
        return b_.has_build ? static_cast<IPluginV3OneBuild*>(this) : nullptr;
      case PluginCapabilityType::kRUNTIME:
        return b_.has_runtime ? static_cast<IPluginV3OneRuntime*>(this) : nullptr;
    }
    return nullptr;
  }
  TestPlugin* clone() noexcept override {
    ++b_.clones;
    return b_.can_clone ? new TestPlugin(*this) : nullptr;
  }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  char const* getPluginNamespace() const noexcept override { return b_.plugin_namespace.c_str(); }

  int32_t getNbOutputs() const noexcept override { return b_.num_outputs; }
  int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t n,
                          DynamicPluginTensorDesc const* out, int32_t m) noexcept override {
    configured_type_ = static_cast<int32_t>(in[0].desc.type);
    return b_.configure(in, n, out, m);
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* p, int32_t n,
                                 int32_t m) noexcept override {
    return b_.supports(pos, p, n, m);
  }
  int32_t getOutputDataTypes(DataType* out, int32_t n, DataType const* in,
                             int32_t m) const noexcept override {
    if (b_.num_inputs >= 0 && m != b_.num_inputs) return 1;
    return b_.types(out, n, in, m);
  }
  int32_t getOutputShapes(DimsExprs const* in, int32_t n, DimsExprs const* shape_in, int32_t s,
                          DimsExprs* out, int32_t m, IExprBuilder& builder) noexcept override {
    if (b_.num_inputs >= 0 && n != b_.num_inputs) return 1;
    return b_.shapes(in, n, shape_in, s, out, m, builder);
  }
  size_t getWorkspaceSize(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) const noexcept override {
    return b_.workspace;
  }
  int32_t getNbTactics() noexcept override {
    return static_cast<int32_t>(b_.tactics(static_cast<DataType>(configured_type_)).size());
  }
  int32_t getValidTactics(int32_t* tactics, int32_t n) noexcept override {
    const std::vector<int32_t> all = b_.tactics(static_cast<DataType>(configured_type_));
    std::memcpy(tactics, all.data(), static_cast<size_t>(n) * sizeof(int32_t));
    return b_.tactics_status;
  }
  char const* getTimingCacheID() noexcept override { return b_.timing_cache_id; }
  char const* getMetadataString() noexcept override { return b_.metadata; }
  int32_t getFormatCombinationLimit() noexcept override { return b_.format_limit; }
  int32_t getAliasedInput(int32_t output) noexcept override { return b_.aliased(output); }

  int32_t setTactic(int32_t tactic) noexcept override {
    tactic_ = tactic;
    return b_.set_tactic_status;
  }
  int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const* out,
                        int32_t) noexcept override {
    return b_.shape_change(in, out);
  }
  int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t) noexcept override {
    return b_.enqueue(in, out, inputs, outputs, workspace, tactic_);
  }
  IPluginV3* attachToContext(IPluginResourceContext* context) noexcept override {
    last_context = context;
    if (b_.attach_returns_null) return nullptr;
    if (b_.attach) return b_.attach();
    return b_.attach_returns_itself ? this : clone();
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    if (b_.fields_are_null) return nullptr;
    field_ = PluginField("configured_type", &configured_type_, PluginFieldType::kINT32, 1);
    fields_ = {1, &field_};
    return &fields_;
  }

  static inline IPluginResourceContext* last_context = nullptr;

 private:
  Behavior& b_;
  int32_t configured_type_ = -1;
  int32_t tactic_ = -1;
  PluginField field_;
  PluginFieldCollection fields_{};
};

/// Makes TestPlugins and remembers the fields that it was given, as text "name=values;".
class TestCreator final : public IPluginCreatorV3One {
 public:
  explicit TestCreator(Behavior& b) : b_(b) {}
  IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc,
                          TensorRTPhase phase) noexcept override {
    layer = name;
    last_phase = phase;
    given.clear();
    for (int32_t i = 0; i < fc->nbFields; ++i) {
      PluginField const& f = fc->fields[i];
      given += std::string(f.name) + "=";
      for (int32_t k = 0; k < f.length; ++k) {
        if (f.type == PluginFieldType::kINT32)
          given += std::to_string(static_cast<int32_t const*>(f.data)[k]) + ",";
        else if (f.type == PluginFieldType::kFLOAT32)
          given += std::to_string(static_cast<float const*>(f.data)[k]) + ",";
      }
      if (f.type == PluginFieldType::kCHAR) given += static_cast<char const*>(f.data);
      given += ";";
    }
    return b_.can_make ? new TestPlugin(b_) : nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override {
    names_ = {static_cast<int32_t>(declared.size()), declared.data()};
    return &names_;
  }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  char const* getPluginNamespace() const noexcept override { return b_.plugin_namespace.c_str(); }

  std::vector<PluginField> declared;
  std::string layer, given;
  TensorRTPhase last_phase = TensorRTPhase::kBUILD;

 private:
  Behavior& b_;
  PluginFieldCollection names_{};
};

}  // namespace opwright
