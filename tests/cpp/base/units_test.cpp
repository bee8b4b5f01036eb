#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace opwright {
namespace {

TEST(Units, TimesAreInTheUnitThatSuitsThem) {
  const std::pair<double, const char*> times[] = {
      {6e-5, "60 ns"},      {4.2e-7, "0.4 ns"},  {0.000999, "999 ns"}, {0.0009996, "1.00 us"},
      {0.00125, "1.25 us"}, {0.0125, "12.5 us"}, {0.01225, "12.3 us"}, {0.25, "250 us"},
      {0.9999, "1.00 ms"},  {12.5, "12.5 ms"},   {999.6, "1.00 s"},    {1234, "1.23 s"},
      {140000, "140 s"}};
  for (const auto& [milliseconds, text] : times) EXPECT_EQ(time_text(milliseconds), text);
  EXPECT_EQ(time_text(0), "-");
  EXPECT_EQ(time_text(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(time_text(std::numeric_limits<double>::infinity()), "impossible");
}

TEST(Units, BytesAreInTheUnitThatSuitsThem) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(3 << 19), "1.5 MiB");
  EXPECT_EQ(bytes_text(~uint64_t{0}), "16.0 EiB");
}

TEST(Units, OneOfAThingIsNoPlural) {
  EXPECT_EQ(counted(0, "layer"), "0 layers");
  EXPECT_EQ(counted(1, "layer"), "1 layer");
  EXPECT_EQ(counted(12, "layer"), "12 layers");
}

}  // namespace
}  // namespace opwright
