// ITimingCache, TimingCacheKey, TimingCacheValue.

#include "config.h"

#include "compile/timing_cache.h"
#include "host_memory.h"

namespace opwright::python {
namespace {

/// Key of a time in the timing cache: a candidate of a layer, with shapes, types and formats.
struct TimingCacheKey {
  std::string text;
};

using TimingCacheValue = TimingCache::Entry;

}  // namespace

void bind_timing_cache(nb::module_& m) {
  nb::class_<TimingCacheKey>(m, "TimingCacheKey",
                             "What a timing cache has a time for: a candidate of a layer, with "
                             "shapes, types, formats and tactic.")
      .def_static(
          "parse", [](std::string text) { return TimingCacheKey{std::move(text)}; },
          nb::arg("text"), "The key that str() gave.")
      .def("__str__", [](const TimingCacheKey& self) { return self.text; })
      .def("__repr__",
           [](const TimingCacheKey& self) { return "<TimingCacheKey " + self.text + ">"; })
      .def("__eq__",
           [](const TimingCacheKey& self, nb::handle other) {
             return nb::isinstance<TimingCacheKey>(other) &&
                    nb::cast<TimingCacheKey&>(other).text == self.text;
           })
      .def("__hash__",
           [](const TimingCacheKey& self) { return std::hash<std::string>()(self.text); });
  nb::class_<TimingCacheValue>(m, "TimingCacheValue", "What a timing cache knows of a candidate.")
      .def(
          "__init__",
          [](TimingCacheValue* self, int64_t tactic, float milliseconds) {
            new (self) TimingCacheValue{tactic, milliseconds};
          },
          nb::arg("tactic_hash"), nb::arg("timing_msec"))
      .def_rw("tacticHash", &TimingCacheValue::tactic, "The number of the tactic.")
      .def_rw("timingMSec", &TimingCacheValue::milliseconds, "Its time in milliseconds.");
  nb::class_<TimingCache>(m, "ITimingCache",
                          "Measured times of kernels, for the device that they were measured on.")
      .def("serialize",
           [](const TimingCache& self) {
             const std::vector<std::byte> bytes = self.serialize();
             return HostMemory{{Blob::copy(bytes.data(), bytes.size())}};
           })
      .def(
          "combine",
          [](TimingCache& self, const TimingCache& other, bool ignore_mismatch) {
            self.combine(other, ignore_mismatch);
            return true;
          },
          nb::arg("input_cache"), nb::arg("ignore_mismatch"),
          "Adds the entries of the other cache; raises Error where it is of another device.")
      .def(
          "reset",
          [](TimingCache& self) {
            self.clear();
            return true;
          },
          "Forgets all entries.")
      .def("__len__", &TimingCache::size)
      // Scripts test whether a cache exists. TensorRT's has no length, so an empty one is true.
      .def("__bool__", [](const TimingCache&) { return true; })
      .def(
          "queryKeys",
          [](const TimingCache& self) {
            std::vector<TimingCacheKey> keys;
            for (std::string& key : self.keys()) keys.push_back({std::move(key)});
            return keys;
          },
          "All keys, each of one candidate of a layer, in order.")
      .def(
          "query",
          [](const TimingCache& self, const TimingCacheKey& key) { return self.query(key.text); },
          nb::arg("key"), "The tactic and the time of a key; None where the cache has none.")
      .def(
          "update",
          [](TimingCache& self, const TimingCacheKey& key, const TimingCacheValue& value) {
            return self.update(key.text, value);
          },
          nb::arg("key"), nb::arg("value"),
          "Sets the time of an entry, which later builds choose by, or removes it if the time is "
          "NaN. "
          "False where there is no such entry, the tactic is not that of the key, or the time is "
          "negative or infinite.")
      .def_static(
          "load",
          [](const std::string& path, const std::string& device_identity)
              -> std::shared_ptr<TimingCache> { return TimingCache::load(path, device_identity); },
          nb::arg("path"), nb::arg("device_identity") = "",
          "The times of a device in a file, or of its first one; None where it has none, is "
          "missing, "
          "empty or damaged.\n\n:raises Error: for what is no timing cache.")
      .def("save", &TimingCache::save, nb::arg("path"),
           "Adds this cache to the one in the file; times of other devices stay.\n\n"
           ":raises Error: for a file that is no timing cache, which is left as it is.")
      .def_prop_ro("device_identity", &TimingCache::device_identity);
}

}  // namespace opwright::python
