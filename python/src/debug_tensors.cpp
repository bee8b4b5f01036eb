// Debug tensors: IDebugListener, and the methods of networks and contexts for them.

#include "debug_tensors.h"

#include <nanobind/trampoline.h>

#include "execution_context.h"
#include "network/network.h"

namespace opwright::python {
namespace {

/// Base class of listeners. Its method is called by name; the class only documents what to define.
struct DebugListenerBase {
  virtual ~DebugListenerBase() = default;
};
struct PyDebugListenerBase : DebugListenerBase {
  NB_TRAMPOLINE(DebugListenerBase);
};

constexpr const char* kMethod = "process_debug_tensor";

}  // namespace

void fail_undefined(nb::handle self, const char* method) {
  const auto type = nb::cast<std::string>(self.type().attr("__name__"));
  PyErr_SetString(PyExc_NotImplementedError, str("class ", type, " must define ", method).c_str());
  nb::raise_python_error();
}

DebugListener to_debug_listener(nb::handle listener) {
  if (listener.is_none()) return {};
  const nb::object undefined = nb::type<DebugListenerBase>().attr(kMethod);
  if (!nb::hasattr(listener, kMethod) ||
      nb::getattr(listener.type(), kMethod, nb::none()).is(undefined))
    throw nb::type_error(
        "a debug listener must define process_debug_tensor(addr, location, type, "
        "shape, name, stream)");
  return [listener](const DebugView& view) {  // the context holds the listener
    nb::gil_scoped_acquire gil;
    const nb::object result =
        listener.attr(kMethod)(reinterpret_cast<uintptr_t>(view.address), view.location, view.type,
                               view.shape, view.name, reinterpret_cast<uintptr_t>(view.queue));
    return !result.is(nb::handle(Py_False));
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
      .def(nb::init<>())
      .def(
          kMethod,
          [](nb::handle self, nb::args) {
            fail_undefined(self,
                           "process_debug_tensor(self, addr, location, type, shape, name, "
                           "stream)");
          },
          nb::sig("def process_debug_tensor(self, addr: int, location: TensorLocation, type: "
                  "DataType, shape: Dims, name: str, stream: int) -> bool"),
          "Sees a tensor; False ends the run. Its class defines it.");
}

void bind_debug_marks(ReportingClass<Network>& c) {
  c.def(
       "mark_debug",
       [](Network& self, Tensor& tensor) {
         self.mark_debug(tensor);
         return true;
       },
       nb::arg("tensor"),
       "Lets the tensor's values be seen, by its name, while an engine of the network runs "
       "(IExecutionContext.set_debug_listener). It is computed as it stands in the network: "
       "layers are not fused across it.")
      .def(
          "unmark_debug",
          [](Network& self, Tensor& tensor) {
            self.mark_debug(tensor, false);
            return true;
          },
          nb::arg("tensor"))
      .def("is_debug_tensor", &Network::is_debug, nb::arg("tensor"), "Whether it is marked.")
      .def(
          "mark_unfused_tensors_as_debug_tensors",
          [](Network& self) {
            self.set_unfused_debug(true);
            return true;
          },
          "Lets all tensors be seen that the engine writes as it is built, by the names that the "
          "inspector shows; what is fused away is not among them.")
      .def(
          "unmark_unfused_tensors_as_debug_tensors",
          [](Network& self) {
            self.set_unfused_debug(false);
            return true;
          },
          "Takes that back; what mark_debug marked stays marked.");
}

void bind_debugging(ReportingClass<ExecutionContext>& c) {
  c.def(
       "set_debug_listener",
       [](ExecutionContext& self, nb::object listener) {
         self.set_debug_listener(to_debug_listener(listener));
         self.debug_listener = std::move(listener);
         return true;
       },
       nb::arg("listener").none(),
       "The IDebugListener that sees debug tensors while the context runs; None for nobody. "
       "Runs with debug tensors are not replayed as CUDA graphs.")
      .def("get_debug_listener", [](const ExecutionContext& self) { return self.debug_listener; })
      .def("set_tensor_debug_state", done<ExecutionContext>(&ExecutionContext::set_debug_state),
           nb::arg("name"), nb::arg("flag"),
           "Whether the listener sees the tensor, which it does not at first.")
      .def(
          "get_debug_state",
          [](const ExecutionContext& self, const std::string& name) {
            return self.debug().state(name);
          },
          nb::arg("name"))
      .def("set_all_tensors_debug_state",
           done<ExecutionContext>(&ExecutionContext::set_all_debug_states), nb::arg("flag"),
           "The same for all debug tensors, those of unfused_tensors_debug_state among them.")
      .def_prop_rw(
          "unfused_tensors_debug_state",
          [](const ExecutionContext& self) { return self.debug().unfused(); },
          &ExecutionContext::set_unfused_debug_state,
          "Whether the listener sees all tensors that the engine writes, where "
          "INetworkDefinition.mark_unfused_tensors_as_debug_tensors was called, and all that are "
          "marked. False at first.")
      .def_prop_rw(
          "debug_sync", &ExecutionContext::debug_sync, &ExecutionContext::set_debug_sync,
          "Whether runs wait for each layer, so that an error of the GPU names the layer whose "
          "work failed. False at first.");
}

}  // namespace opwright::python
