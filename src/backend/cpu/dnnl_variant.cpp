#include "backend/cpu/dnnl_variant.h"

namespace opwright {

std::vector<Variant> variants_for(const PortType& input, const PortType& output) {
  std::vector<Variant> variants;
  const auto add = [&](DataType type) {
    variants.push_back({type, input.format, output.format});
    if (input.format == TensorFormat::kLINEAR && output.format == TensorFormat::kLINEAR)
      variants.push_back({type, TensorFormat::kHWC, TensorFormat::kHWC});
  };
  if (compute_type(input.dtype) == input.dtype) add(input.dtype);
  // Sums of bytes are exact only in integers.
  const bool bytes = input.dtype == DataType::kINT8 || input.dtype == DataType::kUINT8;
  if (input.dtype != DataType::kFLOAT && !bytes) add(DataType::kFLOAT);
  return variants;
}

std::string variant_suffix(const Variant& variant, const PortType& input, const PortType& output) {
  std::string suffix;
  if (variant.input != input.format || variant.output != output.format)
    suffix += " via " + std::string(name(variant.input));
  if (variant.type != input.dtype) suffix += " in " + std::string(name(variant.type));
  return suffix;
}

}  // namespace opwright
