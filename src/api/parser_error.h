#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/error_report.h"
#include "onnx/parser.h"
#include "opwright/onnx_parser.h"

namespace opwright::onnxparser {

/// An error of a parser or of an ONNX refitter.
class ParserErrorApi final : public IParserError {
 public:
  explicit ParserErrorApi(const OnnxError& error) : error_(error) {
    for (const std::string& call : error_.functions) functions_.push_back(call.c_str());
  }
  // Copies or moves would leave functions_ with dangling pointers.
  ParserErrorApi(const ParserErrorApi&) = delete;
  ParserErrorApi& operator=(const ParserErrorApi&) = delete;
  ~ParserErrorApi() override = default;

  ErrorCode code() const override { return error_.kind; }
  char const* desc() const override { return error_.message.c_str(); }
  char const* file() const override { return error_.file.c_str(); }
  int line() const override { return error_.line; }
  char const* func() const override { return error_.func.c_str(); }
  int node() const override { return error_.node; }
  char const* nodeName() const override { return error_.node_name.c_str(); }
  char const* nodeOperator() const override { return error_.op_type.c_str(); }
  char const* const* localFunctionStack() const override {
    return functions_.empty() ? nullptr : functions_.data();
  }
  int32_t localFunctionStackSize() const override {
    return static_cast<int32_t>(functions_.size());
  }

 private:
  const OnnxError error_;
  std::vector<const char*> functions_;
};

/// The errors that callers of a parser or of an ONNX refitter receive.
class ParserErrorsApi {
 public:
  int count() const { return static_cast<int>(errors_.size()); }
  IParserError const* get(int index) const {
    return index >= 0 && index < count() ? &errors_[static_cast<size_t>(index)] : nullptr;
  }
  void clear() { errors_.clear(); }
  /// Runs `work` of `core`, which returns whether it had no errors, and takes over these errors.
  template <class Core, class Work>
  bool take(const ErrorReport& report, const Core& core, Work&& work) noexcept {
    errors_.clear();
    return report.guard(false, [&] {
      if (work()) return true;
      for (const OnnxError& error : core.errors()) errors_.emplace_back(error);
      return false;
    });
  }

 private:
  std::deque<ParserErrorApi> errors_;
};

/// A copy of the model, as the caller may free the bytes.
inline Blob copy_of_model(void const* model, size_t size) {
  require(model != nullptr, "ONNX: the model's bytes are null");
  return Blob::copy(model, size);
}

inline std::string text_of(char const* path) { return path == nullptr ? "" : path; }

/// The name of a model's file.
inline std::string file_of(char const* path) {
  require(path != nullptr, "ONNX: the name of the model's file is null");
  return path;
}

}  // namespace opwright::onnxparser
