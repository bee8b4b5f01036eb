#pragma once

#include <string>
#include <string_view>

/// \file
/// The processor's features, for the library behind products, convolutions and similar kernels:
/// oneDNN (onednn/), or our own kernels instead (plain/).
namespace opwright {

/// Features that the kernels may use: those of the processor, limited by ONEDNN_MAX_CPU_ISA.
struct CpuFeatures {
  bool avx512 = false;
  bool bf16 = false;  ///< fast bfloat16 products
  bool fp16 = false;  ///< fast half-precision products
  /// Products of bytes that add up without saturating in between.
  bool int8 = false;
};

CpuFeatures processor_features();
/// The instruction set, as part of a device's name: "avx512_vnni".
std::string_view instruction_set();
/// Name and version of the library. Timings of one version do not hold for another.
std::string product_library();

}  // namespace opwright
