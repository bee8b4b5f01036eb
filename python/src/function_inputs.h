#pragma once

#include <vector>

#include "bindings.h"
#include "plugin/model/function_plugin.h"

namespace opwright::python {

/// The inputs of a plugin as its functions get them: descriptors, and None for absent inputs.
struct DescribedInputs {
  std::vector<nb::object> objects;
  std::vector<int64_t> opt;       ///< typical extents by symbol; only for ports
  std::vector<int> shape_inputs;  ///< inputs whose elements are symbols, as in KernelCode
};

/// Describes inputs for `register` while the network is defined. Throws Error for a shape input of
/// a wrong type or rank, or with unknown values.
DescribedInputs describe_inputs(const FunctionPlugin& definition, const InferContext& context);
/// Describes inputs with the types, formats and ranges of ports. Extents that vary are the symbols
/// of KernelCode.
DescribedInputs describe_inputs(const FunctionPlugin& definition, std::span<const PortDesc> inputs);

}  // namespace opwright::python
