#pragma once

#include "bindings.h"
#include "dims_exprs.h"
#include "opwright/plugin_quick.h"

namespace opwright::python {

/// The Python objects for a kernel's launch parameters and extra arguments while get_launch_params
/// runs.
class LaunchRefs {
 public:
  LaunchRefs(IKernelLaunchParams& launch_params, ISymExprs& arguments);
  /// After the destructor, using the objects is an error.
  ~LaunchRefs();
  LaunchRefs(const LaunchRefs&) = delete;
  LaunchRefs& operator=(const LaunchRefs&) = delete;

  const nb::object& launch_params() const { return launch_params_; }
  const nb::object& arguments() const { return arguments_; }

 private:
  nb::object launch_params_, arguments_;
};

/// The C++ object behind such a Python object. Throws Error after the call.
IKernelLaunchParams& launch_params_of(nb::handle object);
ISymExprs& sym_exprs_of(nb::handle object);

void bind_quick_launch(nb::module_& m);

}  // namespace opwright::python
