#pragma once

/// \file
/// The parts of plugins that a language binding makes from decorated functions. They differ from
/// the V3One parts in three ways: all combinations of types and formats are asked for at once,
/// enqueue() gets strides, and a plugin may bring a compiled kernel instead of enqueue().

#include "plugin_base.h"

namespace opwright {

/// The kind of an extra kernel argument.
enum class PluginArgType : int32_t {
  kINT = 0,
};

/// The type of an extra kernel argument.
enum class PluginArgDataType : int32_t {
  kINT8 = 0,
  kINT16 = 1,
  kINT32 = 2,
};

/// The wanted implementation, if a plugin has both.
enum class QuickPluginCreationRequest : int32_t {
  kUNKNOWN = 0,
  kPREFER_JIT = 1,
  kPREFER_AOT = 2,
  kSTRICT_JIT = 3,  ///< An error if there is no function to call.
  kSTRICT_AOT = 4,  ///< An error if there is no compiled kernel.
};

/// A scalar expression that a binding implements.
class ISymExpr {
 public:
  virtual PluginArgType getType() const noexcept = 0;
  virtual PluginArgDataType getDataType() const noexcept = 0;
  /// The IDimensionExpr of this expression.
  virtual void* getExpr() noexcept = 0;

 protected:
  ~ISymExpr() = default;
};

class ISymExprsImpl {
 public:
  virtual ISymExpr* getSymExpr(int32_t index) const noexcept = 0;
  virtual bool setSymExpr(int32_t index, ISymExpr* symExpr) noexcept = 0;
  virtual int32_t getNbSymExprs() const noexcept = 0;
  virtual bool setNbSymExprs(int32_t count) noexcept = 0;

  virtual ~ISymExprsImpl() noexcept = default;
};

/// A list of expressions: the extra arguments of a kernel. It does not own them.
class ISymExprs {
 public:
  /// \return null if there is no such entry.
  ISymExpr* getSymExpr(int32_t index) const noexcept { return mImpl->getSymExpr(index); }
  /// \return false if there is no such entry.
  bool setSymExpr(int32_t index, ISymExpr* symExpr) noexcept {
    return mImpl->setSymExpr(index, symExpr);
  }
  int32_t getNbSymExprs() const noexcept { return mImpl->getNbSymExprs(); }
  bool setNbSymExprs(int32_t count) noexcept { return mImpl->setNbSymExprs(count); }

 protected:
  ISymExprsImpl* mImpl{nullptr};
  virtual ~ISymExprs() noexcept = default;
};

class IKernelLaunchParamsImpl {
 public:
  virtual ISymExpr* getGridX() noexcept = 0;
  virtual bool setGridX(ISymExpr* gridX) noexcept = 0;
  virtual ISymExpr* getGridY() noexcept = 0;
  virtual bool setGridY(ISymExpr* gridY) noexcept = 0;
  virtual ISymExpr* getGridZ() noexcept = 0;
  virtual bool setGridZ(ISymExpr* gridZ) noexcept = 0;
  virtual ISymExpr* getBlockX() noexcept = 0;
  virtual bool setBlockX(ISymExpr* blockX) noexcept = 0;
  virtual ISymExpr* getBlockY() noexcept = 0;
  virtual bool setBlockY(ISymExpr* blockY) noexcept = 0;
  virtual ISymExpr* getBlockZ() noexcept = 0;
  virtual bool setBlockZ(ISymExpr* blockZ) noexcept = 0;
  virtual ISymExpr* getSharedMem() noexcept = 0;
  virtual bool setSharedMem(ISymExpr* sharedMem) noexcept = 0;

  virtual ~IKernelLaunchParamsImpl() noexcept = default;
};

/// Launch parameters of a kernel: blocks in the grid, threads in a block, bytes of dynamic shared
/// memory. The setters return false if they refuse the value.
class IKernelLaunchParams {
 public:
  ISymExpr* getGridX() noexcept { return mImpl->getGridX(); }
  bool setGridX(ISymExpr* gridX) noexcept { return mImpl->setGridX(gridX); }
  ISymExpr* getGridY() noexcept { return mImpl->getGridY(); }
  bool setGridY(ISymExpr* gridY) noexcept { return mImpl->setGridY(gridY); }
  ISymExpr* getGridZ() noexcept { return mImpl->getGridZ(); }
  bool setGridZ(ISymExpr* gridZ) noexcept { return mImpl->setGridZ(gridZ); }
  ISymExpr* getBlockX() noexcept { return mImpl->getBlockX(); }
  bool setBlockX(ISymExpr* blockX) noexcept { return mImpl->setBlockX(blockX); }
  ISymExpr* getBlockY() noexcept { return mImpl->getBlockY(); }
  bool setBlockY(ISymExpr* blockY) noexcept { return mImpl->setBlockY(blockY); }
  ISymExpr* getBlockZ() noexcept { return mImpl->getBlockZ(); }
  bool setBlockZ(ISymExpr* blockZ) noexcept { return mImpl->setBlockZ(blockZ); }
  ISymExpr* getSharedMem() noexcept { return mImpl->getSharedMem(); }
  bool setSharedMem(ISymExpr* sharedMem) noexcept { return mImpl->setSharedMem(sharedMem); }

 protected:
  IKernelLaunchParamsImpl* mImpl{nullptr};
  virtual ~IKernelLaunchParams() noexcept = default;
};

namespace v_1_0 {

class IPluginV3QuickCore : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3QUICK_CORE", 1, 0};
  }

