#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace opwright {

/// Numbers below `below`, and not below that of the row before, are shown times `scale`, rounded
/// half up to `digits` digits behind the point, with `unit` behind.
struct UnitRow {
  double below;
  double scale;
  int digits;
  const char* unit;
};

/// For milliseconds. `time_text` and the page of `opwright view` show times by it.
std::span<const UnitRow> time_units();

/// For bytes. `bytes_text` and the page show them by it.
std::span<const UnitRow> byte_units();

/// A time for people, in the unit that suits it and with three digits: "60 ns", "1.25 us",
/// "12.5 ms", "140 s". "-" unless it is more than 0, which is where nothing was timed; "impossible"
/// for infinity.
std::string time_text(double milliseconds);

/// "512 B", "1.5 GiB".
std::string bytes_text(uint64_t bytes);

}  // namespace opwright
