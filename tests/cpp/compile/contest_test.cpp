#include "compile/contest.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "add_profile.h"
#include "base/error.h"
#include "engine_run.h"
#include "loggers.h"
#include "plugin/registry/callback.h"
#include "plugin/test_language.h"
#include "test_operator.h"

namespace opwright {
namespace {

/// A layer with two tactics, and behind it one that calls a plugin's code, which is slow behind the
/// layer's tactic 0: the timing cache says that it is faster by itself. Both copy their input.
class Contests : public testing::Test {
 protected:
  static constexpr int kAlone = -1;

  Contests() {
    config_.log = Log(&logger_);
    config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
    config_.avg_timing_iterations = 4;
    layer_.timing_key = "layer", callback_.timing_key = "callback";
    insert_times("4x8");
    layer_.candidates = [](const CandidateQuery& query) {
      return std::vector{TestOperator::like(query, 0), TestOperator::like(query, 1)};
    };
    layer_.run_as = [this](const Candidate& candidate) {
      ++runs_;
      before_ = static_cast<int>(candidate.tactic);
    };
    layer_.run = copy;
    callback_.requirements = {{"FunctionPlugin", "spinner", "1", "test"}};
    callback_.run_as = [this](const Candidate&) {
      ++runs_;
      const int before = std::exchange(before_, kAlone);
      if (before != kAlone && in_engine_) in_engine_();
      if (before == 0) sleep(10);
    };
    callback_.run = copy;
  }
  void insert_times(const std::string& shape) {
    const auto insert = [&](const std::string& layer, int tactic, float milliseconds) {
      const std::string port = "FP32:LINEAR:" + shape + ",";
      config_.timing_cache->insert(str("Test|", layer, "|", port, ">", port, "|", tactic, "|"),
                                   milliseconds);
    };
    insert("layer", 0, 10);
    insert("layer", 1, 11);
    insert("callback", 0, 1);
  }
  static void sleep(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  static void copy(void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    std::copy_n(static_cast<const float*>(inputs[0]), shapes[0].numel(),
                static_cast<float*>(outputs[0]));
  }
  Plan build(const Shape& shape = {4, 8}) {
    Network network;
    Tensor* tensor = network.add_input("x", DataType::kFLOAT, shape);
    for (const auto& [behaviour, name] :
         {std::pair(&layer_, "the layer"), std::pair(&callback_, "the callback")}) {
      OperatorPtr& op = operators_[name];
      if (!op) op = TestOperator::add(*behaviour);
      Tensor* const inputs[] = {tensor};
      tensor = network.add_layer(op, inputs, name)->output(0);
    }
    network.mark_output(*tensor);
    return compile(network, config_);
  }
  static int64_t tactic_of(const Plan& plan, size_t profile = 0) {
    return plan.schedules[profile].steps[0].candidate.tactic;
  }
  std::vector<std::string> engine_keys() const {
    std::vector<std::string> keys = config_.timing_cache->keys();
    std::erase_if(keys, [](const std::string& key) { return !key.starts_with("Engine|"); });
    return keys;
  }

  TestBehaviour layer_, callback_;
  std::function<void()> in_engine_;  ///< called by the callback where the layer ran before it
  int runs_ = 0, before_ = kAlone;
  std::map<std::string, OperatorPtr> operators_;
  CollectingLogger logger_;
  BuilderConfig config_ = quick_config();
};

TEST_F(Contests, WhatIsFasterAsAWholeWins) {
  EXPECT_EQ(tactic_of(build()), 1);
  EXPECT_NE(logger_.verbose.find("Compared 2 engines as a whole"), std::string::npos)
      << logger_.verbose;
  EXPECT_NE(logger_.verbose.find("layer 'the layer' FP32 -> FP32, tactic 1"), std::string::npos)
      << logger_.verbose;
  EXPECT_EQ(logger_.warnings, "");
}

TEST_F(Contests, WithoutCallbacksTheSumOfTimesDecides) {
  callback_.requirements.clear();
  EXPECT_EQ(tactic_of(build()), 0);
  EXPECT_EQ(logger_.verbose.find("Compared"), std::string::npos);
  EXPECT_TRUE(engine_keys().empty());
}

TEST_F(Contests, TheTimingCacheMakesTheSameChoiceWithoutARun) {
  EXPECT_EQ(tactic_of(build()), 1);
  EXPECT_EQ(engine_keys().size(), 2u);
  const int runs = runs_;
  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, true);
  EXPECT_EQ(tactic_of(build()), 1);
  config_.timing = false;
  EXPECT_EQ(tactic_of(build()), 1);
  EXPECT_EQ(runs_, runs);