  virtual AsciiChar const* getPluginName() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
};

/// As IPluginV3OneBuild, except where noted.
class IPluginV3QuickBuild : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3QUICK_BUILD", 1, 0};
  }

  /// \param inputRanks the number of dimensions of each input.
  virtual int32_t getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs,
                                     DataType const* inputTypes, int32_t const* inputRanks,
                                     int32_t nbInputs) const noexcept = 0;
  virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs,
                                  DimsExprs const* shapeInputs, int32_t nbShapeInputs,
                                  DimsExprs* outputs, int32_t nbOutputs,
                                  IExprBuilder& exprBuilder) noexcept = 0;
  virtual int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs,
                                  DynamicPluginTensorDesc const* out,
                                  int32_t nbOutputs) noexcept = 0;
  /// The number of combinations of types and formats for these shapes.
  virtual int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const* inOut,
                                                   int32_t nbInputs,
                                                   int32_t nbOutputs) noexcept = 0;
  /// Writes `nbFormatCombinations` combinations of nbInputs + nbOutputs descriptors each.
  virtual int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const* inOut,
                                                 int32_t nbInputs, int32_t nbOutputs,
                                                 PluginTensorDesc* supportedCombinations,
                                                 int32_t nbFormatCombinations) noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual int32_t getAliasedInput(int32_t /*outputIndex*/) noexcept { return -1; }
  virtual int32_t getValidTactics(int32_t* /*tactics*/, int32_t /*nbTactics*/) noexcept {
    return 0;
  }
  virtual int32_t getNbTactics() noexcept { return 0; }
  virtual char const* getTimingCacheID() noexcept { return nullptr; }
  virtual char const* getMetadataString() noexcept { return nullptr; }
};

/// A plugin that brings a compiled kernel.
class IPluginV3QuickAOTBuild : public IPluginV3QuickBuild {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3QUICKAOT_BUILD", 1, 0};
  }

  /// Writes the launch parameters and extra arguments for one candidate, as expressions over the
  /// input shapes.
  virtual int32_t getLaunchParams(DimsExprs const* inputs, DynamicPluginTensorDesc const* inOut,
                                  int32_t nbInputs, int32_t nbOutputs,
                                  IKernelLaunchParams* launchParams, ISymExprs* extraArgs,
                                  IExprBuilder& exprBuilder) noexcept = 0;

  /// Sets name and code of the kernel for one candidate. Both belong to the plugin.
  virtual int32_t getKernel(PluginTensorDesc const* in, int32_t nbInputs,
                            PluginTensorDesc const* out, int32_t nbOutputs, char const** kernelName,
                            char** compiledKernel, int32_t* compiledKernelSize) noexcept = 0;

  /// Chooses the tactic of getLaunchParams() and getKernel().
  virtual int32_t setTactic(int32_t /*tactic*/) noexcept { return 0; }
};

/// As IPluginV3OneRuntime, except where noted.
class IPluginV3QuickRuntime : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN_V3QUICK_RUNTIME", 1, 0};
  }

  virtual int32_t setTactic(int32_t /*tactic*/) noexcept { return 0; }

  /// \param inputStrides the strides of each input, in elements.
  /// \param outputStrides the strides of each output, in elements.
  virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                          void const* const* inputs, void* const* outputs, Dims const* inputStrides,
                          Dims const* outputStrides, int32_t nbInputs, int32_t nbOutputs,
                          cudaStream_t stream) noexcept = 0;

  virtual PluginFieldCollection const* getFieldsToSerialize() noexcept = 0;
};

/// Makes quick plugins.
class IPluginCreatorV3Quick : public IPluginCreatorInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"PLUGIN CREATOR_V3QUICK", 1, 0};
  }

  virtual IPluginV3* createPlugin(AsciiChar const* name, AsciiChar const* nspace,
                                  PluginFieldCollection const* fc, TensorRTPhase phase,
                                  QuickPluginCreationRequest request) noexcept = 0;
  virtual PluginFieldCollection const* getFieldNames() noexcept = 0;
  virtual AsciiChar const* getPluginName() const noexcept = 0;
  virtual AsciiChar const* getPluginVersion() const noexcept = 0;
  virtual AsciiChar const* getPluginNamespace() const noexcept = 0;

  IPluginCreatorV3Quick() = default;
  ~IPluginCreatorV3Quick() override = default;

 protected:
  IPluginCreatorV3Quick(IPluginCreatorV3Quick const&) = default;
  IPluginCreatorV3Quick(IPluginCreatorV3Quick&&) = default;
  IPluginCreatorV3Quick& operator=(IPluginCreatorV3Quick const&) & = default;
  IPluginCreatorV3Quick& operator=(IPluginCreatorV3Quick&&) & = default;
};

}  // namespace v_1_0

using IPluginV3QuickCore = v_1_0::IPluginV3QuickCore;
using IPluginV3QuickBuild = v_1_0::IPluginV3QuickBuild;
using IPluginV3QuickAOTBuild = v_1_0::IPluginV3QuickAOTBuild;
using IPluginV3QuickRuntime = v_1_0::IPluginV3QuickRuntime;
using IPluginCreatorV3Quick = v_1_0::IPluginCreatorV3Quick;

}  // namespace opwright
