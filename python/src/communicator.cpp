#include "communicator.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/rank_sockets.h"
#include "base/error.h"
#include "bindings.h"
#include "reporting.h"

namespace opwright::python {

namespace {

/// The GPU's library of collectives may lie in a package of NVIDIA's.
void publish_library_folders() {
  nb::module_::import_("opwright._devices").attr("publish_library_folders")();
}

}  // namespace

void* communicator_address(nb::handle communicator) {
  if (communicator.is_none()) return nullptr;
  Communicator* own = nullptr;
  if (nb::try_cast(communicator, own)) return own;
  publish_library_folders();
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
  nb::class_<Communicator>(
      m, "Communicator",
      "Processes, called ranks, that exchange tensors: on the CPU through shared memory, on GPUs "
      "with NCCL. Each of them makes one of the same name, with a rank of its own from 0 on, and "
      "gives it to its execution contexts. Making one waits until all have come. Ranks of several "
      "hosts meet at `address`, where rank 0 listens, a numeric one with a port such as "
      "\"10.0.0.1:29500\"; they show each other the `token`, 16 to 64 characters that nobody else "
      "knows, and on the CPU exchange tensors over TCP. Nothing of it is encrypted. "
      "`device` is \"cpu\" or, with a GPU for each rank, \"cuda\" (the thread's current one) or "
      "\"cuda:1\". A rank whose process ends ends the communicator: runs on all ranks raise Error, "
      "which says why. On the CPU, so does one that is missing for `timeout` seconds or runs "
      "another layer than the others. One thread at a time runs with it.")
      .def(nb::new_([](std::string name, int rank, int num_ranks, double timeout,
                       const std::string& device, const std::string& address,
                       const std::string& token) {
             const DeviceId id = parse_device(device, "Communicator: the device");
             if (type_of(id) != DeviceType::kCPU) publish_library_folders();
             const std::optional<MeetingPlace> place =
                 meeting_place(address.c_str(), token.c_str());
             nb::gil_scoped_release release;
             return Communicator::join(std::move(name), rank, num_ranks, timeout, id,
                                       place ? &*place : nullptr);
           }),
           nb::arg("name"), nb::arg("rank"), nb::arg("num_ranks"), nb::arg("timeout") = 60.0,
           nb::arg("device") = "cpu", nb::arg("address") = "", nb::arg("token") = "")
      .def_prop_ro("name", &Communicator::name, "The name by which the ranks find each other.")
      .def_prop_ro("rank", &Communicator::rank, "This process's rank.")
      .def_prop_ro("num_ranks", &Communicator::ranks, "How many ranks there are.")
      .def_prop_ro("timeout", &Communicator::timeout,
                   "Seconds after which a rank gives up waiting for another.")
      .def_prop_ro(
          "device",
          [](const Communicator& self) {
            const Device& device = self.device();
            return str(DeviceId{std::string(device.backend().name()),
                                device.is_host() ? -1 : device.ordinal()});
          },
          "The device of the ranks' engines: \"cpu\", or this rank's GPU, \"cuda:1\".")
      .def(
          "check", &Communicator::require_well,
          "Raises Error, which says why, if the communicator has ended. A program that waits for a "
          "stream itself calls it afterwards: work that waited for a rank ends without a result.");
}

}  // namespace opwright::python
