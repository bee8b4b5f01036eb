// Shape arithmetic followed through the operators that exporters write it with. Expected values are
// worked out by hand.

#include "operators/activation.h"
#include "operators/context.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::testing {
namespace {

using Values = std::vector<int64_t>;

ElementWiseParams op(ElementWiseOperation operation) { return {operation}; }

Values binary(ElementWiseOperation operation, const Values& a, const Values& b,
              DataType dtype = DataType::kINT64) {
  const auto tensor_of = [&](const Values& values) {
    return vector_of({values.begin(), values.end()}, dtype);
  };
  return values_at(infer_one<ElementWise>(op(operation), {tensor_of(a), tensor_of(b)}));
}

TEST(Values, ShapeGatherConcatReshape) {
  // x.view(x.shape[0], -1, 64) as exporters write it.
  const TensorInfo x = tensor({s(0), s(1), 768});
  const TensorInfo shape = infer_one<ShapeOf>({}, {x});
  EXPECT_EQ(shape.dtype, DataType::kINT64);
  EXPECT_EQ(constant_shape(shape.dims), (Shape{3}));
  const TensorInfo batch = infer_one<Gather>({}, {shape, scalar_of(Expr(0))});
  EXPECT_TRUE(batch.dims.empty());
  const TensorInfo unsqueezed = infer_one<Shuffle>(reshape({1}), {batch});
  const TensorInfo dims =
      infer_one<Concatenation>({0}, {unsqueezed, vector_of({Expr(-1)}), vector_of({Expr(64)})});
  const OutputInfo y = infer_one<Shuffle>({}, {x, dims});
  EXPECT_EQ(evaluate(y.dims, Values{2, 10}), (Shape{2, 120, 64}));
  EXPECT_EQ(evaluate(y.dims, Values{3, 1}), (Shape{3, 12, 64}));
}

TEST(Values, SizesOfUpsampling) {
  // Twice the spatial extents, from Shape -> Slice -> Mul, as Resize takes them.
  const TensorInfo x = tensor({s(0), 3, s(1), s(2)});
  const TensorInfo shape = infer_one<ShapeOf>({}, {x});
  SliceParams outer, spatial;
  outer.start = {0}, outer.size = {2}, outer.stride = {1};
  spatial.start = {2}, spatial.size = {2}, spatial.stride = {1};
  const TensorInfo doubled = infer_one<ElementWise>(
      op(ElementWiseOperation::kPROD), {infer_one<Slice>(spatial, {shape}), vector_of({Expr(2)})});
  const TensorInfo sizes =
      infer_one<Concatenation>({0}, {infer_one<Slice>(outer, {shape}), doubled});
  EXPECT_EQ(evaluate(infer_one<Resize>({}, {x, sizes}).dims, Values{1, 5, 7}),
            (Shape{1, 3, 10, 14}));
}

TEST(Values, ExpandWithWhere) {
  // torch.expand: Where(shape == -1, ones, shape) with ones from ConstantOfShape.
  const TensorInfo wanted = vector_of({Expr(-1), s(0), Expr(4)});
  FillParams ones_params;
  ones_params.shape = {3};
  ones_params.alpha = 1;
  ones_params.to_type = DataType::kINT64;
  const TensorInfo ones = infer_one<Fill>(ones_params, {});
  EXPECT_EQ(values_at(ones), (Values{1, 1, 1}));
  const TensorInfo minus =
      infer_one<ElementWise>(op(ElementWiseOperation::kPROD), {ones, scalar_of(Expr(-1))});
  const TensorInfo is_minus_one =
      infer_one<ElementWise>(op(ElementWiseOperation::kEQUAL), {wanted, minus});
  EXPECT_EQ(is_minus_one.dtype, DataType::kBOOL);
  const TensorInfo chosen = infer_one<Select>({}, {is_minus_one, ones, wanted});
  EXPECT_EQ(values_at(chosen, {8}), (Values{1, 8, 4}));
  // An extent is not -1, so that what is chosen is the extent itself.
  const TensorInfo known =
      infer_one<ElementWise>(op(ElementWiseOperation::kEQUAL), {wanted, minus}, 1);
  EXPECT_EQ(infer_one<Select>({}, {known, ones, wanted}).values->at(1), s(0));
}

TEST(Values, PaddingOrder) {
  // torch.pad turns pairs of the last axis first into all begins and all ends, the first axis
  // first: reshape to pairs, slice with stride -1, transpose, reshape.
  const TensorInfo pads = vector_of({Expr(1), Expr(2), Expr(3), Expr(4)});
  SliceParams reversed;
  reversed.start = {3}, reversed.size = {4}, reversed.stride = {-1};
  EXPECT_EQ(values_at(infer_one<Slice>(reversed, {pads})), (Values{4, 3, 2, 1}));
  SliceParams repeated;
  repeated.start = {2}, repeated.size = {3}, repeated.stride = {0};
  EXPECT_EQ(values_at(infer_one<Slice>(repeated, {pads})), (Values{3, 3, 3}));
  const TensorInfo more = vector_of({s(0), Expr(2), Expr(3), Expr(4), Expr(0), Expr(0)});
  const TensorInfo pairs = infer_one<Shuffle>(reshape({-1, 2}), {more});
  EXPECT_EQ(constant_shape(pairs.dims), (Shape{3, 2}));
  EXPECT_EQ(values_at(pairs, {9}), (Values{9, 2, 3, 4, 0, 0}));
  SliceParams backward;
  backward.axes = {0}, backward.start = {2}, backward.size = {3}, backward.stride = {-1};
  const TensorInfo swapped = infer_one<Slice>(backward, {pairs});
  EXPECT_EQ(values_at(swapped, {9}), (Values{0, 0, 3, 4, 9, 2}));
  const TensorInfo columns = infer_one<Transpose>({{1, 0}}, {swapped});
  EXPECT_EQ(constant_shape(columns.dims), (Shape{2, 3}));
  EXPECT_EQ(values_at(columns, {9}), (Values{0, 3, 9, 0, 4, 2}));
  EXPECT_EQ(values_at(infer_one<Shuffle>(reshape({-1}), {columns}), {9}),
            (Values{0, 3, 9, 0, 4, 2}));
}

TensorInfo matrix(int64_t rows, int64_t columns, const Values& values) {
  TensorInfo result = vector_of({values.begin(), values.end()});
  result.dims = {rows, columns};
  return result;
}

TEST(Values, ShufflesOfMatrices) {
  const TensorInfo x = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  ShuffleParams both = reshape({2, 3});
  both.first_transpose = {1, 0};
  EXPECT_EQ(values_at(infer_one<Shuffle>(both, {x})), (Values{1, 4, 2, 5, 3, 6}));
  both.second_transpose = {1, 0};
  EXPECT_EQ(values_at(infer_one<Shuffle>(both, {x})), (Values{1, 5, 4, 3, 2, 6}));
  // Three axes are too many, and so is an extent that is not known.
  EXPECT_EQ(infer_one<Shuffle>(reshape({1, 2, 3}), {x}).values, nullptr);
  EXPECT_EQ(infer_one<Shuffle>({}, {x, vector_of({s(0), Expr(-1)})}).values, nullptr);
  ShuffleParams empty = reshape({0, 4});
  empty.zero_is_placeholder = false;
  EXPECT_EQ(values_at(infer_one<Shuffle>(empty, {matrix(2, 0, {})})), Values{});
  ShuffleParams wrong = reshape({6});
  wrong.second_transpose = {1, 0};
  expect_contains(error_of<Shuffle>(wrong, {x}), {"second transpose"});
}

TEST(Values, SlicesOfMatrices) {
  const TensorInfo x = matrix(3, 4, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23});
  SliceParams part;
  part.start = {2, 0}, part.size = {2, 2}, part.stride = {-2, 3};
  EXPECT_EQ(values_at(infer_one<Slice>(part, {x})), (Values{20, 23, 0, 3}));
  SliceParams columns;
  columns.axes = {1}, columns.start = {1}, columns.size = {2}, columns.stride = {1};
  EXPECT_EQ(values_at(infer_one<Slice>(columns, {x})), (Values{1, 2, 11, 12, 21, 22}));
  // The element after a row is not the next row's first.
  columns.mode = SampleMode::kFILL;
  columns.start = {3};
  EXPECT_EQ(infer_one<Slice>(columns, {x}).values, nullptr);
}

