#pragma once

#include <string>
#include <string_view>

/// \file
/// What the library behind products, convolutions and their like knows of the processor: oneDNN
/// (onednn/), or our own kernels in its place (plain/).
namespace opwright {

/// What the kernels may use of the processor: what it has, limited by ONEDNN_MAX_CPU_ISA.
struct CpuFeatures {
  bool avx512 = false;
  bool bf16 = false;  ///< fast bfloat16 products
  bool fp16 = false;  ///< fast half-precision products
  /// Products of bytes that add up without saturating in between.
  bool int8 = false;
};

CpuFeatures processor_features();
/// As a part of a device's name: "avx512_vnni".
std::string_view instruction_set();
/// Its name and version: timings of one are none of another.
std::string product_library();

}  // namespace opwright
