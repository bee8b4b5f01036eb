#include "compile/tuner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "backend/backend.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "engine_run.h"
#include "loggers.h"
#include "plugin/registry/callback.h"
#include "plugin/test_language.h"
#include "test_operator.h"

namespace opwright {
namespace {

/// An exception of a plugin's own.
struct PluginTrouble : std::exception {
  const char* what() const noexcept override { return "the plugin's own words"; }
};

/// A network with one layer, which copies its input.
class Tuning : public testing::Test {
 protected:
  Tuning() { config_.log = Log(&logger_); }
  static void copy(void const* const* inputs, void* const* outputs, std::span<const Shape> shapes) {
    std::copy_n(static_cast<const float*>(inputs[0]), shapes[0].numel(),
                static_cast<float*>(outputs[0]));
  }
  void add(TestBehaviour behaviour) {
    Tensor* x = network_.add_input("x", DataType::kFLOAT, {4, 8});
    Tensor* const inputs[] = {x};
    Layer* layer = network_.add_layer(TestOperator::add(std::move(behaviour)), inputs, "the layer");
    network_.mark_output(*layer->output(0));
  }
  static std::vector<Candidate> tactics(const CandidateQuery& query, int count) {
    std::vector<Candidate> result;
    for (int tactic = 0; tactic < count; ++tactic)
      result.push_back(TestOperator::like(query, tactic));
    return result;
  }
  Network network_;
  CollectingLogger logger_;
  BuilderConfig config_ = quick_config();
};

/// An operator that gathers or scatters takes another time where all indices are 0.
TEST(TimingMemory, IndicesAreSpreadBelowTheirLimit) {
  TimingMemory memory(get_device(DeviceType::kCPU));
  for (const int64_t limit : {1000, 3, 1}) {
    const auto* const indices = static_cast<const int64_t*>(
        memory.indices(0, DataType::kINT64, 5000 * sizeof(int64_t), limit));
    const std::set<int64_t> found(indices, indices + 5000);
    EXPECT_GE(*found.begin(), 0);
    EXPECT_LT(*found.rbegin(), limit);
    EXPECT_GT(static_cast<int64_t>(found.size()), limit * 9 / 10);
  }
}

/// Constants of engines that are larger than a GPU's caches are read from several places in turns.
TEST(TimingMemory, CopiesAreTheSameElementsElsewhere) {
  TimingMemory memory(get_device(DeviceType::kCPU));
  const auto make = [](int value) {
    return Blob::make(100, [&](void* to) { std::fill_n(static_cast<char*>(to), 100, value); });
  };
  const Blob first = make(3), second = make(5);
  for (const Blob& each : {first, second}) {
    std::vector<const void*> places = memory.copies(each, 4);
    ASSERT_EQ(places.size(), 4);
    EXPECT_EQ(places, memory.copies(each, 4)) << "those that are there stay";
    for (const void* place : places) EXPECT_EQ(std::memcmp(place, each.data(), 100), 0);
    std::sort(places.begin(), places.end());
    EXPECT_EQ(std::unique(places.begin(), places.end()), places.end());
  }
  const void* const kept = memory.copies(second, 2)[1];
  memory.keep_copies(std::span(&second, 1));
  EXPECT_EQ(memory.copies(second, 2)[1], kept);
}

TEST_F(Tuning, TheFastestTacticWins) {
  // The tactic is known when the kernel is made; it decides how long the kernel sleeps.
  auto milliseconds = std::make_shared<int>(0);
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.make = [=](const KernelArgs& args) {
    *milliseconds = args.candidate->tactic == 1 ? 1 : 20;
  };
  behaviour.run = [=](auto...) {
    std::this_thread::sleep_for(std::chrono::milliseconds(*milliseconds));
  };
  add(behaviour);
  const Plan plan = compile(network_, config_);
  const PlanStep& step = plan.schedules[0].steps[0];
  EXPECT_EQ(step.candidate.tactic, 1);
  ASSERT_EQ(step.considered.size(), 3u);
  EXPECT_GE(step.considered[0].time_ms, 20);
  EXPECT_GE(step.considered[1].time_ms, 1);
  EXPECT_LT(step.considered[1].time_ms, 20);
  EXPECT_NE(logger_.verbose.find("Layer 'the layer' (Test): 3 candidates, 3 timed"),
            std::string::npos)
      << logger_.verbose;

  config_.timing = false;
  EXPECT_EQ(compile(network_, config_).schedules[0].steps[0].candidate.tactic, 0);
}

TEST_F(Tuning, AFilterChoosesWhatIsTimedAndNothingIsBuilt) {
  TestBehaviour behaviour;
  int runs = 0;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.run = [&runs](auto...) { ++runs; };
  behaviour.timing_key = "a key";
  add(behaviour);
  const Device& device = get_device(DeviceType::kCPU);
  config_.timing_cache = std::make_shared<TimingCache>(device.identity());
  std::vector<std::string> asked;
  std::string wanted;
  config_.timing_filter = [&](const std::string&, const std::string& key) {
    asked.push_back(key);
    return key == wanted;
  };
  EXPECT_TRUE(compile(network_, config_).schedules.empty());
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(config_.timing_cache->size(), 0u);

  wanted = asked[1];
  EXPECT_TRUE(compile(network_, config_).schedules.empty());
  EXPECT_GT(runs, 0);
  EXPECT_EQ(config_.timing_cache->keys(), std::vector<std::string>{wanted});
  asked.clear();
  compile(network_, config_);
  EXPECT_EQ(asked.size(), 2u) << "what is known is not asked for";
}

TEST_F(Tuning, WithoutTimingTheCacheDecidesAndNothingRuns) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.run = [](auto...) { FAIL() << "was run"; };
  behaviour.timing_key = "a key";
  add(behaviour);
  const Device& device = get_device(DeviceType::kCPU);
  config_.timing = false;
  config_.timing_cache = std::make_shared<TimingCache>(device.identity());
  EXPECT_EQ(compile(network_, config_).schedules[0].steps[0].candidate.tactic, 0);
  EXPECT_EQ(config_.timing_cache->size(), 0u);

