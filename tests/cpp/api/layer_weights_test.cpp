// Weights, precisions and output types of layers that were added, and what the network gives of its
// tensors. Results against numbers computed by hand.

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;
using Floats = std::vector<float>;
using Extents = std::vector<int64_t>;

Floats values_of(Weights const& weights) {
  auto const* const values = static_cast<float const*>(weights.values);
  return Floats(values, values + weights.count);
}

class LayerWeights : public Program {
 protected:
  /// The message of the only error of `change`, which must change nothing.
  template <class Change>
  std::string error_of(Change&& change) {
    Recorder recorder;
    network->setErrorRecorder(&recorder);
    change();
    network->setErrorRecorder(nullptr);
    return recorder.errors.size() == 1 ? recorder.errors[0].second : "";
  }
};

TEST_F(LayerWeights, OfAConvolutionAreReplaced) {
  ITensor& x = input("x", {1, 1, 2, 2});
  IConvolutionLayer* const layer =
      network->addConvolutionNd(x, 1, DimsHW{1, 1}, weights({2}), weights({1}));
  ASSERT_NE(layer, nullptr) << logger.errors;
  int32_t const layers = network->getNbLayers();
  EXPECT_EQ(values_of(layer->getKernelWeights()), (Floats{2}));
  layer->setKernelWeights(weights({3}));
  layer->setBiasWeights(weights({-1}));
  EXPECT_EQ(values_of(layer->getKernelWeights()), (Floats{3}));
  EXPECT_EQ(values_of(layer->getBiasWeights()), (Floats{-1}));
  EXPECT_EQ(network->getNbLayers(), layers);
  EXPECT_NE(error_of([&] { layer->setKernelWeights(kNoWeights); }).find("no elements"),
            std::string::npos);
  EXPECT_EQ(result_of(*layer->getOutput(0), {1, 1, 2, 2}, {0, 1, 2, 3}), (Floats{-1, 2, 5, 8}));
  layer->setBiasWeights(kNoWeights);
  EXPECT_EQ(layer->getBiasWeights().count, 0);
  EXPECT_EQ(logger.errors.find("setBias"), std::string::npos);
}

TEST_F(LayerWeights, OfADeconvolutionAreReplaced) {
  ITensor& x = input("x", {1, 1, 1, 2});
  IDeconvolutionLayer* const layer =
      network->addDeconvolutionNd(x, 1, DimsHW{1, 2}, weights({1, 1}), kNoWeights);
  ASSERT_NE(layer, nullptr) << logger.errors;
  layer->setKernelWeights(weights({2, 5}));
  layer->setBiasWeights(weights({1}));
  EXPECT_EQ(result_of(*layer->getOutput(0), {1, 1, 1, 2}, {1, 10}), (Floats{3, 26, 51}));
  EXPECT_NE(error_of([&] {
              layer->setKernelWeights(weights({1, 2, 3}));
            }).find("multiple of 2"),
            std::string::npos);
}

TEST_F(LayerWeights, OfAScaleAreReplacedAddedAndTakenAway) {
  ITensor& x = input("x", {1, 2, 1, 1});
  IScaleLayer* const layer =
      network->addScale(x, ScaleMode::kCHANNEL, weights({1, 2}), kNoWeights, kNoWeights);
  ASSERT_NE(layer, nullptr) << logger.errors;
  layer->setChannelAxis(1);
  layer->setScale(weights({10, 100}));
  layer->setShift(weights({3, 4}));
  layer->setPower(weights({1, 2}));
  EXPECT_EQ(values_of(layer->getScale()), (Floats{10, 100}));
  EXPECT_EQ(values_of(layer->getPower()), (Floats{1, 2}));
  layer->setPower(kNoWeights);
  EXPECT_EQ(layer->getPower().count, 0);
  EXPECT_EQ(result_of(*layer->getOutput(0), {1, 2, 1, 1}, {1, 2}), (Floats{13, 204}));
}

TEST_F(LayerWeights, OfAConstantAreAsManyAsItsDimensionsSay) {
  IConstantLayer* const layer = network->addConstant(dims({2, 2}), weights({1, 2, 3, 4}));
  ASSERT_NE(layer, nullptr) << logger.errors;
  layer->setWeights(weights({5, 6, 7, 8}));
  layer->setDimensions(dims({4}));
  EXPECT_EQ(shape_of(layer->getDimensions()), (Extents{4}));
  EXPECT_EQ(values_of(layer->getWeights()), (Floats{5, 6, 7, 8}));
  EXPECT_NE(error_of([&] { layer->setWeights(weights({1})); }).find("the shape 4 has 4"),
            std::string::npos);
  EXPECT_NE(error_of([&] { layer->setDimensions(dims({3})); }).find("the constant has 4"),
            std::string::npos);
  EXPECT_EQ(values_of(layer->getWeights()), (Floats{5, 6, 7, 8}));
}

