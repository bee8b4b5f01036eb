#include "compile/tuner.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "engine_run.h"
#include "opwright/logger.h"
#include "test_operator.h"

namespace opwright {
namespace {

/// An exception of a plugin's own.
struct PluginTrouble : std::exception {
  const char* what() const noexcept override { return "the plugin's own words"; }
};

class CollectingLogger final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity == Severity::kWARNING) warnings += message;
    if (severity == Severity::kVERBOSE) verbose += message;
  }
  std::string warnings, verbose;
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
  BuildConfig config_ = quick_config();
};

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
  EXPECT_NE(logger_.verbose.find("the layer"), std::string::npos);

  config_.timing = false;
  EXPECT_EQ(compile(network_, config_).schedules[0].steps[0].candidate.tactic, 0);
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

TEST_F(Tuning, WhenAllCandidatesFailTheErrorNamesTheLayerAndTheFirstReason) {
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
    EXPECT_NE(text.find("no kernel 0"), std::string::npos) << text;
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

}  // namespace
}  // namespace opwright
