#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace opwright::gpu {

/// All ways to run an operator with some ports, and which of them are worth timing. A way's index
/// is the number of its tactic.
template <class Way>
class Ways {
 public:
  Ways() = default;
  /// All of these ways are worth timing.
  Ways(std::vector<Way> ways) : ways_(std::move(ways)), worth_(ways_.size()) {}

  /// Ways worth timing come first, the best guess in front. So they keep their numbers whatever
  /// other ways exist.
  void add(Way way, bool is_worth_timing) {
    const auto end =
        is_worth_timing ? ways_.begin() + static_cast<std::ptrdiff_t>(worth_++) : ways_.end();
    ways_.insert(end, std::move(way));
  }
  bool contains(const Way& way) const {
    return std::find(ways_.begin(), ways_.end(), way) != ways_.end();
  }
  /// Throws Error for a number without a way.
  const Way& at(int64_t number) const {
    require(number >= 0 && number < static_cast<int64_t>(ways_.size()), "there is no tactic ",
            number, " for these ports, which have ", ways_.size());
    return ways_[static_cast<size_t>(number)];
  }
  /// All ways, or those that are worth timing.
  std::span<const Way> listed(bool all) const& {
    return std::span(ways_).first(all ? ways_.size() : worth_);
  }
  std::span<const Way> listed(bool all) const&& = delete;
  bool is_worth_timing(size_t number) const { return number < worth_; }

  /// The names of the ways, which `name` returns.
  template <class Name>
  Ways<std::string> names(Name&& name) const {
    Ways<std::string> result;
    for (size_t i = 0; i < ways_.size(); ++i) result.add(name(ways_[i]), is_worth_timing(i));
    return result;
  }
  Ways<std::string> names() const {
    return names([](const Way& way) { return way.name(); });
  }

 private:
  std::vector<Way> ways_;
  size_t worth_ = 0;
};

}  // namespace opwright::gpu
