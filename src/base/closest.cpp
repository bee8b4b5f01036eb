#include "base/closest.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"

namespace opwright {
namespace {

/// Longer names are not compared: the time grows with the product of their lengths.
constexpr size_t kMaxCompared = 128;

char plain(char c) {
  return c == '-' || c == '.' ? '_'
                              : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

/// Letters inserted, deleted, replaced or exchanged with their neighbour (the optimal string
/// alignment distance).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& here = rows[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      const bool is_equal = plain(a[i - 1]) == plain(b[j - 1]);
      here = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + !is_equal});
      if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
          plain(a[i - 2]) == plain(b[j - 1]))
        here = std::min(here, rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view given, std::span<const std::string> known) {
  if (given.size() > kMaxCompared) return {};
  const std::string* closest = nullptr;
  size_t least = std::max<size_t>(1, given.size() / 3) + 1;
  for (const std::string& name : known) {
    if (name.size() > kMaxCompared || name.empty()) continue;
    const size_t d = distance(given, name);
    // What has no letter in common is no slip.
    if (d < least && d < std::max(given.size(), name.size())) {
      least = d;
      closest = &name;
    }
  }
  return closest == nullptr ? "" : str("; did you mean '", *closest, "'?");
}

}  // namespace opwright
