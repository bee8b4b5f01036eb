#pragma once

/// \file
/// The V2 generation of plugins: one class per plugin, which serializes itself into bytes of its
/// own format. Opwright runs IPluginV2DynamicExt, and for fixed shapes IPluginV2Ext and
/// IPluginV2IOExt.

#include "plugin_base.h"

namespace opwright {

/// The upper byte of IPluginV2::getTensorRTVersion().
enum class PluginVersion : uint8_t {
  kV2 = 0,
  kV2_EXT = 1,
  kV2_IOEXT = 2,
  kV2_DYNAMICEXT = 3,
  kV2_DYNAMICEXT_PYTHON = kPLUGIN_VERSION_PYTHON_BIT | 3,
};

enum class PluginCreatorVersion : int32_t {
  kV1 = 0,
  kV1_PYTHON = kPLUGIN_VERSION_PYTHON_BIT,
};

/// The root of the V2 plugins, for fixed shapes. Plugins that are no IPluginV2DynamicExt never see
/// the first axis of their inputs and outputs, the batch: shapes are those of the other axes.
class IPluginV2 {
 public:
  /// The API level for which the plugin was compiled and, in the upper byte, its PluginVersion.
  /// Applications must not override it.
  virtual int32_t getTensorRTVersion() const noexcept { return NV_TENSORRT_VERSION; }
  /// The same as the creator's getPluginName().
  virtual AsciiChar const* getPluginType() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual Dims getOutputDimensions(int32_t index, Dims const* inputs,
                                   int32_t nbInputDims) noexcept = 0;
  virtual bool supportsFormat(DataType type, PluginFormat format) const noexcept = 0;
  virtual void configureWithFormat(Dims const* inputDims, int32_t nbInputs, Dims const* outputDims,
                                   int32_t nbOutputs, DataType type, PluginFormat format,
                                   int32_t maxBatchSize) noexcept = 0;
  /// Called once when an engine is made or loaded.
  /// \return 0 on success.
  virtual int32_t initialize() noexcept = 0;
  /// Undoes initialize().
  virtual void terminate() noexcept = 0;
  virtual size_t getWorkspaceSize(int32_t maxBatchSize) const noexcept = 0;
  virtual int32_t enqueue(int32_t batchSize, void const* const* inputs, void* const* outputs,
                          void* workspace, cudaStream_t stream) noexcept = 0;
  /// The number of bytes that serialize() writes.
  virtual size_t getSerializationSize() const noexcept = 0;
  virtual void serialize(void* buffer) const noexcept = 0;
  /// Deletes the object.
  virtual void destroy() noexcept = 0;
  /// \return an initialized plugin with the same state; null on failure.
  virtual IPluginV2* clone() const noexcept = 0;
  virtual void setPluginNamespace(AsciiChar const* pluginNamespace) noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;

  IPluginV2() = default;
  virtual ~IPluginV2() noexcept = default;

 protected:
  IPluginV2(IPluginV2 const&) = default;
  IPluginV2(IPluginV2&&) = default;
  IPluginV2& operator=(IPluginV2 const&) & = default;
  IPluginV2& operator=(IPluginV2&&) & = default;
};

/// Adds output types and attachment to a context.
class IPluginV2Ext : public IPluginV2 {
 public:
  /// The type of output `index` for inputs of the given types.
  virtual DataType getOutputDataType(int32_t index, DataType const* inputTypes,
                                     int32_t nbInputs) const noexcept = 0;
  /// For networks with an implicit batch, which no longer exist. Nothing calls it.
  virtual bool isOutputBroadcastAcrossBatch(int32_t /*outputIndex*/,
                                            bool const* /*inputIsBroadcasted*/,
                                            int32_t /*nbInputs*/) const noexcept {
    return false;
  }
  /// As isOutputBroadcastAcrossBatch().
  virtual bool canBroadcastInputAcrossBatch(int32_t /*inputIndex*/) const noexcept { return false; }
  /// Called once while an engine is built, before initialize(), with the chosen types and format.
  /// All floating inputs and outputs have `floatFormat`, others are linear. Nothing is broadcast.
  /// \param maxBatchSize the first extent of all inputs and outputs.
  virtual void configurePlugin(Dims const* inputDims, int32_t nbInputs, Dims const* outputDims,
                               int32_t nbOutputs, DataType const* inputTypes,
                               DataType const* outputTypes, bool const* inputIsBroadcast,
                               bool const* outputIsBroadcast, PluginFormat floatFormat,
                               int32_t maxBatchSize) noexcept = 0;

