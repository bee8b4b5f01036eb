#pragma once

#include <vector>

#include "bindings.h"
#include "plugin/model/function_plugin.h"

namespace opwright::python {

/// The inputs of a plugin as its functions get them: descriptors, None where one is absent.
struct DescribedInputs {
  std::vector<nb::object> objects;
  std::vector<int64_t> opt;       ///< of the extents, by symbol; only for ports
  std::vector<int> shape_inputs;  ///< those whose elements are symbols, as KernelCode has them
};

/// As `register` gets them while the network is defined. Throws Error for a shape input of a wrong
/// type or rank, or whose values nothing tells.
DescribedInputs describe_inputs(const FunctionPlugin& definition, const InferContext& context);
/// With the types, formats and ranges of ports; extents that vary are the symbols of KernelCode.
DescribedInputs describe_inputs(const FunctionPlugin& definition, std::span<const PortDesc> inputs);

}  // namespace opwright::python
