#include "compile/passes.h"

#include <gtest/gtest.h>

#include "graph_run.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright {
namespace {

/// A network that is built in one test, with random inputs and constants.
class Passes : public testing::Test {
 protected:
  Tensor* input(const Shape& shape) {
    inputs_.push_back(random_floats(shape.numel(), ++seed_));
    return network_.add_input("x" + std::to_string(inputs_.size()), DataType::kFLOAT, shape);
  }
  Tensor* constant(const Shape& shape) {
    return network_.add_constant(DataType::kFLOAT, shape,
                                 blob_of(random_floats(shape.numel(), ++seed_)));
  }
  Tensor* number(float value) {
    return network_.add_constant(DataType::kFLOAT, {}, blob_of({value}));
  }
  /// The number with extents of 1, as exporters write it.
  Tensor* number(float value, const Shape& shape) {
    return network_.add_constant(DataType::kFLOAT, shape, blob_of({value}));
  }
  Tensor* binary(ElementWiseOperation op, Tensor* a, Tensor* b) {
    return network_.add<ElementWise>({op}, {a, b})->output(0);
  }
  Tensor* add(Tensor* a, Tensor* b) { return binary(ElementWiseOperation::kSUM, a, b); }
  Tensor* sub(Tensor* a, Tensor* b) { return binary(ElementWiseOperation::kSUB, a, b); }
  Tensor* mul(Tensor* a, Tensor* b) { return binary(ElementWiseOperation::kPROD, a, b); }
  Tensor* div(Tensor* a, Tensor* b) { return binary(ElementWiseOperation::kDIV, a, b); }
  Tensor* unary(UnaryOperation op, Tensor* a) { return network_.add<Unary>({op}, {a})->output(0); }
  Tensor* activation(ActivationType type, Tensor* a, float alpha = 0, float beta = 0) {
    return network_.add<Activation>({type, alpha, beta}, {a})->output(0);
  }
  Tensor* relu(Tensor* a) { return activation(ActivationType::kRELU, a); }
  Tensor* mean(Tensor* a, int64_t axes) {
    return network_.add<Reduce>({ReduceOperation::kAVG, axes, true}, {a})->output(0);
  }
  Tensor* convolution(Tensor* x, const Shape& kernel, bool bias = false,
                      ConvolutionParams params = {}) {
    std::vector<Tensor*> inputs{x, constant(kernel)};
    if (bias) inputs.push_back(constant({kernel[0]}));
    return network_.add<Convolution>(params, inputs)->output(0);
  }

  /// Runs all passes and checks the kinds that remain, and that the result is that of the layers
  /// one by one.
  std::unique_ptr<Graph> expect(const std::string& expected, Tensor* output) {
    network_.mark_output(*output);
    return expect(expected);
  }
  std::unique_ptr<Graph> expect(const std::string& expected) {
    const ProfileRanges ranges(network_, nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph plain(network_);
    fold_shapes(plain);
    lower(plain);
    plain.remove_dead();
    auto optimized = std::make_unique<Graph>(network_);
    run_passes(*optimized, context);
    EXPECT_EQ(kinds(*optimized), expected);
    if (kinds(*optimized) != expected) throw std::runtime_error("another graph than expected");
    const auto before = GraphRun(plain)(inputs_), after = GraphRun(*optimized)(inputs_);
    EXPECT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) expect_near(after[i], before[i]);
    return optimized;
  }

