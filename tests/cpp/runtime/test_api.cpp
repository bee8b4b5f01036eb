#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "error_recorder.h"
#include "loggers.h"
#include "opwright/NvInferRuntime.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

/// out = x doubled; x [n, 3] in HWC-free FP32, n in 1..4 tuned for 4; k a shape input that fills
/// `rows` [k]. Its kernel asks for a little scratch memory.
std::vector<std::byte> engine_bytes() {
  constexpr size_t kWorkspace = 40;
  const FakeFunction run = [](const FakeRun& run) {
    for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i) {
      run.out<float>(0)[i] = 2 * run.in<float>(0)[i];
    }
  };
  register_fake("TestDouble", {.run = run, .workspace = kWorkspace});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const Expr k = plan.symbol(Symbol::Kind::kInputValue, "k.0", "k", 0);
  const int x = plan.input("x", kFp32, {n, 3}, {1, 3}, {4, 3});
  plan.input("k", kInt64, {}, {1}, {5}, true);
  plan.step("double", "TestDouble", {x}, {plan.output("out", kFp32, {n, 3})}).considered = {
      {"FP32 -> FP32", 0, "only", 0.5f, 0, ""}};
  const int v = plan.values("v", kInt64, {k + n});
  plan.schedule().copies = {{v, plan.port("sum", kInt64, {1})}};
  plan.schedule().workspace_size = kWorkspace;
  std::vector<std::byte> bytes;
  for (const Blob& piece : serialize(plan.finish())) {
    bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
  }
  return bytes;
}

class Api : public testing::Test {
 protected:
  void SetUp() override {
    runtime.reset(createInferRuntime(logger));
    ASSERT_NE(runtime, nullptr);
    auto bytes = engine_bytes();
    engine.reset(runtime->deserializeCudaEngine(bytes.data(), bytes.size()));
    std::fill(bytes.begin(), bytes.end(), std::byte{0});  // may be freed afterwards
    ASSERT_NE(engine, nullptr) << logger.last();
    context.reset(engine->createExecutionContext());
    ASSERT_NE(context, nullptr);
  }
  ErrorLogger logger;
  std::unique_ptr<IRuntime> runtime;
  std::unique_ptr<ICudaEngine> engine;
  std::unique_ptr<IExecutionContext> context;
};

TEST_F(Api, DescribesTheEngine) {
  EXPECT_STREQ(engine->getName(), "fake");
  EXPECT_EQ(engine->getNbLayers(), 1);
  EXPECT_EQ(engine->getNbIOTensors(), 4);
  EXPECT_STREQ(engine->getIOTensorName(1), "k");
  EXPECT_STREQ(engine->getIOTensorName(2), "out");
  EXPECT_EQ(engine->getIOTensorName(4), nullptr);
  EXPECT_EQ(engine->getTensorIOMode("x"), TensorIOMode::kINPUT);
  EXPECT_EQ(engine->getTensorIOMode("sum"), TensorIOMode::kOUTPUT);
  EXPECT_EQ(engine->getTensorIOMode("nothing"), TensorIOMode::kNONE);
  EXPECT_EQ(engine->getTensorDataType("k"), DataType::kINT64);
  EXPECT_EQ(engine->getTensorLocation("k"), TensorLocation::kHOST);
  EXPECT_EQ(engine->getTensorLocation("x"), TensorLocation::kDEVICE);
  EXPECT_TRUE(engine->isShapeInferenceIO("k"));
  EXPECT_TRUE(engine->isShapeInferenceIO("sum"));
  EXPECT_FALSE(engine->isShapeInferenceIO("out"));
  EXPECT_EQ(engine->getAliasedInputTensor("out"), nullptr);
  const Dims shape = engine->getTensorShape("x");
  EXPECT_EQ(shape.nbDims, 2);
  EXPECT_EQ(shape.d[0], -1);
  EXPECT_EQ(shape.d[1], 3);
  EXPECT_EQ(engine->getTensorFormat("x"), TensorFormat::kLINEAR);
  EXPECT_EQ(engine->getTensorBytesPerComponent("x"), -1);
  EXPECT_STREQ(engine->getTensorFormatDesc("out"), "FP32 in the layout LINEAR");
  EXPECT_EQ(engine->getNbOptimizationProfiles(), 1);
  EXPECT_EQ(engine->getProfileShape("x", 0, OptProfileSelector::kMIN).d[0], 1);
  EXPECT_EQ(engine->getProfileShape("x", 0, OptProfileSelector::kMAX).d[0], 4);
  EXPECT_EQ(engine->getProfileShape("out", 0, OptProfileSelector::kMAX).nbDims, -1);
  EXPECT_EQ(engine->getProfileShape("k", 0, OptProfileSelector::kMAX).nbDims, 0);
  EXPECT_EQ(engine->getProfileTensorValuesV2("k", 0, OptProfileSelector::kMAX)[0], 5);
  EXPECT_EQ(engine->getProfileTensorValuesV2("x", 0, OptProfileSelector::kMAX), nullptr);
  EXPECT_EQ(engine->getProfilingVerbosity(), ProfilingVerbosity::kDETAILED);
}

