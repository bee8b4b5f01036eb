#include "compile/tune_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "add_profile.h"
#include "backend/backend.h"
#include "base/error.h"
#include "base/limits.h"
#include "compile/build_budget.h"
#include "compile/fused_parts.h"
#include "compile/graph.h"
#include "engine_run.h"
#include "operators/activation.h"
#include "operators/matrix.h"
#include "test_operator.h"

namespace opwright {
namespace {

/// y = sigmoid(x w), whose activation a product's kernel can compute; x is rows x 8. The times of
/// kernels are those that the test says.
class TuneParts : public testing::Test {
 protected:
  TuneParts() {
    config_.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  }

  void add(const Shape& extents = {4, 8}) {
    Tensor* const x = network_.add_input("x", DataType::kFLOAT, extents);
    Tensor* const w = network_.add_constant(DataType::kFLOAT, {8, 16}, blob_of(weights_));
    Tensor* const operands[] = {x, w};
    Tensor* const product =
        network_.add_layer(std::make_shared<MatrixMultiply>(), operands, "product")->output(0);
    ActivationParams params;
    params.type = ActivationType::kSIGMOID;
    Tensor* const inputs[] = {product};
    Tensor* const y =
        network_.add_layer(std::make_shared<Activation>(params), inputs, "activation")->output(0);
    network_.mark_output(*y);
  }

  /// Milliseconds of each kernel that the cache knows, where its key has the text.
  void set_times(float fused, float product, float program, const std::string& text = "") {
    for (const std::string& key : config_.timing_cache->keys()) {
      if (key.find(text) == std::string::npos) continue;
      const bool is_plain = key.find("activation=-1") != std::string::npos;
      if (key.starts_with("MatrixMultiply|"))
        config_.timing_cache->insert(key, is_plain ? product : fused);
      else if (key.starts_with("Pointwise|"))
        config_.timing_cache->insert(key, program);
    }
  }

  std::vector<float> expected(const std::vector<float>& x) const {
    std::vector<float> y;
    for (size_t row = 0; row < x.size() / 8; ++row)
      for (size_t column = 0; column < 16; ++column) {
        double sum = 0;
        for (size_t k = 0; k < 8; ++k) sum += double{x[row * 8 + k]} * weights_[k * 16 + column];
        y.push_back(static_cast<float>(1 / (1 + std::exp(-sum))));
      }
    return y;
  }

  void expect_right(Plan plan, int rows, int profile = 0) const {
    const std::vector<float> x = random_floats(rows * 8, 7);
    expect_near(run_plan(std::move(plan), {{rows, 8}}, {x}, profile)[0], expected(x));
  }

  static std::vector<std::string> names(const Plan& plan, int profile = 0) {
    std::vector<std::string> names;
    for (const PlanStep& step : plan.schedules[static_cast<size_t>(profile)].steps)
      names.push_back(step.name);
    return names;
  }
  /// The rows of the tactic's name that begin so.
  static std::vector<TimedCandidate> considered(const PlanStep& step, const std::string& start) {
    std::vector<TimedCandidate> rows;
    for (const TimedCandidate& each : step.considered)
      if (each.tactic_name.starts_with(start)) rows.push_back(each);
    return rows;
  }

