#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "plugin/behavior.h"

namespace opwright {

/// A plugin whose every answer a test can set and that records every call. It serializes its tag
/// and the type of input 0 that it was configured for.
class V2TestPlugin final : public IPluginV2DynamicExt {
 public:
  V2TestPlugin(Behavior& b, int32_t tag) : b_(b), number_(++b.made), tag_(tag) { ++b_.live; }
  V2TestPlugin(V2TestPlugin const& other)
      : IPluginV2DynamicExt(other),
        b_(other.b_),
        number_(++other.b_.made),
        tag_(other.tag_),
        configured_type_(other.configured_type_),
        namespace_(other.namespace_) {
    ++b_.live;
  }
  ~V2TestPlugin() noexcept override { --b_.live; }

  int32_t getTensorRTVersion() const noexcept override {
    return static_cast<int32_t>(b_.generation) << 24;
  }
  char const* getPluginType() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  void setPluginNamespace(char const* value) noexcept override {
    note("setPluginNamespace " + std::string(value));
    namespace_ = value;
  }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

  int32_t getNbOutputs() const noexcept override {
    note("getNbOutputs");
    return b_.num_outputs;
  }
  DimsExprs getOutputDimensions(int32_t output, DimsExprs const* inputs, int32_t count,
                                IExprBuilder& builder) noexcept override {
    note("getOutputDimensions");
    if (b_.num_inputs >= 0 && count != b_.num_inputs) return DimsExprs{-1, {}};
    std::vector<DimsExprs> all(static_cast<size_t>(b_.num_outputs), DimsExprs{-1, {}});
    b_.shapes(inputs, count, nullptr, 0, all.data(), b_.num_outputs, builder);
    return all[static_cast<size_t>(output)];
  }
  DataType getOutputDataType(int32_t output, DataType const* inputs,
                             int32_t count) const noexcept override {
    note("getOutputDataType");
    if (b_.num_inputs >= 0 && count != b_.num_inputs) return static_cast<DataType>(-1);
    std::vector<DataType> all(static_cast<size_t>(b_.num_outputs), static_cast<DataType>(-1));
    b_.types(all.data(), b_.num_outputs, inputs, count);
    return all[static_cast<size_t>(output)];
  }
  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t num_inputs,
                                 int32_t num_outputs) noexcept override {
    note("supportsFormatCombination");
    std::vector<DynamicPluginTensorDesc> descs(static_cast<size_t>(num_inputs + num_outputs));
    for (size_t i = 0; i < descs.size(); ++i) descs[i].desc = ports[i];
    return b_.supports(pos, descs.data(), num_inputs, num_outputs);
  }
  void configurePlugin(DynamicPluginTensorDesc const* in, int32_t n,
                       DynamicPluginTensorDesc const* out, int32_t m) noexcept override {
    note("configurePlugin batch " + std::to_string(in[0].desc.dims.d[0]));
    configured_type_ = static_cast<int32_t>(in[0].desc.type);
    b_.configure(in, n, out, m);
  }
  size_t getWorkspaceSize(PluginTensorDesc const* in, int32_t, PluginTensorDesc const* out,
                          int32_t) const noexcept override {
    note("getWorkspaceSize");
    b_.asked_workspace(in, out);
    return b_.workspace;
  }
  int32_t initialize() noexcept override {
    note("initialize");
    return b_.initialize_status;
  }
  void terminate() noexcept override { note("terminate"); }
  void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator* allocator) noexcept override {
    note("attachToContext");
    b_.attach_v2(allocator);
  }
  void detachFromContext() noexcept override { note("detachFromContext"); }
  int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t) noexcept override {
    note("enqueue");
    return b_.enqueue(in, out, inputs, outputs, workspace, 0);
  }
  size_t getSerializationSize() const noexcept override {
    note("getSerializationSize");
    return 2 * sizeof(int32_t);
  }
  void serialize(void* buffer) const noexcept override {
    note("serialize");
    const int32_t stored[] = {tag_, configured_type_};
    std::memcpy(buffer, stored, sizeof(stored));
  }
  V2TestPlugin* clone() const noexcept override {
    if (!b_.can_clone) return nullptr;
    auto* copy = new V2TestPlugin(*this);
    note("clone is " + std::to_string(copy->number_));
    return copy;
  }
  void destroy() noexcept override {
    note("destroy");
    delete this;
  }

 private:
  void note(const std::string& call) const {
    b_.calls.push_back(std::to_string(number_) + " " + call);
  }
  Behavior& b_;
  const int number_;
  const int32_t tag_;
  int32_t configured_type_ = -1;
  std::string namespace_;
};

/// Makes V2TestPlugins. Reads the field "tag", and remembers all fields' names and texts.
class V2TestCreator final : public IPluginCreator {
 public:
  explicit V2TestCreator(Behavior& b) : b_(b) {}
  IPluginV2* createPlugin(char const*, PluginFieldCollection const* fields) noexcept override {
    b_.calls.emplace_back("createPlugin");
    int32_t tag = 0;
    for (int32_t i = 0; i < fields->nbFields; ++i) {
      PluginField const& field = fields->fields[i];
      given += field.name;
      if (field.type == PluginFieldType::kINT32) std::memcpy(&tag, field.data, sizeof(tag));
      if (field.type == PluginFieldType::kCHAR)
        given += std::string("=") + static_cast<char const*>(field.data);
      given += ";";
    }
    return b_.can_make ? new V2TestPlugin(b_, tag) : nullptr;
  }
  IPluginV2* deserializePlugin(char const* layer, void const* data, size_t size) noexcept override {
    b_.calls.push_back("deserializePlugin " + std::string(layer));
    stored.resize(size / sizeof(int32_t));
    std::memcpy(stored.data(), data, size);
    return b_.can_make ? new V2TestPlugin(b_, stored.at(0)) : nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override {
    static const PluginField field("tag", nullptr, PluginFieldType::kINT32, 1);
    static const PluginFieldCollection names{1, &field};
    return &names;
  }
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  void setPluginNamespace(char const* value) noexcept override { namespace_ = value; }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

  std::string given;
  std::vector<int32_t> stored;

 private:
  Behavior& b_;
  std::string namespace_;
};

}  // namespace opwright