  // Operator and timing key, inputs, outputs; then tactic and its name.
  const std::string start = "Test|a key|FP32:LINEAR:4x8,>FP32:LINEAR:4x8,";
  config_.timing_cache->insert(start + "|2|", 2);
  EXPECT_EQ(compile(network_, config_).schedules[0].steps[0].candidate.tactic, 2);
  config_.timing_cache->insert(start + "|1|", 1);
  const Plan plan = compile(network_, config_);
  const PlanStep& step = plan.schedules[0].steps[0];
  EXPECT_EQ(step.candidate.tactic, 1);
  EXPECT_EQ(step.time_ms, 1);
  ASSERT_EQ(step.considered.size(), 3u);
  EXPECT_EQ(step.considered[0].time_ms, 0) << "not known";

  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, true);
  EXPECT_THROW(compile(network_, config_), Error);
  config_.timing_cache->insert(start + "|0|", 0.5);
  EXPECT_EQ(compile(network_, config_).schedules[0].steps[0].candidate.tactic, 0);
}

TEST_F(Tuning, TimesBelongToWhereAnEngineOfThatSizeFindsItsTensors) {
  TestBehaviour behaviour;
  behaviour.run = copy;
  behaviour.timing_key = "a key";
  add(behaviour);
  const Device& device = get_device(DeviceType::kCPU);
  config_.timing_cache = std::make_shared<TimingCache>(device.identity());
  compile(network_, config_);
  ASSERT_EQ(config_.timing_cache->size(), 1u);
  EXPECT_EQ(config_.timing_cache->keys()[0].find('@'), std::string::npos);

  // A layer beside it that no inner cache has room for.
  Tensor* const inputs[] = {network_.add_input("large", DataType::kFLOAT, {1 << 22})};
  TestBehaviour idle;
  idle.timing_key = "idle";
  idle.run = [](auto...) {};
  network_.mark_output(
      *network_.add_layer(TestOperator::add(std::move(idle)), inputs, "large")->output(0));
  compile(network_, config_);
  const std::vector<std::string> keys = config_.timing_cache->keys();
  const auto is_ours = [](const std::string& key) { return key.starts_with("Test|a key|"); };
  EXPECT_EQ(std::ranges::count_if(keys, is_ours), 2);
}

