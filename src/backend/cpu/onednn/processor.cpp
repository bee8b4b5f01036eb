#include "backend/cpu/processor.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"

namespace opwright {
namespace {

bool has(dnnl::cpu_isa wanted) {
  static const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (effective & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

}  // namespace

CpuFeatures processor_features() {
  using dnnl::cpu_isa;
  CpuFeatures features;
  features.avx512 = has(cpu_isa::avx512_core);
  features.bf16 = has(cpu_isa::avx512_core_bf16);
  features.fp16 = has(cpu_isa::avx512_core_fp16);
  features.int8 = has(cpu_isa::avx512_core_vnni) || has(cpu_isa::avx2_vnni);
  return features;
}

std::string_view instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse4.1";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx2_vnni_2:
      return "avx2_vnni_2";
    case dnnl::cpu_isa::avx512_core:
      return "avx512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_bf16";
    case dnnl::cpu_isa::avx512_core_fp16:
      return "avx512_fp16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_amx";
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      return "avx512_amx_fp16";
    default:
      return "baseline";
  }
}

std::string product_library() {
  const dnnl_version_t* version = dnnl_version();
  return str("oneDNN ", version->major, ".", version->minor, ".", version->patch);
}

}  // namespace opwright