TEST_F(Api, Runs) {
  const char* names[4] = {};
  EXPECT_EQ(context->inferShapes(4, names), 2);
  EXPECT_STREQ(names[0], "x");
  EXPECT_STREQ(names[1], "k");
  EXPECT_FALSE(context->allInputDimensionsSpecified());
  EXPECT_EQ(context->getTensorShape("out").d[0], -1);
  EXPECT_EQ(context->getTensorStrides("out").d[0], -1);

  float x[6] = {1, 2, 3, 4, 5, 6}, out[6] = {};
  int64_t k = 3, sum = 0;
  EXPECT_TRUE(context->setInputShape("x", Dims2(2, 3)));
  EXPECT_TRUE(context->setInputTensorAddress("x", x));
  EXPECT_TRUE(context->setTensorAddress("k", &k));
  EXPECT_TRUE(context->setOutputTensorAddress("out", out));
  EXPECT_TRUE(context->setTensorAddress("sum", &sum));
  EXPECT_EQ(context->getTensorAddress("x"), x);
  EXPECT_EQ(context->inferShapes(0, nullptr), 0);
  EXPECT_EQ(context->getTensorShape("out").d[0], 2);
  EXPECT_EQ(context->getTensorStrides("out").d[0], 3);
  EXPECT_EQ(context->getMaxOutputSize("out"), 24);
  EXPECT_TRUE(context->enqueueV3(nullptr)) << logger.last();
  EXPECT_EQ(out[5], 12);
  EXPECT_EQ(sum, 5);

  float other[6] = {};
  k = 4;
  void* bindings[] = {out, &k, other, &sum};
  EXPECT_TRUE(context->executeV2(bindings));
  EXPECT_EQ(other[5], 24);
  EXPECT_EQ(sum, 6);
}

TEST_F(Api, SerializedAgainItIsTheSame) {
  const std::unique_ptr<IHostMemory> memory(engine->serialize());
  ASSERT_NE(memory, nullptr);
  const auto bytes = engine_bytes();
  ASSERT_EQ(memory->size(), bytes.size());
  EXPECT_EQ(std::memcmp(memory->data(), bytes.data(), bytes.size()), 0);
}

TEST_F(Api, ErrorsGoToLoggerAndRecorder) {
  KeepingErrorRecorder recorder;
  runtime->setErrorRecorder(&recorder);
  EXPECT_EQ(recorder.references, 1);
  const char junk[] = "this is not an engine";
  EXPECT_EQ(runtime->deserializeCudaEngine(junk, sizeof(junk)), nullptr);
  EXPECT_NE(logger.last().find("no engine"), std::string::npos);
  ASSERT_EQ(recorder.getNbErrors(), 1);
  EXPECT_EQ(recorder.getErrorCode(0), ErrorCode::kINVALID_ARGUMENT);
  EXPECT_LE(recorder.errors[0].second.size(), IErrorRecorder::kMAX_DESC_LENGTH);
  EXPECT_EQ(runtime->deserializeCudaEngine(nullptr, 5), nullptr);
  // What the runtime makes afterwards inherits the recorder.
  auto bytes = engine_bytes();
  std::unique_ptr<ICudaEngine> second(runtime->deserializeCudaEngine(bytes.data(), bytes.size()));
  EXPECT_EQ(second->getErrorRecorder(), &recorder);
  EXPECT_EQ(recorder.references, 2);
  second.reset();
  runtime->setErrorRecorder(nullptr);
  EXPECT_EQ(recorder.references, 0);

  context->setErrorRecorder(&recorder);
  recorder.clear();
  EXPECT_FALSE(context->setInputShape("x", Dims2(9, 3)));
  EXPECT_FALSE(context->setInputShape("y", Dims2(1, 3)));
  EXPECT_NE(logger.last().find("no input or output 'y'; it has 'x', 'k', 'out', 'sum'"),
            std::string::npos);
  EXPECT_FALSE(context->setInputShape("out", Dims2(1, 3)));
  EXPECT_FALSE(context->setTensorAddress(nullptr, nullptr));
  EXPECT_FALSE(context->enqueueV3(nullptr));
  EXPECT_FALSE(context->executeV2(nullptr));
  EXPECT_EQ(context->getTensorShape("nothing").nbDims, -1);
  EXPECT_EQ(context->getMaxOutputSize("out"), -1);
  EXPECT_FALSE(context->setOptimizationProfileAsync(1, nullptr));
  EXPECT_EQ(recorder.getNbErrors(), 9);
  context->setErrorRecorder(nullptr);
}

