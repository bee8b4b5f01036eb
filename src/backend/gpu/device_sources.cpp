#include "backend/gpu/device_sources.h"

#include <algorithm>

namespace opwright::gpu {

std::vector<DeviceSource> included_sources(std::string_view source) {
  std::vector<DeviceSource> found;
  const auto add = [&](std::string_view text) {
    for (const DeviceSource& each : device_sources())
      if (text.find(include(each.name)) != std::string_view::npos &&
          std::ranges::find(found, each.name, &DeviceSource::name) == found.end())
        found.push_back(each);
  };
  add(source);
  for (size_t i = 0; i < found.size(); ++i) add(found[i].text);
  return found;
}

}  // namespace opwright::gpu
