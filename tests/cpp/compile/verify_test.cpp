// Candidates that are timed are watched: what they write, and where.

#include <algorithm>
#include <cstring>
#include <map>

#include "backend/backend.h"
#include "backend/guarded_memory.h"
#include "base/error.h"
#include "engine_run.h"
#include "error_of.h"
#include "loggers.h"
#include "test_operator.h"

namespace opwright {
namespace {

/// A network with one layer of two tactics: the first is what a test says, the second writes zeros.
class Watched : public testing::Test {
 protected:
  using Run = std::function<void(float* output, float* workspace)>;
  static constexpr int64_t kElements = 32;

  Watched() { config_.log = Log(&logger_); }
  /// What the log says once the network is built, which the second tactic computes.
  std::string warning(Run run, DataType type = DataType::kFLOAT, int64_t elements = kElements) {
    add(std::move(run), type, elements, 2);
    const Plan plan = compile(*network_, config_);
    EXPECT_EQ(plan.schedules[0].steps[0].candidate.tactic, 1) << logger_.warnings;
    return logger_.warnings;
  }
  void add(Run run, DataType type, int64_t elements, int tactics) {
    network_ = std::make_unique<Network>(NetworkFlags{});
    auto is_first = std::make_shared<bool>(false);
    TestBehaviour behaviour;
    behaviour.requirements = {{"Test", "careless", "1", ""}};
    behaviour.leaves_outputs = true;
    behaviour.workspace = 100;
    behaviour.candidates = [=](const CandidateQuery& query) {
      std::vector<Candidate> result;
      for (int tactic = 0; tactic < tactics; ++tactic)
        result.push_back(TestOperator::like(query, tactic));
      return result;
    };
    behaviour.run_as = [=](const Candidate& candidate) { *is_first = candidate.tactic == 0; };
    auto output = std::make_shared<void*>();
    behaviour.run = [=](void const* const*, void* const* outputs, std::span<const Shape>) {
      *output = outputs[0];
      if (!*is_first) std::memset(outputs[0], 0, static_cast<size_t>(bytes_of(type, elements)));
    };
    behaviour.use_workspace = [=](void* workspace) {
      if (*is_first) run(static_cast<float*>(*output), static_cast<float*>(workspace));
    };
    Tensor* const inputs[] = {network_->add_input("x", type, {elements})};
    Layer* layer =
        network_->add_layer(TestOperator::add(std::move(behaviour)), inputs, "the layer");
    layer->output(0)->set_name("y");
    network_->mark_output(*layer->output(0));
  }