class TestAllocator final : public IOutputAllocator {
 public:
  void* reallocateOutput(char const* name, void*, uint64_t size, uint64_t) noexcept override {
    EXPECT_STREQ(name, "out");
    memory.resize(size);
    return memory.data();
  }
  void notifyShape(char const*, Dims const& dims) noexcept override { shape = dims; }
  std::vector<char> memory;
  Dims shape{};
};

class TestProfiler final : public IProfiler {
 public:
  void reportLayerTime(char const* name, float) noexcept override { layers.push_back(name); }
  std::vector<std::string> layers;
};

TEST_F(Api, AllocatorsAndProfilers) {
  TestAllocator allocator;
  TestProfiler profiler;
  float x[3] = {1, 2, 3};
  int64_t k = 1, sum;
  context->setInputShape("x", Dims2(1, 3));
  context->setTensorAddress("x", x);
  context->setTensorAddress("k", &k);
  context->setTensorAddress("sum", &sum);
  EXPECT_TRUE(context->setOutputAllocator("out", &allocator));
  EXPECT_EQ(context->getOutputAllocator("out"), &allocator);
  context->setProfiler(&profiler);
  EXPECT_TRUE(context->enqueueV3(nullptr)) << logger.last();
  EXPECT_EQ(allocator.memory.size(), 12u);
  EXPECT_EQ(reinterpret_cast<float*>(allocator.memory.data())[2], 6);
  EXPECT_EQ(allocator.shape.nbDims, 2);
  EXPECT_EQ(allocator.shape.d[0], 1);
  EXPECT_EQ(profiler.layers, (std::vector<std::string>{"double"}));
  context->setEnqueueEmitsProfile(false);
  context->enqueueV3(nullptr);
  EXPECT_EQ(profiler.layers.size(), 1u);
  EXPECT_TRUE(context->reportToProfiler());
  EXPECT_EQ(profiler.layers.size(), 2u);
}

TEST_F(Api, UserManagedMemoryMustBeGiven) {
  context.reset(engine->createExecutionContext(ExecutionContextAllocationStrategy::kUSER_MANAGED));
  float x[3] = {1, 2, 3}, out[3];
  int64_t k = 1, sum;
  context->setInputShape("x", Dims2(1, 3));
  void* bindings[] = {x, &k, out, &sum};
  EXPECT_FALSE(context->executeV2(bindings));
  EXPECT_NE(logger.last().find("setDeviceMemoryV2"), std::string::npos);
  alignas(64) char memory[128];
  const auto size = static_cast<size_t>(engine->getDeviceMemorySizeV2());
  EXPECT_EQ(size, 40U);
  EXPECT_EQ(context->updateDeviceMemorySizeForShapes(), size);
  context->setDeviceMemoryV2(memory + 4, size);
  EXPECT_NE(logger.last().find("not aligned to 64 bytes"), std::string::npos) << logger.last();
  context->setDeviceMemoryV2(memory, size - 1);
  EXPECT_NE(logger.last().find("profile 0 needs " + std::to_string(size)), std::string::npos)
      << logger.last();
  EXPECT_FALSE(context->executeV2(bindings));
  context->setDeviceMemoryV2(memory, size);
  EXPECT_TRUE(context->executeV2(bindings)) << logger.last();
}

TEST_F(Api, ContextsAreMadeAsARuntimeConfigSays) {
  const std::unique_ptr<IRuntimeConfig> config(engine->createRuntimeConfig());
  EXPECT_EQ(config->getExecutionContextAllocationStrategy(),
            ExecutionContextAllocationStrategy::kSTATIC);
  config->setExecutionContextAllocationStrategy(ExecutionContextAllocationStrategy::kUSER_MANAGED);
  context.reset(engine->createExecutionContext(config.get()));
  float x[3] = {1, 2, 3}, out[3];
  int64_t k = 1, sum;
  context->setInputShape("x", Dims2(1, 3));
  void* bindings[] = {x, &k, out, &sum};
  EXPECT_FALSE(context->executeV2(bindings));
  EXPECT_NE(logger.last().find("USER_MANAGED"), std::string::npos) << logger.last();
  EXPECT_EQ(engine->createExecutionContext(static_cast<ExecutionContextAllocationStrategy>(3)),
            nullptr);
}

