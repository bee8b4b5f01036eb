#pragma once

/// \file
/// Replacing the weights of engines.

#include "runtime.h"

namespace opwright {

/// The role of weights in the layer that uses them. The power of a scale layer has no role: its
/// weights are found only by their name.
enum class WeightsRole : int32_t {
  kKERNEL = 0,    ///< of a convolution or deconvolution
  kBIAS = 1,      ///< of a convolution or deconvolution
  kSHIFT = 2,     ///< of a scale layer
  kSCALE = 3,     ///< of a scale layer
  kCONSTANT = 4,  ///< of a constant layer
  kANY = 5,       ///< any other
};
namespace impl {
template <>
struct EnumMaxImpl<WeightsRole> {
  static constexpr int32_t kVALUE = 6;
};
}  // namespace impl

/// Replaces the weights of an engine that was built with BuilderFlag::kREFIT, kREFIT_IDENTICAL or
/// kREFIT_INDIVIDUAL, or sets the weights that BuilderFlag::kSTRIP_PLAN left out. Methods report
/// errors to the error recorder and the logger.
class IRefitter : public INoCopy {
 public:
  ~IRefitter() noexcept override = default;
  /// Sets new weights for a layer, in the type and number that the network had. refitCudaEngine()
  /// reads them; they are not copied before. Returns false for a layer or a role without
  /// replaceable weights, and for another type or number of elements.
  virtual bool setWeights(char const* layerName, WeightsRole role, Weights weights) noexcept = 0;
  /// Puts the new weights into the engine. Returns false, with the engine unchanged, when weights
  /// are missing; see getMissingWeights(). Contexts use the new weights from their next run on. No
  /// run may be active.
  virtual bool refitCudaEngine() noexcept = 0;
  /// The other weights that have to be set before refitCudaEngine(): those that the engine stores
  /// only combined with weights that were set, and all that it lacks. Writes the first `size`;
  /// either list may be null.
  /// \return their number.
  virtual int32_t getMissing(int32_t size, char const** layerNames,
                             WeightsRole* roles) noexcept = 0;
  /// All weights that can be replaced, as for getMissing().
  virtual int32_t getAll(int32_t size, char const** layerNames, WeightsRole* roles) noexcept = 0;
  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
  /// As setWeights(), by the weights' name.
  virtual bool setNamedWeights(char const* name, Weights weights) noexcept = 0;
  /// As getMissing(), by name. Names live as long as the engine.
  virtual int32_t getMissingWeights(int32_t size, char const** weightsNames) noexcept = 0;
  virtual int32_t getAllWeights(int32_t size, char const** weightsNames) noexcept = 0;
  virtual ILogger* getLogger() const noexcept = 0;
  /// The most threads that refitCudaEngine() uses, 1 to 4096; by default those of the machine.
  virtual bool setMaxThreads(int32_t maxThreads) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;
  /// With TensorLocation::kDEVICE, reads the weights from the memory of the engine's device.
  virtual bool setNamedWeights(char const* name, Weights weights,
                               TensorLocation location) noexcept = 0;
  /// The weights that were set; null weights, with an error, if none were.
  virtual Weights getNamedWeights(char const* weightsName) const noexcept = 0;
  virtual TensorLocation getWeightsLocation(char const* weightsName) const noexcept = 0;
  /// Forgets the weights that were set. Returns false if none were.
  virtual bool unsetNamedWeights(char const* weightsName) noexcept = 0;
  /// Whether refitCudaEngine() warns of elements that are not finite, or no longer are in the type
  /// in which the engine computes; true by default.
  virtual void setWeightsValidation(bool weightsValidation) noexcept = 0;
  virtual bool getWeightsValidation() const noexcept = 0;
  /// As refitCudaEngine(), after the stream's earlier work. Returns when all is done.
  virtual bool refitCudaEngineAsync(cudaStream_t stream) noexcept = 0;
  /// Type and number of the weights, without elements. The number is -1 for a name that does not
  /// exist.
  virtual Weights getWeightsPrototype(char const* weightsName) const noexcept = 0;
};

}  // namespace opwright

/// A refitter of the engine, which outlives it. Null on failure, which is reported to the logger.
extern "C" OPWRIGHT_API void* createInferRefitter_INTERNAL(void* engine, void* logger,
                                                           int32_t version) noexcept;

namespace opwright {
inline IRefitter* createInferRefitter(ICudaEngine& engine, ILogger& logger) noexcept {
  return static_cast<IRefitter*>(
      createInferRefitter_INTERNAL(&engine, &logger, NV_TENSORRT_VERSION));
}
}  // namespace opwright
