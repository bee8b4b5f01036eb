// Debug tensors and the smaller methods of contexts, engines and runtimes, as programs use them.

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;

/// Copies what it sees.
class Listener final : public IDebugListener {
 public:
  bool processDebugTensor(void const* addr, TensorLocation location, DataType type,
                          Dims const& shape, char const* name, cudaStream_t stream) override {
    EXPECT_EQ(location, TensorLocation::kHOST);
    EXPECT_EQ(type, DataType::kFLOAT);
    EXPECT_EQ(stream, nullptr);
    auto const* const values = static_cast<float const*>(addr);
    seen.emplace_back(name, std::vector<float>(values, values + volume(shape)));
    return answer;
  }
  std::vector<std::pair<std::string, std::vector<float>>> seen;
  bool answer = true;
};

class DebugTensors : public Program {
 protected:
  /// y = -|relu(x)|, x [-1, 2] with 1 to 4 rows.
  void SetUp() override {
    Program::SetUp();
    x = &input("x", {-1, 2});
    r = network->addActivation(*x, ActivationType::kRELU)->getOutput(0);
    ITensor* const a = network->addUnary(*r, UnaryOperation::kABS)->getOutput(0);
    y = network->addUnary(*a, UnaryOperation::kNEG)->getOutput(0);
    r->setName("r");
    y->setName("y");
    IOptimizationProfile* const profile = builder->createOptimizationProfile();
    profile->setDimensions("x", OptProfileSelector::kMIN, dims({1, 2}));
    profile->setDimensions("x", OptProfileSelector::kOPT, dims({2, 2}));
    profile->setDimensions("x", OptProfileSelector::kMAX, dims({4, 2}));
    config->addOptimizationProfile(profile);
  }

  using Seen = decltype(Listener::seen);
  ITensor *x = nullptr, *r = nullptr, *y = nullptr;
  Listener listener;
};

TEST_F(DebugTensors, AreSeenWhileTheirStateIsOn) {
  EXPECT_FALSE(network->isDebugTensor(*r));
  EXPECT_TRUE(network->markDebug(*x));
  EXPECT_TRUE(network->markDebug(*r));
  EXPECT_TRUE(network->markDebug(*y));
  EXPECT_TRUE(network->unmarkDebug(*y));
  EXPECT_TRUE(network->isDebugTensor(*r));
  EXPECT_FALSE(network->isDebugTensor(*y));
  build(*y);
  EXPECT_TRUE(engine->isDebugTensor("r"));
  EXPECT_FALSE(engine->isDebugTensor("y"));
  EXPECT_TRUE(context->setDebugListener(&listener));
  EXPECT_EQ(context->getDebugListener(), &listener);
  run({{"x", {{1, 2}, {-1, 2}}}});
  EXPECT_TRUE(listener.seen.empty());
  EXPECT_TRUE(context->setTensorDebugState("r", true));
  EXPECT_TRUE(context->getDebugState("r"));
  EXPECT_FALSE(context->getDebugState("x"));
  EXPECT_EQ(run({{"x", {{2, 2}, {-1, 2, 3, -4}}}}), (std::vector<float>{0, -2, -3, 0}));
  EXPECT_EQ(listener.seen, (Seen{{"r", {0, 2, 3, 0}}}));
  EXPECT_TRUE(context->setAllTensorsDebugState(true));
  listener.seen.clear();
  run({{"x", {{1, 2}, {-1, 2}}}});
  EXPECT_EQ(listener.seen, (Seen{{"x", {-1, 2}}, {"r", {0, 2}}}));
  EXPECT_TRUE(context->setDebugListener(nullptr));
  EXPECT_EQ(context->getDebugListener(), nullptr);
  run({{"x", {{1, 2}, {-1, 2}}}});
  EXPECT_EQ(listener.seen.size(), 2u);
  EXPECT_FALSE(context->setTensorDebugState("y", true));
  EXPECT_NE(logger.errors.find("no debug tensor 'y'; it has 'x', 'r'"), std::string::npos)
      << logger.errors;
  EXPECT_FALSE(context->setTensorDebugState(nullptr, true));
  EXPECT_FALSE(engine->isDebugTensor(nullptr));
}

TEST_F(DebugTensors, OfAllThatIsNotFused) {
  EXPECT_TRUE(network->markUnfusedTensorsAsDebugTensors());
  build(*y);
  EXPECT_FALSE(engine->isDebugTensor("y"));
  EXPECT_TRUE(context->setDebugListener(&listener));
  EXPECT_FALSE(context->getUnfusedTensorsDebugState());
  EXPECT_TRUE(context->setUnfusedTensorsDebugState(true));
  EXPECT_TRUE(context->getUnfusedTensorsDebugState());
  run({{"x", {{1, 2}, {-1, 2}}}});
  EXPECT_EQ(listener.seen, (Seen{{"y", {0, -2}}}));
}

