#pragma once

#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/dnnl_memory.h"

namespace opwright {

/// The type and the formats that a primitive works on. Where they differ from the kernel's ports,
/// the kernel reorders its input and output.
struct Variant {
  DataType type = DataType::kFLOAT;
  TensorFormat input = TensorFormat::kLINEAR;
  TensorFormat output = TensorFormat::kLINEAR;
};

/// A primitive for a variant.
template <class Desc>
struct Selection {
  Variant variant;
  Desc desc;
  std::string name;  ///< the implementation's name, with what was reordered: "brgconv:avx2 via HWC"
  bool fast = false;
};

/// Variants for ports of that type and formats, the best first: with the ports' formats, then
/// channels last instead of LINEAR. Then both in FP32, where the processor does not compute in the
/// type.
std::vector<Variant> variants_for(const PortType& input, const PortType& output);

/// "" or " via HWC" or " in FP32".
std::string variant_suffix(const Variant& variant, const PortType& input, const PortType& output);

template <class Desc>
Desc clone(const Desc& desc) {
  dnnl_primitive_desc_t copy = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_clone(&copy, desc.get()),
                          "could not copy a primitive descriptor");
  Desc result;
  result.reset(copy);
  return result;
}

/// Calls visit(desc, name) for each implementation until it returns false. The descriptor changes
/// between calls, so clone() one that is kept.
template <class Desc, class Visit>
void for_each_implementation(Desc desc, Visit&& visit) {
  if (!desc) return;
  do {
    if (!visit(desc, std::string(desc.impl_info_str()))) return;
  } while (desc.next_impl());
}

/// Selects the implementation called `wanted`, else the first fast one, else any. `make(variant)`
/// makes a primitive descriptor, empty when there is none.
template <class Desc>
std::optional<Selection<Desc>> select_implementation(
    const PortType& input, const PortType& output, std::string_view wanted,
    bool (*is_slow)(std::string_view), const std::function<Desc(const Variant&)>& make) {
  std::optional<Selection<Desc>> exact, fast, any;
  for (const Variant& variant : variants_for(input, output)) {
    const std::string suffix = variant_suffix(variant, input, output);
    for_each_implementation(make(variant), [&](const Desc& desc, const std::string& name) {
      const bool slow = is_slow(name);
      std::optional<Selection<Desc>>& slot = name + suffix == wanted ? exact : slow ? any : fast;
      if (!slot) slot = {variant, clone(desc), name + suffix, !slow};
      return !exact && !(fast && wanted.empty());
    });
    if (exact) break;
    if (fast && wanted.empty()) break;
  }
  return exact ? exact : fast ? fast : any;
}

}  // namespace opwright
