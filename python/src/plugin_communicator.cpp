#include "plugin_communicator.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "base/error.h"

namespace opwright::python {

Comm::Comm(const RunCommunicator& found)
    : rank(found.use.rank),
      ranks(found.use.ranks),
      name(found.name()),
      address(reinterpret_cast<uintptr_t>(found.use.handle)),
      given(found.given) {}

bool Comm::operator==(const Comm& other) const {
  return rank == other.rank && ranks == other.ranks && address == other.address &&
         !given.owner_before(other.given) && !other.given.owner_before(given);
}

void bind_plugin_communicator(nb::module_& m) {
  nb::class_<Comm>(
      m, "Comm",
      "The ranks of a plugin's execution context: what `set_communicator` was given when the run "
      "began. An `impl` gets it for a parameter annotated with this class, a class plugin from "
      "`IPluginResourceContext.communicator`.")
      .def_ro("rank", &Comm::rank, "This process's rank, from 0 on.")
      .def_ro("num_ranks", &Comm::ranks, "How many ranks there are.")
      .def_ro("name", &Comm::name,
              "The Communicator's name, the same on all ranks; empty for an `ncclComm_t` of the "
              "program's own.")
      .def_ro("address", &Comm::address,
              "On a GPU the address of the `ncclComm_t`, for calls of NCCL that end before "
              "`enqueue` or `impl` returns; 0 on the CPU.")
      .def_prop_ro(
          "communicator",
          [](const Comm& self) -> nb::object {
            const std::shared_ptr<Communicator> given = self.given.lock();
            return given != nullptr ? nb::cast(given) : nb::none();
          },
          "The opwright.Communicator that the context was given; None for an `ncclComm_t` of the "
          "program's own.")
      .def("__repr__", [](const Comm& self) {
        return str("<Comm: rank ", self.rank, " of ", self.ranks,
                   self.name.empty() ? "" : str(", '", self.name, "'"), ">");
      });
}

}  // namespace opwright::python
