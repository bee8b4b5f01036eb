// Each method of INetworkDefinition that adds a layer: its parameters read back, and its result
// against numbers computed by hand.

#include <cmath>
#include <limits>

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;
using Floats = std::vector<float>;
using Extents = std::vector<int64_t>;

class Layers : public Program {
 protected:
  /// The input of a single-input network with the elements 1, 2, 3, ...
  ITensor& count(Extents const& extents) {
    extents_ = extents;
    return input("x", extents);
  }
  template <class T = float>
  std::vector<T> result(ILayer* layer, int32_t output = 0) {
    if (layer == nullptr) {
      ADD_FAILURE() << logger.errors;
      return {};
    }
    Floats values(static_cast<size_t>(volume(dims(extents_))));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    return result_of<T>(*layer->getOutput(output), extents_, values);
  }
  ITensor& constant(Extents const& extents, Floats const& values) {
    return *network->addConstant(dims(extents), weights(values))->getOutput(0);
  }

 private:
  Extents extents_;
};

TEST_F(Layers, Convolution) {
  IConvolutionLayer* const layer = network->addConvolutionNd(count({1, 2, 2, 2}), 2, DimsHW{1, 1},
                                                             weights({10, 100}), kNoWeights);
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getType(), LayerType::kCONVOLUTION);
  EXPECT_EQ(layer->getNbGroups(), 2);  // One weight per map: a channel each.
  EXPECT_EQ(layer->getNbOutputMaps(), 2);
  EXPECT_EQ(shape_of(layer->getKernelSizeNd()), (Extents{1, 1}));
  EXPECT_EQ(static_cast<float const*>(layer->getKernelWeights().values)[1], 100.0F);
  EXPECT_EQ(layer->getBiasWeights().count, 0);
  EXPECT_EQ(shape_of(layer->getStrideNd()), (Extents{1, 1}));
  layer->setStrideNd(DimsHW{2, 1});
  layer->setPaddingNd(DimsHW{0, 1});
  EXPECT_EQ(shape_of(layer->getPostPadding()), (Extents{0, 1}));
  layer->setPostPadding(DimsHW{0, 0});
  EXPECT_EQ(shape_of(layer->getStrideNd()), (Extents{2, 1}));
  EXPECT_EQ(shape_of(layer->getDilationNd()), (Extents{1, 1}));
  EXPECT_EQ(layer->getPaddingMode(), PaddingMode::kEXPLICIT_ROUND_DOWN);
  EXPECT_EQ(result(layer), (Floats{0, 10, 20, 0, 500, 600}));
}

TEST_F(Layers, Deconvolution) {
  IDeconvolutionLayer* const layer = network->addDeconvolutionNd(
      count({1, 1, 1, 2}), 1, DimsHW{1, 2}, weights({1, 10}), weights({0.5F}));
  ASSERT_NE(layer, nullptr) << logger.errors;
  layer->setStrideNd(DimsHW{1, 2});
  EXPECT_EQ(result(layer), (Floats{1.5F, 10.5F, 2.5F, 20.5F}));
}

TEST_F(Layers, Pooling) {
  IPoolingLayer* const layer =
      network->addPoolingNd(count({1, 1, 1, 4}), PoolingType::kMAX, DimsHW{1, 2});
  EXPECT_EQ(shape_of(layer->getStrideNd()), (Extents{1, 2}));  // The window.
  layer->setPoolingType(PoolingType::kAVERAGE);
  layer->setPrePadding(DimsHW{0, 1});
  layer->setPostPadding(DimsHW{0, 1});
  EXPECT_TRUE(layer->getAverageCountExcludesPadding());
  layer->setAverageCountExcludesPadding(false);
  EXPECT_EQ(layer->getPoolingType(), PoolingType::kAVERAGE);
  EXPECT_EQ(shape_of(layer->getWindowSizeNd()), (Extents{1, 2}));
  EXPECT_EQ(result(layer), (Floats{0.5F, 2.5F, 2}));
}

