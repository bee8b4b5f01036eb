#pragma once

/// \file
/// The V3 generation of plugins: a plugin is an IPluginV3 whose parts are the classes below. Often
/// one class implements all parts.

#include "plugin_base.h"

namespace opwright {
namespace v_1_0 {

/// Identity of a plugin, the same as the creator's. Strings are null-terminated, and at most 1024
/// bytes with the null.
class IPluginV3OneCore : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3ONE_CORE", 1, 0};
  }

  virtual AsciiChar const* getPluginName() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
};

/// The part of a plugin that the build of an engine needs. Methods that return an int32_t status
/// return 0 on success; other values end the build with an error.
class IPluginV3OneBuild : public IPluginCapability {
 public:
  static constexpr int32_t kDEFAULT_FORMAT_COMBINATION_LIMIT = 100;

  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3ONE_BUILD", 1, 0};
  }

  /// Passes types and formats of a candidate, and the profile's ranges of shapes.
  virtual int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs,
                                  DynamicPluginTensorDesc const* out,
                                  int32_t nbOutputs) noexcept = 0;

  /// Writes the type of each output for inputs of the given types. A size tensor is kINT32.
  virtual int32_t getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs,
                                     DataType const* inputTypes,
                                     int32_t nbInputs) const noexcept = 0;

  /// Writes the shape of each output as expressions.
  /// \param shapeInputs for each input that is a shape tensor, its values in C order, as "extents".
  /// \param outputs to be filled; a size tensor has no dimensions.
  virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs,
                                  DimsExprs const* shapeInputs, int32_t nbShapeInputs,
                                  DimsExprs* outputs, int32_t nbOutputs,
                                  IExprBuilder& exprBuilder) noexcept = 0;

  /// Whether the plugin supports the type and format of `inOut[pos].desc` together with those of
  /// `inOut[0..pos-1]`. Inputs come first; entries after `pos` are not set.
  virtual bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut,
                                         int32_t nbInputs, int32_t nbOutputs) noexcept = 0;

  virtual int32_t getNbOutputs() const noexcept = 0;

  /// Bytes of workspace that suffice for all shapes up to the `max` of the descriptors.
  virtual size_t getWorkspaceSize(DynamicPluginTensorDesc const* /*inputs*/, int32_t /*nbInputs*/,
                                  DynamicPluginTensorDesc const* /*outputs*/,
                                  int32_t /*nbOutputs*/) const noexcept {
    return 0;
  }

  /// Writes the tactics for the types and formats of the last configurePlugin(). They are distinct
  /// and positive. Each is timed.
  virtual int32_t getValidTactics(int32_t* /*tactics*/, int32_t /*nbTactics*/) noexcept {
    return 0;
  }

  /// The number of tactics. If it is 0, the plugin runs with tactic 0.
  virtual int32_t getNbTactics() noexcept { return 0; }

  /// A string that is equal for two plugins if and only if they take the same time on the same
  /// shapes, types and formats; null: timed each time.
  virtual char const* getTimingCacheID() noexcept { return nullptr; }

  /// The most combinations of types and formats that are timed.
  virtual int32_t getFormatCombinationLimit() noexcept { return kDEFAULT_FORMAT_COMBINATION_LIMIT; }

  /// Text about the plugin for people, shown by inspectors; may be null.
  virtual char const* getMetadataString() noexcept { return nullptr; }
};

/// The part of a plugin that running needs. Methods that return an int32_t status return 0 on
/// success.
class IPluginV3OneRuntime : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3ONE_RUNTIME", 1, 0};
  }

  /// Chooses the tactic of enqueue(): one of getValidTactics(), or 0 if there are none.
  virtual int32_t setTactic(int32_t /*tactic*/) noexcept { return 0; }

  /// Called before enqueue() whenever shapes have changed.
  virtual int32_t onShapeChange(PluginTensorDesc const* in, int32_t nbInputs,
                                PluginTensorDesc const* out, int32_t nbOutputs) noexcept = 0;

  /// Computes. On the GPU the addresses are device addresses and the work goes to `stream`. On the
  /// CPU they are host addresses, `stream` is null, and the work is done on return.
  virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                          void const* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t stream) noexcept = 0;

  /// Clones the whole plugin for an execution context, which owns the clone. `context` remains
  /// valid as long as the clone.
  virtual IPluginV3* attachToContext(IPluginResourceContext* context) noexcept = 0;

  /// The fields from which the creator makes the plugin again when an engine is loaded. They stay
  /// valid until the next call or until the plugin is deleted.
  virtual PluginFieldCollection const* getFieldsToSerialize() noexcept = 0;
};

/// Makes V3 plugins. Strings are null-terminated, and at most 1024 bytes with the null.
class IPluginCreatorV3One : public IPluginCreatorInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN CREATOR_V3ONE", 1, 0};
  }

  /// \param name of the layer.
  /// \param fc in the build phase the user's fields, in the runtime phase those of
  ///     getFieldsToSerialize().
  /// \return a plugin that the caller deletes; null on failure.
  virtual IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc,
                                  TensorRTPhase phase) noexcept = 0;

  /// The fields that createPlugin() reads in the build phase, with their types. Their data is not
  /// used.
  virtual PluginFieldCollection const* getFieldNames() noexcept = 0;

  virtual AsciiChar const* getPluginName() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;

  IPluginCreatorV3One() = default;
  ~IPluginCreatorV3One() override = default;

 protected:
  IPluginCreatorV3One(IPluginCreatorV3One const&) = default;
  IPluginCreatorV3One(IPluginCreatorV3One&&) = default;
  IPluginCreatorV3One& operator=(IPluginCreatorV3One const&) & = default;
  IPluginCreatorV3One& operator=(IPluginCreatorV3One&&) & = default;
};

}  // namespace v_1_0

namespace v_2_0 {

/// Adds outputs that share the memory of an input.
class IPluginV3OneBuild : public v_1_0::IPluginV3OneBuild {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3ONE_BUILD", 2, 0};
  }

  /// The input whose memory output `outputIndex` shares, so that the plugin updates it in place; -1
  /// for none. An input may be shared with only one output.
  virtual int32_t getAliasedInput(int32_t /*outputIndex*/) noexcept { return -1; }
};

}  // namespace v_2_0

using IPluginV3OneCore = v_1_0::IPluginV3OneCore;
using IPluginV3OneBuild = v_1_0::IPluginV3OneBuild;
using IPluginV3OneBuildV2 = v_2_0::IPluginV3OneBuild;
using IPluginV3OneRuntime = v_1_0::IPluginV3OneRuntime;
using IPluginCreatorV3One = v_1_0::IPluginCreatorV3One;

}  // namespace opwright
