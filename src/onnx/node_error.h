#pragma once

#include <string>

#include "base/error.h"
#include "opwright/onnx_parser.h"

namespace opwright::onnx {

/// An Error that knows of which kind it is for those who ask a parser.
class NodeError final : public Error {
 public:
  NodeError(onnxparser::ErrorCode kind, const std::string& message)
      : Error(kind >= onnxparser::ErrorCode::kUNSUPPORTED_GRAPH ? ErrorCode::kUNSUPPORTED_STATE
                                                                : ErrorCode::kINVALID_ARGUMENT,
              message),
        kind_(kind) {}
  onnxparser::ErrorCode kind() const noexcept { return kind_; }

 private:
  onnxparser::ErrorCode kind_;
};

}  // namespace opwright::onnx