TEST_F(Layers, Activation) {
  IActivationLayer* const layer = network->addActivation(count({3}), ActivationType::kRELU);
  layer->setActivationType(ActivationType::kCLIP);
  layer->setAlpha(1.5F);
  layer->setBeta(2.5F);
  EXPECT_EQ(layer->getActivationType(), ActivationType::kCLIP);
  EXPECT_EQ(layer->getAlpha(), 1.5F);
  EXPECT_EQ(layer->getBeta(), 2.5F);
  EXPECT_EQ(result(layer), (Floats{1.5F, 2, 2.5F}));
}

TEST_F(Layers, ElementWise) {
  ITensor& x = count({2, 2});
  IElementWiseLayer* const layer =
      network->addElementWise(x, constant({1, 2}, {10, 20}), ElementWiseOperation::kSUM);
  layer->setOperation(ElementWiseOperation::kSUB);
  EXPECT_EQ(layer->getOperation(), ElementWiseOperation::kSUB);
  EXPECT_EQ(result(layer), (Floats{-9, -18, -7, -16}));
}

TEST_F(Layers, Unary) {
  IUnaryLayer* const layer = network->addUnary(count({2}), UnaryOperation::kEXP);
  layer->setOperation(UnaryOperation::kSQRT);
  EXPECT_EQ(result(layer), (Floats{1, std::sqrt(2.0F)}));
}

TEST_F(Layers, MatrixMultiply) {
  ITensor& x = count({2, 3});
  IMatrixMultiplyLayer* const layer = network->addMatrixMultiply(
      x, MatrixOperation::kNONE, constant({1, 3}, {1, 10, 100}), MatrixOperation::kTRANSPOSE);
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getOperation(1), MatrixOperation::kTRANSPOSE);
  layer->setOperation(2, MatrixOperation::kNONE);
  EXPECT_NE(logger.errors.find("no property 'op2'; it has op0, op1"), std::string::npos);
  EXPECT_EQ(result(layer), (Floats{321, 654}));
}

TEST_F(Layers, Shuffle) {
  IShuffleLayer* const layer = network->addShuffle(count({2, 3}));
  EXPECT_EQ(layer->getReshapeDimensions().nbDims, -1);
  layer->setFirstTranspose(Permutation{{1, 0}});
  layer->setReshapeDimensions(dims({1, -1}));
  layer->setSecondTranspose(Permutation{{1, 0}});
  EXPECT_EQ(layer->getFirstTranspose().order[0], 1);
  EXPECT_EQ(layer->getSecondTranspose().order[1], 0);
  EXPECT_EQ(shape_of(layer->getReshapeDimensions()), (Extents{1, -1}));
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{6, 1}));
  EXPECT_TRUE(layer->getZeroIsPlaceholder());
  EXPECT_EQ(result(layer), (Floats{1, 4, 2, 5, 3, 6}));
}

TEST_F(Layers, SoftMax) {
  ISoftMaxLayer* const layer = network->addSoftMax(count({1, 2, 1, 1}));
  EXPECT_EQ(layer->getAxes(), 2U);  // Channels.
  layer->setAxes(1);
  EXPECT_EQ(result(layer), (Floats{1, 1}));
}

TEST_F(Layers, Reduce) {
  IReduceLayer* const layer = network->addReduce(count({2, 3}), ReduceOperation::kMAX, 1, false);
  layer->setOperation(ReduceOperation::kSUM);
  layer->setReduceAxes(2);
  layer->setKeepDimensions(true);
  EXPECT_EQ(layer->getReduceAxes(), 2U);
  EXPECT_TRUE(layer->getKeepDimensions());
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{2, 1}));
  EXPECT_EQ(result(layer), (Floats{6, 15}));
}

TEST_F(Layers, Slice) {
  ISliceLayer* const layer =
      network->addSlice(count({2, 3}), dims({0, 1}), dims({2, 2}), dims({1, 1}));
  layer->setMode(SampleMode::kWRAP);
  layer->setSize(dims({2, 3}));
  layer->setStride(dims({1, 2}));
  EXPECT_EQ(shape_of(layer->getStart()), (Extents{0, 1}));
  EXPECT_EQ(shape_of(layer->getSize()), (Extents{2, 3}));
  EXPECT_EQ(shape_of(layer->getStride()), (Extents{1, 2}));
  EXPECT_EQ(layer->getMode(), SampleMode::kWRAP);
  EXPECT_EQ(result(layer), (Floats{2, 1, 3, 5, 4, 6}));
}

