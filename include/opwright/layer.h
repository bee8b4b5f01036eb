#pragma once

/// \file
/// The parts of a network: tensors and layers. Methods do not throw. On failure they return null,
/// false or the value that they document, change nothing, and report to the logger and the error
/// recorder.

#include "layer_value.h"
#include "logger.h"
#include "types.h"

namespace opwright {

/// The type of a network's layer. Opwright creates the types for which INetworkDefinition has a
/// method.
enum class LayerType : int32_t {
  kCONVOLUTION = 0,
  kCAST = 1,
  kACTIVATION = 2,
  kPOOLING = 3,
  kLRN = 4,
  kSCALE = 5,
  kSOFTMAX = 6,
  kDECONVOLUTION = 7,
  kCONCATENATION = 8,
  kELEMENTWISE = 9,
  kPLUGIN = 10,  ///< A function plugin.
  kUNARY = 11,
  kPADDING = 12,
  kSHUFFLE = 13,
  kREDUCE = 14,
  kTOPK = 15,
  kGATHER = 16,
  kMATRIX_MULTIPLY = 17,
  kRAGGED_SOFTMAX = 18,
  kCONSTANT = 19,
  kIDENTITY = 20,
  kPLUGIN_V2 = 21,
  kSLICE = 22,
  kSHAPE = 23,
  kPARAMETRIC_RELU = 24,
  kRESIZE = 25,
  kTRIP_LIMIT = 26,
  kRECURRENCE = 27,
  kITERATOR = 28,
  kLOOP_OUTPUT = 29,
  kSELECT = 30,
  kFILL = 31,
  kQUANTIZE = 32,
  kDEQUANTIZE = 33,
  kCONDITION = 34,
  kCONDITIONAL_INPUT = 35,
  kCONDITIONAL_OUTPUT = 36,
  kSCATTER = 37,
  kEINSUM = 38,
  kASSERTION = 39,
  kONE_HOT = 40,
  kNON_ZERO = 41,
  kGRID_SAMPLE = 42,
  kNMS = 43,
  kREVERSE_SEQUENCE = 44,
  kNORMALIZATION = 45,
  kPLUGIN_V3 = 46,
  kSQUEEZE = 47,
  kUNSQUEEZE = 48,
  kCUMULATIVE = 49,
  kDYNAMIC_QUANTIZE = 50,
  kATTENTION_INPUT = 51,
  kATTENTION_OUTPUT = 52,
  kROTARY_EMBEDDING = 53,
  kKVCACHE_UPDATE = 54,
  kMOE = 55,
  kDIST_COLLECTIVE = 56,
};

namespace impl {
template <>
struct EnumMaxImpl<LayerType> {
  static constexpr int32_t kVALUE = 57;
};
}  // namespace impl

/// A tensor of a network. Owned by the network.
class ITensor : public INoCopy {
 public:
  /// Names are unique within a network; a name that is taken is an error. The text is copied.
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  /// For network inputs only.
  virtual void setDimensions(Dims const& dimensions) noexcept = 0;
  /// The extents, -1 if known only at run time. nbDims is -1 while a layer does not fit.
  virtual Dims getDimensions() const noexcept = 0;

  /// For network inputs, and for outputs of networks that are not strongly typed. The engine
  /// converts FP32, FP16 and BF16 elements of such outputs. Other tensors have the type that their
  /// layer gives them.
  virtual void setType(DataType type) noexcept = 0;
  virtual DataType getType() const noexcept = 0;

  /// The range of kINT8 elements: -127 and 127 stand for the larger of its bounds. With
  /// BuilderFlag::kINT8, plugins may read or write the tensor quantized.
  /// \return false unless min <= max, both finite and one not 0.
  virtual bool setDynamicRange(float min, float max) noexcept = 0;
  virtual bool dynamicRangeIsSet() const noexcept = 0;
  virtual void resetDynamicRange() noexcept = 0;
  /// NaN if no range is set, here and below.
  virtual float getDynamicRangeMin() const noexcept = 0;
  virtual float getDynamicRangeMax() const noexcept = 0;