TEST(Values, JoinedAndPickedMatrices) {
  const TensorInfo a = matrix(1, 2, {1, 2}), b = matrix(2, 2, {3, 4, 5, 6});
  EXPECT_EQ(values_at(infer_one<Concatenation>({0}, {a, b})), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(infer_one<Concatenation>({1}, {a, a}).values, nullptr);
  GatherParams rows;
  EXPECT_EQ(values_at(infer_one<Gather>(rows, {b, vector_of({Expr(-1), Expr(0)})})),
            (Values{5, 6, 3, 4}));
  EXPECT_EQ(values_at(infer_one<Gather>(rows, {b, scalar_of(Expr(1))})), (Values{5, 6}));
  EXPECT_EQ(
      values_at(infer_one<Gather>(rows, {vector_of({s(0), Expr(8)}), matrix(2, 2, {1, 0, 0, 1})}),
                {5}),
      (Values{8, 5, 5, 8}));
  GatherParams other;
  other.axis = 1;
  EXPECT_EQ(infer_one<Gather>(other, {b, scalar_of(Expr(1))}).values, nullptr);
  other.axis = 0;
  other.mode = GatherMode::kELEMENT;
  EXPECT_EQ(infer_one<Gather>(other, {b, matrix(1, 2, {0, 1})}).values, nullptr);
}

TEST(Values, ArithmeticOfMatrices) {
  using enum ElementWiseOperation;
  const TensorInfo x = matrix(2, 2, {1, 2, 3, 4});
  const auto sum = [](const TensorInfo& a, const TensorInfo& b) {
    return infer_one<ElementWise>(op(kSUM), {a, b});
  };
  EXPECT_EQ(values_at(sum(x, x)), (Values{2, 4, 6, 8}));
  EXPECT_EQ(values_at(sum(scalar_of(Expr(10)), x)), (Values{11, 12, 13, 14}));
  // A row that is broadcast does not have the elements where the result has them.
  EXPECT_EQ(sum(x, vector_of({Expr(1), Expr(2)})).values, nullptr);
  EXPECT_EQ(sum(matrix(2, 1, {1, 2}), matrix(1, 2, {3, 4})).values, nullptr);
  const TensorInfo chosen =
      infer_one<Select>({}, {scalar_of(Expr(0), DataType::kBOOL), x, scalar_of(Expr(9))});
  EXPECT_EQ(values_at(chosen), (Values{9, 9, 9, 9}));
  const TensorInfo row = vector_of({Expr(0), Expr(1)}, DataType::kBOOL);
  EXPECT_EQ(infer_one<Select>({}, {row, x, x}).values, nullptr);
}

TEST(Values, ReductionsOfMatrices) {
  ReduceParams params;
  params.op = ReduceOperation::kSUM;
  params.axes = 1;
  EXPECT_EQ(infer_one<Reduce>(params, {matrix(2, 2, {1, 2, 3, 4})}).values, nullptr);
  EXPECT_EQ(values_at(infer_one<Reduce>(params, {matrix(2, 1, {3, 4})})), (Values{7}));
  params.axes = 3;
  EXPECT_EQ(values_at(infer_one<Reduce>(params, {matrix(2, 2, {1, 2, 3, 4})})), (Values{10}));
}

TEST(Values, Arithmetic) {
  using enum ElementWiseOperation;
  EXPECT_EQ(binary(kSUM, {1, 2}, {10, 20}), (Values{11, 22}));
  EXPECT_EQ(binary(kSUB, {1, 2}, {10}), (Values{-9, -8}));
  EXPECT_EQ(binary(kPROD, {3}, {4, 5}), (Values{12, 15}));
  EXPECT_EQ(binary(kMAX, {1, 7}, {5, 5}), (Values{5, 7}));
  EXPECT_EQ(binary(kMIN, {1, 7}, {5, 5}), (Values{1, 5}));
  EXPECT_EQ(binary(kDIV, {7, -7, 7, -7, -8}, {2, 2, -2, -2, 4}), (Values{3, -3, -3, 3, -2}));
  EXPECT_EQ(binary(kFLOOR_DIV, {7, -7, 7, -7}, {2, 2, -2, -2}), (Values{3, -4, -4, 3}));
  EXPECT_EQ(binary(kPOW, {2, 3, 5}, {10, 2, 0}), (Values{1024, 9, 1}));
  EXPECT_EQ(binary(kEQUAL, {1, 2}, {2}), (Values{0, 1}));
  EXPECT_EQ(binary(kGREATER, {1, 2, 3}, {2}), (Values{0, 0, 1}));
  EXPECT_EQ(binary(kLESS, {1, 2, 3}, {2}), (Values{1, 0, 0}));
  const Values a = {0, 0, 1, 1}, b = {0, 1, 0, 1};
  EXPECT_EQ(binary(kAND, a, b, DataType::kBOOL), (Values{0, 0, 0, 1}));
  EXPECT_EQ(binary(kOR, a, b, DataType::kBOOL), (Values{0, 1, 1, 1}));
  EXPECT_EQ(binary(kXOR, a, b, DataType::kBOOL), (Values{0, 1, 1, 0}));
}

TEST(Values, DivisionOfWhatMayBeNegativeTruncates) {
  const Tensors inputs = {vector_of({s(0) - Expr(5)}), vector_of({Expr(2)})};
  const TensorInfo quotient = infer_one<ElementWise>(op(ElementWiseOperation::kDIV), inputs);
  EXPECT_EQ(values_at(quotient, {2}), (Values{-1}));
  EXPECT_EQ(values_at(quotient, {8}), (Values{1}));
  // The quotient of extents equals the one that other operators infer.
  const Tensors extents = {vector_of({s(0)}), vector_of({Expr(2)})};
  const TensorInfo half = infer_one<ElementWise>(op(ElementWiseOperation::kDIV), extents, 1);
  EXPECT_EQ(half.values->front(), floor_div(s(0), Expr(2)));
}

TEST(Values, UndefinedArithmeticIsNotFollowed) {
  const Tensors by_zero = {vector_of({Expr(1)}), vector_of({Expr(0)})};
  EXPECT_EQ(infer_one<ElementWise>(op(ElementWiseOperation::kDIV), by_zero).values, nullptr);
  const Tensors large = {vector_of({Expr(INT64_MAX)}), vector_of({Expr(2)})};
  EXPECT_EQ(infer_one<ElementWise>(op(ElementWiseOperation::kPROD), large).values, nullptr);
  const Tensors wide = {vector_of({Expr(1)}, DataType::kINT8),
                        vector_of({Expr(2)}, DataType::kINT8)};
  EXPECT_EQ(infer_one<ElementWise>({}, wide).values, nullptr);
}

TEST(Values, Unary) {
  const TensorInfo x = vector_of({Expr(-3), Expr(0), Expr(4)});
  EXPECT_EQ(values_at(infer_one<Unary>({UnaryOperation::kNEG}, {x})), (Values{3, 0, -4}));
  EXPECT_EQ(values_at(infer_one<Unary>({UnaryOperation::kABS}, {x})), (Values{3, 0, 4}));
  EXPECT_EQ(values_at(infer_one<Unary>({UnaryOperation::kSIGN}, {x})), (Values{-1, 0, 1}));
  const TensorInfo flags = vector_of({Expr(0), Expr(1)}, DataType::kBOOL);
  EXPECT_EQ(values_at(infer_one<Unary>({UnaryOperation::kNOT}, {flags})), (Values{1, 0}));
  EXPECT_EQ(values_at(infer_one<Activation>({ActivationType::kRELU}, {x})), (Values{0, 0, 4}));
}

TEST(Values, Casts) {
  const TensorInfo x = vector_of({s(0), Expr(0), Expr(-7)});
  EXPECT_EQ(values_at(infer_one<Cast>({DataType::kINT32}, {x}), {5}), (Values{5, 0, -7}));
  EXPECT_EQ(values_at(infer_one<Cast>({DataType::kBOOL}, {x}), {5}), (Values{1, 0, 1}));
  EXPECT_EQ(infer_one<Cast>({DataType::kFLOAT}, {x}).values, nullptr);
  const TensorInfo large = vector_of({Expr(int64_t{1} << 40)});
  EXPECT_EQ(infer_one<Cast>({DataType::kINT32}, {large}).values, nullptr);
  EXPECT_EQ(values_at(infer_one<Identity>({}, {x}), {5}), (Values{5, 0, -7}));
}

TEST(Values, GatherTakesNegativeIndices) {
  const TensorInfo x = vector_of({Expr(10), s(0), Expr(30)});
  const TensorInfo indices = vector_of({Expr(-2), Expr(2), Expr(3)}, DataType::kINT32);
  EXPECT_EQ(values_at(infer_one<Gather>({}, {x, indices}), {7}), (Values{7, 30, 0}));
  EXPECT_EQ(values_at(infer_one<Gather>({GatherMode::kELEMENT, 0, 0}, {x, indices}), {7}),
            (Values{7, 30, 0}));
  EXPECT_EQ(infer_one<Gather>({}, {x, vector_of({s(0)})}).values, nullptr);
}

TEST(Values, Reductions) {
  const TensorInfo x = vector_of({s(0), Expr(3), Expr(5)});
  const auto reduce = [&](ReduceOperation operation, bool keep_dims) {
    return infer_one<Reduce>({operation, 1, keep_dims}, {x});
  };
  EXPECT_EQ(values_at(reduce(ReduceOperation::kPROD, false), {2}), (Values{30}));
  EXPECT_EQ(values_at(reduce(ReduceOperation::kSUM, true), {2}), (Values{10}));
  EXPECT_EQ(reduce(ReduceOperation::kSUM, true).dims.size(), 1u);
  EXPECT_EQ(values_at(reduce(ReduceOperation::kMAX, false), {9}), (Values{9}));
  EXPECT_EQ(values_at(reduce(ReduceOperation::kMIN, false), {9}), (Values{3}));
  EXPECT_EQ(reduce(ReduceOperation::kAVG, false).values, nullptr);
}

TEST(Values, Fill) {
  FillParams range;
  range.shape = {4};
  range.alpha = 3;
  range.beta = 2;
  range.to_type = DataType::kINT32;
  EXPECT_EQ(values_at(infer_one<Fill>(range, {})), (Values{3, 5, 7, 9}));
  const Tensors inputs = {vector_of({Expr(3)}), scalar_of(s(0), DataType::kINT32),
                          scalar_of(Expr(-1), DataType::kINT32)};
  EXPECT_EQ(values_at(infer_one<Fill>(range, inputs), {10}), (Values{10, 9, 8}));
  range.alpha = 0.5;
  EXPECT_EQ(infer_one<Fill>(range, {}).values, nullptr);
  range.alpha = -1;
  range.beta = 1;
  range.shape = {3};
  range.to_type = DataType::kBOOL;
  EXPECT_EQ(values_at(infer_one<Fill>(range, {})), (Values{1, 0, 1}));
  range.to_type = DataType::kINT32;
  range.shape = {2, 2};
  EXPECT_EQ(infer_one<Fill>(range, {}).values, nullptr);
  range.beta = 0;
  EXPECT_EQ(values_at(infer_one<Fill>(range, {})), (Values{-1, -1, -1, -1}));
  range.shape = {2, TensorInfo::kMaxValues / 2 + 1};
  EXPECT_EQ(infer_one<Fill>(range, {}).values, nullptr);
  range.shape = {TensorInfo::kMaxValues + 1};
  range.alpha = 0;
  EXPECT_EQ(infer_one<Fill>(range, {}).values, nullptr);
}

}  // namespace
}  // namespace opwright::testing