TEST_F(Layers, Padding) {
  IPaddingLayer* const layer =
      network->addPaddingNd(count({1, 1, 1, 2}), DimsHW{1, 0}, DimsHW{0, 2});
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getType(), LayerType::kPADDING);
  EXPECT_EQ(network->getLayer(network->getNbLayers() - 1), layer);
  EXPECT_EQ(shape_of(layer->getPrePaddingNd()), (Extents{0, 0, 1, 0}));
  EXPECT_EQ(shape_of(layer->getPostPaddingNd()), (Extents{0, 0, 0, 2}));
  EXPECT_EQ(result(layer), (Floats{0, 0, 0, 0, 1, 2, 0, 0}));
}

TEST_F(Layers, PaddingOfDynamicExtents) {
  ITensor& x = input("x", {-1});
  IPaddingLayer* const layer = network->addPaddingNd(x, dims({1}), dims({2}));
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(shape_of(layer->getPrePaddingNd()), (Extents{1}));
  EXPECT_EQ(shape_of(layer->getPostPaddingNd()), (Extents{2}));
  EXPECT_EQ(logger.errors, "");
}

TEST_F(Layers, Concatenation) {
  ITensor& x = count({1, 2});
  ITensor* const inputs[] = {&x, &constant({1, 2}, {8, 9})};
  IConcatenationLayer* const layer = network->addConcatenation(inputs, 2);
  EXPECT_EQ(layer->getAxis(), 0);
  layer->setAxis(1);
  EXPECT_EQ(layer->getNbInputs(), 2);
  EXPECT_EQ(layer->getInput(0), &x);
  EXPECT_EQ(result(layer), (Floats{1, 2, 8, 9}));
}

TEST_F(Layers, Gather) {
  ITensor& x = count({2, 2});
  int32_t const picks[] = {1, 1, 0};
  ITensor& indices =
      *network->addConstant(dims({3}), Weights{DataType::kINT32, picks, 3})->getOutput(0);
  IGatherLayer* const layer = network->addGather(x, indices, 0);
  layer->setGatherAxis(1);
  EXPECT_EQ(layer->getGatherAxis(), 1);
  EXPECT_EQ(layer->getMode(), GatherMode::kDEFAULT);
  EXPECT_EQ(layer->getNbElementWiseDims(), 0);
  EXPECT_EQ(result(layer), (Floats{2, 2, 1, 4, 4, 3}));
}

TEST_F(Layers, GatherNd) {
  ITensor& x = count({2, 2});
  int64_t const picks[] = {1, 0, 0, 1};
  ITensor& indices =
      *network->addConstant(dims({2, 2}), Weights{DataType::kINT64, picks, 4})->getOutput(0);
  EXPECT_EQ(result(network->addGatherV2(x, indices, GatherMode::kND)), (Floats{3, 2}));
}

TEST_F(Layers, Cast) {
  ICastLayer* const layer = network->addCast(count({2}), DataType::kHALF);
  layer->setToType(DataType::kINT32);
  EXPECT_EQ(layer->getToType(), DataType::kINT32);
  EXPECT_EQ(layer->getOutputType(0), DataType::kINT32);
  EXPECT_EQ(result<int32_t>(layer), (std::vector<int32_t>{1, 2}));
}

TEST_F(Layers, Identity) { EXPECT_EQ(result(network->addIdentity(count({2}))), (Floats{1, 2})); }

TEST_F(Layers, Select) {
  ITensor& x = count({3});
  ITensor& two = constant({1}, {2});
  ITensor& condition =
      *network->addElementWise(x, two, ElementWiseOperation::kGREATER)->getOutput(0);
  EXPECT_EQ(condition.getType(), DataType::kBOOL);
  EXPECT_EQ(result(network->addSelect(condition, x, two)), (Floats{2, 2, 3}));
}

