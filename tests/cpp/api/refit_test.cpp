// Refitters as programs for TensorRT use them.

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;

class Refitting : public Program {
 protected:
  /// y = relu((w * x + b) * scale + shift), per channel.
  void build_affine(BuilderFlag flag) {
    config->setFlag(flag);
    ITensor& x = input("x", {1, 2, 1, 1});
    IConvolutionLayer* const convolution =
        network->addConvolutionNd(x, 2, dims({1, 1}), weights(kernel), weights(bias));
    convolution->setName("conv");
    IScaleLayer* const layer = network->addScale(*convolution->getOutput(0), ScaleMode::kCHANNEL,
                                                 weights(shift), weights(scale), kNoWeights);
    layer->setName("scale");
    ASSERT_TRUE(network->setWeightsName(weights(kernel), "the kernel")) << logger.errors;
    network->markOutput(
        *network->addActivation(*layer->getOutput(0), ActivationType::kRELU)->getOutput(0));
    std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
    ASSERT_NE(plan, nullptr) << logger.errors;
    runtime.reset(createInferRuntime(logger));
    engine.reset(runtime->deserializeCudaEngine(plan->data(), plan->size()));
    ASSERT_NE(engine, nullptr) << logger.errors;
    refitter.reset(createInferRefitter(*engine, logger));
    ASSERT_NE(refitter, nullptr) << logger.errors;
    refitter->setErrorRecorder(&recorder);
  }
  void TearDown() override {
    if (refitter) refitter->setErrorRecorder(nullptr);
    context.reset();
    refitter.reset();
  }
  std::vector<float> result() {
    if (context == nullptr) context.reset(engine->createExecutionContext());
    if (context == nullptr) return {};
    return run({{"x", {{1, 2, 1, 1}, {1, 2}}}});
  }

  std::vector<float> kernel{1, 0, 0, 1}, bias{0.5f, 1}, shift{0, 1}, scale{2, 3};
  Recorder recorder;
  std::unique_ptr<IRefitter> refitter;
};

TEST_F(Refitting, ExchangesWhatTheCompilerHasCombined) {
  build_affine(BuilderFlag::kREFIT);
  EXPECT_TRUE(engine->isRefittable());
  EXPECT_EQ(result(), (std::vector<float>{3, 10}));
  std::vector<float> const twice{2, 4}, turned{0, 1, 1, 0};
  EXPECT_TRUE(refitter->setWeights("scale", WeightsRole::kSCALE, weights(twice)));
  EXPECT_TRUE(refitter->setNamedWeights("the kernel", weights(turned)));
  EXPECT_EQ(refitter->getMissingWeights(0, nullptr), 0);  // small ones are kept
  EXPECT_TRUE(refitter->refitCudaEngine()) << logger.errors;
  EXPECT_EQ(result(), (std::vector<float>{5, 9}));
  EXPECT_TRUE(refitter->unsetNamedWeights("the kernel"));
  EXPECT_FALSE(refitter->unsetNamedWeights("the kernel"));
  EXPECT_TRUE(refitter->refitCudaEngineAsync(nullptr));
  EXPECT_EQ(result(), (std::vector<float>{5, 9}));
}