  // Without one of them.
  config_.timing_cache->update(engine_keys()[0], {0, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(tactic_of(build()), 0) << "nothing is timed";
  config_.timing = true;
  EXPECT_THROW(build(), Error);
  EXPECT_EQ(runs_, runs);
  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, false);
  EXPECT_EQ(tactic_of(build()), 1);
  EXPECT_GT(runs_, runs);
}

TEST_F(Contests, ACallbackThatIsTimedEveryTimeIsComparedEveryTime) {
  callback_.is_timed_every_time = true;
  EXPECT_EQ(tactic_of(build()), 1);
  EXPECT_TRUE(engine_keys().empty());
}

TEST_F(Contests, TheBuildsTimeEndsThem) {
  config_.limits.build_seconds = 1;
  in_engine_ = [] { sleep(400); };
  EXPECT_THROW(build(), BuildTimeError);
  EXPECT_EQ(logger_.warnings, "");
}

TEST_F(Contests, EnginesThatNeedTooMuchMemoryAreNotCompared) {
  callback_.workspace = size_t{3} << 20;
  config_.limits.build_memory = size_t{5} << 20;
  EXPECT_EQ(tactic_of(build()), 0);
  EXPECT_NE(logger_.verbose.find("Whole engines are not compared"), std::string::npos);
}

TEST_F(Contests, ACallbackThatFailsIsReportedAndTheSumDecides) {
  in_engine_ = [] { throw std::runtime_error("the plugin's own words"); };
  EXPECT_EQ(tactic_of(build()), 0);
  EXPECT_NE(logger_.warnings.find("the plugin's own words"), std::string::npos);
  EXPECT_TRUE(engine_keys().empty());
}

TEST_F(Contests, AnEngineThatCannotBeMadeIsLeftOut) {
  layer_.make = [](const KernelArgs& args) {
    require(args.candidate->tactic == 0, "there is no such kernel today");
  };
  EXPECT_EQ(tactic_of(build()), 0);
  EXPECT_NE(logger_.verbose.find("there is no such kernel today"), std::string::npos);
  EXPECT_EQ(logger_.warnings, "");
}

TEST_F(Contests, AnInterruptEndsTheBuild) {
  TestLanguage python;
  python.interrupt = [](const std::exception_ptr&) { return true; };
  in_engine_ = [] { throw std::runtime_error("interrupt"); };
  EXPECT_THROW(build(), std::runtime_error);
}

TEST_F(Contests, EachProfileHasItsOwn) {
  for (const int64_t most : {4, 16}) {
    OptimizationProfile& profile = add_profile(config_);
    profile.set_shape("x", {1, 8}, {most, 8}, {most, 8});
    insert_times(str(most, "x8[1x8..", most, "x8]"));
  }
  Plan plan = build({-1, 8});
  EXPECT_EQ(tactic_of(plan, 0), 1);
  EXPECT_EQ(tactic_of(plan, 1), 1);
  EXPECT_EQ(engine_keys().size(), 4u);
  plan.requirements.clear();  // nobody has registered it
  const auto x = random_floats(16 * 8, 1);
  expect_near(run_plan(std::move(plan), {{16, 8}}, {x}, 1)[0], x);
}

}  // namespace
}  // namespace opwright
