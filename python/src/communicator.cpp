#include "communicator.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "backend/host_communicator.h"
#include "bindings.h"
#include "reporting.h"

namespace opwright::python {

void* communicator_address(nb::handle communicator) {
  if (communicator.is_none()) return nullptr;
  HostCommunicator* own = nullptr;
  if (nb::try_cast(communicator, own)) return own;
  // The GPU's library of collectives may lie in a package of NVIDIA's.
  nb::module_::import_("opwright._devices").attr("publish_library_folders")();
  if (PyCapsule_CheckExact(communicator.ptr())) {
    void* const pointer =
        PyCapsule_GetPointer(communicator.ptr(), PyCapsule_GetName(communicator.ptr()));
    if (pointer == nullptr) throw nb::python_error();
    return pointer;
  }
  if (PyLong_Check(communicator.ptr())) {
    void* const pointer = PyLong_AsVoidPtr(communicator.ptr());
    if (pointer == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    return pointer;
  }
  throw nb::type_error(
      "set_communicator takes an opwright.Communicator, a capsule or an address of an ncclComm_t, "
      "or None");
}

void bind_communicator(nb::module_& m) {
  nb::class_<HostCommunicator>(
      m, "Communicator",
      "Processes of one host, called ranks, that exchange tensors on the CPU through shared "
      "memory. "
      "Each of them makes one of the same name, with a rank of its own from 0 on, and gives it to "
      "its execution contexts. Making one waits until all have come. A rank that is missing for "
      "`timeout` seconds, ends, or runs another layer than the others ends the communicator: runs "
      "on all ranks raise Error, which says why. One thread at a time runs with it.")
      .def(nb::new_([](std::string name, int rank, int num_ranks, double timeout) {
             nb::gil_scoped_release release;
             return HostCommunicator::join(std::move(name), rank, num_ranks, timeout);
           }),
           nb::arg("name"), nb::arg("rank"), nb::arg("num_ranks"), nb::arg("timeout") = 60.0)
      .def_prop_ro("name", &HostCommunicator::name, "The name by which the ranks find each other.")
      .def_prop_ro("rank", &HostCommunicator::rank, "This process's rank.")
      .def_prop_ro("num_ranks", &HostCommunicator::ranks, "How many ranks there are.")
      .def_prop_ro("timeout", &HostCommunicator::timeout,
                   "Seconds after which a rank gives up waiting for another.");
}

}  // namespace opwright::python
