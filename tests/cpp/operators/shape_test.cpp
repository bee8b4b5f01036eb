// Types and shapes of the operators other than windows, against shapes worked out by hand.

#include <bit>

#include "operators/activation.h"
#include "operators/context.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::testing {
namespace {

TEST(ElementWise, BroadcastsAndTypes) {
  EXPECT_EQ(shape_of<ElementWise>({}, {tensor({8, 1, 6, 1}), tensor({7, 1, 5})}),
            (Shape{8, 7, 6, 5}));
  const Tensors dynamic = {tensor({s(0), 1, 4}), tensor({s(1), 4})};
  EXPECT_EQ(shape_at<ElementWise>({}, dynamic, {2, 3}), (Shape{2, 3, 4}));
  const ElementWiseParams less{ElementWiseOperation::kLESS};
  EXPECT_EQ(infer_one<ElementWise>(less, {tensor({2}), tensor({2})}).dtype, DataType::kBOOL);
}

TEST(ElementWise, Errors) {
  expect_contains(error_of<ElementWise>({}, {tensor({2, 3}), tensor({4})}),
                  {"ElementWise", "input 1 (b)", "broadcast"});
  expect_contains(error_of<ElementWise>({}, {tensor({2}), tensor({2}, DataType::kHALF)}),
                  {"input 1 (b)", "FP16", "FP32"});
  const ElementWiseParams both{ElementWiseOperation::kAND};
  expect_contains(error_of<ElementWise>(both, {tensor({2}), tensor({2})}), {"BOOL", "FP32"});
  const TensorInfo flags = tensor({2}, DataType::kBOOL);
  expect_contains(error_of<ElementWise>({}, {flags, flags}), {"a number", "BOOL"});
  const ElementWiseParams unknown{static_cast<ElementWiseOperation>(50)};
  expect_contains(error_of<ElementWise>(unknown, {tensor({2}), tensor({2})}), {"unknown", "50"});
  EXPECT_NE(error_of<ElementWise>({}, {tensor({2})}), "");
}

TEST(Unary, Types) {
  EXPECT_EQ(infer_one<Unary>({UnaryOperation::kISNAN}, {tensor({2, s(0)})}).dtype, DataType::kBOOL);
  expect_contains(error_of<Unary>({UnaryOperation::kNOT}, {tensor({2})}), {"BOOL", "FP32"});
  expect_contains(error_of<Unary>({UnaryOperation::kEXP}, {tensor({2}, DataType::kINT32)}),
                  {"input 0 (x)", "INT32"});
}

TEST(Activation, Types) {
  EXPECT_EQ(shape_of<Activation>({}, {tensor({2, 3})}), (Shape{2, 3}));
  expect_contains(error_of<Activation>({ActivationType::kTANH}, {tensor({2}, DataType::kINT32)}),
                  {"INT32"});
  expect_contains(error_of<Activation>({static_cast<ActivationType>(-3)}, {tensor({2})}), {"-3"});
}

TEST(Select, BroadcastsAllThree) {
  const TensorInfo condition = tensor({3, 1}, DataType::kBOOL);
  EXPECT_EQ(shape_of<Select>({}, {condition, tensor({4}), tensor({2, 1, 1})}), (Shape{2, 3, 4}));
  expect_contains(error_of<Select>({}, {tensor({3, 1}), tensor({4}), tensor({4})}),
                  {"input 0 (condition)", "BOOL"});
}

TEST(Cast, Types) {
  EXPECT_EQ(infer_one<Cast>({DataType::kBF16}, {tensor({2})}).dtype, DataType::kBF16);
  expect_contains(error_of<Cast>({static_cast<DataType>(77)}, {tensor({2})}), {"77"});
}

TEST(ParametricRelu, SlopeBroadcastsOneWay) {
  EXPECT_EQ(shape_of<ParametricRelu>({}, {tensor({2, 3, 4}), tensor({3, 1})}), (Shape{2, 3, 4}));
  expect_contains(error_of<ParametricRelu>({}, {tensor({1, 3, 4}), tensor({2, 3, 4})}),
                  {"input 1 (slope)", "broadcast"});
}

TEST(Scale, CountsOfEachMode) {
  const TensorInfo x = tensor({s(0), 3, 4, 5});
  EXPECT_EQ(shape_at<Scale>({ScaleMode::kCHANNEL, 1}, {x, tensor({3}), tensor({3})}, {2}),
            (Shape{2, 3, 4, 5}));
  EXPECT_EQ(error_of<Scale>({ScaleMode::kUNIFORM, 1}, {x, std::nullopt, tensor({1})}), "");
  EXPECT_EQ(error_of<Scale>({ScaleMode::kELEMENTWISE, 1}, {x, tensor({60})}), "");
  expect_contains(error_of<Scale>({ScaleMode::kCHANNEL, 1}, {x, tensor({4})}),
                  {"input 1 (shift)", "3 elements"});
  expect_contains(error_of<Scale>({ScaleMode::kCHANNEL, 4}, {x}), {"channel axis", "4"});
}

TEST(MatrixMultiply, BatchesTransposesAndVectors) {
  using enum MatrixOperation;
  const auto shape = [](MatrixOperation a, MatrixOperation b, SymShape x, SymShape y) {
    MatrixMultiplyParams params;
    params.op0 = a;
    params.op1 = b;
    return shape_at<MatrixMultiply>(params, {tensor(std::move(x)), tensor(std::move(y))}, {9, 7});
  };
  EXPECT_EQ(shape(kNONE, kNONE, {2, 3}, {3, 4}), (Shape{2, 4}));
  EXPECT_EQ(shape(kTRANSPOSE, kNONE, {3, 2}, {3, 4}), (Shape{2, 4}));
  EXPECT_EQ(shape(kNONE, kTRANSPOSE, {2, 3}, {4, 3}), (Shape{2, 4}));
  EXPECT_EQ(shape(kNONE, kNONE, {s(0), 12, s(1), 64}, {1, 12, 64, s(1)}), (Shape{9, 12, 7, 7}));
  EXPECT_EQ(shape(kNONE, kNONE, {s(0), 5, 64}, {64, 10}), (Shape{9, 5, 10}));
  EXPECT_EQ(shape(kVECTOR, kNONE, {3}, {3, 4}), (Shape{4}));
  EXPECT_EQ(shape(kNONE, kVECTOR, {6, 2, 3}, {6, 3}), (Shape{6, 2}));
  EXPECT_EQ(shape(kVECTOR, kVECTOR, {6, 3}, {6, 3}), (Shape{6}));
}

TEST(MatrixMultiply, Errors) {
  expect_contains(error_of<MatrixMultiply>({}, {tensor({2, 3}), tensor({4, 5})}),
                  {"inner extents differ", "3", "4"});
  expect_contains(error_of<MatrixMultiply>({}, {tensor({3}), tensor({3, 5})}),
                  {"input 0 (a)", "rank 2 or more"});
  expect_contains(error_of<MatrixMultiply>({}, {tensor({2, 2, 3}), tensor({4, 3, 5})}),
                  {"leading axes"});
  MatrixMultiplyParams biased;
  biased.has_bias = true;
  EXPECT_EQ(error_of<MatrixMultiply>(biased, {tensor({2, 3}), tensor({3, 4}), tensor({4})}), "");
  expect_contains(
      error_of<MatrixMultiply>(biased, {tensor({2, 3}), tensor({3, 4}), tensor({2, 4})}),
      {"input 2 (bias)"});
}

/// sum + input 1, rounded to INT32 where `rounds`.
FusedProgram fused_sum(FusedPlace place, bool rounds = false) {
  std::vector<PointwiseInstruction> program = {
      {opcode(PointwiseOp::kInput), DataType::kFLOAT, 0},
      {opcode(PointwiseOp::kInput), DataType::kFLOAT, 1},
      {opcode(ElementWiseOperation::kSUM), DataType::kFLOAT, 0, 1}};
  if (rounds) program.push_back({opcode(PointwiseOp::kCast), DataType::kINT32, 2});
  FusedProgram fused;
  fused.program = encode(program, {static_cast<int64_t>(program.size()) - 1});
  fused.places = {static_cast<int64_t>(place)};
  return fused;
}

TEST(MatrixMultiply, FusedPrograms) {
  const auto error = [](const FusedProgram& fused, SymShape other) {
    MatrixMultiplyParams params;
    params.fused = fused;
    return error_of<MatrixMultiply>(params,
                                    {tensor({5, 2, 3}), tensor({3, 4}), tensor(std::move(other))});
  };
  using enum FusedPlace;
  EXPECT_EQ(error(fused_sum(kElement), {5, 2, 4}), "");
  EXPECT_EQ(error(fused_sum(kRepeated), {1, 2, 4}), "");
  EXPECT_EQ(error(fused_sum(kRepeated), {2, 4}), "");
  EXPECT_EQ(error(fused_sum(kChannel), {4}), "");
  EXPECT_EQ(error(fused_sum(kScalar), {1, 1}), "");
  expect_contains(error(fused_sum(kElement), {2, 4}), {"input 2", "the shape of the output"});
  expect_contains(error(fused_sum(kElement), {1, 2, 4}), {"input 2", "extent 5", "axis 0"});
  expect_contains(error(fused_sum(kRepeated), {5, 1, 4}), {"input 2", "extent 2", "axis 1"});
  expect_contains(error(fused_sum(kChannel), {2, 1}), {"input 2", "extent 1", "axis 0"});
  expect_contains(error(fused_sum(kScalar), {4}), {"input 2", "extent 1", "axis 0"});
  expect_contains(error(fused_sum(static_cast<FusedPlace>(4)), {4}), {"4 is no place"});
  expect_contains(error(fused_sum(kElement, true), {5, 2, 4}), {"result", "FP32"});
  FusedProgram far = fused_sum(kElement);
  far.program.code[7] = 2;
  expect_contains(error(far, {5, 2, 4}), {"reads its input 2", "has 2"});
  FusedProgram without = fused_sum(kElement);
  without.program = {};
  expect_contains(error(without, {5, 2, 4}), {"without code"});
  MatrixMultiplyParams both;
  both.fused = fused_sum(kElement);
  both.activation.type = static_cast<int32_t>(ActivationType::kRELU);
  expect_contains(error_of<MatrixMultiply>(both, {tensor({2, 3}), tensor({3, 4}), tensor({2, 4})}),
                  {"not both"});
}

TEST(Reduce, AxesMask) {
  const TensorInfo x = tensor({2, s(0), 4});
  EXPECT_EQ(shape_at<Reduce>({ReduceOperation::kSUM, 0b101, false}, {x}, {7}), (Shape{7}));
  EXPECT_EQ(shape_at<Reduce>({ReduceOperation::kAVG, 0b101, true}, {x}, {7}), (Shape{1, 7, 1}));
  expect_contains(error_of<Reduce>({ReduceOperation::kSUM, 0b1000, false}, {x}), {"mask", "8"});
  expect_contains(error_of<Reduce>({ReduceOperation::kSUM, 0, false}, {x}), {"at least one axis"});
}

TEST(Softmax, OneAxis) {
  EXPECT_EQ(shape_of<Softmax>({0b10, false}, {tensor({2, 3})}), (Shape{2, 3}));
  expect_contains(error_of<Softmax>({0b11, false}, {tensor({2, 3})}), {"exactly one bit", "3"});
  expect_contains(error_of<Softmax>({0b100, false}, {tensor({2, 3})}), {"mask", "4"});
}

TEST(TopK, ReplacesTheExtent) {
  TopKParams params;
  params.k = 3;
  params.axes = 0b10;
  params.indices_type = DataType::kINT64;
  auto outputs = infer<TopK>(params, {tensor({s(0), 10})});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(evaluate(outputs[0].dims, std::vector<int64_t>{5}), (Shape{5, 3}));
  EXPECT_EQ(outputs[0].dtype, DataType::kFLOAT);
  EXPECT_EQ(outputs[1].dims, outputs[0].dims);
  EXPECT_EQ(outputs[1].dtype, DataType::kINT64);
  outputs = infer<TopK>(params, {tensor({s(0), 10}), scalar_of(s(1))});
  EXPECT_EQ(evaluate(outputs[1].dims, std::vector<int64_t>{5, 4}), (Shape{5, 4}));
  params.k = 11;
  expect_contains(error_of<TopK>(params, {tensor({s(0), 10})}), {"exceed", "11"});
  params.k = 0;
  expect_contains(error_of<TopK>(params, {tensor({s(0), 10})}), {"at least 1"});
  expect_contains(error_of<TopK>(params, {tensor({s(0), 10}), tensor({}, DataType::kINT64)}),
                  {"input 1 (k)", "shape tensor"});
}

TEST(Normalization, ScaleAndBiasBroadcast) {
  const TensorInfo x = tensor({s(0), 6, 4, 5});
  NormalizationParams layer;
  layer.axes = 0b1000;
  EXPECT_EQ(shape_at<Normalization>(layer, {x, tensor({5}), tensor({5})}, {2}),
            (Shape{2, 6, 4, 5}));
  NormalizationParams group;
  group.axes = 0b1100;
  group.num_groups = 3;
  EXPECT_EQ(error_of<Normalization>(group, {x, tensor({1, 6, 1, 1}), tensor({1, 6, 1, 1})}), "");
  expect_contains(error_of<Normalization>(group, {x, tensor({6})}),
                  {"input 1 (scale)", "broadcast"});
  group.num_groups = 4;
  expect_contains(error_of<Normalization>(group, {x}), {"groups", "4", "divide"});
  layer.axes = 0;
  expect_contains(error_of<Normalization>(layer, {x}), {"at least one axis"});
  expect_contains(error_of<Lrn>({0, 1, 1, 1}, {x}), {"LRN", "window"});
}

TEST(Shuffle, ReshapeWithPlaceholders) {
  EXPECT_EQ(shape_of<Shuffle>(reshape({0, -1}), {tensor({2, 3, 4})}), (Shape{2, 12}));
  EXPECT_EQ(shape_of<Shuffle>(reshape({-1}), {tensor({})}), (Shape{1}));
  EXPECT_EQ(shape_of<Shuffle>(reshape({}), {tensor({1, 1})}), Shape{});
  EXPECT_EQ(shape_of<Shuffle>(reshape({0, 5}, false), {tensor({5, 0})}), (Shape{0, 5}));
  ShuffleParams heads = reshape({0, 0, 12, -1});
  heads.second_transpose = {0, 2, 1, 3};
  EXPECT_EQ(shape_at<Shuffle>(heads, {tensor({s(0), s(1), 768})}, {2, 9}), (Shape{2, 12, 9, 64}));
  ShuffleParams first = reshape({0, -1});
  first.first_transpose = {1, 0, 2};
  EXPECT_EQ(shape_of<Shuffle>(first, {tensor({2, 3, 4})}), (Shape{3, 8}));
}

TEST(Shuffle, InferredExtentOfDynamicShapesIsConstantWhereItCanBe) {
  const TensorInfo x = tensor({s(0), s(1), 768});
  const OutputInfo y = infer_one<Shuffle>({}, {x, vector_of({s(0), s(1), Expr(12), Expr(-1)})});
  ASSERT_TRUE(y.dims[3].is_constant());
  EXPECT_EQ(y.dims[3].constant(), 64);
  // Also when the batch is empty.
  EXPECT_EQ(evaluate(y.dims, std::vector<int64_t>{0, 4}), (Shape{0, 4, 12, 64}));
}

TEST(Shuffle, Errors) {
  expect_contains(error_of<Shuffle>(reshape({-1, -1}), {tensor({4})}), {"more than one -1"});
  expect_contains(error_of<Shuffle>(reshape({3, -1}), {tensor({4})}), {"cannot reshape"});
  expect_contains(error_of<Shuffle>(reshape({5}), {tensor({4})}), {"cannot reshape"});
  expect_contains(error_of<Shuffle>(reshape({5, 0}), {tensor({5})}), {"copies"});
  expect_contains(error_of<Shuffle>(reshape({-2}), {tensor({4})}), {"-1 or more"});
  expect_contains(error_of<Shuffle>(reshape({0, -1}, false), {tensor({4})}), {"cannot infer"});
  ShuffleParams transpose;
  transpose.first_transpose = {0, 0};
  expect_contains(error_of<Shuffle>(transpose, {tensor({4, 5})}), {"permutation", "[0, 0]"});
  expect_contains(error_of<Shuffle>(reshape(Ints(9, 1)), {tensor({1})}), {"at most 8"});
  expect_contains(error_of<Shuffle>({}, {tensor({4}), tensor({1}, DataType::kINT32)}),
                  {"input 1 (reshape dimensions)", "known"});
  expect_contains(error_of<Shuffle>({}, {tensor({4}), tensor({1})}), {"INT32 or INT64", "FP32"});
}

TEST(Transpose, Permutes) {
  EXPECT_EQ(shape_of<Transpose>({{2, 0, 1}}, {tensor({2, 3, 4})}), (Shape{4, 2, 3}));
  expect_contains(error_of<Transpose>({{0, 1}}, {tensor({2, 3, 4})}), {"permutation"});
  expect_contains(error_of<Transpose>({{0, 1, 3}}, {tensor({2, 3, 4})}), {"permutation"});
}

SliceParams slice(Ints start, Ints size, Ints stride, Ints axes = {},
                  SampleMode mode = SampleMode::kSTRICT_BOUNDS) {
  SliceParams params;
  params.start = std::move(start);
  params.size = std::move(size);
  params.stride = std::move(stride);
  params.axes = std::move(axes);
  params.mode = mode;
  return params;
}

TEST(Slice, StridesOfEverySign) {
  const TensorInfo x = tensor({4, 5, s(0)});
  EXPECT_EQ(shape_at<Slice>(slice({3, 0}, {4, 3}, {-1, 2}, {0, 1}), {x}, {9}), (Shape{4, 3, 9}));
  EXPECT_EQ(shape_of<Slice>(slice({0}, {7}, {0}), {tensor({1})}), (Shape{7}));
  const Tensors dynamic = {x, vector_of({0}), vector_of({s(0) - Expr(1)}), std::nullopt};
  EXPECT_EQ(shape_at<Slice>(slice({}, {}, {1}, {2}), dynamic, {9}), (Shape{4, 5, 8}));
}

TEST(Slice, Bounds) {
  const TensorInfo x = tensor({4});
  expect_contains(error_of<Slice>(slice({2}, {3}, {1}), {x}), {"elements 2 to 4", "extent 4"});
  expect_contains(error_of<Slice>(slice({1}, {3}, {-1}), {x}), {"elements 1 to -1"});
  EXPECT_EQ(error_of<Slice>(slice({9}, {0}, {1}), {x}), "");
  EXPECT_EQ(shape_of<Slice>(slice({-2}, {8}, {1}, {}, SampleMode::kREFLECT), {x}), (Shape{8}));
  expect_contains(error_of<Slice>(slice({0}, {2}, {1}, {}, SampleMode::kCLAMP), {tensor({0})}),
                  {"no elements"});
  EXPECT_EQ(error_of<Slice>(slice({0}, {2}, {1}, {}, SampleMode::kFILL), {tensor({0})}), "");
}

TEST(Slice, Errors) {
  const TensorInfo x = tensor({4, 5});
  expect_contains(error_of<Slice>(slice({0}, {1, 1}, {1, 1}), {x}), {"start", "2 elements"});
  expect_contains(error_of<Slice>(slice({0}, {-1}, {1}, {0}), {x}), {"size", "-1"});
  expect_contains(error_of<Slice>(slice({0}, {1}, {1}, {2}), {x}), {"axis", "2"});
  expect_contains(error_of<Slice>(slice({0, 0}, {1, 1}, {1, 1}, {1, 1}), {x}), {"distinct"});
  const Tensors filled = {x, std::nullopt, std::nullopt, std::nullopt, tensor({})};
  expect_contains(error_of<Slice>(slice({0}, {1}, {1}, {0}), filled), {"FILL"});
}

TEST(Concatenation, AddsExtents) {
  const TensorInfo a = tensor({s(0), 2, 3}), b = tensor({4, s(1), 3});
  const OutputInfo y = infer_one<Concatenation>({1}, {a, b, a});
  EXPECT_EQ(y.dims[0], Expr(4));
  EXPECT_EQ(evaluate(y.dims, std::vector<int64_t>{4, 5}), (Shape{4, 9, 3}));
  expect_contains(error_of<Concatenation>({1}, {a, tensor({4, 5, 4})}), {"input 1", "extent 3"});
  expect_contains(error_of<Concatenation>({3}, {a}), {"axis", "3"});
  expect_contains(error_of<Concatenation>({1}, {a, tensor({4, 5})}), {"rank 3"});
  expect_contains(error_of<Concatenation>({1}, {a, tensor({4, 5, 3}, DataType::kINT32)}),
                  {"INT32"});
}

TEST(Gather, Modes) {
  const TensorInfo data = tensor({5, s(0), 7});
  const auto indices = [](SymShape dims) { return tensor(std::move(dims), DataType::kINT32); };
  EXPECT_EQ(shape_at<Gather>({GatherMode::kDEFAULT, 1, 0}, {data, indices({2, 3})}, {6}),
            (Shape{5, 2, 3, 7}));
  EXPECT_EQ(shape_at<Gather>({GatherMode::kDEFAULT, 1, 1}, {data, indices({5, 3})}, {6}),
            (Shape{5, 3, 7}));
  EXPECT_EQ(shape_at<Gather>({GatherMode::kELEMENT, 2, 0}, {data, indices({5, s(0), 2})}, {6}),
            (Shape{5, 6, 2}));
  EXPECT_EQ(shape_at<Gather>({GatherMode::kND, 0, 0}, {data, indices({9, 2})}, {6}), (Shape{9, 7}));
  EXPECT_EQ(shape_at<Gather>({GatherMode::kND, 0, 1}, {data, indices({5, 9, 1})}, {6}),
            (Shape{5, 9, 7}));

  expect_contains(error_of<Gather>({GatherMode::kDEFAULT, 3, 0}, {data, indices({2})}), {"axis"});
  expect_contains(error_of<Gather>({GatherMode::kDEFAULT, 0, 0}, {data, tensor({2})}),
                  {"input 1 (indices)", "FP32"});
  expect_contains(error_of<Gather>({GatherMode::kND, 0, 0}, {data, indices({9, 4})}), {"[1, 3]"});
  expect_contains(error_of<Gather>({GatherMode::kELEMENT, 2, 0}, {data, indices({6, s(0), 2})}),
                  {"exceeds"});
  expect_contains(error_of<Gather>({GatherMode::kDEFAULT, 1, 9}, {data, indices({2})}),
                  {"elementwise dimensions", "9"});
  expect_contains(error_of<Gather>({GatherMode::kDEFAULT, 1, 0}, {data, indices(SymShape(7, 1))}),
                  {"at most 8"});
}

TEST(Resize, ScalesRoundAsTheirDecimalsDo) {
  const auto extent = [](double scale, int64_t from) {
    ResizeParams params;
    params.scales = {scale};
    const Shape shape = shape_of<Resize>(params, {tensor({from})});
    EXPECT_EQ(shape_at<Resize>(params, {tensor({s(0)})}, {from}), shape);
    return shape[0];
  };
  EXPECT_EQ(extent(2, 7), 14);
  EXPECT_EQ(extent(0.5, 7), 3);
  // These pass through single precision in a model file.
  EXPECT_EQ(extent(0.7f, 10), 7);
  EXPECT_EQ(extent(0.6f, 7), 4);
  EXPECT_EQ(extent(1.0f / 3, 9), 3);
  EXPECT_EQ(extent(800.0f / 600, 600), 800);
  EXPECT_EQ(extent(1.1f, 100), 110);
  // Any quotient of extents gives back the extent.
  for (int64_t from = 1; from < 300; from += 7)
    for (int64_t to = 1; to < 700; to += 13)
      EXPECT_EQ(extent(static_cast<float>(to) / static_cast<float>(from), from), to);
}

TEST(Resize, ShapesAndErrors) {
  ResizeParams params;
  EXPECT_EQ(
      shape_at<Resize>(params, {tensor({1, s(0)}), vector_of({Expr(1), s(0) * Expr(2)})}, {6}),
      (Shape{1, 12}));
  params.shape = {1, 9};
  EXPECT_EQ(shape_of<Resize>(params, {tensor({1, 4})}), (Shape{1, 9}));
  params.shape = {9};
  expect_contains(error_of<Resize>(params, {tensor({1, 4})}), {"2 extents", "9"});
  params.shape = {};
  EXPECT_EQ(shape_of<Resize>(params, {tensor({1, 4})}), (Shape{1, 4}));
  params.scales = {1, -2};
  expect_contains(error_of<Resize>(params, {tensor({1, 4})}), {"-2", "axis 1"});
  params.scales = {1, 1e-30};
  expect_contains(error_of<Resize>(params, {tensor({1, s(0)})}),
                  {"1e-30", "give the output shape"});
  params.scales = {1, 2};
  params.mode = InterpolationMode::kLINEAR;
  expect_contains(error_of<Resize>(params, {tensor({1, 4}, DataType::kBOOL)}), {"BOOL"});
}

TEST(Fill, ShapesAndErrors) {
  FillParams params;
  params.shape = {2, 3};
  EXPECT_EQ(shape_of<Fill>(params, {}), (Shape{2, 3}));
  EXPECT_EQ(shape_at<Fill>(params, {vector_of({s(0), Expr(4)})}, {5}), (Shape{5, 4}));
  EXPECT_EQ(shape_of<Fill>(params, {std::nullopt, tensor({}), tensor({2})}), (Shape{2, 3}));
  expect_contains(error_of<Fill>(params, {std::nullopt, tensor({}), tensor({3})}),
                  {"input 2 (beta)", "one step per axis"});
  expect_contains(error_of<Fill>(params, {std::nullopt, tensor({}, DataType::kINT32)}),
                  {"input 1 (alpha)", "FP32", "INT32"});
  params.operation = FillOperation::kRANDOM_NORMAL;
  params.to_type = DataType::kINT32;
  expect_contains(error_of<Fill>(params, {}), {"random"});
  params.operation = FillOperation::kLINSPACE;
  params.shape = {-1};
  expect_contains(error_of<Fill>(params, {}), {"negative"});
}

}  // namespace
}  // namespace opwright::testing
