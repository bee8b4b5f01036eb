#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// The elements, as FP32, of a constant whose elements passes may use.
std::optional<std::vector<float>> fixed_elements(const GraphValue& value);

/// Parameters of a Quantize or Dequantize node that are constant and the same for all elements.
struct ScalarQuantization {
  float scale = 1;
  int64_t zero_point = 0;
  DataType type = DataType::kINT8;  ///< of the quantized elements
  bool operator==(const ScalarQuantization&) const = default;
};
std::optional<ScalarQuantization> scalar_quantization(const GraphNode& node);

}  // namespace opwright
