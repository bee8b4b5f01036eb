#include "backend/cpu/copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace opwright::testing {
namespace {

/// `count` numbered elements of T in memory that ends with them.
template <class T>
std::vector<T> numbered(int64_t count) {
  std::vector<T> elements(static_cast<size_t>(count));
  std::iota(elements.begin(), elements.end(), T(1));
  return elements;
}

template <class T>
void check_all() {
  constexpr T kGuard = 77;
  for (int64_t count = 0; count < 150; ++count) {
    SCOPED_TRACE(::testing::Message() << count << " elements of " << sizeof(T) << " bytes");
    for (const int64_t times : {1, 2, 3}) {
      const std::vector<T> from = numbered<T>(count);
      std::vector<T> to(static_cast<size_t>(count * times) + 1, kGuard);
      repeat_elements(reinterpret_cast<std::byte*>(to.data()),
                      reinterpret_cast<const std::byte*>(from.data()), sizeof(T), times, count);
      for (int64_t i = 0; i < count * times; ++i) ASSERT_EQ(to[i], from[i / times]) << i;
      EXPECT_EQ(to.back(), kGuard);
    }
    if (count == 0) continue;
    for (const int64_t step : {2, 3}) {
      const std::vector<T> from = numbered<T>((count - 1) * step + 1);
      std::vector<T> to(static_cast<size_t>(count) + 1, kGuard);
      gather_elements(reinterpret_cast<std::byte*>(to.data()),
                      reinterpret_cast<const std::byte*>(from.data()), sizeof(T),
                      step * static_cast<int64_t>(sizeof(T)), count);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(to[i], from[i * step]) << i;
      EXPECT_EQ(to.back(), kGuard);
    }
  }
}

TEST(Copy, ElementsThatAreRepeatedOrApart) {
  check_all<uint8_t>();
  check_all<uint16_t>();
  check_all<uint32_t>();
  check_all<uint64_t>();
}

}  // namespace
}  // namespace opwright::testing
