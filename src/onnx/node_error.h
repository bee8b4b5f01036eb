#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "opwright/onnx_parser.h"

namespace opwright::onnx {

/// An Error that knows of which kind it is for those who ask a parser.
class NodeError final : public Error {
 public:
  /// `needed_constants`: inputs of the graph that would have to be constant.
  NodeError(onnxparser::ErrorCode kind, const std::string& message,
            std::vector<std::string> needed_constants = {})
      : Error(kind >= onnxparser::ErrorCode::kUNSUPPORTED_GRAPH ? ErrorCode::kUNSUPPORTED_STATE
                                                                : ErrorCode::kINVALID_ARGUMENT,
              message),
        kind_(kind),
        needed_constants_(std::move(needed_constants)) {}
  onnxparser::ErrorCode kind() const noexcept { return kind_; }
  const std::vector<std::string>& needed_constants() const noexcept { return needed_constants_; }

 private:
  onnxparser::ErrorCode kind_;
  std::vector<std::string> needed_constants_;
};

}  // namespace opwright::onnx