TEST_F(Tuning, AnInterruptEndsTheBuildBetweenRuns) {
  int runs = 0;
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.run = [&](auto...) { ++runs; };
  add(behaviour);
  TestLanguage python;
  python.interrupt = [](const std::exception_ptr& reason) {
    try {
      std::rethrow_exception(reason);
    } catch (const PluginTrouble&) {
      return true;
    } catch (...) {
      return false;
    }
  };
  config_.interrupt_check = [&] {
    if (runs > 0) throw PluginTrouble();
  };
  EXPECT_THROW(compile(network_, config_), PluginTrouble);
  EXPECT_EQ(runs, 2) << "the first sample and its warm-up";
  EXPECT_EQ(logger_.warnings, "");
}

TEST_F(Tuning, WhatAnOperatorDropsIsInThePlanOncePerReason) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) {
    for (int tactic = 1; tactic < 4; ++tactic)
      query.dropped->push_back({TestOperator::like(query, tactic), "too odd"});
    Candidate wide = TestOperator::like(query, 4);
    wide.inputs[0].format = TensorFormat::kCHW4;
    return std::vector<Candidate>{wide, TestOperator::like(query, 5)};
  };
  behaviour.run = copy;
  add(behaviour);
  const Plan plan = compile(network_, config_);
  const std::vector<TimedCandidate>& considered = plan.schedules[0].steps[0].considered;
  ASSERT_EQ(considered.size(), 3u);
  EXPECT_EQ(considered[0].tactic, 5);
  EXPECT_EQ(considered[0].dropped, "");
  EXPECT_EQ(considered[1].tactic, 1);
  EXPECT_EQ(considered[1].dropped, "too odd (and 2 more)");
  EXPECT_EQ(considered[2].tactic, 4);
  EXPECT_EQ(considered[2].dropped, "input 0 has rank 2, which the format CHW4 cannot have");
  EXPECT_NE(logger_.verbose.find("dropped: too odd (and 2 more)"), std::string::npos);
}

TEST_F(Tuning, ACandidateThatFailsIsLeftOutWithAWarning) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.make = [](const KernelArgs& args) {
    if (args.candidate->tactic == 0) throw PluginTrouble();
    if (args.candidate->tactic == 2) fail("tactic 2 is broken");
  };
  behaviour.run = copy;
  add(behaviour);
  Plan plan = compile(network_, config_);
  EXPECT_EQ(plan.schedules[0].steps[0].candidate.tactic, 1);
  for (const char* part : {"the layer", "the plugin's own words", "tactic 2 is broken"})
    EXPECT_NE(logger_.warnings.find(part), std::string::npos) << part;
  const auto x = random_floats(32, 1);
  expect_near(run_plan(std::move(plan), {{4, 8}}, {x})[0], x);
}

/// As NVRTC 13 writes them.
TEST_F(Tuning, WarningsOfACompilerAreForThoseWhoAsk) {
  constexpr char kLog[] = R"(it does not compile:
k.cu(2): warning #39-D: division by zero
  int i = 1 / 0;
              ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

k.cu(3): error: identifier "missing" is undefined
  missing();
  ^

k.cu(1): warning #177-D: variable "unused" was declared but never referenced
  int unused;
      ^
          detected during instantiation of "f"

1 error detected in the compilation of "k.cu".)";
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 2); };
  behaviour.make = [&](const KernelArgs& args) {
    if (args.candidate->tactic == 0) fail(kLog);
  };
  behaviour.run = copy;
  add(behaviour);
  compile(network_, config_);
  const std::string& warnings = logger_.warnings;
  EXPECT_NE(warnings.find(R"(is left out: it does not compile:
k.cu(3): error: identifier "missing" is undefined
  missing();
  ^

1 error detected in the compilation of "k.cu".)"),
            std::string::npos)
      << warnings;
  EXPECT_EQ(warnings.find("#177-D"), std::string::npos);
  EXPECT_NE(logger_.verbose.find(kLog), std::string::npos) << logger_.verbose;
}

