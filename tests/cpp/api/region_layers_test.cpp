// Loops, conditionals, attention and caches as C++ programs for TensorRT add them.

#include <cmath>

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;
using Floats = std::vector<float>;
using Extents = std::vector<int64_t>;

class Regions : public Program {
 protected:
  ITensor& constant(Extents const& extents, Floats const& values) {
    return *network->addConstant(dims(extents), weights(values))->getOutput(0);
  }
  ITensor& integer(int32_t value) {
    integers_.push_back(std::make_unique<int32_t>(value));
    return *network->addConstant(dims({}), Weights{DataType::kINT32, integers_.back().get(), 1})
                ->getOutput(0);
  }

 private:
  std::vector<std::unique_ptr<int32_t>> integers_;
};

TEST_F(Regions, Loop) {
  ITensor& x = input("x", {2});
  ILoop* const loop = network->addLoop();
  ASSERT_NE(loop, nullptr);
  loop->setName("doubling");
  EXPECT_STREQ(loop->getName(), "doubling");
  ITripLimitLayer* const limit = loop->addTripLimit(integer(3), TripLimit::kCOUNT);
  EXPECT_EQ(limit->getTripLimit(), TripLimit::kCOUNT);
  EXPECT_EQ(limit->getLoop(), loop);
  IRecurrenceLayer* const state = loop->addRecurrence(x);
  ITensor& twice =
      *network
           ->addElementWise(*state->getOutput(0), *state->getOutput(0), ElementWiseOperation::kSUM)
           ->getOutput(0);
  state->setInput(1, twice);
  ILoopOutputLayer* const all = loop->addLoopOutput(twice, LoopOutput::kREVERSE, 1);
  all->setInput(1, integer(4));
  EXPECT_EQ(all->getLoopOutput(), LoopOutput::kREVERSE);
  EXPECT_EQ(all->getAxis(), 1);
  EXPECT_EQ(loop->addTripLimit(integer(3), TripLimit::kCOUNT), nullptr);
  EXPECT_NE(logger.errors.find("at most one COUNT"), std::string::npos) << logger.errors;
  EXPECT_EQ(network->getLayer(network->getNbLayers() - 1)->getType(), LayerType::kCONSTANT);
  EXPECT_EQ(result_of<float>(*all->getOutput(0), {2}, {1, 3}), (Floats{0, 8, 4, 2, 0, 24, 12, 6}));
}

TEST_F(Regions, LoopWithoutALimit) {
  ILoop* const loop = network->addLoop();
  IIteratorLayer* const row = loop->addIterator(input("x", {2, 2}), 1, true);
  EXPECT_EQ(row->getAxis(), 1);
  EXPECT_TRUE(row->getReverse());
  ILoopOutputLayer* const all = loop->addLoopOutput(*row->getOutput(0), LoopOutput::kCONCATENATE);
  all->setInput(1, integer(2));
  network->markOutput(*all->getOutput(0));
  EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
  EXPECT_NE(logger.errors.find("no trip limit"), std::string::npos) << logger.errors;
}

TEST_F(Regions, Conditional) {
  ITensor& x = input("x", {2});
  ITensor& sum = *network->addReduce(x, ReduceOperation::kSUM, 1, false)->getOutput(0);
  IIfConditional* const branch = network->addIfConditional();
  branch->setName("sign");
  EXPECT_STREQ(branch->getName(), "sign");
  IConditionLayer* const condition = branch->setCondition(
      *network->addElementWise(sum, constant({}, {0}), ElementWiseOperation::kGREATER)
           ->getOutput(0));
  EXPECT_EQ(condition->getConditional(), branch);
  ITensor& inside = *branch->addInput(x)->getOutput(0);
  ITensor& root = *network->addUnary(inside, UnaryOperation::kSQRT)->getOutput(0);
  ITensor& opposite = *network->addUnary(inside, UnaryOperation::kNEG)->getOutput(0);
  IIfConditionalOutputLayer* const output = branch->addOutput(root, opposite);
  EXPECT_EQ(output->getType(), LayerType::kCONDITIONAL_OUTPUT);
  EXPECT_EQ(result_of<float>(*output->getOutput(0), {2}, {4, 9}), (Floats{2, 3}));
}

