#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace opwright::fuzz {

/// The bytes that decide what a target does. Behind their end are zeros, so that every script is
/// complete, and one that is cut short does less.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}

  uint8_t byte() { return data_ == end_ ? 0 : *data_++; }
  bool is_at_end() const { return data_ == end_; }
  uint64_t word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{byte()} << (8 * i);
    return value;
  }
  /// In [0, count), 0 for an empty range.
  template <class Count>
  size_t below(Count count) {
    const auto limit = static_cast<size_t>(count);
    if (limit <= 1) return 0;
    if (limit <= 256) return byte() % limit;
    const size_t low = byte();
    return (low | size_t{byte()} << 8) % limit;
  }
  /// False at the end.
  bool chance(int one_in) { return byte() % one_in == one_in - 1; }

  /// Near another number, or at some limit.
  int64_t number(int64_t near) {
    switch (below(8)) {
      case 0:
      case 1:
        return wrap(near, static_cast<int64_t>(below(9)) - 4);
      case 2:
        return static_cast<int8_t>(byte());
      case 3:
        return static_cast<int64_t>(static_cast<uint64_t>(near) << (1 + below(8)));
      case 4:
        return chance(2) ? static_cast<int64_t>(-static_cast<uint64_t>(near)) : near / 2;
      case 5:
        return static_cast<int64_t>(word());
      case 6:
        return wrap(static_cast<int64_t>(uint64_t{1} << below(64)),
                    static_cast<int64_t>(below(5)) - 2);
      default: {
        static constexpr std::array<int64_t, 16> kLimits = {0,
                                                            1,
                                                            -1,
                                                            2,
                                                            64,
                                                            100,
                                                            4096,
                                                            65536,
                                                            std::numeric_limits<int32_t>::max(),
                                                            std::numeric_limits<int32_t>::min(),
                                                            int64_t{1} << 32,
                                                            int64_t{1} << 62,
                                                            std::numeric_limits<int64_t>::max(),
                                                            std::numeric_limits<int64_t>::min(),
                                                            -64,
                                                            -65};
        return kLimits[below(kLimits.size())];
      }
    }
  }
  /// Not far from what indices and counts are.
  int64_t small(int64_t near) {
    return chance(6) ? number(near) : wrap(near, static_cast<int64_t>(below(7)) - 3);
  }
  double fraction(double near) {
    static constexpr double kInf = std::numeric_limits<double>::infinity();
    static constexpr std::array<double, 14> kLimits = {0,
                                                       -0.0,
                                                       1,
                                                       -1,
                                                       0.5,
                                                       1e-30,
                                                       1e30,
                                                       3.5e38,
                                                       -3.5e38,
                                                       1e300,
                                                       kInf,
                                                       -kInf,
                                                       std::numeric_limits<double>::quiet_NaN(),
                                                       std::numeric_limits<double>::denorm_min()};
    switch (below(4)) {
      case 0:
        return near * (static_cast<double>(below(9)) - 4);
      case 1:
        return std::bit_cast<double>(word());
      default:
        return kLimits[below(kLimits.size())];
    }
  }

 private:
  static int64_t wrap(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  const uint8_t* data_;
  const uint8_t* end_;
};

/// A small generator whose numbers are the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du;
  }
  uint64_t below(uint64_t count) { return ((*this)() >> 32) % count; }

 private:
  uint64_t state_;
};

}  // namespace opwright::fuzz
