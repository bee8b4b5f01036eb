#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "opwright/NvInferRuntime.h"

namespace opwright {

/// How a V2TestPlugin behaves; all its clones share it.
struct V2Behavior {
  std::string type = "v2_test_plugin", version = "1";
  PluginVersion generation = PluginVersion::kV2_DYNAMICEXT;
  int num_outputs = 1;
  int num_inputs = -1;  ///< that it takes, where it looks
  bool can_clone = true;
  int32_t initialize_status = 0;
  size_t workspace = 0;
  std::function<DimsExprs(int32_t, DimsExprs const*, IExprBuilder&)> dimensions =
      [](int32_t, DimsExprs const* in, IExprBuilder&) { return in[0]; };
  std::function<DataType(int32_t, DataType const*)> output_type = [](int32_t, DataType const* in) {
    return in[0];
  };
  std::function<bool(int32_t, PluginTensorDesc const*, int32_t, int32_t)> supports =
      [](int32_t pos, PluginTensorDesc const* p, int32_t, int32_t) {
        return p[pos].format == TensorFormat::kLINEAR && p[pos].type == p[0].type;
      };
  std::function<void(DynamicPluginTensorDesc const*, DynamicPluginTensorDesc const*)> configure =
      [](auto...) {};
  std::function<void(PluginTensorDesc const*, PluginTensorDesc const*)> asked_workspace =
      [](auto...) {};
  std::function<int32_t(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*,
                        void* const*, void*)>
      enqueue = [](auto...) { return 0; };
  std::function<void(IGpuAllocator*)> attach = [](auto...) {};

  int live = 0, made = 0;          ///< objects
  std::vector<std::string> calls;  ///< "2 enqueue": what was called on the second object
};

/// A plugin whose every answer a test can set and that records every call. It serializes its tag
/// and the type of input 0 that it was configured for.
class V2TestPlugin final : public IPluginV2DynamicExt {
 public:
  V2TestPlugin(V2Behavior& b, int32_t tag) : b_(b), number_(++b.made), tag_(tag) { ++b_.live; }
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
  char const* getPluginType() const noexcept override { return b_.type.c_str(); }
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
    return b_.dimensions(output, inputs, builder);
  }
  DataType getOutputDataType(int32_t output, DataType const* inputs,
                             int32_t count) const noexcept override {
    note("getOutputDataType");
    if (b_.num_inputs >= 0 && count != b_.num_inputs) return static_cast<DataType>(-1);
    return b_.output_type(output, inputs);
  }
  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t num_inputs,
                                 int32_t num_outputs) noexcept override {
    note("supportsFormatCombination");
    return b_.supports(pos, ports, num_inputs, num_outputs);
  }
  void configurePlugin(DynamicPluginTensorDesc const* in, int32_t,
                       DynamicPluginTensorDesc const* out, int32_t) noexcept override {
    note("configurePlugin batch " + std::to_string(in[0].desc.dims.d[0]));
    configured_type_ = static_cast<int32_t>(in[0].desc.type);
    b_.configure(in, out);
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
    b_.attach(allocator);
  }
  void detachFromContext() noexcept override { note("detachFromContext"); }
  int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t) noexcept override {
    note("enqueue");
    return b_.enqueue(in, out, inputs, outputs, workspace);
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
  V2Behavior& b_;
  const int number_;
  const int32_t tag_;
  int32_t configured_type_ = -1;
  std::string namespace_;
};

/// Makes V2TestPlugins. Of the fields it reads "tag"; it remembers their names and texts.
class V2TestCreator final : public IPluginCreator {
 public:
  explicit V2TestCreator(V2Behavior& b) : b_(b) {}
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
    return refuse ? nullptr : new V2TestPlugin(b_, tag);
  }
  IPluginV2* deserializePlugin(char const* layer, void const* data, size_t size) noexcept override {
    b_.calls.push_back("deserializePlugin " + std::string(layer));
    stored.resize(size / sizeof(int32_t));
    std::memcpy(stored.data(), data, size);
    return refuse ? nullptr : new V2TestPlugin(b_, stored.at(0));
  }
  PluginFieldCollection const* getFieldNames() noexcept override {
    static const PluginField field("tag", nullptr, PluginFieldType::kINT32, 1);
    static const PluginFieldCollection names{1, &field};
    return &names;
  }
  char const* getPluginName() const noexcept override { return b_.type.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  void setPluginNamespace(char const* value) noexcept override { namespace_ = value; }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

  std::string given;
  std::vector<int32_t> stored;
  bool refuse = false;

 private:
  V2Behavior& b_;
  std::string namespace_;
};

}  // namespace opwright
