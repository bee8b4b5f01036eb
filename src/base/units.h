#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace opwright {

/// How numbers from the previous row's `below` up to `below` are shown: times `scale`, rounded half
/// up to `digits` digits after the point, followed by `unit`.
struct UnitRow {
  double below;
  double scale;
  int digits;
  const char* unit;
};

/// Rows for milliseconds. `time_text` and the page of `opwright view` show times by them.
std::span<const UnitRow> time_units();

/// Rows for bytes. `bytes_text` and the page show bytes by them.
std::span<const UnitRow> byte_units();

/// A time for people, in a suitable unit with three digits: "60 ns", "1.25 us", "12.5 ms", "140 s".
/// "-" unless it is more than 0, as when nothing was timed. "impossible" for infinity.
std::string time_text(double milliseconds);

/// "512 B", "1.5 GiB".
std::string bytes_text(uint64_t bytes);

/// "1 layer", "2 layers".
std::string counted(size_t count, std::string_view what);

}  // namespace opwright
