#pragma once

#include <vector>

#include "host_arrays.h"
#include "plugin_tensor.h"

namespace opwright::python {

/// The arrays of a call, for plugins that keep their tensors. Outputs may be missing: on a GPU,
/// host arrays for outputs are made after the run.
class CallMemory final : public RunMemory {
 public:
  CallMemory(const std::vector<Argument>& arguments, const std::vector<nb::object>& outputs)
      : arguments_(arguments), outputs_(outputs) {}
  nb::object objects() const override {
    nb::list all;
    for (const Argument& argument : arguments_) all.append(argument.holder);
    for (const nb::object& output : outputs_)
      if (output.is_valid()) all.append(output);
    return nb::tuple(all);
  }

 private:
  const std::vector<Argument>& arguments_;
  const std::vector<nb::object>& outputs_;
};

}  // namespace opwright::python
