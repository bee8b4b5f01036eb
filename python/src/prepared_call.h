#pragma once

#include "bindings.h"

namespace opwright::python {

/// A call of an engine with its arguments taken, for the thread that runs it later. Made, run and
/// dropped under the interpreter's lock.
class PreparedCall {
 public:
  PreparedCall() = default;
  virtual ~PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;
  /// Runs the call and returns its result. Throws the exceptions that the call raises.
  virtual nb::object run() = 0;
};

}  // namespace opwright::python
