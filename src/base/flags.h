#pragma once

#include <cstdint>

#include "base/error.h"

namespace opwright {

/// Bits 1 << Flag. Methods throw Error for a number that is no flag.
template <class Flag>
struct Flags {
  uint32_t bits = 0;

  void set(Flag flag, bool on = true) { bits = on ? bits | bit(flag) : bits & ~bit(flag); }
  void clear(Flag flag) { set(flag, false); }
  bool has(Flag flag) const { return (bits & bit(flag)) != 0; }

 private:
  static uint32_t bit(Flag flag) {
    const auto number = static_cast<int32_t>(flag);
    require(number >= 0 && number < EnumMax<Flag>(), "there is no flag ", number, ": there are ",
            EnumMax<Flag>());
    return uint32_t{1} << number;
  }
};

}  // namespace opwright