TEST_F(DebugTensors, MarkedOnesAreAmongTheUnfused) {
  network->markUnfusedTensorsAsDebugTensors();
  EXPECT_TRUE(network->unmarkUnfusedTensorsAsDebugTensors());
  network->markDebug(*r);
  build(*y);
  context->setDebugListener(&listener);
  context->setUnfusedTensorsDebugState(true);
  run({{"x", {{1, 2}, {-1, 2}}}});
  EXPECT_EQ(listener.seen, (Seen{{"r", {0, 2}}}));
}

TEST_F(DebugTensors, AListenerMayEndTheRun) {
  network->markDebug(*r);
  build(*y);
  context->setDebugListener(&listener);
  context->setAllTensorsDebugState(true);
  listener.answer = false;
  float const values[] = {-1, 2};
  float result[2] = {};
  context->setInputShape("x", dims({1, 2}));
  context->setInputTensorAddress("x", values);
  context->setTensorAddress("y", result);
  EXPECT_FALSE(context->enqueueV3(nullptr));
  EXPECT_NE(logger.errors.find("returned false for tensor 'r'"), std::string::npos)
      << logger.errors;
  listener.answer = true;
  EXPECT_TRUE(context->enqueueV3(nullptr));
  EXPECT_EQ(result[1], -2);
}

TEST_F(DebugTensors, OfAnotherNetworkAreRefused) {
  std::unique_ptr<INetworkDefinition> const other(builder->createNetworkV2(0));
  EXPECT_FALSE(other->markDebug(*r));
  EXPECT_FALSE(other->isDebugTensor(*r));
  EXPECT_NE(logger.errors.find("belongs to another network"), std::string::npos) << logger.errors;
}

TEST_F(DebugTensors, ShapesBeforeTheyAreSetAreTheEngines) {
  build(*y);
  EXPECT_EQ(shape_of(context->getTensorShape("x")), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(shape_of(context->getTensorShape("y")), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(context->getTensorShape("z").nbDims, -1);
  char const* missing[2] = {};
  EXPECT_EQ(context->inferShapes(2, missing), 1);
  EXPECT_STREQ(missing[0], "x");
  context->setInputShape("x", dims({3, 2}));
  EXPECT_EQ(context->inferShapes(2, missing), 0);
  EXPECT_EQ(shape_of(context->getTensorShape("y")), (std::vector<int64_t>{3, 2}));
}

TEST_F(DebugTensors, WhatContextsEnginesAndRuntimesKeep) {
  build(*y);
  EXPECT_FALSE(context->getDebugSync());
  context->setDebugSync(true);
  EXPECT_TRUE(context->getDebugSync());
  EXPECT_EQ(run({{"x", {{1, 2}, {-1, 2}}}}), (std::vector<float>{0, -2}));
  EXPECT_TRUE(context->setNvtxVerbosity(ProfilingVerbosity::kDETAILED));
  EXPECT_EQ(context->getNvtxVerbosity(), ProfilingVerbosity::kDETAILED);
  EXPECT_EQ(context->getRuntimeConfig()->getExecutionContextAllocationStrategy(),
            ExecutionContextAllocationStrategy::kSTATIC);
  EXPECT_TRUE(context->setCommunicator(nullptr));
  EXPECT_FALSE(context->setCommunicator(&listener));

  EXPECT_EQ(engine->getDeviceMemorySize(), static_cast<size_t>(engine->getDeviceMemorySizeV2()));
  EXPECT_EQ(engine->getDeviceMemorySizeForProfile(0),
            static_cast<size_t>(engine->getDeviceMemorySizeForProfileV2(0)));
  EXPECT_EQ(engine->getStreamableWeightsSize(), 0);
  EXPECT_TRUE(engine->setWeightStreamingBudgetV2(0));
  EXPECT_FALSE(engine->setWeightStreamingBudgetV2(1));
  EXPECT_EQ(engine->getWeightStreamingBudgetV2(), 0);
  EXPECT_EQ(engine->getWeightStreamingAutomaticBudget(), 0);
  EXPECT_EQ(engine->getWeightStreamingScratchMemorySize(), 0);

  EXPECT_EQ(runtime->getTemporaryDirectory(), nullptr);
  runtime->setTemporaryDirectory("/var/tmp");
  EXPECT_STREQ(runtime->getTemporaryDirectory(), "/var/tmp");
  runtime->setTemporaryDirectory(nullptr);
  EXPECT_EQ(runtime->getTemporaryDirectory(), nullptr);
  EXPECT_EQ(runtime->getTempfileControlFlags(), 3u);
  runtime->setTempfileControlFlags(1);
  EXPECT_EQ(runtime->getTempfileControlFlags(), 1u);
  EXPECT_EQ(runtime->loadRuntime("lean.so"), nullptr);
  EXPECT_NE(logger.errors.find("'lean.so' is not loaded"), std::string::npos) << logger.errors;
}

}  // namespace
}  // namespace program