  std::unique_ptr<Network> network_;
  CollectingLogger logger_;
  BuilderConfig config_ = quick_config();
};

TEST_F(Watched, WhatIsNotWrittenIsNamed) {
  const std::string text = warning([](float* output, float*) {
    for (int i = 0; i < kElements; ++i)
      if (i != 5 && i != 9) output[i] = 0;
  });
  expect_contains(
      text,
      {"Layer 'the layer': the candidate FP32 -> FP32, tactic 0 is left out: ", "plugin 'careless'",
       "did not write 2 of 32 elements of output 0 ('y': FP32 32), the first at [5]"});
}

/// A sum that begins with what lies there.
TEST_F(Watched, WhatIsComputedFromAnOutputCountsAsNotWritten) {
  const std::string text = warning([](float* output, float*) {
    for (int i = 0; i < kElements; ++i) output[i] += 1;
  });
  expect_contains(text, {"did not write 32 of 32 elements"});
}

TEST_F(Watched, WritesBesideOutputsAndWorkspaceAreNamed) {
  const auto zeros = [](float* output) { std::fill_n(output, kElements, 0.0F); };
  expect_contains(warning([=](float* output, float*) {
                    zeros(output);
                    output[kElements + 1] = output[kElements + 2] = 3;
                  }),
                  {"wrote 8 bytes behind the end of output 0 ('y': FP32 32), from element 33 on, "
                   "where 3 stands now"});
  expect_contains(
      warning([=](float* output, float*) {
        zeros(output);
        output[-2] = 3;
      }),
      {"wrote 4 bytes before the start of output 0 ('y': FP32 32), from element -2 on"});
  expect_contains(warning([=](float* output, float* workspace) {
                    zeros(output);
                    reinterpret_cast<char*>(workspace)[101] = 3;
                  }),
                  {"wrote 1 bytes behind the end of the workspace (100 bytes), from byte 101 on"});
}

/// Bytes have no values that nothing computes.
TEST_F(Watched, ElementsThatArePatternsByChanceAreWritten) {
  const DataType type = DataType::kINT8;
  constexpr int64_t kBytes = 3 * kPatternBytes;
  add(
      [](float* output, float*) {
        for (size_t at = 0; at < kBytes; at += kPatternBytes)
          std::memcpy(reinterpret_cast<std::byte*>(output) + at,
                      pattern_of(DataType::kUINT8, Use::kWritten).data(), kPatternBytes);
      },
      type, kBytes, 1);
  compile(*network_, config_);
  EXPECT_EQ(logger_.warnings, "");
  expect_contains(warning(
                      [](float* output, float*) {
                        std::memset(output, 0, 1000);
                        std::memset(reinterpret_cast<std::byte*>(output) + 1001, 0, kBytes - 1001);
                      },
                      type, kBytes),
                  {"did not write 1 of 12288 elements", "the first at [1000]"});
}

/// The verifier looks at a part of large outputs.
TEST_F(Watched, TheEndOfALargeOutputIsLookedAt) {
  constexpr int64_t kMany = int64_t{1} << 20;
  expect_contains(
      warning([](float* output, float*) { std::fill_n(output, kMany - 1, 0.0F); }, DataType::kFLOAT,
              kMany),
      {"did not write 1 of the ", " elements that were looked at", "the first at [1048575]"});
}

TEST_F(Watched, WithoutAnotherCandidateItIsAnError) {
  add([](float*, float*) {}, DataType::kFLOAT, kElements, 1);
  try {
    compile(*network_, config_);
    FAIL() << "was built";
  } catch (const Error& error) {
    expect_contains(error.what(), {"Layer 'the layer'", "candidate FP32 -> FP32, tactic 0",
                                   "careless", "did not write 32 of 32 elements of output 0"});
  }
  config_.timing = false;
  EXPECT_NO_THROW(compile(*network_, config_)) << "nothing is run";
}

/// A built-in layer that doubles what it is given, whose second tactic is wrong in one element.
class Compared : public testing::Test {
 protected:
  Compared() {
    config_.log = Log(&logger_);
    config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
    TestBehaviour behaviour;
    behaviour.timing_key = "twice";
    behaviour.candidates = [](const CandidateQuery& query) {
      std::vector<Candidate> result;
      for (const int64_t tactic : {0, 1, 2}) result.push_back(TestOperator::like(query, tactic));
      return result;
    };
    behaviour.run_as = [this](const Candidate& candidate) { tactic_ = candidate.tactic; };
    behaviour.run = [this](void const* const* inputs, void* const* outputs,
                           std::span<const Shape>) {
      ++runs_[tactic_];
      const auto* x = static_cast<const float*>(inputs[0]);
      auto* y = static_cast<float*>(outputs[0]);
      // The last tactic rounds otherwise.
      for (int i = 0; i < 32; ++i) y[i] = tactic_ == 2 ? x[i] * 2.000001F : x[i] * 2;
      if (tactic_ == 1) y[9] += 0.01F;
    };
    Tensor* const inputs[] = {network_.add_input("x", DataType::kFLOAT, {4, 8})};
    Layer* layer = network_.add_layer(TestOperator::add(std::move(behaviour)), inputs, "the layer");
    layer->output(0)->set_name("y");
    network_.mark_output(*layer->output(0));
  }

  Network network_;
  CollectingLogger logger_;
  BuilderConfig config_ = quick_config();
  int64_t tactic_ = 0;
  std::map<int64_t, int> runs_;  ///< of each tactic
};

TEST_F(Compared, ACandidateThatDiffersIsLeftOut) {
  compile(network_, config_);
  EXPECT_EQ(logger_.warnings, "") << "nobody asked";
  EXPECT_EQ(config_.timing_cache->size(), 3u);
  config_.verification = VerificationLevel::kALL;
  const Plan plan = compile(network_, config_);
  expect_contains(
      logger_.warnings,
      {"Layer 'the layer': the candidate FP32 -> FP32, tactic 1 is left out: it differs "
       "from the CPU's kernel in FP32 in 1 of 32 elements of output 0 ('y': FP32 4x8), "
       "most at [1, 1]: ",
       " instead of ", " of difference are allowed"});
  EXPECT_EQ(logger_.warnings.find("tactic 2"), std::string::npos);
  EXPECT_NE(plan.schedules[0].steps[0].candidate.tactic, 1);
  // A build that trusts the cache does not find it there.
  for (const std::string& key : config_.timing_cache->keys())
    EXPECT_FALSE(key.starts_with("Test|") && key.ends_with("|1|")) << key;
}

TEST_F(Compared, WhatWasVerifiedIsRemembered) {
  config_.verification = VerificationLevel::kALL;
  compile(network_, config_);
  EXPECT_GT(runs_[2], 0);
  runs_.clear();
  logger_.warnings.clear();
  compile(network_, config_);
  EXPECT_NE(logger_.warnings.find("tactic 1 is left out"), std::string::npos);
  EXPECT_GT(runs_[1], 0) << "nothing is remembered of what is wrong";
  EXPECT_EQ(runs_[2], 0) << "what agreed is neither timed nor compared again";
  config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  compile(network_, config_);
  EXPECT_GT(runs_[2], 0) << "an empty cache remembers nothing";
}

TEST_F(Compared, StrictMakesItAnError) {
  config_.verification = VerificationLevel::kSTRICT;
  try {
    compile(network_, config_);
    FAIL() << "was built";
  } catch (const Error& error) {
    expect_contains(error.what(), {"'the layer'", "tactic 1", "it differs from the CPU's kernel"});
  }
}

}  // namespace
}  // namespace opwright