  const std::vector<float> weights_ = random_floats(8 * 16, 3);
  const std::vector<std::string> fused_ = {"product + activation"};
  const std::vector<std::string> unfused_ = {"product", "activation"};
  Network network_;
  BuilderConfig config_ = quick_config();
};

TEST_F(TuneParts, TheTimesDecide) {
  add();
  compile(network_, config_);
  const size_t known = config_.timing_cache->size();
  ASSERT_GE(known, 3u) << "the product with and without its program, and that alone";

  set_times(1, 2, 3);
  Plan plan = compile(network_, config_);
  EXPECT_EQ(names(plan), fused_);
  const std::vector<TimedCandidate> rows = considered(plan.schedules[0].steps[0], "unfused: ");
  ASSERT_EQ(rows.size(), 1u) << "what it would cost in two steps is shown";
  EXPECT_EQ(rows[0].time_ms, 5);
  expect_right(std::move(plan), 4);

  set_times(5.1f, 2, 3);
  EXPECT_EQ(names(compile(network_, config_)), fused_) << "the difference may be one of the clock";

  set_times(6, 2, 3);
  plan = compile(network_, config_);
  EXPECT_EQ(names(plan), unfused_);
  for (const PlanStep& step : plan.schedules[0].steps) {
    ASSERT_EQ(considered(step, "unfused: ").size(), 1u) << step.name;
    EXPECT_EQ(considered(step, "unfused: ")[0].time_ms, 5);
    ASSERT_EQ(considered(step, "fused: ").size(), 1u) << step.name;
    EXPECT_EQ(considered(step, "fused: ")[0].time_ms, 6);
  }
  EXPECT_EQ(plan.schedules[0].steps[0].time_ms, 2);
  EXPECT_EQ(plan.schedules[0].steps[1].time_ms, 3);
  expect_right(std::move(plan), 4);
  EXPECT_EQ(config_.timing_cache->size(), known) << "nothing was left to time";
}

TEST_F(TuneParts, WithoutTimingOneStepUnlessTheCacheKnowsBetter) {
  add();
  compile(network_, config_);
  const std::shared_ptr<TimingCache> all = config_.timing_cache;
  config_.timing = false;
  set_times(6, 2, 3);
  EXPECT_EQ(names(compile(network_, config_)), unfused_);
  set_times(4, 2, 3);
  EXPECT_EQ(names(compile(network_, config_)), fused_);

  set_times(6, 2, 3);
  for (const char* kind : {"Pointwise|", "MatrixMultiply|"}) {
    config_.timing_cache = std::make_shared<TimingCache>(all->device_identity());
    for (const std::string& key : all->keys())
      if (!key.starts_with(kind)) config_.timing_cache->insert(key, *all->find(key));
    EXPECT_EQ(names(compile(network_, config_)), fused_) << "without the times of " << kind;
  }
}

TEST_F(TuneParts, WhatTheCacheLacksIsTimedOrAnError) {
  add();
  compile(network_, config_);
  set_times(6, 2, 3);
  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, true);
  EXPECT_EQ(names(compile(network_, config_)), unfused_);
  const std::vector<std::string> keys = config_.timing_cache->keys();
  const auto program = std::ranges::find_if(
      keys, [](const std::string& key) { return key.starts_with("Pointwise|"); });
  ASSERT_NE(program, keys.end());
  ASSERT_TRUE(config_.timing_cache->update(*program, {0, std::nanf("")}));
  EXPECT_THROW(compile(network_, config_), Error);
  config_.flags.set(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS, false);
  compile(network_, config_);
  EXPECT_EQ(config_.timing_cache->keys(), keys) << "timed again";
}

TEST_F(TuneParts, WorkersOfABuildAreAskedForThePartsToo) {
  add();
  std::vector<std::string> asked;
  config_.timing_filter = [&](const std::string&, const std::string& key) {
    asked.push_back(key);
    return false;
  };
  compile(network_, config_);
  config_.timing_filter = {};
  compile(network_, config_);
  std::ranges::sort(asked);
  for (const std::string& key : config_.timing_cache->keys())
    EXPECT_TRUE(std::ranges::binary_search(asked, key)) << key;
}

/// Profiles share the network's layers, and each has its own steps.
TEST_F(TuneParts, EachProfileDecidesForItself) {
  add({-1, 8});
  for (const int64_t rows : {2, 64}) {
    OptimizationProfile& profile = add_profile(config_);
    profile.set_shape("x", Shape{1, 8}, Shape{rows, 8}, Shape{rows, 8});
  }
  compile(network_, config_);
  set_times(6, 2, 3, "LINEAR:2x");
  set_times(4, 2, 3, "LINEAR:64x");
  Plan plan = compile(network_, config_);
  EXPECT_EQ(names(plan, 0), unfused_);
  EXPECT_EQ(names(plan, 1), fused_);
  expect_right(plan, 2, 0);
  expect_right(std::move(plan), 64, 1);
}

/// Parts that do whatever the test says, in formats of its own.
class Parts : public testing::Test {
 protected:
  using Formats = std::vector<std::vector<TensorFormat>>;  // of inputs and output, per tactic