  Network network_;
  std::vector<std::vector<float>> inputs_;
  uint32_t seed_ = 0;
};

TEST_F(Passes, BatchNormalizationGoesIntoTheConvolution) {
  Tensor* y = convolution(input({1, 3, 8, 8}), {6, 3, 3, 3});
  Tensor* normalized =
      network_.add<Scale>({ScaleMode::kCHANNEL, 1}, {y, constant({6}), constant({6})})->output(0);
  const auto graph = expect("Convolution", relu(normalized));
  EXPECT_EQ(graph->nodes()[0]->inputs.size(), 3u);
}

TEST_F(Passes, ScalesOfGroupedAndTransposedConvolutions) {
  ConvolutionParams grouped;
  grouped.groups = 2;
  Tensor* y = convolution(input({1, 4, 6, 6}), {6, 2, 3, 3}, true, grouped);
  Tensor* z = mul(add(y, constant({1, 6, 1, 1})), constant({6, 1, 1}));
  Tensor* up = network_.add<Deconvolution>(grouped, {z, constant({6, 4, 2, 2})})->output(0);
  expect("Convolution Deconvolution", sub(div(up, constant({1, 8, 1, 1})), constant({8, 1, 1})));
}

TEST_F(Passes, ASliceOfAllElementsIsDropped) {
  Tensor* const x = input({2, 3, 5});
  const SliceParams all{{0, 0, 0}, {2, 3, 5}, {1, 1, 1}, {}, SampleMode::kFILL};
  expect("Pointwise", relu(network_.add<Slice>(all, {x})->output(0)));
}

/// As where the masks of windows are added to the scores of all windows of two images.
TEST_F(Passes, ReshapesAroundASumWithAConstantAreDropped) {
  const auto reshape = [&](Tensor* x, const Ints& dims) {
    ShuffleParams params;
    params.has_reshape = true, params.reshape_dims = dims;
    return network_.add<Shuffle>(params, {x})->output(0);
  };
  Tensor* const scores = reshape(input({8, 3, 5, 5}), {2, 4, 3, 5, 5});
  Tensor* const masked = add(scores, constant({1, 4, 1, 5, 5}));
  expect("Pointwise", relu(reshape(masked, {8, 3, 5, 5})));
}

/// The channels that are the same at all pixels are multiplied once.
TEST_F(Passes, SpreadChannelsAreSeparated) {
  const auto spread = [&](Tensor* pixel, int64_t channels) {
    return network_.add<Slice>({{0, 0, 0, 0}, {2, channels, 9, 10}, {1, 1, 0, 0}, {}}, {pixel})
        ->output(0);
  };
  Tensor* const first = input({2, 3, 9, 10});
  Tensor* const joined =
      network_
          .add<Concatenation>({1}, {spread(input({2, 5, 1, 1}), 5), first,
                                    spread(input({2, 2, 1, 1}), 2), input({2, 4, 9, 10})})
          ->output(0);
  const auto graph = expect("Concatenation Convolution Concatenation Convolution Pointwise",
                            relu(convolution(joined, {6, 14, 1, 1}, true)));
  EXPECT_EQ(graph->nodes()[1]->inputs[1]->info.dims[1], Expr(7));
}

TEST_F(Passes, SpreadChannelsOfLargerKernelsStay) {
  Tensor* const spread =
      network_.add<Slice>({{0, 0, 0, 0}, {2, 5, 9, 10}, {1, 1, 0, 0}, {}}, {input({2, 5, 1, 1})})
          ->output(0);
  Tensor* const joined =
      network_.add<Concatenation>({1}, {spread, input({2, 3, 9, 10})})->output(0);
  expect("Slice Concatenation Convolution", convolution(joined, {6, 8, 3, 3}));
}

TEST_F(Passes, AScaleStaysWhereTheConvolutionHasOtherReaders) {
  Tensor* y = convolution(input({1, 3, 8, 8}), {6, 3, 3, 3});
  network_.mark_output(*y);
  expect("Convolution Pointwise", mul(y, constant({6, 1, 1})));
}

TEST_F(Passes, AFactorThatIsNotPerChannelStays) {
  Tensor* y = convolution(input({1, 3, 8, 8}), {6, 3, 3, 3});
  expect("Convolution Pointwise", mul(y, constant({1, 6, 1, 6})));
}

TEST_F(Passes, ResidualBlocksBecomeConvolutions) {
  Tensor* x = input({1, 8, 6, 6});
  ConvolutionParams same;
  same.pre_padding = same.post_padding = {1, 1};
  Tensor* y = relu(convolution(x, {8, 8, 3, 3}, true, same));
  y = convolution(y, {8, 8, 3, 3}, true, same);
  const auto graph = expect("Convolution Convolution", relu(add(y, x)));
  const auto& params = graph->nodes()[1]->as<Convolution>()->params();
  EXPECT_TRUE(params.has_residual);
  EXPECT_EQ(params.activation.type, static_cast<int32_t>(ActivationType::kRELU));
  EXPECT_EQ(graph->nodes()[1]->inputs.back(), graph->inputs[0]);
}

TEST_F(Passes, ATransposedConvolutionTakesItsResidual) {
  ConvolutionParams twice;
  twice.stride = {2, 2};
  Tensor* skip = input({1, 6, 12, 12});
  Tensor* up =
      network_.add<Deconvolution>(twice, {input({1, 4, 6, 6}), constant({4, 6, 2, 2})})->output(0);
  const auto graph = expect("Deconvolution", relu(add(skip, up)));
  const auto& params = graph->nodes()[0]->as<Deconvolution>()->params();
  EXPECT_TRUE(params.has_residual);
  EXPECT_EQ(params.activation.type, static_cast<int32_t>(ActivationType::kRELU));
}

TEST_F(Passes, AResidualWithoutBiasKeepsTheBiasesPlace) {
  Tensor* x = input({1, 4, 6, 6});
  Tensor* y = convolution(x, {4, 4, 1, 1});
  const auto graph = expect("Convolution", add(x, y));
  ASSERT_EQ(graph->nodes()[0]->inputs.size(), 4u);
  EXPECT_EQ(graph->nodes()[0]->inputs[2], nullptr);
}

TEST_F(Passes, ShortcutConvolutionsFeedTheLastOne) {
  Tensor* x = input({1, 4, 6, 6});
  Tensor* main = convolution(x, {8, 4, 1, 1}, true);
  Tensor* shortcut = convolution(x, {8, 4, 1, 1}, true);
  expect("Convolution Convolution", relu(add(main, shortcut)));
}

TEST_F(Passes, AnActivationStaysWhereTheResultIsReadBeforeIt) {
  Tensor* y = convolution(input({1, 3, 8, 8}), {6, 3, 3, 3});
  network_.mark_output(*y);
  expect("Convolution Pointwise", relu(y));
}

TEST_F(Passes, AMaximumWithZeroIsFusedAsRelu) {
  Tensor* y = convolution(input({1, 3, 8, 8}), {6, 3, 3, 3});
  y = binary(ElementWiseOperation::kMAX, y, number(0, {1, 1, 1, 1}));
  const auto graph = expect("Convolution", y);
  const FusedActivation& fused = graph->nodes()[0]->as<Convolution>()->params().activation;
  EXPECT_EQ(fused.type, static_cast<int32_t>(ActivationType::kRELU));
}

TEST_F(Passes, BiasAndActivationOfAMatrixProduct) {
  Tensor* y = network_.add<MatrixMultiply>({}, {input({5, 8}), constant({8, 6})})->output(0);
  const auto graph = expect("MatrixMultiply", relu(add(y, constant({1, 6}))));
  EXPECT_TRUE(graph->nodes()[0]->as<MatrixMultiply>()->params().has_bias);
  EXPECT_TRUE(graph->nodes()[0]->as<MatrixMultiply>()->params().activation.present());
}

TEST_F(Passes, ScalesGoIntoTransposedWeightsOfAMatrixProduct) {
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  Tensor* y = network_.add<MatrixMultiply>(params, {input({5, 8}), constant({6, 8})})->output(0);
  expect("MatrixMultiply", add(mul(y, constant({1, 6})), constant({1, 6})));
}

TEST_F(Passes, TransposedOperandsAreReadAsTheyAre) {
  Tensor* a = network_.add<Transpose>({{0, 2, 1}}, {input({2, 8, 5})})->output(0);
  Tensor* b = network_.add<Transpose>({{0, 2, 1}}, {input({2, 6, 8})})->output(0);
  const auto graph = expect("MatrixMultiply", network_.add<MatrixMultiply>({}, {a, b})->output(0));
  EXPECT_EQ(graph->nodes()[0]->as<MatrixMultiply>()->params().op0, MatrixOperation::kTRANSPOSE);
  EXPECT_EQ(graph->nodes()[0]->as<MatrixMultiply>()->params().op1, MatrixOperation::kTRANSPOSE);
}

TEST_F(Passes, GeluOfErfBecomesOneActivation) {
  Tensor* x = input({4, 10});
  Tensor* e = unary(UnaryOperation::kERF, div(x, number(1.41421354f, {1, 1})));
  Tensor* y = mul(mul(x, add(e, number(1, {1, 1}))), number(0.5f, {1, 1}));
  const auto graph = expect("Pointwise", y);
  EXPECT_EQ(decode(graph->nodes()[0]->as<Pointwise>()->params()).size(), 2u);
}

/// Exporters write constants in the type of the model: the square root of 2 is 1.4140625 in FP16
/// and in BF16.
TEST(PassesOfShorterTypes, GeluBecomesOneActivation) {
  struct Case {
    DataType type;
    uint16_t root, one, half;
  };
  for (const Case& of : {Case{DataType::kHALF, 0x3da8, 0x3c00, 0x3800},
                         Case{DataType::kBF16, 0x3fb5, 0x3f80, 0x3f00}}) {
    Network network;
    Tensor* x = network.add_input("x", of.type, Shape{4, 10});
    const auto number = [&](uint16_t bits) {
      return network.add_constant(of.type, Shape{1, 1}, Blob::copy(&bits, sizeof(bits)));
    };
    const auto binary = [&](ElementWiseOperation op, Tensor* a, Tensor* b) {
      return network.add<ElementWise>({op}, {a, b})->output(0);
    };
    constexpr auto kTimes = ElementWiseOperation::kPROD;
    Tensor* scaled = binary(ElementWiseOperation::kDIV, x, number(of.root));
    Tensor* erf = network.add<Unary>({UnaryOperation::kERF}, {scaled})->output(0);
    Tensor* sum = binary(ElementWiseOperation::kSUM, erf, number(of.one));
    network.mark_output(*binary(kTimes, binary(kTimes, x, sum), number(of.half)));
    const ProfileRanges ranges(network, nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph graph(network);
    run_passes(graph, context);
    ASSERT_EQ(kinds(graph), "Pointwise");
    const auto program = decode(graph.nodes()[0]->as<Pointwise>()->params());
    EXPECT_TRUE(std::any_of(program.begin(), program.end(), [](const PointwiseInstruction& i) {
      return i.op == opcode(ActivationType::kGELU_ERF);
    })) << name(of.type);
  }
}

TEST_F(Passes, GeluGoesIntoTheMatrixProduct) {
  Tensor* y = network_.add<MatrixMultiply>({}, {input({5, 8}), constant({8, 6})})->output(0);
  y = add(y, constant({1, 6}));
  Tensor* e = unary(UnaryOperation::kERF, mul(y, number(0.70710677f, {1, 1})));
  expect("MatrixMultiply", mul(mul(number(0.5f, {1, 1}), y), add(number(1, {1, 1}), e)));
}

TEST_F(Passes, GeluOfTanhBecomesOneActivation) {
  Tensor* x = input({4, 10});
  Tensor* cube = binary(ElementWiseOperation::kPOW, x, number(3, {1, 1}));
  Tensor* inner = mul(add(x, mul(cube, number(0.044715f, {1, 1}))), number(0.7978846f, {1, 1}));
  Tensor* t = activation(ActivationType::kTANH, inner);
  const auto graph =
      expect("Pointwise", mul(mul(x, number(0.5f, {1, 1})), add(t, number(1, {1, 1}))));
  EXPECT_EQ(decode(graph->nodes()[0]->as<Pointwise>()->params()).size(), 2u);
}

TEST_F(Passes, WhatOnlyLooksLikeGeluIsLeftAlone) {
  Tensor* x = input({4, 10});
  Tensor* e = unary(UnaryOperation::kERF, div(x, number(1.5f, {1, 1})));
  const auto graph =
      expect("Pointwise", mul(mul(x, add(e, number(1, {1, 1}))), number(0.5f, {1, 1})));
  EXPECT_GT(decode(graph->nodes()[0]->as<Pointwise>()->params()).size(), 4u);
}

TEST_F(Passes, LayerNormalizationIsRecognized) {
  Tensor* x = input({2, 5, 16});
  Tensor* d = sub(x, mean(x, 4));
  Tensor* v = mean(binary(ElementWiseOperation::kPOW, d, number(2, {1, 1, 1})), 4);
  Tensor* y = div(d, unary(UnaryOperation::kSQRT, add(v, number(1e-5f, {1, 1, 1}))));
  const auto graph =
      expect("Normalization", add(mul(y, constant({1, 1, 16})), constant({1, 1, 16})));
  EXPECT_FALSE(graph->nodes()[0]->as<Normalization>()->params().rms);
  EXPECT_EQ(graph->nodes()[0]->as<Normalization>()->params().axes, 4);
}

TEST_F(Passes, LayerNormalizationWithTwoDifferencesAndNoScale) {
  Tensor* x = input({2, 5, 16});
  Tensor* m = mean(x, 4);
  Tensor *d = sub(x, m), *again = sub(x, m);
  Tensor* v = mean(mul(again, again), 4);
  Tensor* r =
      unary(UnaryOperation::kRECIP, unary(UnaryOperation::kSQRT, add(number(1e-3f, {1, 1, 1}), v)));
  expect("Normalization", add(mul(d, r), constant({1, 1, 16})));
}

TEST_F(Passes, RmsNormalizationIsRecognized) {
  Tensor* x = input({2, 5, 16});
  Tensor* v = mean(mul(x, x), 4);
  Tensor* y = div(x, unary(UnaryOperation::kSQRT, add(v, number(1e-6f, {1, 1, 1}))));
  const auto graph = expect("Normalization", mul(constant({1, 1, 16}), y));
  EXPECT_TRUE(graph->nodes()[0]->as<Normalization>()->params().rms);
}

/// What PyTorch's models do in FP16 and BF16: kernels compute in FP32 by themselves.
TEST(PassesOfShorterTypes, RmsNormalizationBetweenCastsIsThatOfTheShortType) {
  for (const DataType type : {DataType::kHALF, DataType::kBF16}) {
    for (const bool comes_back : {true, false}) {
      Network network;
      Tensor* const x = network.add_input("x", type, Shape{4, 16});
      const auto binary = [&](ElementWiseOperation op, Tensor* a, Tensor* b) {
        return network.add<ElementWise>({op}, {a, b})->output(0);
      };
      const auto cast = [&](Tensor* of, DataType to) {
        return network.add<Cast>({to}, {of})->output(0);
      };
      Tensor* const exact = cast(x, DataType::kFLOAT);
      Tensor* const squares = binary(ElementWiseOperation::kPROD, exact, exact);
      Tensor* const mean =
          network.add<Reduce>({ReduceOperation::kAVG, 2, true}, {squares})->output(0);
      Tensor* const epsilon = network.add_constant(DataType::kFLOAT, Shape{1, 1}, blob_of({1e-6f}));
      Tensor* const root = network
                               .add<Unary>({UnaryOperation::kSQRT},
                                           {binary(ElementWiseOperation::kSUM, mean, epsilon)})
                               ->output(0);
      Tensor* y = binary(ElementWiseOperation::kDIV, exact, root);
      if (comes_back) {
        const std::vector<uint16_t> ones(16, type == DataType::kHALF ? 0x3c00 : 0x3f80);
        Tensor* const scale =
            network.add_constant(type, Shape{1, 16}, Blob::copy(ones.data(), ones.size() * 2));
        y = binary(ElementWiseOperation::kPROD, scale, cast(y, type));
      }
      network.mark_output(*y);
      const ProfileRanges ranges(network, nullptr);
      const BuilderConfig config{DeviceId{"cpu"}};
      const PassContext context{get_device(DeviceType::kCPU), config, ranges};
      Graph graph(network);
      run_passes(graph, context);
      EXPECT_EQ(kinds(graph), comes_back ? "Normalization" : "Pointwise Normalization");
      EXPECT_EQ(graph.nodes().back()->inputs[0]->info.dtype, comes_back ? type : DataType::kFLOAT);
    }
  }
}

/// Casts round within a program; inputs and results of a type need no instruction for it.
TEST(PassesOfShorterTypes, ProgramsRoundWhereTheirPortsDoNot) {
  for (const DataType type : {DataType::kHALF, DataType::kBF16}) {
    const PointwiseOp rounding =
        type == DataType::kHALF ? PointwiseOp::kToHalf : PointwiseOp::kToBf16;
    const auto roundings = [&](DataType from, std::initializer_list<DataType> casts) {
      Network network;
      Tensor* y = network.add_input("x", from, Shape{4});
      for (const DataType to : casts) {
        y = network.add<Unary>({UnaryOperation::kNEG}, {y})->output(0);
        y = network.add<Cast>({to}, {y})->output(0);
      }
      network.mark_output(*y);
      const ProfileRanges ranges(network, nullptr);
      const BuilderConfig config{DeviceId{"cpu"}};
      const PassContext context{get_device(DeviceType::kCPU), config, ranges};
      Graph graph(network);
      run_passes(graph, context);
      EXPECT_EQ(kinds(graph), "Pointwise");
      const auto program = decode(graph.nodes()[0]->as<Pointwise>()->params());
      return std::ranges::count(program, opcode(rounding), &PointwiseInstruction::op);
    };
    constexpr DataType kFloat = DataType::kFLOAT;
    EXPECT_EQ(roundings(kFloat, {type}), 0);
    EXPECT_EQ(roundings(type, {kFloat, type}), 1) << "-x was not of the type";
    EXPECT_EQ(roundings(kFloat, {type, kFloat}), 2);
    EXPECT_EQ(roundings(kFloat, {kFloat, kFloat}), 0);
  }
}

TEST_F(Passes, ElementWiseChainsAndDiamondsBecomeOneProgram) {
  Tensor *x = input({3, 7}), *z = input({1, 7});
  Tensor* a = unary(UnaryOperation::kEXP, mul(x, z));
  Tensor* b = add(a, unary(UnaryOperation::kNEG, z));
  Tensor* silu = mul(b, activation(ActivationType::kSIGMOID, b));
  expect("Pointwise Pointwise", silu);  // the negation has z's smaller shape
}

TEST_F(Passes, ALongChainIsCutIntoPrograms) {
  Tensor* x = input({3, 7});
  for (int i = 0; i < 40; ++i) x = unary(UnaryOperation::kABS, sub(x, input({3, 7})));
  network_.mark_output(*x);
  const ProfileRanges ranges(network_, nullptr);
  const BuilderConfig config{DeviceId{"cpu"}};
  Graph graph(network_);
  run_passes(graph, {get_device(DeviceType::kCPU), config, ranges});
  EXPECT_GT(graph.size(), 4u);
  EXPECT_LT(graph.size(), 16u);
  for (const GraphNode* node : graph.nodes()) {
    EXPECT_LE(node->inputs.size(), 8u);
    EXPECT_LE(decode(node->as<Pointwise>()->params()).size(), 48u);
  }
}

TEST_F(Passes, ACheapValueIsComputedByEachOfItsReaders) {
  Tensor* x = input({3, 7});
  Tensor* y = relu(x);
  network_.mark_output(*unary(UnaryOperation::kEXP, y));
  network_.mark_output(*unary(UnaryOperation::kSQRT, y));
  expect("Pointwise Pointwise");
}

TEST_F(Passes, ZeroPaddingGoesIntoTheConvolution) {
  Tensor* x = input({1, 3, 8, 8});
  SliceParams pad;
  pad.start = {0, 0, -1, -2};
  pad.size = {1, 3, 10, 11};
  pad.stride = {1, 1, 1, 1};
  pad.mode = SampleMode::kFILL;
  Tensor* padded = network_.add<Slice>(pad, {x})->output(0);
  network_.mark_output(*convolution(padded, {6, 3, 3, 3}));
  const ProfileRanges ranges(network_, nullptr);
  const BuilderConfig config{DeviceId{"cpu"}};
  Graph graph(network_);
  run_passes(graph, {get_device(DeviceType::kCPU), config, ranges});
  ASSERT_EQ(kinds(graph), "Convolution");
  const auto& params = graph.nodes()[0]->as<Convolution>()->params();
  EXPECT_EQ(params.pre_padding, (Ints{1, 2}));
  EXPECT_EQ(params.post_padding, (Ints{1, 1}));
}

TEST_F(Passes, PaddingGoesIntoAPoolingThatAllowsIt) {
  Tensor* x = input({1, 3, 8, 8});
  const auto pooled = [&](int64_t before) {
    SliceParams pad;
    pad.start = {0, 0, -before, 0};
    pad.size = {1, 3, 8 + before, 8};
    pad.stride = {1, 1, 1, 1};
    pad.mode = SampleMode::kFILL;
    PoolingParams params;
    params.type = PoolingType::kAVERAGE;
    params.window = {2, 2};
    return network_.add<Pooling>(params, {network_.add<Slice>(pad, {x})->output(0)})->output(0);
  };
  network_.mark_output(*pooled(1));
  network_.mark_output(*pooled(2));
  // Padding as wide as the window makes windows of nothing but padding.
  expect("Pooling Slice Pooling");
}

TEST_F(Passes, OtherPaddingStays) {
  Tensor* x = input({1, 3, 8, 8});
  SliceParams pad;
  pad.start = {0, 0, -1, -1};
  pad.size = {1, 3, 10, 10};
  pad.stride = {1, 1, 1, 1};
  pad.mode = SampleMode::kWRAP;
  network_.mark_output(*convolution(network_.add<Slice>(pad, {x})->output(0), {6, 3, 3, 3}));
  const ProfileRanges ranges(network_, nullptr);
  const BuilderConfig config{DeviceId{"cpu"}};
  Graph graph(network_);
  run_passes(graph, {get_device(DeviceType::kCPU), config, ranges});
  EXPECT_EQ(kinds(graph), "Slice Convolution");
}

TEST_F(Passes, ShufflesBecomeTransposesAndReshapesAndCancel) {
  Tensor* x = input({2, 3, 4, 5});
  ShuffleParams there, back;
  there.first_transpose = {0, 2, 3, 1};
  there.has_reshape = true;
  there.reshape_dims = {2, 20, 3};
  back.has_reshape = true;
  back.reshape_dims = {2, 4, 5, 3};
  back.second_transpose = {0, 3, 1, 2};
  Tensor* y = network_.add<Shuffle>(there, {x})->output(0);
  Tensor* z = network_.add<Shuffle>(back, {y})->output(0);
  network_.mark_output(*y);
  network_.mark_output(*unary(UnaryOperation::kABS, z));
  expect("Transpose Reshape Pointwise");
}

TEST_F(Passes, TransposesOfExtentsOfOneAreReshapes) {
  Tensor* x = input({2, 3, 1, 5});
  Tensor* y = network_.add<Transpose>({{0, 2, 1, 3}}, {x})->output(0);
  expect("Reshape", y);
}

/// What ShuffleNet writes, with these shapes in between and at the end.
Tensor* shuffle(Network& network, Tensor* x, Ints split, Ints permutation, Ints joined) {
  ShuffleParams splits, swaps, joins;
  splits.has_reshape = joins.has_reshape = true;
  splits.reshape_dims = std::move(split), joins.reshape_dims = std::move(joined);
  swaps.first_transpose = std::move(permutation);
  Tensor* parts = network.add<Shuffle>(splits, {x})->output(0);
  Tensor* swapped = network.add<Shuffle>(swaps, {parts})->output(0);
  return network.add<Shuffle>(joins, {swapped})->output(0);
}

TEST_F(Passes, ChannelShufflesAreOneLayer) {
  Tensor* x = input({2, 12, 5, 7});
  const auto add = [&](const Ints& split, const Ints& permutation, const Ints& joined) {
    network_.mark_output(*shuffle(network_, x, split, permutation, joined));
  };
  add({2, 3, 4, 5, 7}, {0, 2, 1, 3, 4}, {2, 12, 5, 7});
  add({2, 6, 2, 35}, {0, 2, 1, 3}, {2, 12, 5, 7});
  // Another permutation, another result, and groups of another axis.
  add({2, 2, 6, 5, 7}, {0, 2, 1, 4, 3}, {2, 12, 5, 7});
  add({2, 4, 3, 5, 7}, {0, 2, 1, 3, 4}, {2, 12, 7, 5});
  add({4, 3, 2, 5, 7}, {0, 2, 1, 3, 4}, {2, 12, 5, 7});
  const auto graph = expect(
      "ChannelShuffle ChannelShuffle Reshape Transpose Reshape Reshape Transpose Reshape "
      "Reshape Transpose Reshape");
  EXPECT_EQ(graph->nodes()[0]->as<ChannelShuffle>()->params().groups, 3);
  EXPECT_EQ(graph->nodes()[1]->as<ChannelShuffle>()->params().groups, 6);
}

TEST_F(Passes, AChannelShuffleWhoseTransposeIsAnOutputStays) {
  Tensor* y =
      shuffle(network_, input({1, 6, 4, 4}), {1, 2, 3, 4, 4}, {0, 2, 1, 3, 4}, {1, 6, 4, 4});
  network_.mark_output(*y->producer()->input(0));
  expect("Reshape Transpose Reshape", y);
}

TEST_F(Passes, EqualLayersRunOnce) {
  Tensor* x = input({1, 4, 6, 6});
  Tensor* w = constant({4, 4, 1, 1});
  Tensor* a = network_.add<Convolution>({}, {x, w})->output(0);
  Tensor* b = network_.add<Convolution>({}, {x, w})->output(0);
  expect("Convolution Pointwise", mul(a, unary(UnaryOperation::kABS, b)));
}

/// Exporters write a number for each of its readers.
TEST_F(Passes, LayersWithEqualNumbersRunOnce) {
  Tensor* const x = input({1, 4, 6, 6});
  const auto pooled = [&](float factor) {
    return network_.add<Softmax>({int64_t{1} << 3}, {mul(x, number(factor))})->output(0);
  };
  expect("Pointwise Softmax Pointwise", sub(pooled(3), unary(UnaryOperation::kABS, pooled(3))));
}

TEST_F(Passes, WeightsThatAFillMakesAreFolded) {
  FillParams fill;
  fill.shape = {4, 3, 1, 1};
  fill.alpha = 0.25;
  Tensor* w = network_.add<Fill>(fill, std::span<Tensor* const>())->output(0);
  Tensor* y = network_.add<Convolution>({}, {input({1, 3, 6, 6}), w})->output(0);
  network_.mark_output(*y);
  const ProfileRanges ranges(network_, nullptr);
  const BuilderConfig config{DeviceId{"cpu"}};
  Graph graph(network_);
  run_passes(graph, {get_device(DeviceType::kCPU), config, ranges});
  ASSERT_EQ(kinds(graph), "Convolution");
  const GraphValue& weights = *graph.nodes()[0]->inputs[1];
  ASSERT_TRUE(weights.is_constant());
  for (int i = 0; i < 12; ++i) EXPECT_EQ(weights.info.constant.as<float>()[i], 0.25f);
}

TEST_F(Passes, LayersThatNothingReadsAreDropped) {
  Tensor* x = input({3, 7});
  unary(UnaryOperation::kEXP, x);
  expect("Pointwise", unary(UnaryOperation::kABS, x));
}

TEST_F(Passes, OutputsThatAreInputsNeedNoLayer) {
  Tensor* x = input({3, 7});
  Tensor* y = network_.add<Identity>({}, {x})->output(0);
  const auto graph = expect("", y);
  EXPECT_EQ(graph->outputs()[0], graph->inputs[0]);
}

}  // namespace
}  // namespace opwright
