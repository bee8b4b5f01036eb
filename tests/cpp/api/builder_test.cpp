// Whole programs: network or ONNX model to engine to results computed by hand, and the builder's
// objects.

#include <cstring>

#include "api/program.h"
#include "onnx/model_writer.h"

namespace program {
namespace {

using namespace nvinfer1;

using Builder = Program;

TEST_F(Builder, BuildsAndRunsANetwork) {
  ITensor& x = input("x", {1, 1, 3, 3});
  IConvolutionLayer* const conv =
      network->addConvolutionNd(x, 1, DimsHW{2, 2}, weights({1, 2, 3, 4}), weights({-40}));
  ASSERT_NE(conv, nullptr) << logger.errors;
  conv->setName("conv");
  IActivationLayer* const relu = network->addActivation(*conv->getOutput(0), ActivationType::kRELU);
  IPoolingLayer* const pool =
      network->addPoolingNd(*relu->getOutput(0), PoolingType::kMAX, DimsHW{1, 2});
  pool->getOutput(0)->setName("y");
  // The convolution of 1..9: 37 47; 67 77. Minus 40, without negatives: 0 7; 27 37.
  EXPECT_EQ(result_of(*pool->getOutput(0), {1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
            (std::vector<float>{7, 37}));
  EXPECT_EQ(shape_of(output_shape), (std::vector<int64_t>{1, 1, 2, 1}));
  EXPECT_STREQ(engine->getIOTensorName(1), "y");
}

TEST_F(Builder, BuildsForTheShapesOfAProfile) {
  ITensor& x = input("x", {-1, 2});
  IOptimizationProfile* const profile = builder->createOptimizationProfile();
  EXPECT_FALSE(profile->setDimensions("x", OptProfileSelector::kMIN, dims({-1, 2})));
  EXPECT_TRUE(profile->setDimensions("x", OptProfileSelector::kMIN, dims({1, 2})));
  EXPECT_FALSE(profile->isValid());
  EXPECT_EQ(config->addOptimizationProfile(profile), -1);
  EXPECT_NE(logger.errors.find("'x' has not all of"), std::string::npos) << logger.errors;
  EXPECT_TRUE(profile->setDimensions("x", OptProfileSelector::kOPT, dims({2, 2})));
  EXPECT_FALSE(profile->setDimensions("x", OptProfileSelector::kMAX, dims({1, 2})));
  EXPECT_TRUE(profile->setDimensions("x", OptProfileSelector::kMAX, dims({4, 2})));
  EXPECT_TRUE(profile->isValid());
  EXPECT_EQ(shape_of(profile->getDimensions("x", OptProfileSelector::kMAX)),
            (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(profile->getDimensions("z", OptProfileSelector::kMAX).nbDims, -1);
  EXPECT_EQ(config->addOptimizationProfile(profile), 0);
  EXPECT_EQ(config->getNbOptimizationProfiles(), 1);

  IUnaryLayer* const neg = network->addUnary(x, UnaryOperation::kNEG);
  EXPECT_EQ(shape_of(neg->getOutput(0)->getDimensions()), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(result_of(*neg->getOutput(0), {3, 2}, {1, 2, 3, 4, 5, 6}),
            (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(shape_of(output_shape), (std::vector<int64_t>{3, 2}));
  EXPECT_FALSE(context->setInputShape("x", dims({5, 2})));
}

TEST_F(Builder, ProfilesHaveValuesOfShapeInputs) {
  IOptimizationProfile* const profile = builder->createOptimizationProfile();
  int64_t const low[] = {1, 2}, high[] = {3, 4};
  int32_t const middle[] = {2, 3};
  EXPECT_EQ(profile->getNbShapeValues("s"), -1);
  EXPECT_TRUE(profile->setShapeValuesV2("s", OptProfileSelector::kMIN, low, 2));
  EXPECT_TRUE(profile->setShapeValues("s", OptProfileSelector::kOPT, middle, 2));
  EXPECT_TRUE(profile->setShapeValuesV2("s", OptProfileSelector::kMAX, high, 2));
  EXPECT_EQ(profile->getNbShapeValues("s"), 2);
  EXPECT_EQ(profile->getShapeValuesV2("s", OptProfileSelector::kOPT)[1], 3);
  EXPECT_EQ(profile->getShapeValuesV2("t", OptProfileSelector::kOPT), nullptr);

  ITensor& shape = input("s", {2}, DataType::kINT64);
  ITensor& x = input("x", {1, 1});
  ISliceLayer* const repeat = network->addSlice(x, dims({0, 0}), dims({1, 1}), dims({0, 0}));
  repeat->setInput(2, shape);
  ASSERT_EQ(shape_of(repeat->getOutput(0)->getDimensions()), (std::vector<int64_t>{-1, -1}))
      << logger.errors;
  EXPECT_EQ(config->addOptimizationProfile(profile), 0);
  build(*repeat->getOutput(0));
  int64_t const wanted[] = {3, 2};
  ASSERT_TRUE(context->setInputTensorAddress("s", wanted));
  EXPECT_EQ(run({{"x", {{1, 1}, {5}}}}), (std::vector<float>(6, 5.0F)));
}

TEST_F(Builder, BuildsAnEngineWithoutAFile) {
  ITensor& x = input("x", {2});
  ITensor& y = *network->addUnary(x, UnaryOperation::kABS)->getOutput(0);
  network->markOutput(y);
  EXPECT_TRUE(builder->isNetworkSupported(*network, *config));
  engine.reset(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  context.reset(engine->createExecutionContext());
  EXPECT_EQ(run({{"x", {{2}, {-1, 2}}}}), (std::vector<float>{1, 2}));
}

TEST_F(Builder, ReportsANetworkThatCannotBeBuilt) {
  Recorder recorder;
  builder->setErrorRecorder(&recorder);
  ITensor& x = input("x", {-1});
  network->markOutput(*network->addUnary(x, UnaryOperation::kABS)->getOutput(0));
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);  // There is no profile.
  ASSERT_EQ(recorder.getNbErrors(), 1);
  EXPECT_NE(std::strstr(recorder.getErrorDesc(0), "'x'"), nullptr) << recorder.getErrorDesc(0);
  EXPECT_FALSE(builder->isNetworkSupported(*network, *config));
  builder->setErrorRecorder(nullptr);
  EXPECT_EQ(recorder.references, 0);
}

TEST_F(Builder, BuildsAnOnnxModel) {
  opwright::GraphParts graph;
  graph.nodes = {opwright::node("Add", {"x", "b"}, {"s"}), opwright::node("Relu", {"s"}, {"y"})};
  graph.initializers = {opwright::float_tensor("b", {2}, {1, -5})};
  graph.inputs = {opwright::value_info("x", 1, {"1", "2"})};
  graph.outputs = {opwright::value_info("y", 1, {"1", "2"})};
  std::string const bytes = opwright::model(graph);
  std::unique_ptr<nvonnxparser::IParser> const parser(nvonnxparser::createParser(*network, logger));
  ASSERT_NE(parser, nullptr);
  EXPECT_TRUE(parser->supportsOperator("Relu"));
  EXPECT_FALSE(parser->supportsOperator("NoSuchOperator"));
  ASSERT_TRUE(parser->parse(bytes.data(), bytes.size())) << logger.errors;
  EXPECT_EQ(parser->getNbErrors(), 0);
  ASSERT_EQ(network->getNbInputs(), 1);
  EXPECT_STREQ(network->getInput(0)->getName(), "x");
  ASSERT_EQ(network->getNbOutputs(), 1);
  ITensor& y = *network->getOutput(0);
  EXPECT_STREQ(y.getName(), "y");
  network->unmarkOutput(y);
  EXPECT_EQ(result_of(y, {1, 2}, {2, 3}), (std::vector<float>{3, 0}));
}

TEST_F(Builder, TellsAllErrorsOfAnOnnxModel) {
  Recorder recorder;
  network->setErrorRecorder(&recorder);
  opwright::GraphParts graph;
  graph.nodes = {opwright::node("Foo", {"x"}, {"f"}), opwright::node("Bar", {"x"}, {"y"})};
  graph.inputs = {opwright::value_info("x", 1, {"1"})};
  graph.outputs = {opwright::value_info("y", 1, {"1"})};
  std::string const bytes = opwright::model(graph);
  std::unique_ptr<nvonnxparser::IParser> const parser(nvonnxparser::createParser(*network, logger));
  EXPECT_FALSE(parser->parse(bytes.data(), bytes.size()));
  ASSERT_EQ(parser->getNbErrors(), 2);
  nvonnxparser::IParserError const& second = *parser->getError(1);
  EXPECT_EQ(second.code(), nvonnxparser::ErrorCode::kUNSUPPORTED_NODE);
  EXPECT_EQ(second.node(), 1);
  EXPECT_STREQ(second.nodeName(), "the_Bar");
  EXPECT_STREQ(second.nodeOperator(), "Bar");
  EXPECT_NE(std::strstr(second.desc(), "register a plugin"), nullptr);
  EXPECT_EQ(parser->getError(2), nullptr);
  EXPECT_EQ(recorder.getNbErrors(), 2);
  parser->clearErrors();
  EXPECT_EQ(parser->getNbErrors(), 0);
  EXPECT_FALSE(parser->parse("garbage", 7));
  ASSERT_EQ(parser->getNbErrors(), 1);
  EXPECT_EQ(parser->getError(0)->node(), -1);
  EXPECT_FALSE(parser->parse(nullptr, 7));
  EXPECT_FALSE(parser->parseFromFile("/no/such/model.onnx", 0));
  network->setErrorRecorder(nullptr);
}

/// The V3 plugin of the example library, made by the creator that the library registered with the
/// builder's registry.
TEST_F(Builder, RunsAPluginOfALibrary) {
  IPluginRegistry& registry = builder->getPluginRegistry();
  IPluginRegistry::PluginLibraryHandle const library =
      registry.loadLibrary(OPWRIGHT_TEST_PLUGIN_DIR "/circ_pad_plugin.so");
  ASSERT_NE(library, nullptr) << logger.errors;
  auto* const creator =
      static_cast<IPluginCreatorV3One*>(registry.getCreator("circ_pad_plugin", "1"));
  ASSERT_NE(creator, nullptr);
  int32_t const pads[] = {1, 2};
  PluginField const field("pads", pads, PluginFieldType::kINT32, 2);
  PluginFieldCollection const fields{1, &field};
  std::unique_ptr<IPluginV3> plugin(creator->createPlugin("pad", &fields, TensorRTPhase::kBUILD));
  ITensor* const inputs[] = {&input("x", {3})};
  IPluginV3Layer* const layer = network->addPluginV3(inputs, 1, nullptr, 0, *plugin);
  ASSERT_NE(layer, nullptr) << logger.errors;
  plugin.reset();  // The network has a clone.
  EXPECT_EQ(layer->getType(), LayerType::kPLUGIN_V3);
  auto* const core = static_cast<IPluginV3OneCore*>(
      layer->getPlugin().getCapabilityInterface(PluginCapabilityType::kCORE));
  EXPECT_STREQ(core->getPluginName(), "circ_pad_plugin");
  network->markOutput(*layer->getOutput(0));
  engine.reset(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  context.reset(engine->createExecutionContext());
  ASSERT_NE(context, nullptr) << logger.errors;
  EXPECT_EQ(run({{"x", {{3}, {1, 2, 3}}}}), (std::vector<float>{3, 1, 2, 3, 1, 2}));

  ITensor* const none[] = {nullptr};
  EXPECT_EQ(network->addPluginV3(none, 1, nullptr, 0, layer->getPlugin()), nullptr);
  EXPECT_EQ(network->addPluginV3(nullptr, 1, nullptr, 0, layer->getPlugin()), nullptr);
  context.reset();
  engine.reset();
  network.reset();
  registry.deregisterLibrary(library);
}

/// The same of a V2 plugin.
TEST_F(Builder, RunsAV2PluginOfALibrary) {
  IPluginRegistry& registry = builder->getPluginRegistry();
  IPluginRegistry::PluginLibraryHandle const library =
      registry.loadLibrary(OPWRIGHT_TEST_PLUGIN_DIR "/circ_pad_v2_plugin.so");
  ASSERT_NE(library, nullptr) << logger.errors;
  auto* const creator =
      static_cast<IPluginCreator*>(registry.getCreator("circ_pad_v2_plugin", "1"));
  ASSERT_NE(creator, nullptr);
  int32_t const pads[] = {1, 2};
  PluginField const field("pads", pads, PluginFieldType::kINT32, 2);
  PluginFieldCollection const fields{1, &field};
  IPluginV2* const plugin = creator->createPlugin("pad", &fields);
  ITensor* const inputs[] = {&input("x", {3})};
  IPluginV2Layer* const layer = network->addPluginV2(inputs, 1, *plugin);
  ASSERT_NE(layer, nullptr) << logger.errors;
  plugin->destroy();  // The network has a clone.
  EXPECT_EQ(layer->getType(), LayerType::kPLUGIN_V2);
  EXPECT_STREQ(layer->getPlugin().getPluginType(), "circ_pad_v2_plugin");
  network->markOutput(*layer->getOutput(0));
  engine.reset(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  context.reset(engine->createExecutionContext());
  ASSERT_NE(context, nullptr) << logger.errors;
  EXPECT_EQ(run({{"x", {{3}, {1, 2, 3}}}}), (std::vector<float>{3, 1, 2, 3, 1, 2}));

  ITensor* const none[] = {nullptr};
  EXPECT_EQ(network->addPluginV2(none, 1, layer->getPlugin()), nullptr);
  EXPECT_EQ(network->addPluginV2(nullptr, 1, layer->getPlugin()), nullptr);
  context.reset();
  engine.reset();
  network.reset();
  registry.deregisterLibrary(library);
}

/// The same of a library that exports its creators.
TEST_F(Builder, RunsAPluginOfALibraryThatRegistersNothingItself) {
  IPluginRegistry& registry = builder->getPluginRegistry();
  IPluginRegistry::PluginLibraryHandle const library =
      registry.loadLibrary(OPWRIGHT_TEST_PLUGIN_DIR "/negate_plugin_v3.so");
  ASSERT_NE(library, nullptr) << logger.errors;
  auto* const creator =
      static_cast<IPluginCreatorV3One*>(registry.getCreator("NegatePluginV3", "1", "styles"));
  ASSERT_NE(creator, nullptr);
  PluginFieldCollection const none{};
  std::unique_ptr<IPluginV3> plugin(creator->createPlugin("minus", &none, TensorRTPhase::kBUILD));
  ITensor* const inputs[] = {&input("x", {2})};
  IPluginV3Layer* const layer = network->addPluginV3(inputs, 1, nullptr, 0, *plugin);
  ASSERT_NE(layer, nullptr) << logger.errors;
  network->markOutput(*layer->getOutput(0));
  engine.reset(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  context.reset(engine->createExecutionContext());
  EXPECT_EQ(run({{"x", {{2}, {1, -2}}}}), (std::vector<float>{-1, 2}));
  context.reset();
  engine.reset();
  network.reset();
  plugin.reset();
  registry.deregisterLibrary(library);
}

/// Libraries that were written for TensorRT may leave elements of an output.
TEST_F(Builder, WarnsOfElementsThatAPluginOfALibraryLeaves) {
  IPluginRegistry& registry = builder->getPluginRegistry();
  IPluginRegistry::PluginLibraryHandle const library =
      registry.loadLibrary(OPWRIGHT_TEST_PLUGIN_DIR "/negate_plugin_v3.so");
  ASSERT_NE(library, nullptr) << logger.errors;
  auto* const creator =
      static_cast<IPluginCreatorV3One*>(registry.getCreator("NegatePluginV3", "1", "styles"));
  ASSERT_NE(creator, nullptr);
  int32_t const skipped = 2;
  PluginField const field{"skipped", &skipped, PluginFieldType::kINT32, 1};
  PluginFieldCollection const fields{1, &field};
  std::unique_ptr<IPluginV3> plugin(creator->createPlugin("minus", &fields, TensorRTPhase::kBUILD));
  ITensor* const inputs[] = {&input("x", {5})};
  network->markOutput(*network->addPluginV3(inputs, 1, nullptr, 0, *plugin)->getOutput(0));
  config->setBuilderOptimizationLevel(1);
  engine.reset(builder->buildEngineWithConfig(*network, *config));
  EXPECT_NE(engine, nullptr) << logger.errors;
  EXPECT_NE(logger.warnings.find("did not write 2 of 5 elements"), std::string::npos)
      << logger.warnings;
  engine.reset();
  network.reset();
  plugin.reset();
  registry.deregisterLibrary(library);
}

/// A V2 plugin of a library that is opened as any other; its plan brings the library along.
TEST_F(Builder, RunsAV2PluginWithItsLibraryInThePlan) {
  char const* const path = OPWRIGHT_TEST_PLUGIN_DIR "/scale_plugin_v2.so";
  IPluginRegistry& registry = builder->getPluginRegistry();
  IPluginRegistry::PluginLibraryHandle const library = registry.loadLibrary(path);
  ASSERT_NE(library, nullptr) << logger.errors;
  auto* const creator = static_cast<IPluginCreator*>(registry.getCreator("ScalePluginV2", "1"));
  ASSERT_NE(creator, nullptr);
  float const factor = 2;
  int32_t const offset = -1;
  PluginField const values[] = {{"factor", &factor, PluginFieldType::kFLOAT32, 1},
                                {"offset", &offset, PluginFieldType::kINT32, 1}};
  PluginFieldCollection const fields{2, values};
  IPluginV2* const plugin = creator->createPlugin("scale", &fields);
  ITensor* const inputs[] = {&input("x", {2})};
  IPluginV2Layer* const layer = network->addPluginV2(inputs, 1, *plugin);
  plugin->destroy();  // The network has a clone.
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getType(), LayerType::kPLUGIN_V2);
  EXPECT_STREQ(layer->getPlugin().getPluginType(), "ScalePluginV2");
  network->markOutput(*layer->getOutput(0));
  config->setPluginsToSerialize(&path, 1);
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  ASSERT_NE(plan, nullptr) << logger.errors;
  network.reset();
  registry.deregisterLibrary(library);

  runtime.reset(createInferRuntime(logger));
  engine.reset(runtime->deserializeCudaEngine(plan->data(), plan->size()));
  ASSERT_NE(engine, nullptr) << logger.errors;
  context.reset(engine->createExecutionContext());
  EXPECT_EQ(run({{"x", {{2}, {1, 3}}}}), (std::vector<float>{1, 5}));
}

TEST_F(Builder, ConfigsKeepWhatIsSet) {
  EXPECT_EQ(config->getAvgTimingIterations(), 4);
  config->setAvgTimingIterations(2);
  config->setAvgTimingIterations(0);
  EXPECT_EQ(config->getAvgTimingIterations(), 2);
  config->setFlag(BuilderFlag::kBF16);
  config->setFlag(BuilderFlag::kFP16);
  config->clearFlag(BuilderFlag::kBF16);
  EXPECT_TRUE(config->getFlag(BuilderFlag::kFP16));
  EXPECT_EQ(config->getFlags(), 1U);
  config->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, 1U << 20);
  EXPECT_EQ(config->getMemoryPoolLimit(MemoryPoolType::kWORKSPACE), 1U << 20);
  EXPECT_EQ(config->getMemoryPoolLimit(MemoryPoolType::kTACTIC_DRAM), 0U);
  char const* const paths[] = {"a.so", "b.so"};
  config->setPluginsToSerialize(paths, 2);
  ASSERT_EQ(config->getNbPluginsToSerialize(), 2);
  EXPECT_STREQ(config->getPluginToSerialize(1), "b.so");
  EXPECT_EQ(config->getPluginToSerialize(2), nullptr);
  config->setProfilingVerbosity(ProfilingVerbosity::kLAYER_NAMES_ONLY);
  EXPECT_EQ(config->getProfilingVerbosity(), ProfilingVerbosity::kLAYER_NAMES_ONLY);
  logger.errors.clear();
  config->setBuilderOptimizationLevel(6);
  config->setEngineCapability(EngineCapability::kSAFETY);
  EXPECT_EQ(config->getBuilderOptimizationLevel(), 0);
  EXPECT_NE(logger.errors.find("EngineCapability.STANDARD is the only one"), std::string::npos);
  EXPECT_TRUE(config->getTiming());
  config->setTiming(false);
  EXPECT_FALSE(config->getTiming());
  config->reset();
  EXPECT_TRUE(config->getTiming());
  EXPECT_EQ(config->getFlags(), 0U);
  EXPECT_EQ(config->getNbPluginsToSerialize(), 0);
}

TEST_F(Builder, TimingCachesAreFilledAndKept) {
  ITensor& x = input("x", {2, 2});
  ITensor& y = *network->addMatrixMultiply(x, MatrixOperation::kNONE, x, MatrixOperation::kNONE)
                    ->getOutput(0);
  config->setBuilderOptimizationLevel(3);
  std::unique_ptr<ITimingCache> const cache(config->createTimingCache(nullptr, 0));
  ASSERT_NE(cache, nullptr);
  std::unique_ptr<IHostMemory> const empty(cache->serialize());
  ASSERT_TRUE(config->setTimingCache(*cache, false));
  EXPECT_EQ(result_of(y, {2, 2}, {1, 2, 3, 4}), (std::vector<float>{7, 10, 15, 22}));
  std::unique_ptr<IHostMemory> const full(config->getTimingCache()->serialize());
  EXPECT_GT(full->size(), empty->size());
  std::unique_ptr<ITimingCache> const read(config->createTimingCache(full->data(), full->size()));
  ASSERT_NE(read, nullptr) << logger.errors;
  std::unique_ptr<ITimingCache> const other(config->createTimingCache(nullptr, 0));
  EXPECT_TRUE(other->combine(*read, false));
  EXPECT_EQ(std::unique_ptr<IHostMemory>(other->serialize())->size(), full->size());
  EXPECT_TRUE(other->reset());
  EXPECT_EQ(std::unique_ptr<IHostMemory>(other->serialize())->size(), empty->size());
  EXPECT_EQ(config->createTimingCache("garbage", 7), nullptr);
}

TEST_F(Builder, WithoutTimingTheCacheStaysAsItIs) {
  ITensor& x = input("x", {2, 2});
  ITensor& y = *network->addMatrixMultiply(x, MatrixOperation::kNONE, x, MatrixOperation::kNONE)
                    ->getOutput(0);
  config->setBuilderOptimizationLevel(3);
  config->setTiming(false);
  std::unique_ptr<ITimingCache> const cache(config->createTimingCache(nullptr, 0));
  std::unique_ptr<IHostMemory> const empty(cache->serialize());
  ASSERT_TRUE(config->setTimingCache(*cache, false));
  EXPECT_EQ(result_of(y, {2, 2}, {1, 2, 3, 4}), (std::vector<float>{7, 10, 15, 22}));
  std::unique_ptr<IHostMemory> const after(config->getTimingCache()->serialize());
  EXPECT_EQ(after->size(), empty->size());
}

class Monitor final : public IProgressMonitor {
 public:
  void phaseStart(char const* phase, char const*, int32_t) noexcept override {
    running.push_back(phase);
    ++phases;
  }
  bool stepComplete(char const* phase, int32_t) noexcept override {
    EXPECT_EQ(running.back(), phase);
    return go_on;
  }
  void phaseFinish(char const* phase) noexcept override {
    EXPECT_EQ(running.back(), phase);
    running.pop_back();
  }
  std::vector<std::string> running;
  int phases = 0;
  bool go_on = true;
};

TEST_F(Builder, TellsItsProgressAndCanBeCancelled) {
  ITensor& x = input("x", {2, 2});
  ITensor& y = *network->addMatrixMultiply(x, MatrixOperation::kNONE, x, MatrixOperation::kNONE)
                    ->getOutput(0);
  Monitor monitor;
  config->setProgressMonitor(&monitor);
  build(y);
  EXPECT_GT(monitor.phases, 0);
  EXPECT_TRUE(monitor.running.empty());
  monitor.go_on = false;
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_TRUE(monitor.running.empty());
  EXPECT_NE(logger.errors.find("cancel"), std::string::npos) << logger.errors;
}

TEST_F(Builder, ThreadsAndVersion) {
  EXPECT_FALSE(builder->setMaxThreads(0));
  EXPECT_FALSE(builder->setMaxThreads(4097));
  EXPECT_TRUE(builder->setMaxThreads(1));
  EXPECT_EQ(builder->getMaxThreads(), 1);
  EXPECT_EQ(builder->getLogger(), &logger);
  EXPECT_EQ(createInferBuilder_INTERNAL(&logger, 40000), nullptr);
  EXPECT_EQ(createInferBuilder_INTERNAL(nullptr, NV_TENSORRT_VERSION), nullptr);
  EXPECT_EQ(createNvOnnxParser_INTERNAL(nullptr, &logger, NV_TENSORRT_VERSION), nullptr);
  EXPECT_EQ(getNvOnnxParserVersion(), getInferLibVersion());
}

}  // namespace
}  // namespace program
