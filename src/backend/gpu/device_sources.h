#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace opwright::gpu {

/// A header of src/backend/gpu/device, which kernels include and the build embeds. Both strings end
/// with 0, as compilers need them.
struct DeviceSource {
  const char *name, *text;
};
/// All headers; the build writes this function.
std::span<const DeviceSource> device_sources();

/// The headers that `source` includes, directly or through other headers.
std::vector<DeviceSource> included_sources(std::string_view source);

/// The line that includes a header of that name.
inline std::string include(std::string_view name) {
  return "#include \"" + std::string(name) + "\"\n";
}

}  // namespace opwright::gpu
