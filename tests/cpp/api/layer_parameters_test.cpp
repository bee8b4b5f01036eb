// Layers get their parameters after they were added, in any order. What does not fit is an error
// when it is asked for or built, not before. Results against numbers computed by hand.

#include <functional>
#include <numeric>

#include "api/program.h"

namespace program {
namespace {

using namespace nvinfer1;
using Floats = std::vector<float>;
using Extents = std::vector<int64_t>;

class LayerParameters : public Program {
 protected:
  ITensor& constant(Extents const& extents, Floats const& values) {
    return *network->addConstant(dims(extents), weights(values))->getOutput(0);
  }
  ITensor& integers(std::vector<int64_t> const& values) {
    Weights const elements{DataType::kINT64, values.data(), static_cast<int64_t>(values.size())};
    return *network->addConstant(dims({elements.count}), elements)->getOutput(0);
  }
  /// The layer does not fit: its output has no shape, and nothing can be built, for a reason that
  /// names the layer.
  void expect_misfit(ILayer* layer, std::string const& reason) {
    ASSERT_NE(layer, nullptr) << logger.errors;
    layer->setName("misfit");
    Recorder recorder;
    network->setErrorRecorder(&recorder);
    EXPECT_EQ(layer->getOutput(0)->getDimensions().nbDims, -1);
    ASSERT_EQ(recorder.getNbErrors(), 1);
    EXPECT_NE(recorder.errors[0].second.find("'misfit': " + reason), std::string::npos)
        << recorder.errors[0].second;
    layer->getOutput(0)->getType();
    layer->getOutputType(0);
    layer->getOutput(0)->isShapeTensor();
    EXPECT_EQ(recorder.getNbErrors(), 4);
    network->setErrorRecorder(nullptr);
    ITensor& output = *layer->getOutput(0);
    network->markOutput(output);
    logger.errors.clear();
    EXPECT_EQ(builder->buildSerializedNetwork(*network, *config), nullptr);
    EXPECT_NE(logger.errors.find("'misfit': " + reason), std::string::npos) << logger.errors;
    network->unmarkOutput(output);
  }
  Floats result(ILayer* layer, Extents const& extents) {
    const int64_t count =
        std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
    Floats values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 1.0F);
    return result_of(*layer->getOutput(0), extents, values);
  }
};

TEST_F(LayerParameters, ConcatenationAxis) {
  ITensor* const parts[] = {&input("x", {2, 2}), &constant({2, 1}, {-1, -2})};
  IConcatenationLayer* const layer = network->addConcatenation(parts, 2);
  expect_misfit(layer, "input 1 must have extent 2 on axis 1");
  layer->setAxis(1);
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{2, 3}));
  EXPECT_EQ(result(layer, {2, 2}), (Floats{1, 2, -1, 3, 4, -2}));
}

TEST_F(LayerParameters, SliceModeAndValue) {
  ISliceLayer* const layer = network->addSlice(input("x", {3}), dims({-1}), dims({5}), dims({1}));
  expect_misfit(layer, "axis 0 has extent 3, but elements -1 to 3");
  layer->setInput(4, constant({}, {9}));
  expect_misfit(layer, "input 4 (fill value) is only for sample mode FILL");
  layer->setMode(SampleMode::kFILL);
  EXPECT_EQ(result(layer, {3}), (Floats{9, 1, 2, 3, 9}));
}

TEST_F(LayerParameters, SliceModes) {
  std::pair<SampleMode, Floats> const modes[] = {{SampleMode::kWRAP, {2, 3, 1, 2, 3, 1, 2}},
                                                 {SampleMode::kCLAMP, {1, 1, 1, 2, 3, 3, 3}},
                                                 {SampleMode::kREFLECT, {3, 2, 1, 2, 3, 2, 1}},
                                                 {SampleMode::kFILL, {0, 0, 1, 2, 3, 0, 0}}};
  for (auto const& [mode, expected] : modes) {
    network.reset(builder->createNetworkV2(0));
    ISliceLayer* const layer = network->addSlice(input("x", {3}), dims({-2}), dims({7}), dims({1}));
    ASSERT_NE(layer, nullptr) << logger.errors;
    layer->setMode(mode);
    EXPECT_EQ(result(layer, {3}), expected) << static_cast<int>(mode);
  }
}

TEST_F(LayerParameters, SliceInputsOneByOne) {
  ISliceLayer* const layer = network->addSlice(input("x", {2, 3}), Dims{}, Dims{}, Dims{});
  layer->setInput(1, integers({0, 1}));
  expect_misfit(layer, "size must have 2 elements");
  layer->setInput(2, integers({2, 2}));
  layer->setInput(3, integers({1, 1}));
  EXPECT_EQ(result(layer, {2, 3}), (Floats{2, 3, 5, 6}));
}

TEST_F(LayerParameters, GatherOfElements) {
  ITensor& indices =
      *network->addCast(constant({2, 3}, {1, 0, 1, 0, 0, 1}), DataType::kINT32)->getOutput(0);
  IGatherLayer* const layer =
      network->addGatherV2(input("x", {2, 2}), indices, GatherMode::kELEMENT);
  expect_misfit(layer, "input 1 (indices) of shape (2, 3) exceeds");
  layer->setGatherAxis(1);
  EXPECT_EQ(result(layer, {2, 2}), (Floats{2, 1, 2, 3, 3, 4}));
}

