#include "base/did_you_mean.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace opwright {
namespace {

constexpr size_t kLongest = 256;  // nobody typed a longer name

/// The name without case, hyphens and underscores, which people mix up.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '-' && c != '_')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The least number of insertions, deletions, replacements, and exchanges of neighbours that turn
/// one name into the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> least(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                              least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  }
  return least[a.size()][b.size()];
}

}  // namespace

std::string closest_name(std::string_view wrong, std::span<const std::string> names) {
  const std::string given = plain(wrong);
  if (given.empty() || given.size() > kLongest) return {};
  const std::string* best = nullptr;
  const std::string* longer = nullptr;
  size_t least = 1 + given.size() / 3;
  for (const std::string& name : names) {
    if (name.size() > kLongest) continue;
    const std::string candidate = plain(name);
    if (const size_t d = distance(given, candidate);
        d < least ||
        (d == least && best == nullptr && 2 * d <= given.size() && d < candidate.size())) {
      least = d;
      best = &name;
    }
    if (longer == nullptr && given.size() > 2 && candidate.starts_with(given)) longer = &name;
  }
  if (best == nullptr) best = longer;
  return best != nullptr ? *best : std::string();
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> names) {
  const std::string name = closest_name(wrong, names);
  return name.empty() ? std::string() : "; did you mean '" + name + "'?";
}

}  // namespace opwright