TEST_F(LayerWeights, AConstantOfTwoLayersStaysForTheOther) {
  ITensor& x = input("x", {1, 1, 1, 1});
  ITensor& kernel = *network->addConstant(dims({1, 1, 1, 1}), weights({2}))->getOutput(0);
  IConvolutionLayer* layers[2];
  for (IConvolutionLayer*& layer : layers) {
    layer = network->addConvolutionNd(x, 1, DimsHW{1, 1}, kNoWeights, kNoWeights);
    ASSERT_NE(layer, nullptr) << logger.errors;
    layer->setInput(1, kernel);
  }
  layers[0]->setKernelWeights(weights({7}));
  EXPECT_EQ(values_of(layers[0]->getKernelWeights()), (Floats{7}));
  EXPECT_EQ(values_of(layers[1]->getKernelWeights()), (Floats{2}));
}

TEST_F(LayerWeights, PrecisionsAndOutputTypesAreKept) {
  IUnaryLayer* const layer = network->addUnary(input("x", {4}), UnaryOperation::kNEG);
  EXPECT_FALSE(layer->precisionIsSet());
  EXPECT_EQ(layer->getPrecision(), DataType::kFLOAT);
  layer->setPrecision(DataType::kBF16);
  EXPECT_TRUE(layer->precisionIsSet());
  EXPECT_EQ(layer->getPrecision(), DataType::kBF16);
  layer->resetPrecision();
  EXPECT_FALSE(layer->precisionIsSet());
  layer->setOutputType(0, DataType::kHALF);
  EXPECT_TRUE(layer->outputTypeIsSet(0));
  EXPECT_EQ(layer->getOutputType(0), DataType::kHALF);
  EXPECT_EQ(layer->getOutput(0)->getType(), DataType::kHALF);
  layer->resetOutputType(0);
  EXPECT_EQ(layer->getOutputType(0), DataType::kFLOAT);
  EXPECT_NE(error_of([&] { layer->setOutputType(0, DataType::kINT32); }).find("add a cast"),
            std::string::npos);
  EXPECT_NE(error_of([&] { layer->setOutputType(1, DataType::kHALF); }), "");
}

TEST_F(LayerWeights, StronglyTypedNetworksHaveNoPrecisionsBesideTheirTypes) {
  network.reset(builder->createNetworkV2(
      1U << static_cast<uint32_t>(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED)));
  IUnaryLayer* const layer = network->addUnary(input("x", {4}), UnaryOperation::kNEG);
  EXPECT_NE(error_of([&] { layer->setPrecision(DataType::kHALF); }).find("strongly typed"),
            std::string::npos);
  EXPECT_NE(error_of([&] { layer->setOutputType(0, DataType::kHALF); }).find("strongly typed"),
            std::string::npos);
}

TEST_F(LayerWeights, AShapeTensorIsMarkedAndOthersAreNot) {
  ITensor& x = input("x", {-1, 3});
  ITensor& shape = *network->addShape(x)->getOutput(0);
  EXPECT_TRUE(network->markOutputForShapes(shape));
  EXPECT_TRUE(shape.isNetworkOutput());
  EXPECT_FALSE(network->markOutputForShapes(*network->addIdentity(x)->getOutput(0)));
  EXPECT_TRUE(network->unmarkOutputForShapes(shape));
  EXPECT_FALSE(network->unmarkOutputForShapes(shape));
  EXPECT_EQ(network->getNbOutputs(), 0);
}

TEST_F(LayerWeights, AnInputThatNothingUsesIsRemoved) {
  ITensor& used = input("used", {2});
  ITensor& unused = input("unused", {-1});
  network->addIdentity(used);
  network->removeTensor(used);
  EXPECT_EQ(network->getNbInputs(), 2);
  network->removeTensor(unused);
  ASSERT_EQ(network->getNbInputs(), 1);
  EXPECT_EQ(network->getInput(0), &used);
  EXPECT_NE(network->addInput("unused", DataType::kFLOAT, dims({1})), nullptr);
}

}  // namespace
}  // namespace program
