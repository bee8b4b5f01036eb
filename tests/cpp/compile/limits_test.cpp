// What models may make a build spend.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "add_profile.h"
#include "base/error.h"
#include "compile/engine_run.h"
#include "error_of.h"
#include "operators/activation.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/pooling.h"
#include "operators/source.h"

namespace opwright {
namespace {

std::string error_of(const Network& network, const BuilderConfig& config) {
  return opwright::error_of([&] { compile(network, config); });
}

/// Concatenations that double a tensor, `count` times.
Tensor* doubled(Network& network, Tensor* x, int count) {
  for (int i = 0; i < count; ++i) x = network.add<Concatenation>({.axis = 0}, {x, x})->output(0);
  return x;
}

uint64_t weight_bytes(const Plan& plan) {
  uint64_t bytes = 0;
  for (const PlanTensor& tensor : plan.schedules[0].tensors) bytes += tensor.data.size();
  return bytes;
}

TEST(BuildLimits, TimingNeedsNoMoreMemoryThanAllowed) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1 << 20});
  Layer* layer = network.add<Unary>({UnaryOperation::kNEG}, {x});
  layer->set_name("negate");
  network.mark_output(*layer->output(0));
  BuilderConfig config = quick_config();
  config.limits.build_memory = 1 << 20;
  expect_contains(error_of(network, config),
                  {"'negate'", "8.0 MiB", "limit of 1.0 MiB (build_memory)", "--max-memory"});
  config.limits.build_memory = 0;
  config.limits.memory = 1 << 20;  // which is the default of the other
  expect_contains(error_of(network, config), {"'negate'", "(build_memory)"});
  config.limits.memory = 64 << 20;
  EXPECT_EQ(error_of(network, config), "no error");
}

TEST(BuildLimits, TimeEndsABuildAndIsNoFailureOfACandidate) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {64});
  for (int i = 0; i < 200; ++i)
    x = network.add<Activation>({ActivationType::kTANH}, {x})->output(0);
  network.mark_output(*x);
  BuilderConfig config = quick_config();
  config.limits.build_seconds = 1e-6;
  expect_contains(error_of(network, config), {"1e-06 seconds", "(build_seconds)", "--max-time"});
  config.limits.build_seconds = 1000;
  EXPECT_EQ(error_of(network, config), "no error");
}

TEST(BuildLimits, ArithmeticThatWouldNotEndInTimeIsNotBegun) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1, 1, 1 << 14, 1 << 14});
  PoolingParams params;
  params.window = {255, 255};
  params.type = PoolingType::kMAX;
  Layer* layer = network.add<Pooling>(params, {x});
  layer->set_name("pool");
  network.mark_output(*layer->output(0));
  BuilderConfig config = quick_config();
  config.limits.build_seconds = 1;
  const auto start = std::chrono::steady_clock::now();
  expect_contains(error_of(network, config), {"'pool'", "takes at least", "(build_seconds)"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(BuildLimits, LayersAreCounted) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {4});
  for (int i = 0; i < 5; ++i) x = network.add<Unary>({UnaryOperation::kNEG}, {x})->output(0);
  network.mark_output(*x);
  BuilderConfig config = quick_config();
  config.limits.steps = 4;
  expect_contains(error_of(network, config), {"5 layers", "limit of 4 (steps)"});
  config.limits.steps = 5;
  EXPECT_EQ(error_of(network, config), "no error");
  config.limits.steps = -5;
  expect_contains(error_of(network, config), {"steps is -5"});
}

/// Small models compute constants without end: these are left to the engine.
TEST(BuildLimits, ConstantsThatGrowAreNotFolded) {
  Network network;
  const auto data = random_floats(1 << 10, 1);
  Tensor* x = network.add_constant(DataType::kFLOAT, {1 << 10}, blob_of(data));
  network.mark_output(*doubled(network, x, 19));  // 2 GiB
  BuilderConfig config = quick_config();
  config.timing = false;
  const Plan plan = compile(network, config);
  EXPECT_LE(weight_bytes(plan), uint64_t{300} << 20);
  EXPECT_GT(plan.schedules[0].steps.size(), 1u);

  Network few;
  Tensor* y = few.add_constant(DataType::kFLOAT, {1 << 10}, blob_of(data));
  few.mark_output(*doubled(few, y, 4));
  const Plan folded = compile(few, quick_config());
  EXPECT_EQ(weight_bytes(folded), uint64_t{4} << 14);
}

TEST(BuildLimits, FoldingKeepsToTheMemoryOfTheBuild) {
  Network network;
  const auto data = random_floats(1 << 10, 1);
  Tensor* x = network.add_constant(DataType::kFLOAT, {1 << 10}, blob_of(data));
  network.mark_output(*doubled(network, x, 12));  // 16 MiB
  BuilderConfig config = quick_config();
  config.timing = false;
  config.limits.build_memory = 1 << 20;
  EXPECT_LE(weight_bytes(compile(network, config)), uint64_t{1} << 20);
}

TEST(BuildLimits, DoublingPastAnyMemoryIsAnError) {
  Network network;
  const auto data = random_floats(1 << 10, 1);
  Tensor* x = network.add_constant(DataType::kFLOAT, {1 << 10}, blob_of(data));
  network.mark_output(*doubled(network, x, 45));
  BuilderConfig config = quick_config();
  config.limits.build_memory = uint64_t{64} << 20;
  const auto start = std::chrono::steady_clock::now();
  expect_contains(error_of(network, config), {"Concatenation", "limit of 64.0 MiB (build_memory)"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

/// Each of these was quadratic at least: minutes with as many.
TEST(BuildLimits, ManyInputsAndOutputsTakeLittleTime) {
  Network network;
  constexpr int kCount = 2000;
  OptimizationProfile profile;
  for (int i = 0; i < kCount; ++i) {
    const std::string name = "x" + std::to_string(i);
    Tensor* x = network.add_input(name, DataType::kFLOAT, {-1, 4});
    profile.set_shape(name, {1, 4}, {2, 4}, {3, 4});
    network.mark_output(*network.add<Concatenation>({.axis = 0}, {x, x})->output(0));
  }
  BuilderConfig config = quick_config();
  config.timing = false;
  add_profile(config, profile);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = compile(network, config);
  EXPECT_EQ(plan.outputs.size(), static_cast<size_t>(kCount));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace opwright
