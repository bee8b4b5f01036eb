// Communicators as programs make them, and which engines take them.

#include "backend/communicator.h"

#include <unistd.h>

#include <future>
#include <memory>
#include <string>

#include "api/program.h"
#include "base/error.h"
#include "free_address.h"

namespace opwright::testing {
namespace {

TEST(Communicator, IsFoundByItsAddresses) {
  const DeviceId cpu{"cpu"};
  auto communicator = Communicator::join(str("found-", ::getpid()), 0, 1, 1, cpu);
  const int other = 0;
  communicator->also_at(&other);
  EXPECT_EQ(Communicator::find(communicator.get()), communicator);
  EXPECT_EQ(Communicator::find(&other), communicator);
  EXPECT_EQ(communicator->on_device(), nullptr);
  EXPECT_NO_THROW(communicator->require_well());
  Communicator::forget(&other);
  EXPECT_EQ(Communicator::find(&other), nullptr);
  const void* const address = communicator.get();
  communicator.reset();
  EXPECT_EQ(Communicator::find(address), nullptr);
}

class Ranks : public program::Program {};

TEST_F(Ranks, AContextTakesACommunicatorOfItsDevice) {
  nvinfer1::ITensor& x = input("x", {4});
  nvinfer1::IDistCollectiveLayer* const layer =
      network->addDistCollective(x, nvinfer1::CollectiveOperation::kALL_REDUCE,
                                 nvinfer1::ReduceOperation::kSUM, -1, nullptr, 0);
  ASSERT_NE(layer, nullptr);
  build(*layer->getOutput(0));
  const std::string name = str("program-", ::getpid());
  const std::unique_ptr<ICommunicator> made(createCommunicator(logger, name.c_str(), 0, 1, 1));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->getName(), name);
  EXPECT_EQ(made->getRank(), 0);
  EXPECT_EQ(made->getNbRanks(), 1);
  EXPECT_TRUE(context->setCommunicator(made.get()));
  EXPECT_TRUE(context->setCommunicator(nullptr));
  EXPECT_EQ(createCommunicator(logger, name.c_str(), 1, 1, 1), nullptr);
}

TEST_F(Ranks, MeetAtAnAddress) {
  const char* const token = "0123456789abcdef";
  const auto make = [&](int rank, const char* address, const char* given) {
    return std::unique_ptr<ICommunicator>(
        createCommunicator(logger, "hosts", rank, 2, 20, DeviceType::kCPU, address, given));
  };
  EXPECT_EQ(make(0, nullptr, token), nullptr);
  EXPECT_EQ(make(0, "localhost:1", token), nullptr);
  const std::string address = free_address();
  auto other = std::async(std::launch::async, [&] { return make(1, address.c_str(), token); });
  const std::unique_ptr<ICommunicator> first = make(0, address.c_str(), token),
                                       second = other.get();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(first->getRank(), 0);
  EXPECT_EQ(second->getRank(), 1);
}

TEST_F(Ranks, AnAttentionHasANumberOfThem) {
  nvinfer1::ITensor& x = input("x", {1, 2, 4, 8});
  nvinfer1::IAttention* const attention =
      network->addAttention(x, x, x, nvinfer1::AttentionNormalizationOp::kSOFTMAX, false);
  ASSERT_NE(attention, nullptr);
  EXPECT_EQ(attention->getNbRanks(), 1);
  EXPECT_TRUE(attention->setNbRanks(3));
  EXPECT_EQ(attention->getNbRanks(), 3);
  EXPECT_FALSE(attention->setNbRanks(0));
  EXPECT_EQ(attention->getNbRanks(), 3);
  EXPECT_EQ(attention->getOutput(0)->getDimensions().nbDims, 4);
}

}  // namespace
}  // namespace opwright::testing