TEST_F(Layers, Shape) {
  IShapeLayer* const layer = network->addShape(count({2, 3}));
  EXPECT_TRUE(layer->getOutput(0)->isShapeTensor());
  EXPECT_EQ(result<int64_t>(layer), (std::vector<int64_t>{2, 3}));
}

TEST_F(Layers, Constant) {
  Floats values = {7, 8};
  IConstantLayer* const layer = network->addConstant(dims({2, 1}), weights(values));
  values = {0, 0};  // The network has a copy.
  EXPECT_EQ(shape_of(layer->getDimensions()), (Extents{2, 1}));
  EXPECT_EQ(static_cast<float const*>(layer->getWeights().values)[0], 7.0F);
  EXPECT_EQ(layer->getWeights().count, 2);
  ITensor& x = count({2, 1});
  EXPECT_EQ(result(network->addElementWise(x, *layer->getOutput(0), ElementWiseOperation::kPROD)),
            (Floats{7, 16}));
  EXPECT_EQ(network->addConstant(dims({3}), weights(values)), nullptr);
  EXPECT_EQ(network->addConstant(dims({2}), Weights{DataType::kFLOAT, nullptr, 2}), nullptr);
}

TEST_F(Layers, Resize) {
  IResizeLayer* const layer = network->addResize(count({1, 1, 1, 2}));
  float const scales[] = {1, 1, 2, 2};
  layer->setScales(scales, 4);
  EXPECT_EQ(layer->getScales(0, nullptr), 4);
  float read[4] = {};
  EXPECT_EQ(layer->getScales(4, read), 4);
  EXPECT_EQ(read[3], 2.0F);
  EXPECT_EQ(layer->getOutputDimensions().nbDims, -1);
  layer->setOutputDimensions(dims({1, 1, 1, 4}));
  EXPECT_EQ(layer->getScales(4, read), -1);
  layer->setResizeMode(InterpolationMode::kLINEAR);
  layer->setCoordinateTransformation(ResizeCoordinateTransformation::kHALF_PIXEL);
  layer->setSelectorForSinglePixel(ResizeSelector::kUPPER);
  EXPECT_EQ(layer->getSelectorForSinglePixel(), ResizeSelector::kUPPER);
  layer->setSelectorForSinglePixel(ResizeSelector::kFORMULA);
  layer->setNearestRounding(ResizeRoundMode::kCEIL);
  EXPECT_EQ(layer->getResizeMode(), InterpolationMode::kLINEAR);
  EXPECT_EQ(layer->getNearestRounding(), ResizeRoundMode::kCEIL);
  EXPECT_EQ(result(layer), (Floats{1, 1.25F, 1.75F, 2}));
}

TEST_F(Layers, TopK) {
  ITopKLayer* const layer = network->addTopK(count({4}), TopKOperation::kMIN, 3, 1);
  layer->setOperation(TopKOperation::kMAX);
  layer->setK(2);
  EXPECT_EQ(layer->getK(), 2);
  EXPECT_EQ(layer->getReduceAxes(), 1U);
  EXPECT_EQ(layer->getIndicesType(), DataType::kINT32);
  EXPECT_EQ(result<int32_t>(layer, 1), (std::vector<int32_t>{3, 2}));
}

TEST_F(Layers, Scale) {
  IScaleLayer* const layer = network->addScale(count({1, 2, 1, 2}), ScaleMode::kCHANNEL,
                                               weights({0.5F, 0}), weights({2, 3}), kNoWeights);
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getChannelAxis(), 1);
  EXPECT_EQ(layer->getMode(), ScaleMode::kCHANNEL);
  EXPECT_EQ(static_cast<float const*>(layer->getScale().values)[1], 3.0F);
  EXPECT_EQ(layer->getPower().values, nullptr);
  EXPECT_EQ(result(layer), (Floats{2.5F, 4.5F, 9, 12}));
}

TEST_F(Layers, ScaleOfAnyAxis) {
  EXPECT_EQ(result(network->addScaleNd(count({2, 2}), ScaleMode::kCHANNEL, kNoWeights,
                                       weights({1, 10}), weights({2, 2}), 1)),
            (Floats{1, 400, 9, 1600}));
}

