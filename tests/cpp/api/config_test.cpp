// What a builder's config keeps and refuses, and engines that are written to a stream.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;

using Config = Program;

TEST_F(Config, ConfigsRefuseWhatIsNotHere) {
  config->setHardwareCompatibilityLevel(static_cast<HardwareCompatibilityLevel>(3));
  EXPECT_NE(logger.errors.find("there is no level 3"), std::string::npos);
  config->setRuntimePlatform(RuntimePlatform::kWINDOWS_AMD64);
  EXPECT_NE(logger.errors.find("RuntimePlatform.SAME_AS_BUILD is the only one"), std::string::npos);
  config->setMaxNbTactics(0);
  EXPECT_NE(logger.errors.find("number of tactics is 0"), std::string::npos);
  EXPECT_EQ(config->getMaxNbTactics(), -1);
  ITensor& y = *network->addUnary(input("x", {2}), UnaryOperation::kNEG)->getOutput(0);
  network->markOutput(y);
  config->setFlag(BuilderFlag::kSAFETY_SCOPE);
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("BuilderFlag.SAFETY_SCOPE is set"), std::string::npos)
      << logger.errors;
  config->clearFlag(BuilderFlag::kSAFETY_SCOPE);
  config->setFlag(BuilderFlag::kTF32);
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  EXPECT_NE(plan, nullptr) << logger.errors;
}

TEST_F(Config, LimitsAreKeptAndGoWithReset) {
  EXPECT_EQ(config->getLimits(), Limits());
  Limits limits;
  limits.build_memory = 1000;
  limits.build_seconds = 60;
  EXPECT_TRUE(config->setLimits(limits));
  EXPECT_EQ(config->getLimits(), limits);
  Limits wrong = limits;
  wrong.steps = -1;
  EXPECT_FALSE(config->setLimits(wrong));
  EXPECT_NE(logger.errors.find("steps is -1"), std::string::npos) << logger.errors;
  wrong.steps = 0;
  wrong.run_seconds = std::nan("");
  EXPECT_FALSE(config->setLimits(wrong));
  EXPECT_EQ(config->getLimits(), limits);

  EXPECT_EQ(config->getKernelSeconds(), 60);
  EXPECT_TRUE(config->setKernelSeconds(2.5));
  EXPECT_FALSE(config->setKernelSeconds(0));
  EXPECT_FALSE(config->setKernelSeconds(std::nan("")));
  EXPECT_EQ(config->getKernelSeconds(), 2.5);

  EXPECT_EQ(config->getVerification(), VerificationLevel::kPLUGINS);
  EXPECT_TRUE(config->setVerification(VerificationLevel::kSTRICT));
  EXPECT_FALSE(config->setVerification(static_cast<VerificationLevel>(3)));
  EXPECT_EQ(config->getVerification(), VerificationLevel::kSTRICT);
  EXPECT_FALSE(config->getAllTactics());
  config->setAllTactics(true);
  EXPECT_TRUE(config->getAllTactics());

  std::unique_ptr<IRuntime> const runtime(createInferRuntime(logger));
  EXPECT_EQ(runtime->getLimits(), Limits());
  EXPECT_TRUE(runtime->setLimits(limits));
  EXPECT_EQ(runtime->getLimits(), limits);
  EXPECT_FALSE(runtime->setLimits(wrong));
  EXPECT_EQ(runtime->getLimits(), limits);

  config->reset();
  EXPECT_EQ(config->getLimits(), Limits());
  EXPECT_EQ(config->getKernelSeconds(), 60);
  EXPECT_EQ(config->getVerification(), VerificationLevel::kPLUGINS);
  EXPECT_FALSE(config->getAllTactics());
}

TEST_F(Config, BuildsEndAtTheirLimits) {
  config->setBuilderOptimizationLevel(3);  // which times layers
  ITensor& y = *network->addUnary(input("x", {1024, 1024}), UnaryOperation::kNEG)->getOutput(0);
  y.setName("y");
  network->markOutput(y);
  Limits limits;
  limits.build_memory = 1 << 20;
  config->setBuilderOptimizationLevel(3);  // layers are timed
  EXPECT_TRUE(config->setLimits(limits));
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("limit of 1.0 MiB (build_memory)"), std::string::npos)
      << logger.errors;
  logger.errors.clear();
  limits.build_memory = 64 << 20;
  EXPECT_TRUE(config->setLimits(limits));
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  EXPECT_NE(plan, nullptr) << logger.errors;
}

TEST_F(Config, ThereIsNoDla) {
  EXPECT_EQ(builder->getNbDLACores(), 0);
  EXPECT_EQ(builder->getMaxDLABatchSize(), 0);
  config->setDLACore(-1);
  EXPECT_EQ(logger.errors, "");
  config->setDLACore(0);
  EXPECT_NE(logger.errors.find("there is no DLA 0, as no DLA is driven"), std::string::npos);
  EXPECT_EQ(config->getDLACore(), -1);
  EXPECT_FALSE(config->canRunOnDLA(network->addUnary(input("x", {2}), UnaryOperation::kNEG)));
  std::unique_ptr<IRuntime> const runtime(createInferRuntime(logger));
  EXPECT_EQ(runtime->getNbDLACores(), 0);
  runtime->setDLACore(1);
  EXPECT_NE(logger.errors.find("there is no DLA 1"), std::string::npos);
  EXPECT_EQ(runtime->getDLACore(), -1);
}