TEST_F(Refitting, TellsLayersRolesAndNames) {
  build_affine(BuilderFlag::kREFIT);
  ASSERT_EQ(refitter->getAll(0, nullptr, nullptr), 4);
  char const* layers[4];
  WeightsRole roles[4];
  EXPECT_EQ(refitter->getAll(4, layers, roles), 4);
  std::map<std::pair<std::string, int>, int> found;
  for (int i = 0; i < 4; ++i) ++found[{layers[i], static_cast<int>(roles[i])}];
  EXPECT_EQ(found.count({"conv", static_cast<int>(WeightsRole::kKERNEL)}), 1U);
  EXPECT_EQ(found.count({"scale", static_cast<int>(WeightsRole::kSHIFT)}), 1U);
  char const* names[4] = {};
  EXPECT_EQ(refitter->getAllWeights(1, names), 4);
  EXPECT_STREQ(names[0], "the kernel");
  EXPECT_EQ(names[1], nullptr);
  Weights const prototype = refitter->getWeightsPrototype("the kernel");
  EXPECT_EQ(prototype.count, 4);
  EXPECT_EQ(prototype.values, nullptr);
  EXPECT_EQ(refitter->getWeightsPrototype("other").count, -1);
  EXPECT_EQ(refitter->getNamedWeights("the kernel").values, nullptr);
  EXPECT_TRUE(refitter->setNamedWeights("the kernel", weights(kernel), TensorLocation::kHOST));
  EXPECT_EQ(refitter->getNamedWeights("the kernel").values, kernel.data());
  EXPECT_EQ(refitter->getWeightsLocation("the kernel"), TensorLocation::kHOST);
  EXPECT_EQ(refitter->getLogger(), &logger);
  EXPECT_TRUE(refitter->setMaxThreads(1));
  EXPECT_EQ(refitter->getMaxThreads(), 1);
  EXPECT_FALSE(refitter->setMaxThreads(0));
  EXPECT_FALSE(refitter->setMaxThreads(4097));
  EXPECT_TRUE(refitter->getWeightsValidation());
}

TEST_F(Refitting, WrongWeightsAreRefusedAndReported) {
  build_affine(BuilderFlag::kREFIT);
  std::vector<float> const three{1, 2, 3};
  EXPECT_FALSE(refitter->setNamedWeights("the kernel", weights(three)));
  EXPECT_FALSE(refitter->setNamedWeights("other", weights(three)));
  EXPECT_FALSE(refitter->setNamedWeights(nullptr, weights(three)));
  EXPECT_FALSE(refitter->setNamedWeights("the kernel", {DataType::kHALF, three.data(), 4}));
  EXPECT_FALSE(refitter->setNamedWeights("the kernel", {DataType::kFLOAT, nullptr, 4}));
  EXPECT_FALSE(refitter->setWeights("conv", WeightsRole::kSHIFT, weights(three)));
  EXPECT_FALSE(refitter->setWeights(nullptr, WeightsRole::kSHIFT, weights(three)));
  EXPECT_EQ(recorder.errors.size(), 7U);
  EXPECT_EQ(result(), (std::vector<float>{3, 10}));
}

TEST_F(Refitting, AStrippedEngineNeedsItsWeights) {
  build_affine(BuilderFlag::kSTRIP_PLAN);
  EXPECT_GT(engine->getEngineStat(EngineStat::kSTRIPPED_WEIGHTS_SIZE), 0);
  std::unique_ptr<IExecutionContext> const context(engine->createExecutionContext());
  ASSERT_NE(context, nullptr) << logger.errors;
  std::vector<float> const x{1, 2};
  std::vector<float> y(2);
  context->setTensorAddress("x", const_cast<float*>(x.data()));
  context->setTensorAddress("y", y.data());
  EXPECT_FALSE(context->enqueueV3(nullptr));
  EXPECT_NE(logger.errors.find("stored without its weights"), std::string::npos) << logger.errors;
  EXPECT_FALSE(refitter->refitCudaEngine());
  int32_t const missing = refitter->getMissingWeights(0, nullptr);
  EXPECT_EQ(missing, refitter->getAllWeights(0, nullptr));
  EXPECT_TRUE(refitter->setWeights("conv", WeightsRole::kKERNEL, weights(kernel)));
  EXPECT_TRUE(refitter->setWeights("conv", WeightsRole::kBIAS, weights(bias)));
  EXPECT_TRUE(refitter->setWeights("scale", WeightsRole::kSCALE, weights(scale)));
  EXPECT_TRUE(refitter->setWeights("scale", WeightsRole::kSHIFT, weights(shift)));
  EXPECT_EQ(refitter->getMissing(0, nullptr, nullptr), 0);
  EXPECT_TRUE(refitter->refitCudaEngine()) << logger.errors;
  EXPECT_EQ(result(), (std::vector<float>{3, 10}));
}

