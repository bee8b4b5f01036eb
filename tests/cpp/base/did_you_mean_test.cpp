#include "base/did_you_mean.h"

#include <gtest/gtest.h>

#include <vector>

namespace opwright {
namespace {

const std::vector<std::string> kFlags = {"--output",         "--shapes", "--fp16", "--bf16",
                                         "--strongly-typed", "--device", "--fp8"};

TEST(DidYouMean, FindsWhatSomebodyMistyped) {
  const std::pair<const char*, const char*> cases[] = {
      {"--shape", "--shapes"},  {"--outptu", "--output"},
      {"--fp61", "--fp16"},     {"--stronglyTyped", "--strongly-typed"},
      {"--DEVICE", "--device"}, {"--strong", "--strongly-typed"}};
  for (const auto& [wrong, meant] : cases) EXPECT_EQ(closest_name(wrong, kFlags), meant) << wrong;
  EXPECT_EQ(did_you_mean("--shape", kFlags), "; did you mean '--shapes'?");
}

TEST(DidYouMean, SaysNothingWhereNothingIsNear) {
  for (const char* wrong : {"", "--", "--foo", "--quux", "--compression-level"})
    EXPECT_EQ(did_you_mean(wrong, kFlags), "") << wrong;
  EXPECT_EQ(closest_name(std::string(100000, 'x'), kFlags), "");
}

}  // namespace
}  // namespace opwright
