#include "plugin_communicator.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>

#include "base/error.h"

namespace opwright::python {

Comm::Comm(const RunCommunicator& found)
    : rank(found.use.rank),
      ranks(found.use.ranks),
      name(found.name()),
      address(reinterpret_cast<uintptr_t>(found.use.handle)),
      given(found.given),
      asked(found.asked) {}

bool Comm::operator==(const Comm& other) const {
  return rank == other.rank && ranks == other.ranks && address == other.address &&
         !given.owner_before(other.given) && !other.given.owner_before(given);
}

namespace {

/// None where there is none. Waits without the interpreter's lock.
std::optional<PeerMemory> peer_memory(const Comm& self, const std::string& name, int64_t size) {
  const std::shared_ptr<KernelCommunicator> asked = self.asked.lock();
  require(asked != nullptr, "Comm.peer_memory: the plugin's execution context is gone");
  require(size > 0, "Comm.peer_memory: size is ", size, "; expected bytes of a buffer, 1 or more");
  PeerBuffers* buffers = nullptr;
  {
    const nb::gil_scoped_release release;
    buffers = asked->peer_buffers(name, static_cast<size_t>(size));
  }
  if (buffers == nullptr) return std::nullopt;
  nb::list pointers;
  for (void* const each : buffers->buffers())
    pointers.append(nb::int_(reinterpret_cast<uintptr_t>(each)));
  const PeerBuffers::Table table = buffers->table();
  return PeerMemory{self.rank,
                    self.ranks,
                    buffers->bytes(),
                    nb::tuple(pointers),
                    reinterpret_cast<uintptr_t>(table.buffers),
                    reinterpret_cast<uintptr_t>(table.counters),
                    reinterpret_cast<uintptr_t>(table.stop)};
}

void bind_peer_memory(nb::module_& m) {
  nb::class_<PeerMemory>(
      m, "PeerMemory",
      "A buffer in each rank's GPU, which kernels on the GPUs of all ranks read and write. "
      "`Comm.peer_memory` makes it. Addresses are numbers, for kernels of this rank.")
      .def_ro("rank", &PeerMemory::rank, "This process's rank.")
      .def_ro("num_ranks", &PeerMemory::ranks, "How many ranks there are.")
      .def_ro("size", &PeerMemory::size, "Bytes of each buffer. They are 0 at first.")
      .def_ro("pointers", &PeerMemory::pointers,
              nb::for_getter(nb::sig("def pointers(self) -> tuple[int, ...]")),
              "The addresses of the ranks' buffers on this GPU, a tuple by rank, each a multiple "
              "of 256. `pointers[rank]` is in this GPU's own memory.")
      .def_ro("table", &PeerMemory::table,
              "The address of the same addresses in this GPU's memory: `num_ranks` numbers of 64 "
              "bits, first this rank's, then the next one's, and so on around.")
      .def_ro("counters", &PeerMemory::counters,
              "The address of 1024 counters of 32 bits in this GPU's memory, 0 at first. Kernels "
              "count calls in them, since a CUDA graph repeats a kernel with the same arguments.")
      .def_ro("stop", &PeerMemory::stop,
              "The address of a word of 64 bits in the host's memory. It becomes 1 when the "
              "communicator ends: a kernel that waits for other ranks reads it at times, and "
              "ends.")
      .def("__repr__", [](const PeerMemory& self) {
        return str("<PeerMemory: ", self.size, " bytes, rank ", self.rank, " of ", self.ranks, '>');
      });
}

}  // namespace

void bind_plugin_communicator(nb::module_& m) {
  bind_peer_memory(m);
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
      .def("peer_memory", &peer_memory, nb::arg("name"), nb::arg("size"),
           "The peer memory of that name, of `size` bytes on each rank's GPU. It is the "
           "plugin's own: nothing of Opwright uses it. It lives as long as the communicator, and "
           "takes a multiple of 2 MB of each GPU. Ask in `enqueue` or `impl`, before the kernel "
           "is launched on the run's stream. The kernel then runs after the last one that "
           "another context gave the memory of the same name.\n\n"
           "All ranks ask for the same names and sizes in the same order. The first time waits "
           "for all of them, so run once before you capture a CUDA graph; later times return at "
           "once.\n\n"
           ":param name: 1 to 119 characters, the same on all ranks. Layers that run one after "
           "another may share a name.\n"
           ":param size: bytes of each rank's buffer, the same on all ranks and each time.\n"
           ":returns: None on all ranks where there is no such memory: on the CPU, for one rank "
           "and for more than 16, for an `ncclComm_t` of the program's own, where a GPU cannot "
           "reach another's memory, and with `NCCL_P2P_DISABLE=1`. Use NCCL then (`address`).\n"
           ":raises Error: if ranks ask for different names or sizes, if memory is short on one "
           "of them, if a rank ends or does not ask within the communicator's time limit, and "
           "outside of `enqueue` and `impl`.")
      .def("__repr__", [](const Comm& self) {
        return str("<Comm: rank ", self.rank, " of ", self.ranks,
                   self.name.empty() ? "" : str(", '", self.name, "'"), ">");
      });
}

}  // namespace opwright::python
