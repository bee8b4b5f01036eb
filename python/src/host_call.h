#pragma once

#include <vector>

#include "host_arrays.h"
#include "prepared_call.h"

namespace opwright {
class CallShapes;
class ContextPool;
}  // namespace opwright

namespace opwright::python {

/// A call of an engine that runs on the CPU.
class HostCall final : public PreparedCall {
 public:
  /// Throws Error for arguments of wrong types, or too many or too few arguments. The referenced
  /// objects must outlive the call. With `updates_arguments` an aliased output is the array that
  /// was given for its input, which must be dense and writable.
  HostCall(const Engine& engine, const HostArrays& arrays, ContextPool& contexts,
           bool updates_arguments, const nb::args& args, const nb::kwargs& kwargs);
  /// Throws Error for arguments that a run would refuse. Types are checked already, shapes are
  /// checked here.
  void check(CallShapes& shapes) const;
  nb::object run() override;

 private:
  const Engine& engine_;
  const HostArrays& arrays_;
  ContextPool& contexts_;
  const bool updates_arguments_;
  std::vector<Argument> arguments_;
  std::vector<nb::object> given_;
  ArrayKind kind_ = ArrayKind::kNumpy;
};

/// Checks the shapes and addresses of the arguments. Throws Error as CallShapes::check() does.
void check_arguments(CallShapes& shapes, const std::vector<Argument>& arguments);

}  // namespace opwright::python
