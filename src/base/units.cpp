#include "base/units.h"

#include <cmath>
#include <cstdio>
#include <iterator>

namespace opwright {

std::string time_text(double milliseconds) {
  if (!(milliseconds > 0)) return "-";
  if (std::isinf(milliseconds)) return "impossible";
  constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  double value = milliseconds * 1e6;
  size_t unit = 0;
  // What rounds to 1000 is 1 of the next unit.
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  if (unit == 0)  // No clock tells parts of a nanosecond; a mean may have them.
    std::snprintf(text, sizeof text, value < 1 ? "%.1g ns" : "%.0f ns", value);
  else
    std::snprintf(text, sizeof text, "%.*f %s",
                  value < 9.995   ? 2
                  : value < 99.95 ? 1
                                  : 0,
                  value, kUnits[unit]);
  return text;
}

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace opwright