  static OperatorPtr op(const std::string& name, Formats tactics) {
    TestBehaviour behaviour;
    behaviour.timing_key = name;
    behaviour.candidates = [tactics = std::move(tactics)](const CandidateQuery& query) {
      std::vector<Candidate> candidates;
      for (const std::vector<TensorFormat>& formats : tactics) {
        Candidate candidate = TestOperator::like(query, static_cast<int64_t>(candidates.size()));
        for (size_t i = 0; i < candidate.inputs.size(); ++i)
          candidate.inputs[i].format = formats[i];
        candidate.outputs[0].format = formats.back();
        candidate.tactic_name = str("number ", candidate.tactic);
        candidates.push_back(std::move(candidate));
      }
      return candidates;
    };
    behaviour.run = [](auto...) {};
    return TestOperator::add(std::move(behaviour));
  }

  /// The program reads the product's result and x.
  void make(Formats product, Formats program, Formats fused, bool reads_x_twice) {
    Tensor* const x = network_.add_input("x", DataType::kFLOAT, {1, 8, 4, 4});
    Tensor* const of_product[] = {x};
    Tensor* const between =
        network_.add_layer(op("product", std::move(product)), of_product, "product")->output(0);
    Tensor* const of_program[] = {between, x};
    network_.mark_output(
        *network_.add_layer(op("program", std::move(program)), of_program, "program")->output(0));
    graph_.emplace(network_);
    const std::vector<GraphNode*> nodes = graph_->nodes();
    std::vector<GraphValue*> inputs = {graph_->inputs[0]};
    if (reads_x_twice) inputs.push_back(inputs[0]);
    graph_->fuse(*nodes[0], nodes[1], op("fused", std::move(fused)), std::move(inputs),
                 parts_of(*nodes[0], *nodes[1]));
    graph_->remove_dead();
  }

  /// The node with its parts; the times are those of `times` by key, or else what kernels take.
  TunedNode tune() {
    const GraphNode& node = *graph_->nodes()[0];
    const ProfileRanges ranges(network_, nullptr);
    const BuildBudget budget(resolved({}, machine_memory()), UINT64_MAX,
                             Deadline(std::numeric_limits<double>::infinity()));
    Tuner tuner(ranges, get_device(DeviceType::kCPU), config_, true, cache_, budget, {});
    TunedNode tuned = tuner.tune({&node, {}}, false);
    tune_parts(node, tuned, tuner, config_);
    return tuned;
  }
  void set(const std::string& part, float milliseconds) {
    int found = 0;
    for (const std::string& key : cache_.keys())
      if (key.find(part) != std::string::npos) cache_.insert(key, milliseconds), ++found;
    EXPECT_GT(found, 0) << part;
  }

