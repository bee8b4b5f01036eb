// Circular padding on the CPU: what the two plugins share.
#pragma once

#include <NvInfer.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace acceptance {

inline std::size_t sizeOf(nvinfer1::DataType type) {
  return type == nvinfer1::DataType::kHALF ? 2 : 4;
}

//! The int32 values of the field called \p name, or none.
inline std::vector<std::int32_t> int32Field(nvinfer1::PluginFieldCollection const& fields,
                                            char const* name) {
  for (std::int32_t i = 0; i < fields.nbFields; ++i) {
    nvinfer1::PluginField const& field = fields.fields[i];
    if (std::strcmp(field.name, name) == 0 && field.type == nvinfer1::PluginFieldType::kINT32) {
      auto const* data = static_cast<std::int32_t const*>(field.data);
      return {data, data + field.length};
    }
  }
  return {};
}

//! The shape of the padded tensor; pads are (before, after) for each axis, from the last one
//! backwards.
inline nvinfer1::DimsExprs paddedShape(nvinfer1::DimsExprs const& input,
                                       std::vector<std::int32_t> const& pads,
                                       nvinfer1::IExprBuilder& builder) {
  nvinfer1::DimsExprs output = input;
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    auto const axis = input.nbDims - 1 - static_cast<std::int32_t>(i);
    output.d[axis] = builder.operation(nvinfer1::DimensionOperation::kSUM, *input.d[axis],
                                       *builder.constant(pads[2 * i] + pads[2 * i + 1]));
  }
  return output;
}

inline void circularPad(void const* input, nvinfer1::Dims const& inputDims, void* output,
                        nvinfer1::Dims const& outputDims, std::vector<std::int32_t> const& pads,
                        std::size_t elementSize) {
  std::int32_t const rank = inputDims.nbDims;
  std::int64_t count = 1;
  for (std::int32_t axis = 0; axis < rank; ++axis) {
    count *= outputDims.d[axis];
  }
  for (std::int64_t element = 0; element < count; ++element) {
    std::int64_t rest = element;
    std::int64_t source = 0;
    std::int64_t stride = 1;
    for (std::int32_t axis = rank - 1; axis >= 0; --axis) {
      auto const pair = static_cast<std::size_t>(2 * (rank - 1 - axis));
      std::int64_t const before = pair < pads.size() ? pads[pair] : 0;
      std::int64_t const extent = inputDims.d[axis];
      std::int64_t const position = rest % outputDims.d[axis] - before;
      source += (position % extent + extent) % extent * stride;
      stride *= extent;
      rest /= outputDims.d[axis];
    }
    std::memcpy(static_cast<char*>(output) + element * static_cast<std::int64_t>(elementSize),
                static_cast<char const*>(input) + source * static_cast<std::int64_t>(elementSize),
                elementSize);
  }
}

}  // namespace acceptance
