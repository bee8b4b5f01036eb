#pragma once

/// \file
/// Types that all generations of plugins share: tensor descriptors, fields, shape expressions, the
/// root of the V3 interfaces, resources and the base of creators.

#include "allocator.h"
#include "logger.h"
#include "types.h"

namespace opwright {

/// Set in a version if the object is implemented in Python.
static constexpr int32_t kPLUGIN_VERSION_PYTHON_BIT = 0x40;

/// A plugin's input or output at run time.
struct PluginTensorDesc {
  Dims dims;            ///< -1 for extents that are not known yet.
  DataType type;        ///< Type of the elements.
  TensorFormat format;  ///< Layout of the elements.
  float scale;          ///< Scale of a quantized kINT8 tensor; -1 if there is none.
};

/// A plugin's input or output while an engine is built. `desc.dims` has -1 for dynamic extents. The
/// other members have their values in the profile at hand.
struct DynamicPluginTensorDesc {
  PluginTensorDesc desc;
  Dims min;
  Dims max;
  Dims opt;  ///< The extents with which candidates are timed.
};

enum class PluginFieldType : int32_t {
  kFLOAT16 = 0,
  kFLOAT32 = 1,
  kFLOAT64 = 2,
  kINT8 = 3,
  kINT16 = 4,
  kINT32 = 5,
  kCHAR = 6,
  kDIMS = 7,     ///< `Dims` structures.
  kUNKNOWN = 8,  ///< Bytes that only the plugin can read.
  kBF16 = 9,
  kINT64 = 10,
  kFP8 = 11,
  kINT4 = 12,
  kFP4 = 13,
};

namespace impl {
template <>
struct EnumMaxImpl<PluginFieldType> {
  static constexpr int32_t kVALUE = 14;
};
}  // namespace impl

/// A named attribute of a plugin. It owns neither the name nor the data.
class PluginField {
 public:
  AsciiChar const* name;
  void const* data;
  PluginFieldType type;
  int32_t length;  ///< Number of elements of `type`; number of bytes for kUNKNOWN.

  PluginField(AsciiChar const* const name_ = nullptr, void const* const data_ = nullptr,
              PluginFieldType const type_ = PluginFieldType::kUNKNOWN,
              int32_t const length_ = 0) noexcept
      : name(name_), data(data_), type(type_), length(length_) {}
};

struct PluginFieldCollection {
  int32_t nbFields{};
  PluginField const* fields{};
};

/// Purpose of a new plugin.
enum class TensorRTPhase : int32_t {
  kBUILD = 0,    ///< To be added to a network.
  kRUNTIME = 1,  ///< To run in an engine that is being loaded.
};

/// The parts that an IPluginV3 may have.
enum class PluginCapabilityType : int32_t {
  kCORE = 0,
  kBUILD = 1,
  kRUNTIME = 2,
};

/// How the results of two expressions are combined. Comparisons give 0 or 1. Divisions round
/// towards minus or plus infinity.
enum class DimensionOperation : int32_t {
  kSUM = 0,
  kPROD = 1,
  kMAX = 2,
  kMIN = 3,
  kSUB = 4,
  kEQUAL = 5,
  kLESS = 6,
  kFLOOR_DIV = 7,
  kCEIL_DIV = 8,
};

namespace impl {
template <>
struct EnumMaxImpl<DimensionOperation> {
  static constexpr int32_t kVALUE = 9;
};
}  // namespace impl

class IDimensionExpr;

/// The implementations behind IDimensionExpr and IExprBuilder. Plugins call through the inline
/// methods of those classes, which are compiled into the plugins. So the order of the methods here
/// is part of the binary interface, and so is that each class is a pointer to its implementation.
namespace apiv {

class VRoot {
 public:
  virtual ~VRoot() noexcept = default;
};

class VDimensionExpr : public VRoot {
 public:
  virtual bool isConstant() const = 0;
  virtual int64_t getConstantValue() const = 0;
  virtual bool isSizeTensor() const = 0;
};

class VExprBuilder : public VRoot {
 public:
  virtual IDimensionExpr const* constant(int64_t value) = 0;
  virtual IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& first,
                                          IDimensionExpr const& second) = 0;
  virtual IDimensionExpr const* declareSizeTensor(int32_t outputIndex, IDimensionExpr const& opt,
                                                  IDimensionExpr const& upper) = 0;
};

}  // namespace apiv

/// An integer expression over the dimensions of a plugin's inputs. The library makes expressions.
/// An implementation derives from this class and from apiv::VDimensionExpr and sets mImpl to
/// itself.
class IDimensionExpr : public INoCopy {
 public:
  bool isConstant() const noexcept { return mImpl->isConstant(); }