TEST_F(LayerParameters, ShuffleBackToFront) {
  IShuffleLayer* const layer = network->addShuffle(input("x", {2, 3}));
  layer->setSecondTranspose(Permutation{{1, 2, 0}});
  expect_misfit(layer, "the second transpose must be a permutation of 0 to 1");
  layer->setReshapeDimensions(dims({3, 1, 2}));
  layer->setFirstTranspose(Permutation{{1, 0}});
  EXPECT_EQ(layer->getSecondTranspose().order[0], 1);
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{1, 2, 3}));
  EXPECT_EQ(result(layer, {2, 3}), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_F(LayerParameters, TransposesWithoutReshape) {
  IShuffleLayer* const layer = network->addShuffle(input("x", {1, 2, 3}));
  layer->setSecondTranspose(Permutation{{0, 2, 1}});
  layer->setFirstTranspose(Permutation{{1, 0, 2}});
  EXPECT_EQ(result(layer, {1, 2, 3}), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(shape_of(output_shape), (Extents{2, 3, 1}));
}

TEST_F(LayerParameters, ConvolutionPadding) {
  IConvolutionLayer* const layer = network->addConvolutionNd(
      input("x", {1, 1, 1, 2}), 1, DimsHW{1, 3}, weights({1, 10, 100}), kNoWeights);
  expect_misfit(layer, "the kernel of shape (1, 1, 1, 3) does not fit");
  layer->setPaddingNd(DimsHW{0, 1});
  EXPECT_EQ(result(layer, {1, 1, 1, 2}), (Floats{210, 21}));
}

TEST_F(LayerParameters, ConvolutionKernelAsInput) {
  IConvolutionLayer* const layer = network->addConvolutionNd(
      input("x", {1, 1, 1, 2}), 1, DimsHW{1, 2}, kNoWeights, weights({0.5F}));
  expect_misfit(layer, "input 1 is absent");
  EXPECT_EQ(layer->getKernelSizeNd().nbDims, -1);
  EXPECT_EQ(layer->getKernelWeights().count, 0);
  layer->setInput(1, constant({1, 1, 1, 2}, {1, 10}));
  EXPECT_EQ(shape_of(layer->getKernelSizeNd()), (Extents{1, 2}));
  EXPECT_EQ(result(layer, {1, 1, 1, 2}), (Floats{21.5F}));
}

TEST_F(LayerParameters, MatrixOperation) {
  IMatrixMultiplyLayer* const layer =
      network->addMatrixMultiply(input("x", {1, 2}), MatrixOperation::kNONE,
                                 constant({1, 2}, {1, 10}), MatrixOperation::kNONE);
  expect_misfit(layer, "");
  layer->setOperation(1, MatrixOperation::kTRANSPOSE);
  EXPECT_EQ(result(layer, {1, 2}), (Floats{21}));
}

TEST_F(LayerParameters, AxesOfReductions) {
  IReduceLayer* const sum =
      network->addReduce(input("x", {2, 2}), ReduceOperation::kSUM, 1U << 5, false);
  expect_misfit(sum, "the mask of axes");
  sum->setReduceAxes(1U << 1);
  ITopKLayer* const top = network->addTopK(*sum->getOutput(0), TopKOperation::kMAX, 8, 1);
  ASSERT_NE(top, nullptr) << logger.errors;
  expect_misfit(top, "k must not exceed");
  top->setK(1);
  EXPECT_EQ(top->getNbOutputs(), 2);
  EXPECT_EQ(result(top, {2, 2}), (Floats{7}));
}

TEST_F(LayerParameters, PoolingWindow) {
  IPoolingLayer* const layer =
      network->addPoolingNd(input("x", {1, 1, 2, 2}), PoolingType::kMAX, DimsHW{4, 4});
  expect_misfit(layer, "");
  layer->setWindowSizeNd(DimsHW{2, 1});
  layer->setStrideNd(DimsHW{1, 1});
  EXPECT_EQ(result(layer, {1, 1, 2, 2}), (Floats{3, 4}));
}

TEST_F(LayerParameters, FillInputs) {
  ITensor& x = input("x", {3});
  IFillLayer* const layer =
      network->addFill(dims({-1}), FillOperation::kLINSPACE, DataType::kFLOAT);
  expect_misfit(layer, "");
  layer->setInput(0, integers({3}));
  layer->setInput(1, constant({}, {10}));
  layer->setInput(2, constant({}, {5}));
  ILayer* const sum = network->addElementWise(x, *layer->getOutput(0), ElementWiseOperation::kSUM);
  EXPECT_EQ(result(sum, {3}), (Floats{11, 17, 23}));
}

TEST_F(LayerParameters, ErrorsOfInputsAreToldDownstream) {
  ITensor& x = input("x", {2, 2});
  IReduceLayer* const sum = network->addReduce(x, ReduceOperation::kSUM, 1U << 5, false);
  sum->setName("sum");
  IUnaryLayer* const layer = network->addUnary(*sum->getOutput(0), UnaryOperation::kNEG);
  ASSERT_NE(layer, nullptr) << logger.errors;
  logger.errors.clear();
  EXPECT_EQ(layer->getOutput(0)->getDimensions().nbDims, -1);
  EXPECT_NE(logger.errors.find("Reduce 'sum'"), std::string::npos) << logger.errors;
  x.setDimensions(dims({1, 2, 1, 1, 1, 2}));
  EXPECT_EQ(shape_of(layer->getOutput(0)->getDimensions()), (Extents{1, 2, 1, 1, 1}));
  EXPECT_EQ(result(layer, {1, 2, 1, 1, 1, 2}), (Floats{-3, -7}));
}

}  // namespace
}  // namespace program
