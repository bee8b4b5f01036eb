#pragma once

/// \file
/// Adding the graph of an ONNX model to a network.

#include "network.h"

namespace opwright {

class IBuilderConfig;

namespace onnxparser {

/// The number of the last value of an enum of this header.
template <typename T>
constexpr int32_t EnumMax() noexcept = delete;

/// The kind of an error of the parser or of the refitter.
enum class ErrorCode : int {
  kSUCCESS = 0,
  kINTERNAL_ERROR = 1,
  kMEM_ALLOC_FAILED = 2,
  kMODEL_DESERIALIZE_FAILED = 3,  ///< the bytes are no ONNX model
  kINVALID_VALUE = 4,             ///< an argument of the call
  kINVALID_GRAPH = 5,
  kINVALID_NODE = 6,
  kUNSUPPORTED_GRAPH = 7,
  kUNSUPPORTED_NODE = 8,  ///< neither ONNX nor a plugin has the operator
  kUNSUPPORTED_NODE_ATTR = 9,
  kUNSUPPORTED_NODE_INPUT = 10,  ///< for example, an input that would have to be constant
  kUNSUPPORTED_NODE_DATATYPE = 11,
  kUNSUPPORTED_NODE_DYNAMIC = 12,  ///< a value that depends on the shapes of inputs
  kUNSUPPORTED_NODE_SHAPE = 13,
  kREFIT_FAILED = 14,
};
template <>
constexpr int32_t EnumMax<ErrorCode>() noexcept {
  return 14;
}

/// A bit, 1 << flag, for each OnnxParserFlag.
using OnnxParserFlags = uint32_t;

/// Options of a parser.
enum class OnnxParserFlag : int32_t {
  kNATIVE_INSTANCENORM = 0,  ///< set by default; a layer normalizes in any case
  kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1,  ///< without effect, because there is no DLA
  kREPORT_CAPABILITY_DLA = 2,                         ///< parsing fails, because there is no DLA
  kENABLE_PLUGIN_OVERRIDE = 3,  ///< a plugin replaces an operator or function of its name
  kADJUST_FOR_DLA = 4,          ///< without effect
};
template <>
constexpr int32_t EnumMax<OnnxParserFlag>() noexcept {
  return 4;
}

/// Why a model could not be taken over. Owned by the parser; valid until it parses again.
class IParserError {
 public:
  virtual ErrorCode code() const = 0;
  /// Says what is wrong, where, and how to fix it.
  virtual char const* desc() const = 0;
  /// The place in the library's source that noticed the error.
  virtual char const* file() const = 0;
  virtual int line() const = 0;
  virtual char const* func() const = 0;
  /// The node's index in the graph; for a node inside a function, the index of the function's call;
  /// -1 for the model as a whole, with empty strings.
  virtual int node() const = 0;
  virtual char const* nodeName() const = 0;
  virtual char const* nodeOperator() const = 0;
  /// The calls of the model's functions around the node, from the graph inwards, each "node
  /// (function)"; null if there are none.
  virtual char const* const* localFunctionStack() const = 0;
  virtual int32_t localFunctionStackSize() const = 0;

 protected:
  virtual ~IParserError() = default;
};

/// Adds ONNX models of opset 7 and newer to a network. A node becomes the first of these that
/// applies: a plugin, if it has a string attribute `plugin_namespace` or the flag
/// kENABLE_PLUGIN_OVERRIDE is set; the nodes of the model's function that it calls; ONNX's
/// operator; a plugin of its type in the namespace of `plugin_namespace` (else the empty one) or in
/// that of its domain. Methods do not throw.
class IParser {
 public:
  /// \param size in bytes.
  /// \param modelPath the model's file, for external data beside it; null if there is none.
  /// \return false when there are errors; the network is unusable then.
  virtual bool parse(void const* serializedModel, size_t size,
                     char const* modelPath = nullptr) noexcept = 0;
  /// \param verbosity is ignored: the logger decides what it writes.
  virtual bool parseFromFile(char const* onnxModelFile, int verbosity) noexcept = 0;
  /// Whether the parser can take over a node of this type of ONNX's domain.
  virtual bool supportsOperator(char const* opName) const noexcept = 0;