TEST_F(Layers, Normalization) {
  ITensor& x = count({1, 2});
  INormalizationLayer* const layer =
      network->addNormalization(x, constant({1, 2}, {1, 2}), constant({1, 2}, {0, 1}), 2);
  ASSERT_NE(layer, nullptr) << logger.errors;
  layer->setEpsilon(0.75F);  // The variance is 0.25.
  EXPECT_EQ(layer->getEpsilon(), 0.75F);
  EXPECT_EQ(layer->getAxes(), 2U);
  EXPECT_EQ(layer->getNbGroups(), 1);
  EXPECT_EQ(result(layer), (Floats{-0.5F, 2}));
}

TEST_F(Layers, Lrn) {
  ILRNLayer* const layer = network->addLRN(count({1, 2, 1, 1}), 3, 3.0F, 1.0F, 1.0F);
  EXPECT_EQ(layer->getWindowSize(), 3);
  // x / (1 + (1 + 4)): both channels are in both windows.
  EXPECT_EQ(result(layer), (Floats{1.0F / 6, 2.0F / 6}));
}

TEST_F(Layers, ParametricRelu) {
  ITensor& x = *network->addUnary(count({2}), UnaryOperation::kNEG)->getOutput(0);
  EXPECT_EQ(result(network->addParametricReLU(x, constant({2}, {2, 3}))), (Floats{-2, -6}));
}

TEST_F(Layers, Fill) {
  ITensor& x = count({3});
  IFillLayer* const layer = network->addFill(dims({3}), FillOperation::kLINSPACE, DataType::kFLOAT);
  layer->setAlpha(1);
  layer->setBeta(0.5);
  EXPECT_EQ(layer->getBeta(), 0.5);
  EXPECT_EQ(layer->getToType(), DataType::kFLOAT);
  EXPECT_EQ(result(network->addElementWise(x, *layer->getOutput(0), ElementWiseOperation::kSUM)),
            (Floats{2, 3.5F, 5}));
}

TEST_F(Layers, TensorsAndLayersAreTheSameObjectsEachTime) {
  ITensor& x = count({2});
  ILayer* const layer = network->addIdentity(x);
  EXPECT_EQ(network->getInput(0), &x);
  EXPECT_EQ(network->getLayer(0), layer);
  EXPECT_EQ(layer->getInput(0), &x);
  EXPECT_EQ(layer->getOutput(0), layer->getOutput(0));
  EXPECT_TRUE(x.isNetworkInput());
  layer->setName("same");
  layer->setMetadata("of layer 3");
  EXPECT_STREQ(layer->getName(), "same");
  EXPECT_STREQ(layer->getMetadata(), "of layer 3");
  x.setDimensions(dims({-1}));
  x.setDimensionName(0, "n");
  EXPECT_STREQ(x.getDimensionName(0), "n");
  x.setDimensionName(0, nullptr);
  EXPECT_EQ(x.getDimensionName(0), nullptr);
  EXPECT_EQ(layer->getOutput(0)->getDimensions().d[0], -1);
  x.setType(DataType::kHALF);
  EXPECT_EQ(layer->getOutputType(0), DataType::kHALF);
  x.setAllowedFormats(1U << static_cast<int>(TensorFormat::kHWC));
  EXPECT_EQ(x.getAllowedFormats(), 1U << static_cast<int>(TensorFormat::kHWC));
  network->setName("net");
  EXPECT_STREQ(network->getName(), "net");
}

TEST_F(Layers, TensorsHaveDynamicRanges) {
  ITensor& x = count({2});
  EXPECT_FALSE(x.dynamicRangeIsSet());
  EXPECT_TRUE(std::isnan(x.getDynamicRangeMin()) && std::isnan(x.getDynamicRangeMax()));
  EXPECT_TRUE(x.setDynamicRange(-2, 3));
  EXPECT_FALSE(x.setDynamicRange(1, 0));
  EXPECT_TRUE(x.dynamicRangeIsSet());
  EXPECT_EQ(x.getDynamicRangeMin(), -2.0F);
  EXPECT_EQ(x.getDynamicRangeMax(), 3.0F);
  x.resetDynamicRange();
  EXPECT_FALSE(x.dynamicRangeIsSet());
}