  /// The value of a constant; the smallest int64_t for other expressions.
  int64_t getConstantValue() const noexcept { return mImpl->getConstantValue(); }

 protected:
  apiv::VDimensionExpr* mImpl{nullptr};
  ~IDimensionExpr() noexcept override = default;

 public:
  /// Whether IExprBuilder::declareSizeTensor() made the expression.
  bool isSizeTensor() const noexcept { return mImpl->isSizeTensor(); }
};

/// Makes expressions. A plugin gets a builder for its output shapes. The expressions belong to the
/// builder and must not be kept. An implementation derives as described at IDimensionExpr.
class IExprBuilder : public INoCopy {
 public:
  IDimensionExpr const* constant(int64_t value) noexcept { return mImpl->constant(value); }

  /// \return null if `op` is not a DimensionOperation.
  IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& first,
                                  IDimensionExpr const& second) noexcept {
    return mImpl->operation(op, first, second);
  }

 protected:
  apiv::VExprBuilder* mImpl{nullptr};
  ~IExprBuilder() noexcept override = default;

 public:
  /// Declares that output `outputIndex` is a size tensor: a scalar that enqueue() writes. Extents
  /// of other outputs that the input shapes do not determine follow from it.
  /// \param opt the value for planning and timing; must not depend on a size tensor.
  /// \param upper the greatest value that can occur; memory is reserved for it.
  /// \return the size tensor's value as an expression.
  IDimensionExpr const* declareSizeTensor(int32_t outputIndex, IDimensionExpr const& opt,
                                          IDimensionExpr const& upper) {
    return mImpl->declareSizeTensor(outputIndex, opt, upper);
  }
};

/// Dims with expressions for extents.
class DimsExprs {
 public:
  int32_t nbDims;
  IDimensionExpr const* d[Dims::MAX_DIMS];
};

namespace v_1_0 {

/// Base of a V3 plugin's parts.
class IPluginCapability : public IVersionedInterface {};

/// An object that plugins share by a key, through IPluginRegistry::acquirePluginResource().
class IPluginResource : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"IPluginResource", 1, 0};
  }

  /// Frees the data behind the resource. Called only on objects that clone() made. These must
  /// remain fit to be cloned.
  /// \return 0 on success.
  virtual int32_t release() noexcept = 0;

  /// \return null on failure. The registry keeps a clone, not the object that it received.
  virtual IPluginResource* clone() noexcept = 0;

  ~IPluginResource() noexcept override = default;

  IPluginResource() = default;
  IPluginResource(IPluginResource const&) = default;
  IPluginResource(IPluginResource&&) = default;
  IPluginResource& operator=(IPluginResource const&) & = default;
  IPluginResource& operator=(IPluginResource&&) & = default;
};

/// Base of all plugin creators. getInterfaceInfo() tells which kind one is.
class IPluginCreatorInterface : public IVersionedInterface {
 public:
  ~IPluginCreatorInterface() noexcept override = default;

 protected:
  IPluginCreatorInterface() = default;
  IPluginCreatorInterface(IPluginCreatorInterface const&) = default;
  IPluginCreatorInterface(IPluginCreatorInterface&&) = default;
  IPluginCreatorInterface& operator=(IPluginCreatorInterface const&) & = default;
  IPluginCreatorInterface& operator=(IPluginCreatorInterface&&) & = default;
};

/// A plugin made of parts: core, build and runtime.
class IPluginV3 : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return InterfaceInfo{"PLUGIN", 1, 0}; }

  /// The requested part, owned by the plugin. In the build phase all three parts must exist, in the
  /// runtime phase kCORE and kRUNTIME. Null for a part that does not exist.
  virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept = 0;

  /// \return a ready plugin with the same state and at least the same parts; null on failure.
  virtual IPluginV3* clone() noexcept = 0;
};

}  // namespace v_1_0
using IPluginCapability = v_1_0::IPluginCapability;
using IPluginResource = v_1_0::IPluginResource;
using IPluginCreatorInterface = v_1_0::IPluginCreatorInterface;
using IPluginV3 = v_1_0::IPluginV3;

/// Services that an execution context offers to the plugins that are attached to it.
class IPluginResourceContext {
 public:
  virtual IGpuAllocator* getGpuAllocator() const noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
  virtual ~IPluginResourceContext() noexcept = default;

 protected:
  IPluginResourceContext() = default;
  IPluginResourceContext(IPluginResourceContext const&) = default;
  IPluginResourceContext(IPluginResourceContext&&) = default;
  IPluginResourceContext& operator=(IPluginResourceContext const&) & = default;
  IPluginResourceContext& operator=(IPluginResourceContext&&) & = default;
};

}  // namespace opwright
