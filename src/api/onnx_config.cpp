#include "opwright/onnx_config.h"

#include <algorithm>
#include <string>

#include "opwright/logger.h"

namespace opwright::onnxparser {
namespace {

class OnnxConfig final : public IOnnxConfig {
 public:
  void setModelDtype(DataType const dtype) noexcept override { dtype_ = dtype; }
  DataType getModelDtype() const noexcept override { return dtype_; }
  void setModelFileName(char const* onnxFilename) noexcept override { set(model_, onnxFilename); }
  char const* getModelFileName() const noexcept override { return model_.c_str(); }
  void setVerbosityLevel(Verbosity verbosity) noexcept override { verbosity_ = verbosity; }
  Verbosity getVerbosityLevel() const noexcept override { return verbosity_; }
  void addVerbosity() noexcept override { ++verbosity_; }
  void reduceVerbosity() noexcept override { verbosity_ = std::max(verbosity_ - 1, 0); }
  void setTextFileName(char const* textFileName) noexcept override { set(text_, textFileName); }
  char const* getTextFileName() const noexcept override { return text_.c_str(); }
  void setFullTextFileName(char const* fullTextFileName) noexcept override {
    set(full_text_, fullTextFileName);
  }
  char const* getFullTextFileName() const noexcept override { return full_text_.c_str(); }
  void setPrintLayerInfo(bool print) noexcept override { print_ = print; }
  bool getPrintLayerInfo() const noexcept override { return print_; }

 private:
  static void set(std::string& text, const char* value) { text = value == nullptr ? "" : value; }

  DataType dtype_ = DataType::kFLOAT;
  std::string model_, text_, full_text_;
  Verbosity verbosity_ = static_cast<Verbosity>(ILogger::Severity::kWARNING);
  bool print_ = false;
};

}  // namespace

IOnnxConfig* createONNXConfig() { return new OnnxConfig(); }

}  // namespace opwright::onnxparser
