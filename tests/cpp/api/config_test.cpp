// What a builder's config keeps and refuses, and engines that are written to a stream.

#include <algorithm>
#include <cstring>

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;

using Config = Program;

TEST_F(Config, ConfigsRefuseWhatIsNotHere) {
  config->setHardwareCompatibilityLevel(HardwareCompatibilityLevel::kAMPERE_PLUS);
  EXPECT_NE(logger.errors.find("setHardwareCompatibilityLevel"), std::string::npos);
  config->setRuntimePlatform(RuntimePlatform::kWINDOWS_AMD64);
  EXPECT_NE(logger.errors.find("setRuntimePlatform"), std::string::npos);
  config->setMaxNbTactics(0);
  EXPECT_NE(logger.errors.find("number of tactics is 0"), std::string::npos);
  EXPECT_EQ(config->getMaxNbTactics(), -1);
  ITensor& y = *network->addUnary(input("x", {2}), UnaryOperation::kNEG)->getOutput(0);
  network->markOutput(y);
  config->setFlag(BuilderFlag::kREFIT);
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("BuilderFlag.REFIT is set"), std::string::npos) << logger.errors;
  config->clearFlag(BuilderFlag::kREFIT);
  config->setFlag(BuilderFlag::kTF32);
  std::unique_ptr<IHostMemory> const plan(builder->buildSerializedNetwork(*network, *config));
  EXPECT_NE(plan, nullptr) << logger.errors;
}

TEST_F(Config, HintsAreKept) {
  EXPECT_TRUE(config->setTacticSources(1U << static_cast<int>(TacticSource::kJIT_CONVOLUTIONS)));
  EXPECT_EQ(config->getTacticSources(), 16U);
  config->setMaxAuxStreams(2);
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
