#include "backend/gpu/device_sources.h"

#include <algorithm>

namespace opwright::gpu {

std::vector<DeviceSource> included_sources(std::string_view source) {
  constexpr std::string_view kInclude = "#include \"";
  std::vector<DeviceSource> found;
  const auto add = [&](std::string_view text) {
    for (size_t at = text.find(kInclude); at != std::string_view::npos;
         at = text.find(kInclude, at)) {
      at += kInclude.size();
      const std::string_view name = text.substr(at, text.find('"', at) - at);
      const auto is_it = [&](const DeviceSource& each) { return each.name == name; };
      const auto known = std::ranges::find_if(device_sources(), is_it);
      if (known != device_sources().end() && std::ranges::none_of(found, is_it))
        found.push_back(*known);
    }
  };
  add(source);
  for (size_t i = 0; i < found.size(); ++i) add(found[i].text);
  return found;
}

}  // namespace opwright::gpu
