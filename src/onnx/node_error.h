#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "opwright/onnx_parser.h"

namespace opwright::onnx {

/// An Error with the kind that a parser reports.
class NodeError final : public Error {
 public:
  /// `needed_constants`: inputs of the graph that would have to be constant. `is_of_names`: the
  /// node is wrong with any shapes, because a name is undefined or defined twice.
  NodeError(onnxparser::ErrorCode kind, const std::string& message,
            std::vector<std::string> needed_constants = {}, bool is_of_names = false)
      : Error(kind >= onnxparser::ErrorCode::kUNSUPPORTED_GRAPH ? ErrorCode::kUNSUPPORTED_STATE
                                                                : ErrorCode::kINVALID_ARGUMENT,
              message),
        kind_(kind),
        needed_constants_(std::move(needed_constants)),
        is_of_names_(is_of_names) {}
  onnxparser::ErrorCode kind() const noexcept { return kind_; }
  const std::vector<std::string>& needed_constants() const noexcept { return needed_constants_; }
  bool is_of_names() const noexcept { return is_of_names_; }

 private:
  onnxparser::ErrorCode kind_;
  std::vector<std::string> needed_constants_;
  bool is_of_names_;
};

}  // namespace opwright::onnx
