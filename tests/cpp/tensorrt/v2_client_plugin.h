#pragma once

#include <cstring>
#include <string>

#include "opwright/NvInferRuntime.h"
#include "plugin/behavior.h"

namespace opwright::client {

/// A plugin with the virtual table that IPluginV2DynamicExt has since TensorRT 11. It copies its
/// input. Nothing of it is Opwright's.
class V2Plugin {
 public:
  explicit V2Plugin(Behavior& b) : b_(b) { ++b_.live; }
  V2Plugin(V2Plugin const& other) : b_(other.b_) { ++b_.live; }

  virtual int32_t getTensorRTVersion() const noexcept {
    return static_cast<int32_t>(b_.generation) << 24 | 110100;
  }
  virtual char const* getPluginType() const noexcept { return b_.name.c_str(); }
  virtual char const* getPluginVersion() const noexcept { return b_.version.c_str(); }
  virtual int32_t getNbOutputs() const noexcept { return 1; }
  virtual Dims getOutputDimensions(int32_t, Dims const* in, int32_t) noexcept { return in[0]; }
  virtual bool supportsFormat(DataType, PluginFormat) const noexcept { return false; }
  virtual void configureWithFormat(Dims const*, int32_t, Dims const*, int32_t, DataType,
                                   PluginFormat, int32_t) noexcept {}
  virtual int32_t initialize() noexcept { return 0; }
  virtual void terminate() noexcept {}
  virtual size_t getWorkspaceSize(int32_t) const noexcept { return 0; }
  virtual int32_t enqueue(int32_t, void const* const*, void* const*, void*, cudaStream_t) noexcept {
    return 1;
  }
  virtual size_t getSerializationSize() const noexcept { return 0; }
  virtual void serialize(void*) const noexcept {}
  virtual void destroy() noexcept { delete this; }
  virtual V2Plugin* clone() const noexcept { return new V2Plugin(*this); }
  virtual void setPluginNamespace(char const*) noexcept {}
  virtual char const* getPluginNamespace() const noexcept { return ""; }
  virtual ~V2Plugin() { --b_.live; }
  virtual DataType getOutputDataType(int32_t, DataType const* in, int32_t) const noexcept {
    return in[0];
  }
  virtual void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*,
                               DataType const*, bool const*, bool const*, PluginFormat,
                               int32_t) noexcept {}
  virtual void attachToContext(void*, void*, IGpuAllocator*) noexcept {}
  virtual void detachFromContext() noexcept {}
  virtual DimsExprs getOutputDimensions(int32_t, DimsExprs const* in, int32_t,
                                        IExprBuilder&) noexcept {
    return in[0];
  }
  virtual bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t,
                                         int32_t) noexcept {
    return ports[pos].format == TensorFormat::kLINEAR && ports[pos].type == DataType::kFLOAT;
  }
  virtual void configurePlugin(DynamicPluginTensorDesc const*, int32_t,
                               DynamicPluginTensorDesc const*, int32_t) noexcept {}
  virtual size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                                  int32_t) const noexcept {
    return 0;
  }
  virtual int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                          void const* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t) noexcept {
    return copy_input(in, out, inputs, outputs, workspace, 0);
  }

 private:
  Behavior& b_;
};

/// The creators' table is the same in Opwright, but for the plugins that it gives.
class V2Creator final : public IPluginCreator {
 public:
  explicit V2Creator(Behavior& b) : b_(b) {}
  char const* getPluginName() const noexcept override { return b_.name.c_str(); }
  char const* getPluginVersion() const noexcept override { return b_.version.c_str(); }
  PluginFieldCollection const* getFieldNames() noexcept override { return &none_; }
  IPluginV2* createPlugin(char const*, PluginFieldCollection const*) noexcept override {
    return made();
  }
  IPluginV2* deserializePlugin(char const*, void const*, size_t) noexcept override {
    return made();
  }
  void setPluginNamespace(char const*) noexcept override {}
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  IPluginV2* made() { return reinterpret_cast<IPluginV2*>(new V2Plugin(b_)); }
  Behavior& b_;
  PluginFieldCollection none_{};
};

}  // namespace opwright::client
