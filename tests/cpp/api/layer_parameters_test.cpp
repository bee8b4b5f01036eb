// Layers get their parameters after they were added, in any order. What does not fit is an error
// when it is asked for or built, not before. Results against numbers computed by hand. Core does it
// for both languages, and tests/python/layers/test_layer_parameters.py goes through the layers;
// here is what C++ has of its own: Permutation, weights, names made of an index, errors told to the
// recorder.

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

TEST_F(LayerParameters, SliceModeAndValue) {
  ISliceLayer* const layer = network->addSlice(input("x", {3}), dims({-1}), dims({5}), dims({1}));
  expect_misfit(layer, "axis 0 has extent 3, but elements -1 to 3");
  layer->setInput(4, constant({}, {9}));
  expect_misfit(layer, "input 4 (fill value) is only for sample mode FILL");
  layer->setMode(SampleMode::kFILL);
  EXPECT_EQ(result(layer, {3}), (Floats{9, 1, 2, 3, 9}));
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