TEST_F(Tuning, MemoryThatRunsOutIsAskedForOnceMoreThenTheCandidateIsLeftOut) {
  TestBehaviour behaviour;
  std::map<int64_t, int> runs;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  behaviour.run_as = [&](const Candidate& candidate) {
    const int before = runs[candidate.tactic]++;
    if (candidate.tactic == 0 || (candidate.tactic == 1 && before == 0))
      fail_with(ErrorCode::kFAILED_ALLOCATION, "no memory for tactic ", candidate.tactic);
  };
  behaviour.run = copy;
  add(behaviour);
  const Plan plan = compile(network_, config_);
  const std::vector<TimedCandidate>& considered = plan.schedules[0].steps[0].considered;
  ASSERT_EQ(considered.size(), 3u);
  EXPECT_EQ(considered[0].dropped, "no memory for tactic 0");
  EXPECT_EQ(considered[1].dropped, "") << "the next time there was some";
  EXPECT_NE(logger_.warnings.find("no memory for tactic 0"), std::string::npos);
  EXPECT_EQ(logger_.warnings.find("no memory for tactic 1"), std::string::npos);
}

TEST_F(Tuning, ACancelledBuildKeepsTheTimesThatItTook) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 3); };
  std::map<int64_t, int> runs;
  behaviour.run_as = [&](const Candidate& candidate) { ++runs[candidate.tactic]; };
  behaviour.run = copy;
  add(behaviour);
  config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  config_.interrupt_check = [&] {
    if (runs[1] > 0) throw BuildCancelledError("enough");
  };
  EXPECT_THROW(compile(network_, config_), BuildCancelledError);
  // On a slow machine the second candidate is done before the next check.
  EXPECT_GE(config_.timing_cache->size(), 1u);
  EXPECT_EQ(runs[2], 0);
  EXPECT_EQ(logger_.warnings, "");
  config_.interrupt_check = {};
  runs.clear();
  const Plan plan = compile(network_, config_);
  EXPECT_EQ(runs[0], 0) << "its time was kept";
  EXPECT_GT(runs[2], 0);
  EXPECT_EQ(config_.timing_cache->size(), 3u);
}

TEST_F(Tuning, WhenAllCandidatesFailTheErrorNamesTheLayerAndTheReasons) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) { return tactics(query, 2); };
  behaviour.make = [](const KernelArgs& args) { fail("no kernel ", args.candidate->tactic); };
  add(behaviour);
  try {
    compile(network_, config_);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the layer"), std::string::npos) << text;
    EXPECT_NE(text.find("tactic 0: no kernel 0"), std::string::npos) << text;
    EXPECT_NE(text.find("tactic 1: no kernel 1"), std::string::npos) << text;
  }
}

TEST_F(Tuning, APluginsOwnExceptionArrivesWithItsType) {
  TestBehaviour behaviour;
  behaviour.run = [](auto...) { throw PluginTrouble(); };
  add(behaviour);
  EXPECT_THROW(compile(network_, config_), PluginTrouble);
}

TEST_F(Tuning, OutputsOfAnOperatorWithoutCandidatesAreAnError) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery&) { return std::vector<Candidate>(); };
  add(behaviour);
  try {
    compile(network_, config_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the layer"), std::string::npos) << error.what();
  }
}

TEST_F(Tuning, ACandidateWithAnotherNumberOfPortsIsAnError) {
  TestBehaviour behaviour;
  behaviour.candidates = [](const CandidateQuery& query) {
    Candidate candidate = TestOperator::like(query);
    candidate.inputs.push_back({});
    return std::vector<Candidate>{candidate};
  };
  add(behaviour);
  EXPECT_THROW(compile(network_, config_), Error);
}

/// A layer whose backend expects 1, 1.02, 10, 20, 30 and 40 ms of tactics 5, 4, ... 0.
class EstimatedTuning : public Tuning {
 protected:
  EstimatedTuning() {
    behaviour_.candidates = [](const CandidateQuery& query) {
      std::vector<Candidate> result = tactics(query, 6);
      const float estimates[] = {40, 30, 20, 10, 1.02F, 1};
      for (size_t i = 0; i < result.size(); ++i) result[i].estimated_ms = estimates[i];
      return result;
    };
    behaviour_.run_as = [this](const Candidate& candidate) {
      if (std::ranges::find(runs_, candidate.tactic) == runs_.end())
        runs_.push_back(candidate.tactic);
    };
    behaviour_.run = copy;
    behaviour_.timing_key = "a key";
  }
  /// The tactics that a build runs, in the order of their first runs.
  std::vector<int64_t> timed() {
    runs_.clear();
    plan_ = compile(network_, config_);
    return runs_;
  }
  void make_cache() {
    config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  }
  static std::string key(int tactic) {
    return str("Test|a key|FP32:LINEAR:4x8,>FP32:LINEAR:4x8,|", tactic, "|");
  }
  const PlanStep& step() const { return plan_.schedules[0].steps[0]; }

