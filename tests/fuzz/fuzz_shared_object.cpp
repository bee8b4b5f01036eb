// Shared objects as engine files bring them: this program's own file, which is one, changed and cut
// short.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/file.h"
#include "plugin/registry/shared_object.h"

namespace {

constexpr size_t kHeaders = 1024;  // of the file, and of its segments

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::vector<uint8_t> object = [] {
    const opwright::Blob file = opwright::read_file("/proc/self/exe");
    return std::vector<uint8_t>(file.as<uint8_t>(), file.as<uint8_t>() + file.size());
  }();
  if (size < 4) return 0;
  // Three bytes say where it ends, or that it is whole; each four more change a byte.
  const size_t end = data[0] % 2 == 0 ? object.size()
                                      : (size_t{data[1]} << 16 | size_t{data[2]} << 8 | data[3]) %
                                            (object.size() + 1);
  std::vector<std::pair<size_t, uint8_t>> changed;
  for (size_t i = 4; i + 4 <= size; i += 4) {
    const size_t place = size_t{data[i] & 127u} << 16 | size_t{data[i + 1]} << 8 | data[i + 2];
    const size_t at = place % (data[i] < 128 ? kHeaders : object.size());
    changed.emplace_back(at, std::exchange(object[at], data[i + 3]));
  }
  // In memory of its own size, so that a read beyond it is seen.
  const std::vector<uint8_t> cut(
      object.begin(), object.begin() + static_cast<std::ptrdiff_t>(std::min(end, size_t{1} << 16)));
  // Each call looks for a fault first.
  opwright::needed_libraries(opwright::Blob(nullptr, cut.data(), cut.size()));
  opwright::needed_libraries(opwright::Blob(nullptr, object.data(), end));
  for (auto change = changed.rbegin(); change != changed.rend(); ++change)
    object[change->first] = change->second;
  return 0;
}
