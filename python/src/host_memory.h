#pragma once

#include <vector>

#include "base/blob.h"
#include "bindings.h"

namespace opwright::python {

/// The bytes of an engine or a cache. They stay in pieces, so that writing a file copies nothing.
/// They are joined when a program asks for the buffer.
struct HostMemory {
  std::vector<Blob> pieces;
  size_t size() const;
  /// All bytes in one piece, 64-byte aligned.
  const Blob& joined();
};

void bind_host_memory(nb::module_& m);

}  // namespace opwright::python