TEST_F(Api, TellsWhatItIs) {
  EXPECT_FALSE(engine->isRefittable());
  EXPECT_EQ(engine->getEngineCapability(), EngineCapability::kSTANDARD);
  EXPECT_EQ(engine->getHardwareCompatibilityLevel(), HardwareCompatibilityLevel::kNONE);
  EXPECT_EQ(engine->getTacticSources(), 0U);
  EXPECT_EQ(engine->getNbAuxStreams(), 0);
  EXPECT_EQ(engine->getEngineStat(EngineStat::kTOTAL_WEIGHTS_SIZE), 0);
  EXPECT_EQ(engine->getEngineStat(EngineStat::kSTRIPPED_WEIGHTS_SIZE), 0);
  EXPECT_EQ(engine->getEngineStat(static_cast<EngineStat>(2)), -1);
  context->setPersistentCacheLimit(5);
  EXPECT_EQ(context->getPersistentCacheLimit(), 5U);
}

/// Gives bytes, at most ten at once.
template <class Interface>
class TestReader : public Interface {
 public:
  explicit TestReader(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  int64_t next(void* to, int64_t size) {
    const int64_t count = std::min<int64_t>({size, 10, static_cast<int64_t>(bytes_.size()) - at});
    std::memcpy(to, bytes_.data() + at, count);
    at += count;
    return count;
  }
  int64_t at = 0;

 private:
  const std::vector<std::byte> bytes_;
};
class ReaderV1 final : public TestReader<IStreamReader> {
 public:
  using TestReader::TestReader;
  int64_t read(void* to, int64_t size) override { return next(to, size); }
};
class ReaderV2 final : public TestReader<IStreamReaderV2> {
 public:
  using TestReader::TestReader;
  int64_t read(void* to, int64_t size, cudaStream_t stream) noexcept override {
    return stream == nullptr ? next(to, size) : -1;
  }
  bool seek(int64_t, SeekPosition) noexcept override { return false; }
};

TEST_F(Api, LoadsFromStreams) {
  auto bytes = engine_bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  bytes.resize(bytes.size() + 5);
  ReaderV1 first(bytes);
  engine.reset();
  engine.reset(runtime->deserializeCudaEngine(first));
  ASSERT_NE(engine, nullptr) << logger.last();
  EXPECT_EQ(first.at, size);
  EXPECT_STREQ(engine->getName(), "fake");
  ReaderV2 second(bytes);
  engine.reset(runtime->deserializeCudaEngine(second));
  ASSERT_NE(engine, nullptr) << logger.last();
  EXPECT_EQ(second.at, size);
  bytes.resize(200);
  ReaderV2 cut(bytes);
  EXPECT_EQ(runtime->deserializeCudaEngine(cut), nullptr);
  EXPECT_NE(logger.last().find("ends after 200 bytes"), std::string::npos) << logger.last();
}

TEST_F(Api, InspectorSpeaksJson) {
  const std::unique_ptr<IEngineInspector> inspector(engine->createEngineInspector());
  const std::string layer = inspector->getLayerInformation(0, LayerInformationFormat::kJSON);
  for (const char* part : {"\"Name\": \"double\"", "\"LayerType\": \"TestDouble\"",
                           "\"Format/Datatype\": \"FP32 LINEAR\"", "\"n\""}) {
    EXPECT_NE(layer.find(part), std::string::npos) << part << " in " << layer;
  }
  EXPECT_STREQ(inspector->getLayerInformation(0, LayerInformationFormat::kONELINE),
               "double (TestDouble): FP32 -> FP32, tactic 0 of 1 candidates, -");
  EXPECT_EQ(inspector->getLayerInformation(1, LayerInformationFormat::kJSON), nullptr);
  EXPECT_NE(std::string(inspector->getEngineInformation(LayerInformationFormat::kONELINE))
                .find("engine 'fake'"),
            std::string::npos);
}

TEST(ApiRuntime, RefusesWhatItCannotServe) {
  EXPECT_EQ(createInferRuntime_INTERNAL(nullptr, NV_TENSORRT_VERSION), nullptr);
  ErrorLogger logger;
  EXPECT_EQ(createInferRuntime_INTERNAL(&logger, 80000), nullptr);
  EXPECT_NE(logger.last().find("API level 8"), std::string::npos);
  EXPECT_EQ(getInferLibVersion(), NV_TENSORRT_VERSION);
  const std::unique_ptr<IRuntime> runtime(createInferRuntime(logger));
  EXPECT_FALSE(runtime->getEngineHostCodeAllowed());
  EXPECT_FALSE(runtime->getEngineDeviceCodeAllowed());
  runtime->setEngineDeviceCodeAllowed(true);
  EXPECT_TRUE(runtime->getEngineDeviceCodeAllowed());
  EXPECT_FALSE(runtime->getEngineHostCodeAllowed());
  EXPECT_FALSE(runtime->setMaxThreads(0));
  EXPECT_FALSE(runtime->setMaxThreads(4097));
  EXPECT_TRUE(runtime->setMaxThreads(1));
  EXPECT_EQ(runtime->getMaxThreads(), 1);
  EXPECT_EQ(runtime->getLogger(), &logger);
}

}  // namespace
}  // namespace opwright
