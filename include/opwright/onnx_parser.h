#pragma once

/// \file
/// Adding the graph of an ONNX model to a network.

#include "network.h"

namespace opwright {
namespace onnxparser {

/// The kind of a parser's error.
enum class ErrorCode : int32_t {
  kSUCCESS = 0,
  kINTERNAL_ERROR = 1,
  kMEM_ALLOC_FAILED = 2,
  kMODEL_DESERIALIZE_FAILED = 3,
  kINVALID_VALUE = 4,
  kINVALID_GRAPH = 5,
  kINVALID_NODE = 6,
  kUNSUPPORTED_GRAPH = 7,
  kUNSUPPORTED_NODE = 8,
};

/// Why a model could not be taken over. Owned by the parser; valid until it parses again.
class IParserError {
 public:
  virtual ErrorCode code() const = 0;
  /// Says what was wrong, where, and how to mend it.
  virtual char const* desc() const = 0;
  /// The node's index; -1 for the model as a whole. The strings are empty then.
  virtual int node() const = 0;
  virtual char const* nodeName() const = 0;
  virtual char const* nodeOperator() const = 0;

 protected:
  virtual ~IParserError() = default;
};

/// Takes over ONNX models of the opsets 7 to 23. A node of another domain than ONNX's, or with a
/// string attribute `plugin_namespace`, becomes a plugin of that name. Methods do not throw.
class IParser {
 public:
  virtual ~IParser() noexcept = default;

  /// \param size in bytes.
  /// \param modelPath the model's file, for external data beside it; null where there is none.
  /// \return false when there are errors; the network is unusable then.
  virtual bool parse(void const* serializedModel, size_t size,
                     char const* modelPath = nullptr) noexcept = 0;
  /// \param verbosity is ignored: the logger decides on what it writes.
  virtual bool parseFromFile(char const* onnxModelFile, int verbosity) noexcept = 0;
  /// Whether a node of this type of ONNX's domain can be taken over.
  virtual bool supportsOperator(char const* opName) const noexcept = 0;

  virtual int getNbErrors() const noexcept = 0;
  /// Null for an index that does not exist.
  virtual IParserError const* getError(int index) const noexcept = 0;
  virtual void clearErrors() noexcept = 0;
};

}  // namespace onnxparser
}  // namespace opwright

/// Behind createParser(): takes an INetworkDefinition, an ILogger and the version that the caller
/// was compiled for, returns an IParser; null on failure.
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
