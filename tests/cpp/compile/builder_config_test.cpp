// What a config's description checks, and what a build makes of its settings.

#include "compile/builder_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "add_profile.h"
#include "error_of.h"

namespace opwright {
namespace {

using Config = BuilderConfig;

TEST(BuilderConfigTest, WhatASettingCannotBeIsRefusedAndTheValueStays) {
  Config config{DeviceId{"cpu"}};
  set(config, &Config::kernel_seconds, 2.5);
  EXPECT_EQ(error_of([&] { set(config, &Config::kernel_seconds, 0); }),
            "kernel_seconds is 0; expected more than 0");
  EXPECT_NE(error_of([&] { set(config, &Config::kernel_seconds, std::nan("")); }), "no error");
  EXPECT_EQ(config.kernel_seconds, 2.5);
  // Members of one type have checks of their own.
  set(config, &Config::max_num_tactics, -1);
  EXPECT_EQ(error_of([&] { set(config, &Config::max_aux_streams, -1); }),
            "max_aux_streams is -1; expected 0 or more");
  EXPECT_EQ(error_of([&] { set(config, &Config::optimization_level, 6); }),
            "the builder optimization level is 6; expected 0 to 5");
  EXPECT_EQ(error_of([&] { set(config, &Config::verification, VerificationLevel{3}); }),
            "there is no verification level 3");
  EXPECT_EQ(config.max_aux_streams, -1);
  EXPECT_EQ(config.optimization_level, 3);
  set(config, &Config::debug_plugins, true);
  EXPECT_TRUE(config.debug_plugins);
}

TEST(BuilderConfigTest, NamesAndFlagsStandOnce) {
  std::set<std::string> names, flags;
  Config::visit([&](const auto& row) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    if constexpr (requires { row.flags; })
      for (const auto& flag : row.flags) {
        if (flag.name == nullptr) continue;
        EXPECT_TRUE(flags.insert(flag.name).second) << flag.name;
      }
  });
  EXPECT_TRUE(flags.contains("--kernel-seconds"));
}

TEST(BuilderConfigTest, LevelsAndNumbersOfTacticsSayWhatIsTimed) {
  Config config{DeviceId{"cpu"}};
  const auto limits = [&](int level, int tactics) {
    config.optimization_level = level, config.max_num_tactics = tactics;
    return std::pair(config.times(), config.max_candidates());
  };
  EXPECT_EQ(limits(0, -1), std::pair(false, 0));
  EXPECT_EQ(limits(1, -1), std::pair(true, 2));
  EXPECT_EQ(limits(2, -1), std::pair(true, 4));
  EXPECT_EQ(limits(3, -1), std::pair(true, 0));
  EXPECT_EQ(limits(1, 7), std::pair(true, 7));
  config.timing = false;
  EXPECT_FALSE(config.times());
}

TEST(BuilderConfigTest, ABuildHasACopyOfItsOwn) {
  Config config{DeviceId{"cpu"}};
  config.flags.set(BuilderFlag::kFP16);
  config.flags.set(BuilderFlag::kTF32);
  config.flags.set(BuilderFlag::kOBEY_PRECISION_CONSTRAINTS);
  config.timing_cache = std::make_shared<TimingCache>("device");
  OptimizationProfile& profile = add_profile(config);
  profile.set_shape("x", {1}, {1}, {1});
  const Config weak = config.checked(false);
  profile.set_shape("x", {2}, {2}, {2});
  EXPECT_EQ(weak.profiles[0]->shape("x")->max, Shape({1}));
  EXPECT_TRUE(weak.flags.has(BuilderFlag::kFP16));
  EXPECT_EQ(weak.constraints(), PrecisionConstraints::kOBEY);
  EXPECT_EQ(weak.timing_cache, config.timing_cache);
  config.flags.set(BuilderFlag::kDISABLE_TIMING_CACHE);
  const Config strong = config.checked(true);
  EXPECT_FALSE(strong.flags.has(BuilderFlag::kFP16));
  EXPECT_TRUE(strong.flags.has(BuilderFlag::kTF32));
  EXPECT_EQ(strong.constraints(), PrecisionConstraints::kIGNORE);
  EXPECT_EQ(strong.timing_cache, nullptr);
  EXPECT_TRUE(config.flags.has(BuilderFlag::kFP16));
  config.flags.set(BuilderFlag::kSTRICT_NANS);
  EXPECT_NE(error_of([&] { config.checked(false); }).find("BuilderFlag.STRICT_NANS is set"),
            std::string::npos);
}

TEST(BuilderConfigTest, FlagsSayWhichWeightsAreExchanged) {
  const auto mode = [](std::initializer_list<BuilderFlag> flags) {
    Config config{DeviceId{"cpu"}};
    for (const BuilderFlag flag : flags) config.flags.set(flag);
    return config.refit();
  };
  EXPECT_EQ(mode({}), RefitMode::kNone);
  EXPECT_EQ(mode({BuilderFlag::kREFIT, BuilderFlag::kSTRIP_PLAN}), RefitMode::kAll);
  EXPECT_EQ(mode({BuilderFlag::kSTRIP_PLAN}), RefitMode::kIdentical);
  EXPECT_EQ(mode({BuilderFlag::kREFIT_INDIVIDUAL}), RefitMode::kIndividual);
  EXPECT_NE(error_of([&] {
              mode({BuilderFlag::kREFIT_INDIVIDUAL, BuilderFlag::kREFIT});
            }),
            "no error");
}

}  // namespace
}  // namespace opwright
