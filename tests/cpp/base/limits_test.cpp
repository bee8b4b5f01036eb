#include "base/limits.h"
#include "error_of.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

namespace opwright {
namespace {

TEST(Limits, ZeroStandsForTheDefault) {
  const Limits defaults = resolved({}, 4096);
  EXPECT_EQ(defaults.memory, 4096u);
  EXPECT_EQ(defaults.build_memory, 4096u);
  EXPECT_EQ(defaults.steps, 1000000);
  EXPECT_EQ(defaults.expressions, 10000000);
  EXPECT_TRUE(std::isinf(defaults.run_seconds));
  EXPECT_TRUE(std::isinf(defaults.build_seconds));

  Limits given;
  given.memory = 100;
  given.steps = 7;
  given.build_seconds = 0.5;
  const Limits limits = resolved(given, 4096);
  EXPECT_EQ(limits.memory, 100u);
  EXPECT_EQ(limits.build_memory, 100u) << "as memory, where only that is given";
  EXPECT_EQ(limits.steps, 7);
  EXPECT_EQ(limits.expressions, 10000000);
  EXPECT_EQ(limits.build_seconds, 0.5);
}

TEST(Limits, ThatAreNoNumberOrNegativeAreRefused) {
  Limits limits;
  limits.steps = -1;
  EXPECT_NE(error_of([&] { resolved(limits, 1); }).find("steps is -1; expected"),
            std::string::npos);
  limits = {};
  limits.run_seconds = std::nan("");
  EXPECT_NE(error_of([&] { resolved(limits, 1); }).find("run_seconds is nan"), std::string::npos);
  limits = {};
  limits.build_seconds = -0.5;
  EXPECT_NE(error_of([&] { resolved(limits, 1); }).find("build_seconds"), std::string::npos);
}

TEST(Limits, MachinesHaveMemory) {
  EXPECT_GT(machine_memory(), uint64_t{1} << 26);
  EXPECT_LT(machine_memory(), uint64_t{1} << 50);
}

TEST(Limits, ErrorsNameTheLimitAndWhoAsked) {
  EXPECT_EQ(error_of([] { require_bytes(100, 100, "memory", "layer 'a' needs"); }), "no error");
  const std::string message =
      error_of([] { require_bytes(3ull << 30, 1 << 20, "build_memory", "layer 'a' needs"); });
  EXPECT_EQ(message.find("layer 'a' needs 3.0 GiB, more than the limit of 1.0 MiB (build_memory)"),
            0u)
      << message;
  EXPECT_NE(message.find("--max-memory"), std::string::npos);
  EXPECT_EQ(limit_hint("steps").find("--"), std::string::npos);
}

TEST(Limits, DeadlinesPass) {
  const Deadline never(resolved({}, 1).run_seconds), far(1e9), soon(0.001);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(never.has_passed());
  EXPECT_FALSE(far.has_passed());
  EXPECT_TRUE(soon.has_passed());
}

}  // namespace
}  // namespace opwright