TEST_F(Config, LayersRunWhereTheEngineDoes) {
  config->setTiming(false);
  ILayer* const layer = network->addUnary(input("x", {2}), UnaryOperation::kNEG);
  layer->setName("negate");
  network->markOutput(*layer->getOutput(0));
  DeviceType const device = config->getDefaultDeviceType();
  EXPECT_FALSE(config->isDeviceTypeSet(layer));
  EXPECT_EQ(config->getDeviceType(layer), device);
  config->setDeviceType(layer, device);
  EXPECT_TRUE(config->isDeviceTypeSet(layer));
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  EXPECT_NE(plan, nullptr) << logger.errors;
  config->setDeviceType(layer, DeviceType::kDLA);
  EXPECT_EQ(config->getDeviceType(layer), DeviceType::kDLA);
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("layer 'negate' is to run on a DLA"), std::string::npos)
      << logger.errors;
  config->resetDeviceType(layer);
  EXPECT_FALSE(config->isDeviceTypeSet(layer));
  IHostMemory* text = plan.get();
  std::unique_ptr<IHostMemory> const again(
      builder->buildSerializedNetwork(*network, *config, text));
  EXPECT_NE(again, nullptr) << logger.errors;
  EXPECT_EQ(text, nullptr);
}

TEST_F(Config, TheCompilerHasNoOptions) {
  EXPECT_TRUE(config->setBuildRoute(""));
  EXPECT_EQ(logger.errors, "");
  EXPECT_FALSE(config->setBuildRoute("-kgen:codegen:cuda_tile=2"));
  EXPECT_NE(logger.errors.find("no options of the compiler"), std::string::npos);
  EXPECT_STREQ(config->getBuildRoute(), "");
  EXPECT_NE(std::strstr(config->getAllBuildRoutes(), "\"tuner_options\": []"), nullptr);
  EXPECT_FALSE(config->setRemoteAutoTuningConfig("ssh://elsewhere"));
  EXPECT_EQ(config->getRemoteAutoTuningConfig(), nullptr);
}

TEST_F(Config, TimesCanBeEdited) {
  config->setBuilderOptimizationLevel(3);
  ITensor& x = input("x", {2, 2});
  network->markOutput(
      *network->addMatrixMultiply(x, MatrixOperation::kNONE, x, MatrixOperation::kNONE)
           ->getOutput(0));
  std::unique_ptr<ITimingCache> const cache(config->createTimingCache(nullptr, 0));
  EXPECT_EQ(cache->queryKeys(nullptr, 0), 0);
  ASSERT_TRUE(config->setTimingCache(*cache, false));
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  ASSERT_NE(plan, nullptr) << logger.errors;
  int64_t const count = cache->queryKeys(nullptr, 0);
  ASSERT_GE(count, 1);
  std::vector<TimingCacheKey> keys(static_cast<size_t>(count) + 1, TimingCacheKey{});
  EXPECT_EQ(cache->queryKeys(keys.data(), 0), count);
  EXPECT_EQ(keys[0].data[0] | keys[0].data[1] | keys[0].data[2] | keys[0].data[3], 0);
  EXPECT_EQ(cache->queryKeys(keys.data(), count + 1), count);
  TimingCacheValue value = cache->query(keys[0]);
  ASSERT_NE(value.tacticHash, TimingCacheValue::kINVALID_TACTIC_HASH);
  EXPECT_GT(value.timingMSec, 0);
  value.timingMSec = 1.25F;
  EXPECT_TRUE(cache->update(keys[0], value));
  EXPECT_EQ(cache->query(keys[0]).timingMSec, 1.25F);
  EXPECT_FALSE(cache->update(keys[0], {value.tacticHash, -1.0F}));
  EXPECT_FALSE(cache->update(keys[0], {value.tacticHash + 1, 1.0F}));
  EXPECT_FALSE(cache->update(keys.back(), value)) << "a key of zeros";
  EXPECT_EQ(cache->query(keys.back()).tacticHash, TimingCacheValue::kINVALID_TACTIC_HASH);
  EXPECT_TRUE(cache->update(keys[0], {value.tacticHash, std::nanf("")}));
  EXPECT_EQ(cache->queryKeys(nullptr, 0), count - 1);
  EXPECT_EQ(cache->queryKeys(keys.data(), -1), -1);
}

