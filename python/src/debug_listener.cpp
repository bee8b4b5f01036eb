// IDebugListener.

#include "debug_listener.h"

#include <nanobind/trampoline.h>

namespace opwright::python {
namespace {

/// Called by name; the class only says what to define.
struct DebugListenerBase {
  virtual ~DebugListenerBase() = default;
};
struct PyDebugListenerBase : DebugListenerBase {
  NB_TRAMPOLINE(DebugListenerBase);
};

constexpr const char* kMethod = "process_debug_tensor";

}  // namespace

DebugListener to_debug_listener(nb::handle listener) {
  if (listener.is_none()) return {};
  if (!nb::hasattr(listener, kMethod))
    throw nb::type_error("a debug listener must define process_debug_tensor(addr, location, type, "
                         "shape, name, stream)");
  return [listener = nb::borrow(listener)](const DebugView& view) {
    nb::gil_scoped_acquire gil;
    const nb::object result = listener.attr(kMethod)(
        reinterpret_cast<uintptr_t>(view.address), view.location, view.type, view.shape, view.name,
        reinterpret_cast<uintptr_t>(view.queue));
    if (result.is(nb::handle(Py_False))) fail_refused(view);
  };
}

void bind_debug_listener(nb::module_& m) {
  nb::class_<DebugListenerBase, PyDebugListenerBase>(
      m, "IDebugListener",
      "Sees debug tensors, which INetworkDefinition.mark_debug marked, as soon as a run has "
      "computed them. Derive from it and define process_debug_tensor(addr, location, type, shape, "
      "name, stream): addr is the address of the dense row-major elements, valid during the call "
      "(0 where there are none), on the host or on the GPU as location says, there in the order of "
      "stream; type is the network's, shape this run's. What it raises ends the run and passes to "
      "the caller, as False does with an Error.")
      .def(nb::init<>());
}

}  // namespace opwright::python