  virtual bool isNetworkInput() const noexcept = 0;
  virtual bool isNetworkOutput() const noexcept = 0;
  /// Whether the tensor's values are known when shapes are, from constants, shapes and shape
  /// inputs, and its rank is 0 or 1.
  virtual bool isShapeTensor() const noexcept = 0;
  virtual bool isExecutionTensor() const noexcept = 0;

  /// The formats that a network input or output may have: bit `1U << int(TensorFormat)` for each.
  virtual void setAllowedFormats(TensorFormats formats) noexcept = 0;
  virtual TensorFormats getAllowedFormats() const noexcept = 0;

  /// For network inputs only. Dimensions with equal names have equal extents at run time. Null
  /// removes a name.
  virtual void setDimensionName(int32_t index, char const* name) noexcept = 0;
  /// Null for a dimension without a name.
  virtual char const* getDimensionName(int32_t index) const noexcept = 0;

 protected:
  ~ITensor() noexcept override = default;
};

/// An operation on tensors. Owned by the network. layers.h has a class for each LayerType.
class ILayer : public INoCopy {
 public:
  virtual LayerType getType() const noexcept = 0;
  /// Names need not be unique. The text is copied.
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  virtual int32_t getNbInputs() const noexcept = 0;
  /// Null for an optional input that is absent, and for an index that does not exist.
  virtual ITensor* getInput(int32_t index) const noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual ITensor* getOutput(int32_t index) const noexcept = 0;
  /// Replaces an input, or sets an optional one.
  virtual void setInput(int32_t index, ITensor& tensor) noexcept = 0;
  /// The type that was set, or the type that the layer gives its output.
  virtual DataType getOutputType(int32_t index) const noexcept = 0;

  /// The type of floating inputs with which the layer is to compute. A build follows it if
  /// BuilderFlag::kOBEY_PRECISION_CONSTRAINTS or kPREFER_PRECISION_CONSTRAINTS is set, and the flag
  /// of a type that is lower than the network's. An error for strongly typed networks.
  virtual void setPrecision(DataType dataType) noexcept = 0;
  /// The type that was set, or the type of the layer's first floating tensor.
  virtual DataType getPrecision() const noexcept = 0;
  virtual bool precisionIsSet() const noexcept = 0;
  virtual void resetPrecision() noexcept = 0;
  /// The type, kFLOAT, kHALF or kBF16, in which an output is to be stored. An output of the network
  /// has this type; for other outputs a build follows it as it follows the precision.
  virtual void setOutputType(int32_t index, DataType dataType) noexcept = 0;
  virtual bool outputTypeIsSet(int32_t index) const noexcept = 0;
  virtual void resetOutputType(int32_t index) noexcept = 0;

  /// Text for people, kept in the network.
  virtual void setMetadata(char const* metadata) noexcept = 0;
  virtual char const* getMetadata() const noexcept = 0;

  /// How many ranks a collective layer works with, at least 1. Other layers have 1.
  /// \return false for a number that the layer cannot have.
  bool setNbRanks(int32_t nbRanks) noexcept {
    return getType() == LayerType::kDIST_COLLECTIVE ? nbRanks >= 1 && set("num_ranks", nbRanks)
                                                    : nbRanks == 1;
  }
  int32_t getNbRanks() const noexcept {
    return getType() == LayerType::kDIST_COLLECTIVE ? get<int32_t>("num_ranks") : 1;
  }

 protected:
  ~ILayer() noexcept override = default;

  /// A property by its name in the Python API and in plans.
  virtual impl::LayerValue getProperty(char const* name) const noexcept = 0;
  /// \return false, and an error, for a value that does not fit the property.
  virtual bool setProperty(char const* name, impl::LayerValue const& value) noexcept = 0;

  template <class T>
  T get(char const* name) const noexcept {
    return getProperty(name).as<T>();
  }
  bool set(char const* name, impl::LayerValue const& value) noexcept {
    return setProperty(name, value);
  }
};

}  // namespace opwright
