#pragma once

#include "bindings.h"
#include "plan/file_stream.h"

namespace opwright::python {

/// Reads from an IStreamReader or IStreamReaderV2, which must outlive the function.
ReadBytes reader(nb::handle stream);
/// Writes to an IStreamWriter.
WriteBytes writer(nb::handle stream);

}  // namespace opwright::python