TEST_F(Config, ProfilesKeepTheirMemoryTarget) {
  IOptimizationProfile* const profile = builder->createOptimizationProfile();
  EXPECT_EQ(profile->getExtraMemoryTarget(), 1.0F);
  EXPECT_TRUE(profile->setExtraMemoryTarget(0.25F));
  EXPECT_FALSE(profile->setExtraMemoryTarget(1.5F));
  EXPECT_FALSE(profile->setExtraMemoryTarget(std::nanf("")));
  EXPECT_EQ(profile->getExtraMemoryTarget(), 0.25F);
}

TEST_F(Config, EnginesForTheCpuMeetEveryLevel) {
  config->setTiming(false);
  config->setDefaultDeviceType(DeviceType::kCPU);
  config->setHardwareCompatibilityLevel(HardwareCompatibilityLevel::kAMPERE_PLUS);
  EXPECT_EQ(config->getHardwareCompatibilityLevel(), HardwareCompatibilityLevel::kAMPERE_PLUS);
  config->setFlag(BuilderFlag::kVERSION_COMPATIBLE);
  network->markOutput(*network->addUnary(input("x", {2}), UnaryOperation::kNEG)->getOutput(0));
  std::unique_ptr<ICudaEngine> const engine(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  EXPECT_EQ(engine->getHardwareCompatibilityLevel(), HardwareCompatibilityLevel::kNONE);
}

TEST_F(Config, EnginesAreStoredAsTheirConfigSays) {
  config->setTiming(false);
  network->markOutput(*network->addUnary(input("x", {2}), UnaryOperation::kNEG)->getOutput(0));
  std::unique_ptr<ICudaEngine> const engine(builder->buildEngineWithConfig(*network, *config));
  ASSERT_NE(engine, nullptr) << logger.errors;
  std::unique_ptr<ISerializationConfig> const how(engine->createSerializationConfig());
  EXPECT_EQ(how->getFlags(), 0U);
  EXPECT_TRUE(how->setFlag(SerializationFlag::kEXCLUDE_LEAN_RUNTIME));
  EXPECT_TRUE(how->getFlag(SerializationFlag::kEXCLUDE_LEAN_RUNTIME));
  EXPECT_FALSE(how->setFlags(8));
  EXPECT_FALSE(how->setFlag(static_cast<SerializationFlag>(3)));
  EXPECT_EQ(how->getFlags(), 2U);
  std::unique_ptr<IHostMemory> const plain(engine->serialize());
  std::unique_ptr<IHostMemory> const same(engine->serializeWithConfig(*how));
  ASSERT_NE(same, nullptr) << logger.errors;
  ASSERT_EQ(same->size(), plain->size());
  EXPECT_EQ(std::memcmp(same->data(), plain->data(), plain->size()), 0);
}

TEST_F(Config, HintsAreKept) {
  EXPECT_TRUE(config->setTacticSources(1U << static_cast<int>(TacticSource::kJIT_CONVOLUTIONS)));
  EXPECT_EQ(config->getTacticSources(), 16U);
  EXPECT_TRUE(config->setMaxAuxStreams(2));
  EXPECT_FALSE(config->setMaxAuxStreams(-1));
  EXPECT_EQ(config->getMaxAuxStreams(), 2);
  EXPECT_TRUE(config->setTilingOptimizationLevel(TilingOptimizationLevel::kFULL));
  EXPECT_EQ(config->getTilingOptimizationLevel(), TilingOptimizationLevel::kFULL);
  EXPECT_TRUE(config->setL2LimitForTiling(1 << 20));
  EXPECT_EQ(config->getL2LimitForTiling(), 1 << 20);
  config->reset();
  EXPECT_EQ(config->getTacticSources(), 24U);
  EXPECT_EQ(config->getMaxAuxStreams(), -1);
}

/// Takes at most 1000 bytes at once, and `limit` in all.
class Writer final : public IStreamWriter {
 public:
  explicit Writer(size_t limit) : limit_(limit) {}
  int64_t write(void const* data, int64_t size) override {
    auto const count = std::min<size_t>({static_cast<size_t>(size), 1000, limit_ - bytes.size()});
    bytes.append(static_cast<char const*>(data), count);
    return static_cast<int64_t>(count);
  }
  std::string bytes;

 private:
  size_t const limit_;
};

TEST_F(Config, WritesToAStream) {
  config->setTiming(false);
  network->markOutput(*network->addUnary(input("x", {2}), UnaryOperation::kNEG)->getOutput(0));
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  ASSERT_NE(plan, nullptr) << logger.errors;
  Writer writer(1 << 20);
  EXPECT_TRUE(builder->buildSerializedNetworkToStream(*network, *config, writer)) << logger.errors;
  ASSERT_EQ(writer.bytes.size(), plan->size());
  EXPECT_EQ(std::memcmp(writer.bytes.data(), plan->data(), plan->size()), 0);
  Writer full(2000);
  EXPECT_FALSE(builder->buildSerializedNetworkToStream(*network, *config, full));
  EXPECT_NE(logger.errors.find("stream writer failed at byte 2000"), std::string::npos)
      << logger.errors;
}

}  // namespace
}  // namespace program
