#pragma once

/// \file
/// Weights for an engine from an ONNX model.

#include "onnx_parser.h"
#include "refitter.h"

namespace opwright {
namespace onnxparser {

/// Sets the weights of a refitter from the model from which the engine was built, or from one of
/// the same structure, by the names of its initializers and Constant nodes. Methods do not throw.
class IParserRefitter {
 public:
  virtual ~IParserRefitter() noexcept = default;

  /// Sets all weights of the engine; IRefitter::refitCudaEngine() puts them into the engine.
  /// \param serializedOnnxModelSize in bytes.
  /// \param modelPath the model's file, for external data beside it; null if there is none.
  /// \return false when there are errors, including weights of the engine that the model lacks.
  virtual bool refitFromBytes(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                              char const* modelPath = nullptr) noexcept = 0;
  virtual bool refitFromFile(char const* onnxModelFile) noexcept = 0;

  virtual int32_t getNbErrors() const noexcept = 0;
  /// Null for an index that does not exist.
  virtual IParserError const* getError(int32_t index) const noexcept = 0;
  virtual void clearErrors() noexcept = 0;

  /// Begins to refit in steps: takes a model.
  virtual bool loadModelProto(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                              char const* modelPath = nullptr) noexcept = 0;
  /// Takes other data for an initializer of the model, which the caller keeps until the engine is
  /// refitted.
  /// \param size in bytes.
  virtual bool loadInitializer(char const* name, void const* data, size_t size) noexcept = 0;
  /// Sets the weights from the model and the data.
  virtual bool refitModelProto() noexcept = 0;

  /// Beyond TensorRT: as IParser::setLinksAllowed().
  virtual void setLinksAllowed(bool allowed) noexcept = 0;
  virtual bool getLinksAllowed() const noexcept = 0;
};

}  // namespace onnxparser
}  // namespace opwright

/// Implementation of createParserRefitter(): takes an IRefitter, an ILogger and the version for
/// which the caller was compiled, returns an IParserRefitter; null on failure.
extern "C" OPWRIGHT_API void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger,
                                                                  int32_t version) noexcept;

namespace opwright {
namespace onnxparser {

/// \param refitter must outlive the result.
/// \return an object that the caller deletes; null on failure.
inline IParserRefitter* createParserRefitter(IRefitter& refitter, ILogger& logger) noexcept {
  return static_cast<IParserRefitter*>(
      createNvOnnxParserRefitter_INTERNAL(&refitter, &logger, NV_TENSORRT_VERSION));
}

}  // namespace onnxparser
}  // namespace opwright
