#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compile/graph.h"

namespace opwright {

/// The elements of a constant that passes may look at, as FP32.
std::optional<std::vector<float>> fixed_elements(const GraphValue& value);

/// What a Quantize or Dequantize node computes with, where that is constant and the same for all
/// elements.
struct ScalarQuantization {
  float scale = 1;
  int64_t zero_point = 0;
  DataType type = DataType::kINT8;  ///< of what is quantized
  bool operator==(const ScalarQuantization&) const = default;
};
std::optional<ScalarQuantization> scalar_quantization(const GraphNode& node);

}  // namespace opwright