TEST_F(Refitting, AnEngineWithoutWeightsHasNoneToExchange) {
  ITensor& x = input("x", {2});
  network->markOutput(*network->addUnary(x, UnaryOperation::kABS)->getOutput(0));
  std::unique_ptr<ICudaEngine> const fixed(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(fixed, nullptr) << logger.errors;
  EXPECT_FALSE(fixed->isRefittable());
  EXPECT_EQ(createInferRefitter(*fixed, logger), nullptr);
  runtime.reset(createInferRuntime(logger));
  for (BuilderFlag const flag :
       {BuilderFlag::kREFIT, BuilderFlag::kREFIT_IDENTICAL, BuilderFlag::kSTRIP_PLAN}) {
    config->setFlag(flag);
    std::unique_ptr<IHostMemory> plan(builder->buildSerializedNetwork(*network, *config));
    config->clearFlag(flag);
    ASSERT_NE(plan, nullptr) << logger.errors;
    std::unique_ptr<ISerializationConfig> storing;
    for (int times = 0; times < 2; ++times) {  // the second time as stored by the engine itself
      context.reset();
      engine.reset(runtime->deserializeCudaEngine(plan->data(), plan->size()));
      ASSERT_NE(engine, nullptr) << logger.errors;
      EXPECT_TRUE(engine->isRefittable());
      std::unique_ptr<IRefitter> const none(createInferRefitter(*engine, logger));
      ASSERT_NE(none, nullptr) << logger.errors;
      EXPECT_EQ(none->getAllWeights(0, nullptr), 0);
      EXPECT_EQ(none->getMissingWeights(0, nullptr), 0);
      EXPECT_TRUE(none->refitCudaEngine()) << logger.errors;
      context.reset(engine->createExecutionContext());
      ASSERT_NE(context, nullptr) << logger.errors;
      EXPECT_EQ(run({{"x", {{2}, {-1, 2}}}}), (std::vector<float>{1, 2}));
      for (SerializationFlag const kept :
           {SerializationFlag::kEXCLUDE_WEIGHTS, SerializationFlag::kINCLUDE_REFIT}) {
        storing.reset(engine->createSerializationConfig());
        EXPECT_TRUE(storing->setFlag(kept));
        plan.reset(engine->serializeWithConfig(*storing));
        ASSERT_NE(plan, nullptr) << logger.errors;
      }
    }
  }
}

TEST_F(Refitting, MarksAreForWeightsThatThereAre) {
  ITensor& x = input("x", {2});
  IConstantLayer* const constant = network->addConstant(dims({2}), weights(bias));
  constant->getOutput(0)->setName("b");
  network->markOutput(
      *network->addElementWise(x, *constant->getOutput(0), ElementWiseOperation::kSUM)
           ->getOutput(0));
  EXPECT_FALSE(network->markWeightsRefittable("c"));
  EXPECT_FALSE(network->markWeightsRefittable(nullptr));
  EXPECT_FALSE(network->areWeightsMarkedRefittable("b"));
  EXPECT_TRUE(network->markWeightsRefittable("b"));
  EXPECT_TRUE(network->areWeightsMarkedRefittable("b"));
  EXPECT_TRUE(network->unmarkWeightsRefittable("b"));
  EXPECT_FALSE(network->areWeightsMarkedRefittable("b"));
  config->setFlag(BuilderFlag::kREFIT_INDIVIDUAL);
  config->setFlag(BuilderFlag::kREFIT);
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("REFIT_INDIVIDUAL is set beside REFIT"), std::string::npos);
  config->clearFlag(BuilderFlag::kREFIT);
  std::unique_ptr<ICudaEngine> const fixed(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(fixed, nullptr) << logger.errors;
  EXPECT_FALSE(fixed->isRefittable());
  EXPECT_EQ(createInferRefitter(*fixed, logger), nullptr);
  EXPECT_NE(logger.errors.find("cannot be refitted"), std::string::npos) << logger.errors;
}

}  // namespace
}  // namespace program