TEST_F(Layers, DynamicQuantize) {
  ITensor& x = count({2, 4});
  IDynamicQuantizeLayer* const layer =
      network->addDynamicQuantize(x, 1, 2, DataType::kINT8, DataType::kFLOAT);
  ASSERT_NE(layer, nullptr) << logger.errors;
  EXPECT_EQ(layer->getType(), LayerType::kDYNAMIC_QUANTIZE);
  EXPECT_EQ(layer->getAxis(), 1);
  EXPECT_EQ(layer->getBlockSize(), 2);
  EXPECT_EQ(layer->getBlockShape().nbDims, 0);
  EXPECT_EQ(layer->getToType(), DataType::kINT8);
  EXPECT_EQ(layer->getScaleType(), DataType::kFLOAT);
  layer->setBlockShape(dims({2, 4}));
  EXPECT_EQ(shape_of(layer->getOutput(1)->getDimensions()), (Extents{1, 1}));
  layer->setBlockShape(dims({1, 4}));
  EXPECT_EQ(result(layer, 1), (Floats{4.0F / 127, 8.0F / 127}));
  IDynamicQuantizeLayer* const blocks =
      network->addDynamicQuantizeV2(x, dims({2, 2}), DataType::kFP8, DataType::kE8M0);
  ASSERT_NE(blocks, nullptr) << logger.errors;
  EXPECT_EQ(blocks->getOutput(1)->getType(), DataType::kE8M0);
  EXPECT_EQ(shape_of(blocks->getOutput(1)->getDimensions()), (Extents{1, 2}));
}

TEST_F(Layers, WrongCallsAreErrorsThatChangeNothing) {
  Recorder recorder;
  network->setErrorRecorder(&recorder);
  ITensor& x = count({2, 2});
  auto refused = [&](bool failed) {
    EXPECT_TRUE(failed);
    EXPECT_EQ(recorder.getNbErrors(), 1);
    recorder.clear();
  };
  std::unique_ptr<INetworkDefinition> const other(builder->createNetworkV2(0));
  ITensor& foreign = *other->addInput("x", DataType::kFLOAT, dims({2, 2}));
  refused(network->addElementWise(x, foreign, ElementWiseOperation::kSUM) == nullptr);
  refused(network->addInput("x", DataType::kFLOAT, dims({1})) == nullptr);
  refused(network->addInput(nullptr, DataType::kFLOAT, dims({1})) == nullptr);
  refused(network->addInput("y", DataType::kFLOAT, Dims{9, {}}) == nullptr);
  refused(network->addConvolutionNd(x, 1, DimsHW{1, 1}, weights({1}), kNoWeights) == nullptr);
  refused(network->addConcatenation(nullptr, 2) == nullptr);
  refused(network->addDistCollective(x, CollectiveOperation::kALL_REDUCE, ReduceOperation::kNONE,
                                     -1, nullptr, 0) == nullptr);
  refused(network->addDistCollective(x, CollectiveOperation::kALL_REDUCE, ReduceOperation::kSUM, -1,
                                     nullptr, 2) == nullptr);
  refused(network->getLayer(100) == nullptr);
  refused(network->getInput(-1) == nullptr);
  refused(network->getOutput(0) == nullptr);
  ILayer* const layer = network->addIdentity(x);
  refused(layer->getInput(1) == nullptr);
  refused(layer->getOutput(-1) == nullptr);
  layer->setInput(0, *layer->getOutput(0));  // A loop.
  refused(layer->getInput(0) == &x);
  layer->setName(nullptr);
  refused(true);
  layer->getOutput(0)->setDimensions(dims({3}));
  refused(shape_of(layer->getOutput(0)->getDimensions()) == Extents({2, 2}));
  network->markOutput(x);
  refused(network->getNbOutputs() == 0);
  network->setErrorRecorder(nullptr);
}

}  // namespace
}  // namespace program