  IPluginV2Ext() = default;
  ~IPluginV2Ext() override = default;

  /// Called when an execution context begins to use the plugin. On a GPU the handles are those of
  /// the context, on the default stream, until detachFromContext(); the plugin sets them to the
  /// stream of its enqueue(). A handle is null if its library is not installed, and on the CPU. The
  /// allocator provides memory of the device.
  virtual void attachToContext(cudnnContext* /*cudnn*/, cublasContext* /*cublas*/,
                               IGpuAllocator* /*allocator*/) noexcept {}
  virtual void detachFromContext() noexcept {}

  IPluginV2Ext* clone() const noexcept override = 0;

 protected:
  IPluginV2Ext(IPluginV2Ext const&) = default;
  IPluginV2Ext(IPluginV2Ext&&) = default;
  IPluginV2Ext& operator=(IPluginV2Ext const&) & = default;
  IPluginV2Ext& operator=(IPluginV2Ext&&) & = default;

  int32_t getTensorRTVersion() const noexcept override {
    return static_cast<int32_t>((static_cast<uint32_t>(PluginVersion::kV2_EXT) << 24U) |
                                (static_cast<uint32_t>(NV_TENSORRT_VERSION) & 0xFFFFFFU));
  }

  /// configurePlugin() replaces it in this class and all classes below it.
  void configureWithFormat(Dims const* /*inputDims*/, int32_t /*nbInputs*/,
                           Dims const* /*outputDims*/, int32_t /*nbOutputs*/, DataType /*type*/,
                           PluginFormat /*format*/, int32_t /*maxBatchSize*/) noexcept override {}
};

/// Adds a type and a format per input and output, for fixed shapes.
class IPluginV2IOExt : public IPluginV2Ext {
 public:
  /// Called once while an engine is built, before initialize(), with the chosen types and formats.
  virtual void configurePlugin(PluginTensorDesc const* in, int32_t nbInput,
                               PluginTensorDesc const* out, int32_t nbOutput) noexcept = 0;
  virtual bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut,
                                         int32_t nbInputs, int32_t nbOutputs) const noexcept = 0;

  IPluginV2IOExt() = default;
  ~IPluginV2IOExt() override = default;

 protected:
  IPluginV2IOExt(IPluginV2IOExt const&) = default;
  IPluginV2IOExt(IPluginV2IOExt&&) = default;
  IPluginV2IOExt& operator=(IPluginV2IOExt const&) & = default;
  IPluginV2IOExt& operator=(IPluginV2IOExt&&) & = default;

  int32_t getTensorRTVersion() const noexcept override {
    return static_cast<int32_t>((static_cast<uint32_t>(PluginVersion::kV2_IOEXT) << 24U) |
                                (static_cast<uint32_t>(NV_TENSORRT_VERSION) & 0xFFFFFFU));
  }

 private:
  void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*,
                       bool const*, bool const*, PluginFormat, int32_t) noexcept final {}
  bool supportsFormat(DataType, PluginFormat) const noexcept final { return false; }
};

/// A plugin with dynamic shapes. It uses these methods of its bases: the names, the output types,
/// initialize() and terminate(), serialization, clone(), destroy() and the context methods.
class IPluginV2DynamicExt : public IPluginV2Ext {
 public:
  IPluginV2DynamicExt* clone() const noexcept override = 0;

