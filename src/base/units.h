#pragma once

#include <cstdint>
#include <string>

namespace opwright {

/// A time for people, in the unit that suits it and with three digits: "60 ns", "1.25 us",
/// "12.5 ms", "140 s". "-" unless it is more than 0, which is where nothing was timed; "impossible"
/// for infinity.
std::string time_text(double milliseconds);

/// "512 B", "1.5 GiB".
std::string bytes_text(uint64_t bytes);

}  // namespace opwright
