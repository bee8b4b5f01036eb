#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright::gpu {

/// A line of a table whose places are the numbers of tactics that plans and timing caches have. It
/// says its own, so that nobody moves one without being told by are_numbered().
template <class Entry>
struct Numbered {
  int64_t number;
  Entry entry;
};

/// Whether the lines have the numbers from `first` on.
template <class Entry, size_t count>
consteval bool are_numbered(const Numbered<Entry> (&table)[count], int64_t first = 0) {
  for (const Numbered<Entry>& line : table)
    if (line.number != first++) return false;
  return true;
}

/// A tile's number, and in how many parts several blocks compute each tile, as the one number of a
/// tactic.
struct TileInParts {
  static constexpr int64_t kUnit = 100;  ///< tiles' numbers are less
  int64_t tile = 0, parts = 1;

  constexpr int64_t tactic() const { return parts > 1 ? parts * kUnit + tile : tile; }
  static constexpr TileInParts of(int64_t tactic) {
    return {tactic % kUnit, tactic < kUnit ? 1 : tactic / kUnit};
  }
};

}  // namespace opwright::gpu
