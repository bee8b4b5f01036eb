#pragma once

#include <vector>

#include "onnx/parser.h"
#include "opwright/onnx_parser.h"

namespace opwright::onnxparser {

/// An error of a parser or of an ONNX refitter.
class ParserErrorApi final : public IParserError {
 public:
  explicit ParserErrorApi(const OnnxError& error) : error_(error) {
    for (const std::string& call : error_.functions) functions_.push_back(call.c_str());
  }
  // What functions_ points into must not move.
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

}  // namespace opwright::onnxparser
