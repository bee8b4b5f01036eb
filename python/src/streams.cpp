#include "streams.h"

#include <cstring>

#include "base/error.h"

namespace opwright::python {

ReadBytes reader(nb::handle stream) {
  // Only IStreamReaderV2 can seek, and its reads get a CUDA stream.
  const bool is_v2 =
      nb::hasattr(stream, "seek") &&
      nb::isinstance(stream, nb::module_::import_("opwright").attr("IStreamReaderV2"));
  return [stream, is_v2](void* to, int64_t size) {
    const nb::gil_scoped_acquire gil;
    nb::object method = stream.attr("read");
    nb::object given = is_v2 ? method(size, 0) : method(size);
    if (given.is_none() || nb::isinstance<nb::int_>(given)) return int64_t{0};
    const Blob bytes = borrow_bytes(given);
    const auto count = static_cast<int64_t>(bytes.size());
    if (count > 0 && count <= size) std::memcpy(to, bytes.data(), bytes.size());
    return count;
  };
}

WriteBytes writer(nb::handle stream) {
  return [stream](const void* data, int64_t size) {
    const nb::gil_scoped_acquire gil;
    return nb::cast<int64_t>(
        stream.attr("write")(nb::bytes(static_cast<const char*>(data), static_cast<size_t>(size))));
  };
}

}  // namespace opwright::python
