#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright::gpu {

/// A line of a table whose index is the number of a tactic in plans and timing caches. The line
/// states its number, so that are_numbered() notices when a line is moved.
template <class Entry>
struct Numbered {
  int64_t number;
  Entry entry;
};

/// Whether the lines have consecutive numbers from `first` on.
template <class Entry, size_t count>
consteval bool are_numbered(const Numbered<Entry> (&table)[count], int64_t first = 0) {
  for (const Numbered<Entry>& line : table)
    if (line.number != first++) return false;
  return true;
}

/// A tile's number and the number of parts that a tile's computation is divided into, as one tactic
/// number.
struct TileInParts {
  static constexpr int64_t kUnit = 100;  ///< tiles' numbers are below this
  int64_t tile = 0, parts = 1;

  constexpr int64_t tactic() const { return parts > 1 ? parts * kUnit + tile : tile; }
  static constexpr TileInParts of(int64_t tactic) {
    return {tactic % kUnit, tactic < kUnit ? 1 : tactic / kUnit};
  }
};

}  // namespace opwright::gpu
