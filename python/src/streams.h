#pragma once

#include "bindings.h"
#include "plan/stream.h"

namespace opwright::python {

/// Reads from an IStreamReader or IStreamReaderV2, which must live as long.
ReadBytes reader(nb::handle stream);
/// Writes to an IStreamWriter.
WriteBytes writer(nb::handle stream);

}  // namespace opwright::python