  /// The shape of output `outputIndex` as expressions over the input shapes.
  virtual DimsExprs getOutputDimensions(int32_t outputIndex, DimsExprs const* inputs,
                                        int32_t nbInputs, IExprBuilder& exprBuilder) noexcept = 0;

  /// The most combinations of types and formats that are considered.
  static constexpr int32_t kFORMAT_COMBINATION_LIMIT = 100;

  /// Whether the plugin supports the type and format of `inOut[pos]` together with those of
  /// `inOut[0..pos-1]`. Inputs come first; entries after `pos` are not set.
  virtual bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut,
                                         int32_t nbInputs, int32_t nbOutputs) noexcept = 0;

  /// Passes the chosen types and formats: while an engine is built, with the ranges of a profile,
  /// and before enqueue(), with the shapes of the run.
  virtual void configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs,
                               DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept = 0;

  /// Bytes of workspace that suffice for these shapes and all smaller ones.
  virtual size_t getWorkspaceSize(PluginTensorDesc const* inputs, int32_t nbInputs,
                                  PluginTensorDesc const* outputs,
                                  int32_t nbOutputs) const noexcept = 0;

  /// Computes. On the GPU the addresses are device addresses and the work goes to `stream`. On the
  /// CPU they are host addresses, `stream` is null, and the work is done on return.
  /// \return 0 on success.
  virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                          void const* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t stream) noexcept = 0;

 protected:
  int32_t getTensorRTVersion() const noexcept override {
    return static_cast<int32_t>((static_cast<uint32_t>(PluginVersion::kV2_DYNAMICEXT) << 24U) |
                                (static_cast<uint32_t>(NV_TENSORRT_VERSION) & 0xFFFFFFU));
  }

  ~IPluginV2DynamicExt() noexcept override {}

 private:
  // Methods of the bases that dynamic shapes replace; nothing calls them.
  void configurePlugin(Dims const*, int32_t, Dims const*, int32_t, DataType const*, DataType const*,
                       bool const*, bool const*, PluginFormat, int32_t) noexcept final {}
  bool supportsFormat(DataType, PluginFormat) const noexcept final { return false; }
  Dims getOutputDimensions(int32_t, Dims const*, int32_t) noexcept final { return Dims{-1, {}}; }
  bool isOutputBroadcastAcrossBatch(int32_t, bool const*, int32_t) const noexcept final {
    return false;
  }
  bool canBroadcastInputAcrossBatch(int32_t) const noexcept final { return true; }
  size_t getWorkspaceSize(int32_t) const noexcept final { return 0; }
  int32_t enqueue(int32_t, void const* const*, void* const*, void*, cudaStream_t) noexcept final {
    return 1;
  }
};

namespace v_1_0 {

/// Makes V2 plugins. Strings are null-terminated, and at most 1024 bytes with the null.
class IPluginCreator : public IPluginCreatorInterface {
 public:
  virtual AsciiChar const* getPluginName() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  /// The fields that createPlugin() reads, with their types. Their data is not used.
  virtual PluginFieldCollection const* getFieldNames() noexcept = 0;
  /// \param name of the layer.
  /// \return null on failure.
  virtual IPluginV2* createPlugin(AsciiChar const* name,
                                  PluginFieldCollection const* fc) noexcept = 0;
  /// Makes a plugin from the bytes that IPluginV2::serialize() wrote.
  virtual IPluginV2* deserializePlugin(AsciiChar const* name, void const* serialData,
                                       size_t serialLength) noexcept = 0;
  virtual void setPluginNamespace(AsciiChar const* pluginNamespace) noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;

  IPluginCreator() = default;
  ~IPluginCreator() override = default;

 protected:
  IPluginCreator(IPluginCreator const&) = default;
  IPluginCreator(IPluginCreator&&) = default;
  IPluginCreator& operator=(IPluginCreator const&) & = default;
  IPluginCreator& operator=(IPluginCreator&&) & = default;

 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN CREATOR_V1", 1, 0};
  }
};

}  // namespace v_1_0
using IPluginCreator = v_1_0::IPluginCreator;

}  // namespace opwright
