#pragma once

#include "bindings.h"
#include "plugin/kernel/kernel_communicator.h"

namespace opwright::python {

/// opwright.plugin.Comm. It does not keep a Communicator of Opwright's alive.
struct Comm {
  explicit Comm(const RunCommunicator& found);
  bool operator==(const Comm& other) const;

  int rank, ranks;
  std::string name;
  uintptr_t address;
  std::weak_ptr<Communicator> given;
  std::weak_ptr<KernelCommunicator> asked;
};

/// opwright.plugin.PeerMemory. Addresses are numbers.
struct PeerMemory {
  int rank, ranks;
  size_t size;
  nb::tuple pointers;
  uintptr_t table, counters, stop;
};

void bind_plugin_communicator(nb::module_& m);

}  // namespace opwright::python
