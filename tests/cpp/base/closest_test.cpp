#include "base/did_you_mean.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace opwright {
namespace {

const std::array<std::string, 3> kNames = {"limit", "kernel_size", "axis"};

TEST(DidYouMean, NamesTheClosestOne) {
  EXPECT_EQ(did_you_mean("limt", kNames), "; did you mean 'limit'?");
  EXPECT_EQ(did_you_mean("ilmit", kNames), "; did you mean 'limit'?");
  EXPECT_EQ(did_you_mean("kernel-size", kNames), "; did you mean 'kernel_size'?");
  EXPECT_EQ(did_you_mean("KernelSize", kNames), "; did you mean 'kernel_size'?");
  EXPECT_EQ(did_you_mean("axes", kNames), "; did you mean 'axis'?");
}

TEST(DidYouMean, SaysNothingOfNamesThatAreFarAway) {
  EXPECT_EQ(did_you_mean("alpha", kNames), "");
  EXPECT_EQ(did_you_mean("y", std::array<std::string, 1>{"x"}), "");
  EXPECT_EQ(did_you_mean("", kNames), "");
  EXPECT_EQ(did_you_mean(std::string(1000, 'a'), kNames), "");
  EXPECT_EQ(did_you_mean("limt", std::array<std::string, 0>{}), "");
}

}  // namespace
}  // namespace opwright