TEST_F(Regions, Attention) {
  ITensor& x = input("x", {1, 1, 2, 1});
  IAttention* const attention =
      network->addAttention(x, x, x, AttentionNormalizationOp::kSOFTMAX, true);
  ASSERT_NE(attention, nullptr) << logger.errors;
  EXPECT_TRUE(attention->getCausal());
  EXPECT_EQ(attention->getCausalKind(), CausalMaskKind::kUPPER_LEFT);
  EXPECT_TRUE(attention->setDecomposable(true));
  EXPECT_TRUE(attention->setName("attention"));
  EXPECT_EQ(attention->getNbInputs(), 3);
  EXPECT_EQ(attention->getMask(), nullptr);
  auto* const layer =
      static_cast<IAttentionOutputLayer*>(network->getLayer(network->getNbLayers() - 1));
  ASSERT_EQ(layer->getType(), LayerType::kATTENTION_OUTPUT);
  EXPECT_EQ(layer->getAttention(), attention);
  EXPECT_STREQ(layer->getName(), "attention");
  Floats const y = result_of<float>(*attention->getOutput(0), {1, 1, 2, 1}, {1, 2});
  float const a = std::exp(2.0F), b = std::exp(4.0F);
  ASSERT_EQ(y.size(), 2U);
  EXPECT_FLOAT_EQ(y[0], 1);
  EXPECT_NEAR(y[1], (a + 2 * b) / (a + b), 1e-5);
}

TEST_F(Regions, EinsumSqueezeAndText) {
  ITensor& x = input("x", {1, 2, 2});
  int32_t const axis = 0;
  ITensor& axes =
      *network->addConstant(dims({1}), Weights{DataType::kINT32, &axis, 1})->getOutput(0);
  ITensor& square = *network->addSqueeze(x, axes)->getOutput(0);
  ITensor* both[] = {&square, &square};
  IEinsumLayer* const einsum = network->addEinsum(both, 2, "ij,ij->");
  ASSERT_NE(einsum, nullptr) << logger.errors;
  EXPECT_STREQ(einsum->getEquation(), "ij,ij->");
  EXPECT_TRUE(einsum->setEquation("ij,jk->ik"));
  EXPECT_EQ(einsum->getOutput(0)->getDimensions().nbDims, 2);
  EXPECT_EQ(network->addEinsum(both, 2, nullptr), nullptr);
  ITensor& wide = *network->addUnsqueeze(*einsum->getOutput(0), axes)->getOutput(0);
  EXPECT_EQ(result_of<float>(wide, {1, 2, 2}, {1, 2, 3, 4}), (Floats{7, 10, 15, 22}));
}

TEST_F(Regions, Assertion) {
  ITensor& x = input("x", {2});
  IAssertionLayer* const assertion = network->addAssertion(
      *network->addElementWise(x, constant({1}, {0}), ElementWiseOperation::kGREATER)->getOutput(0),
      "x is positive");
  ASSERT_NE(assertion, nullptr) << logger.errors;
  EXPECT_STREQ(assertion->getMessage(), "x is positive");
  EXPECT_EQ(assertion->getNbOutputs(), 0);
  assertion->setMessage("x has to be positive");
  ITensor& y = *network->addUnary(x, UnaryOperation::kNEG)->getOutput(0);
  EXPECT_EQ(result_of<float>(y, {2}, {1, 2}), (Floats{-1, -2}));
}

TEST_F(Regions, MixtureOfExperts) {
  ITensor& x = input("x", {1, 2, 1});
  int32_t const chosen[] = {0, 1};
  ITensor& experts =
      *network->addConstant(dims({1, 2, 1}), Weights{DataType::kINT32, chosen, 2})->getOutput(0);
  IMoELayer* const layer = network->addMoE(x, experts, constant({1, 2, 1}, {1, 0.5F}));
  ASSERT_NE(layer, nullptr) << logger.errors;
  ITensor& ones = constant({2, 1, 1}, {1, 1});
  layer->setGatedWeights(ones, constant({2, 1, 1}, {2, 3}), ones, MoEActType::kNONE);
  EXPECT_EQ(layer->getActivationType(), MoEActType::kNONE);
  EXPECT_EQ(layer->getNbInputs(), 6);
  // x * w x, by its score.
  EXPECT_EQ(result_of<float>(*layer->getOutput(0), {1, 2, 1}, {3, 4}), (Floats{18, 24}));
}

TEST_F(Regions, CacheUpdate) {
  ITensor& update = input("x", {1, 1, 1, 2});
  ITensor& cache = *network->addInput("cache", DataType::kFLOAT, dims({1, 1, 3, 2}));
  ITensor& at = *network->addInput("at", DataType::kINT32, dims({1}));
  IKVCacheUpdateLayer* const layer =
      network->addKVCacheUpdate(cache, update, at, KVCacheMode::kLINEAR);
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getCacheMode(), KVCacheMode::kLINEAR);
  EXPECT_EQ(layer->getUpdateForm(), AttentionIOForm::kPADDED_BHND);
  EXPECT_EQ(layer->getUpdateLengths(), nullptr);
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{1, 1, 3, 2}));
}

}  // namespace
}  // namespace program
