// Pointwise programs: round trips, and every way in which a damaged plan may be wrong. Also that
// all built-in operators can be made again from their attributes.

#include "operators/pointwise.h"

#include "operators/context.h"
#include "operators/convolution.h"
#include "operators/matrix.h"

namespace opwright::testing {
namespace {

PointwiseInstruction instruction(int32_t op, DataType type, int32_t a = -1, int32_t b = -1,
                                 int32_t c = -1, double alpha = 0) {
  PointwiseInstruction result;
  result.op = op;
  result.type = type;
  result.a = a, result.b = b, result.c = c;
  result.alpha = alpha;
  return result;
}

int32_t code(PointwiseOp op) { return static_cast<int32_t>(op); }
int32_t code(ElementWiseOperation op) { return 100 + static_cast<int32_t>(op); }
int32_t code(UnaryOperation op) { return 200 + static_cast<int32_t>(op); }
int32_t code(ActivationType op) { return 300 + static_cast<int32_t>(op); }

/// relu(x * 2) where x < 2, else -x.
std::vector<PointwiseInstruction> program() {
  constexpr DataType kFloat = DataType::kFLOAT;
  return {instruction(code(PointwiseOp::kInput), kFloat, 0),
          instruction(code(PointwiseOp::kConstant), kFloat, -1, -1, -1, 2.0),
          instruction(code(ElementWiseOperation::kPROD), kFloat, 0, 1),
          instruction(code(ActivationType::kRELU), kFloat, 2),
          instruction(code(UnaryOperation::kNEG), kFloat, 0),
          instruction(code(ElementWiseOperation::kLESS), DataType::kBOOL, 0, 1),
          instruction(code(PointwiseOp::kSelect), kFloat, 5, 3, 4),
          instruction(code(PointwiseOp::kCast), DataType::kINT32, 6)};
}

TEST(Pointwise, RoundTrip) {
  const auto original = program();
  const PointwiseParams params = encode(original, {6, 7});
  EXPECT_EQ(params.code.size(), 5 * original.size());
  EXPECT_EQ(params.immediates.size(), 2 * original.size());
  const auto decoded = decode(params);
  ASSERT_EQ(decoded.size(), original.size());
  for (size_t i = 0; i < original.size(); ++i) {
    EXPECT_EQ(decoded[i].op, original[i].op);
    EXPECT_EQ(decoded[i].type, original[i].type);
    EXPECT_EQ(decoded[i].a, original[i].a);
    EXPECT_EQ(decoded[i].b, original[i].b);
    EXPECT_EQ(decoded[i].c, original[i].c);
    EXPECT_EQ(decoded[i].alpha, original[i].alpha);
  }
}

TEST(Pointwise, Infers) {
  const auto outputs =
      infer<Pointwise>(encode(program(), {6, 7}), {tensor({s(0), 3}, DataType::kHALF)});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].dtype, DataType::kHALF);
  EXPECT_EQ(outputs[1].dtype, DataType::kINT32);
  EXPECT_EQ(evaluate(outputs[1].dims, std::vector<int64_t>{4}), (Shape{4, 3}));
  expect_contains(error_of<Pointwise>(encode(program(), {6}), {}), {"reads input 0", "0 inputs"});
  expect_contains(error_of<Pointwise>(encode(program(), {6}), {tensor({2}, DataType::kINT32)}),
                  {"input 0", "INT32", "FP32"});
}

TEST(Pointwise, DamagedProgramsAreErrors) {
  const auto rejected = [](const PointwiseParams& params) { EXPECT_THROW(decode(params), Error); };
  const auto with = [&](size_t index, PointwiseInstruction changed) {
    auto damaged = program();
    damaged[index] = changed;
    rejected(encode(damaged, {6}));
  };
  constexpr DataType kFloat = DataType::kFLOAT, kBool = DataType::kBOOL;
  const PointwiseParams good = encode(program(), {6});
  EXPECT_NO_THROW(decode(good));

  PointwiseParams params = good;
  params.code.pop_back();
  rejected(params);
  params = good;
  params.immediates.push_back(0);
  rejected(params);
  rejected({});
  for (const Ints& results : {Ints{}, Ints{8}, Ints{-1}, Ints{int64_t{1} << 40}}) {
    params = good;
    params.results = results;
    rejected(params);
  }
  params = good;
  params.code[0] = int64_t{1} << 32;  // would be kInput after truncation
  rejected(params);
  params = good;
  params.code.resize(5 * 100000);
  params.immediates.resize(2 * 100000);
  rejected(params);

  for (int32_t op : {-1, 7, 99, 114, 199, 225, 299, 314, INT32_MAX, INT32_MIN})
    with(2, instruction(op, kFloat, 0, 1));
  for (int32_t operand : {-1, 2, 3, 7, INT32_MAX, INT32_MIN}) {
    with(2, instruction(code(ElementWiseOperation::kPROD), kFloat, operand, 1));
    with(2, instruction(code(ElementWiseOperation::kPROD), kFloat, 0, operand));
  }
  for (const PointwiseOp op : {PointwiseOp::kToHalf, PointwiseOp::kToBf16, PointwiseOp::kRemainder})
    for (const int32_t operand : {-1, 2, INT32_MAX}) {
      with(2, instruction(code(op), kFloat, operand, 1));
      with(2, instruction(code(op), DataType::kINT32, 0, 1));
    }
  with(2, instruction(code(PointwiseOp::kRemainder), kFloat, 0, 2));
  with(0, instruction(code(PointwiseOp::kInput), kFloat, -1));
  with(0, instruction(code(PointwiseOp::kInput), DataType::kHALF, 0));
  with(0, instruction(code(PointwiseOp::kInput), static_cast<DataType>(99), 0));
  with(1, instruction(code(PointwiseOp::kConstant), DataType::kINT32, -1, -1, -1, 0.5));
  with(1, instruction(code(PointwiseOp::kConstant), DataType::kINT64, -1, -1, -1, 1e300));
  with(2, instruction(code(ElementWiseOperation::kPROD), DataType::kINT32, 0, 1));
  with(5, instruction(code(ElementWiseOperation::kLESS), kFloat, 0, 1));
  with(5, instruction(code(ElementWiseOperation::kAND), kBool, 0, 1));
  with(6, instruction(code(PointwiseOp::kSelect), kFloat, 0, 3, 4));
  with(6, instruction(code(PointwiseOp::kSelect), kFloat, 5, 3, 5));
  with(4, instruction(code(UnaryOperation::kNOT), kBool, 0));
  with(3, instruction(code(ActivationType::kRELU), DataType::kINT32, 2));
}