  TestBehaviour behaviour_;
  std::vector<int64_t> runs_;
  Plan plan_;
};

using Tactics = std::vector<int64_t>;

TEST_F(EstimatedTuning, TheLevelSaysHowFarFromTheBestEstimateACandidateIsTimed) {
  add(behaviour_);
  EXPECT_EQ(timed(), (Tactics{5, 4, 3}));
  EXPECT_GE(step().candidate.tactic, 3);
  ASSERT_EQ(step().considered.size(), 4u);
  EXPECT_EQ(step().considered[3].tactic, 2);
  EXPECT_EQ(step().considered[3].dropped,
            "it is expected to be slower than others (builder_optimization_level 3) (and 2 more)");
  config_.optimization_level = 1;
  EXPECT_EQ(timed(), (Tactics{5, 4}));
  config_.max_num_tactics = 1;
  EXPECT_EQ(timed(), (Tactics{5}));
  config_.max_num_tactics = -1;
  config_.optimization_level = 5;
  EXPECT_EQ(timed(), (Tactics{5, 4, 3, 2, 1, 0}));
  config_.optimization_level = 0;
  EXPECT_EQ(timed(), Tactics());
  EXPECT_EQ(step().candidate.tactic, 5);
  config_.optimization_level = 3, config_.timing = false;
  EXPECT_EQ(timed(), Tactics());
  EXPECT_EQ(step().candidate.tactic, 5);
}

TEST_F(EstimatedTuning, AllTacticsAndVerifiedOnesAreTimedWhateverTheEstimates) {
  add(behaviour_);
  config_.all_tactics = true;
  EXPECT_EQ(timed(), (Tactics{0, 1, 2, 3, 4, 5}));
  config_.all_tactics = false;
  config_.verification = VerificationLevel::kALL;
  EXPECT_EQ(timed(), (Tactics{0, 1, 2, 3, 4, 5}));
}

TEST_F(EstimatedTuning, NoTacticOfAPluginIsLeftOut) {
  behaviour_.requirements = {{"plugin", "Estimated", "1", ""}};
  add(behaviour_);
  EXPECT_EQ(timed(), (Tactics{0, 1, 2, 3, 4, 5}));
}

TEST_F(EstimatedTuning, WhatTheTimingCacheKnowsCountsWhateverItsEstimate) {
  add(behaviour_);
  make_cache();
  config_.timing_cache->insert(key(0), 1e-6F);
  EXPECT_EQ(timed(), (Tactics{5, 4, 3}));
  EXPECT_EQ(step().candidate.tactic, 0);
  EXPECT_EQ(config_.timing_cache->size(), 4u);
  EXPECT_EQ(timed(), Tactics());
  EXPECT_EQ(step().candidate.tactic, 0);

  // The cache has all that a build of this level asks for, and not all that another one asks for.
  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, true);
  EXPECT_EQ(timed(), Tactics());
  config_.timing = false;
  EXPECT_EQ(timed(), Tactics());
  config_.timing = true;
  config_.optimization_level = 5;
  EXPECT_THROW(timed(), Error);
}

TEST_F(EstimatedTuning, SlowerOnesAreTimedWhereNoOtherWorks) {
  behaviour_.make = [](const KernelArgs& args) {
    if (args.candidate->tactic != 2) fail("tactic ", args.candidate->tactic, " is broken");
  };
  add(behaviour_);
  EXPECT_EQ(timed(), (Tactics{2}));
  EXPECT_EQ(step().candidate.tactic, 2);
  for (const char* part : {"tactic 5 is broken", "tactic 4 is broken", "tactic 3 is broken"})
    EXPECT_NE(logger_.warnings.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace opwright