  static constexpr auto kLinear = TensorFormat::kLINEAR, kLast = TensorFormat::kHWC;
  Network network_;
  std::optional<Graph> graph_;
  BuilderConfig config_ = quick_config();
  TimingCache cache_{get_device(DeviceType::kCPU).identity()};
};

TEST_F(Parts, AConversionBetweenThemCounts) {
  make({{kLinear, kLinear}, {kLinear, kLast}}, {{kLinear, kLinear, kLinear}},
       Formats(2, {kLinear, kLinear, kLinear}), true);
  tune();
  set("|product|", 1), set("|program|", 2), set("Reformat|", 8);
  set("FP32:LINEAR:1x8x4x4,>FP32:LINEAR:1x8x4x4,|0|number 0", 5);  // the product's other format
  set("|program|", 2), set("|fused|", 20);
  TunedNode tuned = tune();
  ASSERT_EQ(tuned.options.size(), 2u);
  EXPECT_EQ(tuned.options[1].time_ms, 7) << "without a conversion";
  EXPECT_EQ(tuned.options[1].parts, (std::vector<int>{0, 0}));
  set("Reformat|", 0.5f);
  tuned = tune();
  EXPECT_EQ(tuned.options[1].time_ms, 3.5f) << "with one";
  EXPECT_EQ(tuned.options[1].parts, (std::vector<int>{1, 0}));
}

TEST_F(Parts, WhatBothReadHasAFormatForEach) {
  make({{kLast, kLinear}}, {{kLinear, kLinear, kLinear}}, {{kLinear, kLinear, kLinear}}, true);
  TunedNode tuned = tune();
  ASSERT_EQ(tuned.options.size(), 2u);
  EXPECT_EQ(str(tuned.options[1].candidate), "FP32:HWC, FP32 -> FP32");
}

TEST_F(Parts, OneInputForBothHasOneFormat) {
  make({{kLast, kLinear}, {kLinear, kLinear}}, {{kLinear, kLinear, kLinear}},
       Formats(2, {kLinear, kLinear}), false);
  tune();
  set("|fused|", 20);
  const TunedNode tuned = tune();
  ASSERT_EQ(tuned.options.size(), 2u) << "the product channels-last, the program linear is none";
  EXPECT_EQ(str(tuned.options[1].candidate), "FP32 -> FP32");
  EXPECT_EQ(tuned.options[1].parts, (std::vector<int>{1, 0}));
}

TEST_F(Parts, OfTheProductTheFastestTacticsAreTimed) {
  const Formats six(6, {kLinear, kLinear});
  make(six, {{kLinear, kLinear, kLinear}}, six, false);
  tune();
  for (int i = 0; i < 6; ++i)
    set(str("|fused|FP32:LINEAR:1x8x4x4,>FP32:LINEAR:1x8x4x4,|", i), 9 - i);
  for (const std::string& key : cache_.keys())
    if (key.find("|product|") != std::string::npos)
      cache_.update(key, {key[key.size() - 1] - '0', NAN});
  tune();
  std::vector<char> timed;
  for (const std::string& key : cache_.keys())
    if (key.find("|product|") != std::string::npos) timed.push_back(key.back());
  EXPECT_EQ(timed, (std::vector<char>{'2', '3', '4', '5'}));
}

TEST_F(Parts, APartThatCannotRunLeavesTheNodeFused) {
  make({{kLinear, kLinear}}, {}, {{kLinear, kLinear}}, false);
  const TunedNode tuned = tune();
  EXPECT_EQ(tuned.options.size(), 1u);
  EXPECT_TRUE(tuned.parts.empty());
}

TEST(Graph, WhatChangesANodeTakesItsParts) {
  Network network;
  Tensor* const x = network.add_input("x", DataType::kFLOAT, {4});
  Tensor* const first[] = {x};
  Tensor* const between = network.add_layer(TestOperator::add({}), first, "a")->output(0);
  Tensor* const second[] = {between};
  network.mark_output(*network.add_layer(TestOperator::add({}), second, "b")->output(0));
  Graph graph(network);
  GraphNode* const node = graph.nodes()[1];
  const OperatorPtr op = node->op;
  graph.fuse(*graph.nodes()[0], node, op, {graph.inputs[0]}, parts_of(*graph.nodes()[0], *node));
  ASSERT_NE(node->parts, nullptr);
  EXPECT_EQ(node->name, "a + b");
  EXPECT_EQ(node->parts->nodes[0].name, "a");
  EXPECT_EQ(node->parts->nodes[1].name, "b");
  EXPECT_EQ(node->parts->nodes[1].inputs[0], node->parts->nodes[0].outputs[0]);
  graph.replace(node, op, {graph.inputs[0]});
  EXPECT_EQ(node->parts, nullptr);
}

}  // namespace
}  // namespace opwright
