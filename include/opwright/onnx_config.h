#pragma once

/// \file
/// A config in which sources written for TensorRT keep a program's choices about an ONNX model. The
/// parser does not read it.

#include "types.h"

namespace opwright {
namespace onnxparser {

/// Values that are kept and returned.
class IOnnxConfig {
 public:
  using Verbosity = int32_t;

  virtual ~IOnnxConfig() noexcept = default;

  /// kFLOAT by default.
  virtual void setModelDtype(DataType const dtype) noexcept = 0;
  virtual DataType getModelDtype() const noexcept = 0;
  /// The text is copied, here and below; empty by default.
  virtual void setModelFileName(char const* onnxFilename) noexcept = 0;
  virtual char const* getModelFileName() const noexcept = 0;
  /// The default is the level of ILogger::Severity::kWARNING.
  virtual void setVerbosityLevel(Verbosity verbosity) noexcept = 0;
  virtual Verbosity getVerbosityLevel() const noexcept = 0;
  /// Adds or subtracts one level, down to 0.
  virtual void addVerbosity() noexcept = 0;
  virtual void reduceVerbosity() noexcept = 0;
  virtual void setTextFileName(char const* textFileName) noexcept = 0;
  virtual char const* getTextFileName() const noexcept = 0;
  virtual void setFullTextFileName(char const* fullTextFileName) noexcept = 0;
  virtual char const* getFullTextFileName() const noexcept = 0;
  /// False by default.
  virtual void setPrintLayerInfo(bool print) noexcept = 0;
  virtual bool getPrintLayerInfo() const noexcept = 0;
};

/// \return a config that the caller deletes.
OPWRIGHT_API IOnnxConfig* createONNXConfig();

}  // namespace onnxparser
}  // namespace opwright

/// The name under which sources written for TensorRT know the parser.
namespace nvonnxparser {
using namespace opwright::onnxparser;
}  // namespace nvonnxparser