  virtual int getNbErrors() const noexcept = 0;
  /// Null for an index that does not exist.
  virtual IParserError const* getError(int index) const noexcept = 0;
  virtual void clearErrors() noexcept = 0;

  virtual ~IParser() noexcept = default;

  /// Libraries that the model's layers need. There are none.
  /// \return null, with nbPluginLibs 0.
  virtual char const* const* getUsedVCPluginLibraries(int64_t& nbPluginLibs) const noexcept = 0;

  /// Replaces all flags.
  virtual void setFlags(OnnxParserFlags onnxParserFlags) noexcept = 0;
  virtual OnnxParserFlags getFlags() const noexcept = 0;
  virtual void clearFlag(OnnxParserFlag onnxParserFlag) noexcept = 0;
  virtual void setFlag(OnnxParserFlag onnxParserFlag) noexcept = 0;
  virtual bool getFlag(OnnxParserFlag onnxParserFlag) const noexcept = 0;

  /// An output of the first node with this name; null if there is none. A node inside a function is
  /// called "call/node".
  virtual ITensor const* getLayerOutputTensor(char const* name, int64_t i) noexcept = 0;

  /// As parse(): the network has the model if it is supported. getNbSubgraphs() and the two methods
  /// behind it describe the parts that could be taken over; parse() sets these as well.
  virtual bool supportsModelV2(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                               char const* modelPath = nullptr) noexcept = 0;
  /// Number of runs of nodes between the nodes that cannot be taken over, which are in no run; 0 if
  /// an error concerns no node.
  virtual int64_t getNbSubgraphs() noexcept = 0;
  /// True for the whole of a model without errors. Whether a part of another model is supported is
  /// known only once it is parsed by itself.
  virtual bool isSubgraphSupported(int64_t const index) noexcept = 0;
  /// \return the nodes' indices, valid until the parser parses again; null, with length 0, for an
  /// index that does not exist.
  virtual int64_t* getSubgraphNodes(int64_t const index, int64_t& subgraphLength) noexcept = 0;

  /// Reads a model without external data, so that loadInitializer() can give it weights before
  /// parseModelProto() takes it over.
  /// \return false when there are errors, or when a model is already loaded and not taken over.
  virtual bool loadModelProto(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                              char const* modelPath = nullptr) noexcept = 0;
  /// Copies the elements of an initializer, dense, of the model's type. They replace the model's
  /// elements.
  /// \return false if no model is loaded, it has no such initializer, or the size is another one.
  virtual bool loadInitializer(char const* name, void const* data, size_t size) noexcept = 0;
  /// Takes over the loaded model. \return false when there are errors.
  virtual bool parseModelProto() noexcept = 0;

  /// The config with which the network is to be built. The parser does not depend on it.
  /// \return false for null.
  virtual bool setBuilderConfig(IBuilderConfig const* const builderConfig) noexcept = 0;

  /// Beyond TensorRT: whether external data may be read through symbolic links that lead out of the
  /// model's folder, as in a store of models that keeps each file once. False by default, unless
  /// the environment variable OPWRIGHT_ALLOW_LINKS is 1. Permit it only if you trust the author of
  /// the links. Names that lead out of the folder by themselves are refused in any case.
  virtual void setLinksAllowed(bool allowed) noexcept = 0;
  virtual bool getLinksAllowed() const noexcept = 0;
};

}  // namespace onnxparser
}  // namespace opwright

/// Implementation of createParser(): takes an INetworkDefinition, an ILogger and the version for
/// which the caller was compiled, returns an IParser; null on failure.
extern "C" OPWRIGHT_API void* createNvOnnxParser_INTERNAL(void* network, void* logger,
                                                          int version) noexcept;
/// The library's API level, as getInferLibVersion().
extern "C" OPWRIGHT_API int getNvOnnxParserVersion() noexcept;

namespace opwright {
namespace onnxparser {

/// \param network must outlive the parser.
/// \return a parser that the caller deletes; null on failure.
inline IParser* createParser(INetworkDefinition& network, ILogger& logger) noexcept {
  return static_cast<IParser*>(createNvOnnxParser_INTERNAL(&network, &logger, NV_TENSORRT_VERSION));
}

}  // namespace onnxparser
}  // namespace opwright

/// The name under which sources written for TensorRT know the parser.
namespace nvonnxparser {
using namespace opwright::onnxparser;
}  // namespace nvonnxparser