TEST(Pointwise, IsTimedWithoutScales) {
  constexpr DataType kFloat = DataType::kFLOAT;
  // round(x / scale + moved) * scale
  const auto quantization = [](double scale, double moved) {
    return encode(
        std::vector<PointwiseInstruction>{
            instruction(code(PointwiseOp::kInput), kFloat, 0),
            instruction(code(PointwiseOp::kConstant), kFloat, -1, -1, -1, scale),
            instruction(code(PointwiseOp::kConstant), kFloat, -1, -1, -1, moved),
            instruction(code(ElementWiseOperation::kDIV), kFloat, 0, 1),
            instruction(code(ElementWiseOperation::kSUM), kFloat, 3, 2),
            instruction(code(UnaryOperation::kROUND), kFloat, 4),
            instruction(code(ElementWiseOperation::kPROD), kFloat, 1, 5)},
        {6});
  };
  const auto expect = [&](const auto& key) {
    EXPECT_EQ(key(0.5, 3.0), key(0.25, 3.0));
    EXPECT_NE(key(0.5, 3.0), key(0.5, 4.0));
  };
  expect([&](double scale, double moved) {
    return *Pointwise(quantization(scale, moved)).timing_key();
  });
  expect([&](double scale, double moved) {
    MatrixMultiplyParams params;
    params.fused.program = quantization(scale, moved);
    return *MatrixMultiply(params).timing_key();
  });
  expect([&](double scale, double moved) {
    ConvolutionParams params;
    params.fused.program = quantization(scale, moved);
    return *Convolution(params).timing_key();
  });
}

TEST(Builtin, OperatorsCanBeMadeAgain) {
  ConvolutionParams params;
  params.stride = {2, 3};
  params.groups = 4;
  params.activation.type = static_cast<int32_t>(ActivationType::kCLIP);
  params.activation.beta = 6;
  const Convolution original(params);
  OperatorLoadContext context;
  context.layer = "layer_7";
  const PlannedOperatorPtr loaded = load_operator(original.kind(), original.attributes(), context);
  EXPECT_EQ(loaded->attributes(), original.attributes());
  const auto& again = dynamic_cast<const Convolution&>(*builtin_of(*loaded)).params();
  EXPECT_EQ(again.stride, (Ints{2, 3}));
  EXPECT_EQ(again.groups, 4);
  EXPECT_EQ(again.activation.beta, 6);
  for (const char* kind : {"Activation",
                           "Assertion",
                           "BitCast",
                           "Cast",
                           "Col2Im",
                           "Concatenation",
                           "Convolution",
                           "Cumulative",
                           "DataExtent",
                           "Deconvolution",
                           "DeformableColumns",
                           "Dequantize",
                           "Determinant",
                           "ElementWise",
                           "Fill",
                           "Gather",
                           "GridSample",
                           "Identity",
                           "IndexedMaxPooling",
                           "KVCacheUpdate",
                           "LpPooling",
                           "LRN",
                           "MatMulNBits",
                           "MatrixMultiply",
                           "MaxUnpool",
                           "NMS",
                           "NonZero",
                           "Normalization",
                           "OneHot",
                           "ParametricRelu",
                           "Pointwise",
                           "Pooling",
                           "Quantize",
                           "Recurrence",
                           "Reduce",
                           "Reformat",
                           "Reshape",
                           "Resize",
                           "ReverseSequence",
                           "RoiAlign",
                           "RoiPool",
                           "RotaryEmbedding",
                           "Scale",
                           "Scatter",
                           "Select",
                           "Shape",
                           "Shuffle",
                           "Slice",
                           "Softmax",
                           "Squeeze",
                           "TopK",
                           "Transpose",
                           "Unary",
                           "Unique",
                           "Unsqueeze"}) {
    try {
      EXPECT_EQ(load_operator(kind, {}, context)->kind(), kind);
    } catch (const Error& error) {
      // Those with parameters miss their attributes; the kind itself is known.
      EXPECT_EQ(std::string(error.what()).find("unknown"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace opwright::testing
