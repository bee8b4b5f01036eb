#pragma once

#include "bindings.h"

namespace opwright::python {

/// A call of an engine whose arguments were taken, for the thread that runs it later. Made, run and
/// dropped under the interpreter's lock.
class PreparedCall {
 public:
  PreparedCall() = default;
  virtual ~PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;
  /// What the call returns, once it is computed. Throws what the call raises.
  virtual nb::object run() = 0;
};

}  // namespace opwright::python
