// Products of bytes on processors without instructions for them, and the programs behind their
// sums.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/widened_product.h"
#include "backend/cpu/widened_tile.h"
#include "cpu/pointwise_program.h"
#include "cpu/window_reference.h"
#include "operators/matrix.h"

namespace opwright::testing {
namespace {

constexpr DataType kByteTypes[] = {DataType::kINT8, DataType::kUINT8};

Values whole_values(const Shape& shape, int seed, double low, double high) {
  Values values = random_values(shape, seed, low, high);
  for (double& value : values.data) value = std::rint(value);
  return values;
}
Values bytes_of(const Shape& shape, DataType type, int seed) {
  const double low = type == DataType::kINT8 ? -128 : 0;
  return whole_values(shape, seed, low, low + 255);
}

/// The candidate of the tactic in question.
Candidate widened(const Operator& op, const std::vector<TestInput>& inputs,
                  const std::vector<TestOutput>& outputs) {
  QueryOptions options;
  options.all_tactics = true;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options))
    if (candidate.tactic_name == kWidenedBytes) return candidate;
  throw std::runtime_error("the tactic is not offered");
}

void expect_equal(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.shape, expected.shape);
  for (int64_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(actual[i], expected[i]) << "at element " << i;
}

TEST(WidenedTile, WidensEveryByteAtEveryLength) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const bool is_signed : {false, true})
    for (const int zero : {0, 5, is_signed ? -128 : 255})
      for (int64_t count = 0; count <= 256; ++count) {
        std::vector<int16_t> words(257, 999);
        widen_bytes(bytes.data(), is_signed, zero, count, words.data());
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(words[i], (is_signed && i > 127 ? i - 256 : i) - zero);
        ASSERT_EQ(words[count], 999);
      }
}

TEST(WidenedTile, MultipliesRowsAndPanels) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> word(-255, 255), byte(-128, 127);
  constexpr int64_t kRow = 70, kColumns = 40;
  for (int64_t rows = 1; rows <= 2 * kWidenedRows + 1; ++rows)
    for (const int64_t depth : {2, 34, 66})
      for (const int64_t columns : {1, 7, 16})
        for (const bool adds : {false, true}) {
          std::vector<int16_t> a(rows * kRow);
          std::vector<int8_t> panel(depth * kWidenedColumns);
          std::vector<int32_t> y(rows * kColumns, 11);
          for (int16_t& element : a) element = static_cast<int16_t>(word(random));
          for (int8_t& element : panel) element = static_cast<int8_t>(byte(random));
          multiply_widened(
              {a.data(), kRow, panel.data(), rows, depth, columns, adds, y.data(), kColumns});
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t column = 0; column < kColumns; ++column) {
              int32_t sum = adds || column >= columns ? 11 : 0;
              for (int64_t k = 0; column < columns && k < depth; ++k)
                sum += a[r * kRow + k] * panel[widened_place(k, column)];
              ASSERT_EQ(y[r * kColumns + column], sum);
            }
        }
}

/// The largest products do not overflow pairs.
TEST(WidenedTile, TheLargestProducts) {
  constexpr int64_t kDepth = 512;
  for (const int factor : {255, -255}) {
    const std::vector<int16_t> a(kDepth, static_cast<int16_t>(factor));
    const std::vector<int8_t> panel(kDepth * kWidenedColumns, -128);
    std::vector<int32_t> y(kWidenedColumns);
    multiply_widened({a.data(), kDepth, panel.data(), 1, kDepth, kWidenedColumns, false, y.data(),
                      kWidenedColumns});
    for (const int32_t sum : y) ASSERT_EQ(sum, factor * -128 * kDepth);
  }
}

struct ByteConvolution {
  const char* name;
  Shape x, kernel;
  int64_t groups = 1, stride = 1, dilation = 1, pre = 0, post = 0;
};
std::ostream& operator<<(std::ostream& out, const ByteConvolution& c) { return out << c.name; }
const ByteConvolution kConvolutions[] = {
    {"Plain", {2, 16, 9, 11}, {32, 16, 3, 3}, 1, 1, 1, 1, 1},
    {"Pixels", {1, 24, 7, 7}, {40, 24, 1, 1}},
    {"PixelsOfGroups", {1, 24, 7, 7}, {40, 6, 1, 1}, 4},
    {"EverySecondPixel", {1, 24, 7, 7}, {17, 24, 1, 1}, 1, 2},
    {"FirstLayer", {1, 3, 17, 19}, {16, 3, 7, 7}, 1, 2, 1, 3, 3},
    {"OddChannels", {3, 5, 8, 8}, {7, 5, 3, 3}},
    {"Asymmetric", {1, 8, 9, 8}, {8, 8, 3, 2}, 1, 1, 1, 2, 0},
    {"Dilated", {1, 16, 12, 12}, {16, 16, 3, 3}, 1, 1, 3, 2, 2},
    {"MostlyPadding", {1, 4, 2, 2}, {8, 4, 3, 3}, 1, 1, 2, 3, 3},
    {"Groups", {1, 12, 8, 8}, {18, 4, 3, 3}, 3, 2, 1, 1, 1},
    {"Depthwise", {2, 37, 10, 9}, {37, 1, 3, 3}, 37, 2, 1, 1, 1},
    {"DepthwiseOfFewChannels", {1, 3, 6, 6}, {3, 1, 5, 5}, 3, 1, 1, 2, 2},
    {"DepthMultiplier", {1, 8, 6, 6}, {16, 1, 3, 3}, 8},
    {"OneAxis", {2, 16, 20}, {24, 16, 5}, 1, 2, 1, 2, 2},
    {"OnePixel", {1, 300, 1, 1}, {70, 300, 1, 1}},
    {"Deep", {1, 260, 4, 5}, {9, 260, 3, 3}, 1, 1, 1, 1, 1},
};

ConvolutionParams parameters(const ByteConvolution& c) {
  const auto spatial = [&](int64_t value) {
    return Ints(static_cast<size_t>(c.x.rank() - 2), value);
  };
  return params_of(spatial(c.stride), spatial(c.dilation), spatial(c.pre), spatial(c.post),
                   c.groups);
}
Shape result_of(const ByteConvolution& c) {
  Shape y = {c.x[0], c.kernel[0]};
  for (int axis = 2; axis < c.x.rank(); ++axis)
    y.push_back((c.x[axis] + c.pre + c.post - c.dilation * (c.kernel[axis] - 1) - 1) / c.stride +
                1);
  return y;
}
/// The sums. Padding has the zero point.
Values sums_of(const ByteConvolution& c, Values x, const Values& kernel, int64_t zero) {
  for (double& element : x.data) element -= static_cast<double>(zero);
  const ConvolutionParams params = parameters(c);
  return reference_convolution(x, kernel, result_of(c), c.groups, params.stride, params.dilation,
                               params.pre_padding);
}

class WidenedConvolution : public ::testing::TestWithParam<ByteConvolution> {};

TEST_P(WidenedConvolution, SumsAreExact) {
  const ByteConvolution& c = GetParam();
  for (const DataType type : kByteTypes)
    for (const int64_t zero : {int64_t{0}, type == DataType::kINT8 ? int64_t{-7} : int64_t{200}}) {
      const Values x = bytes_of(c.x, type, 1), kernel = bytes_of(c.kernel, DataType::kINT8, 2);
      ConvolutionParams params = parameters(c);
      params.zero_point = zero;
      const Convolution op(params);
      const std::vector<TestInput> inputs = {{x, type}, {kernel, DataType::kINT8, true}};
      const std::vector<TestOutput> outputs = {{result_of(c), DataType::kINT32}};
      expect_equal(run_kernel(op, widened(op, inputs, outputs), inputs, outputs)[0],
                   sums_of(c, x, kernel, zero));
    }
}

/// A program that scales channels, adds a bias and a residual, clips, and stores bytes. All numbers
/// are exact in FP32.
FusedProgram quantizing_program() {
  const auto kFloat = DataType::kFLOAT;
  const std::vector<PointwiseInstruction> code = {input(0, DataType::kINT32),  // the sums
                                                  cast(0, kFloat),
                                                  input(1),  // a scale of each channel
                                                  binary(ElementWiseOperation::kPROD, 1, 2),
                                                  input(2),  // a bias of each channel
                                                  binary(ElementWiseOperation::kSUM, 3, 4),
                                                  input(3, DataType::kUINT8),  // a residual
                                                  cast(6, kFloat),
                                                  binary(ElementWiseOperation::kSUM, 5, 7),
                                                  activation(ActivationType::kCLIP, 8, -128, 127),
                                                  unary(UnaryOperation::kROUND, 9),
                                                  cast(10, DataType::kINT8)};
  FusedProgram fused;
  fused.program = encode(code, {11});
  fused.places = {static_cast<int64_t>(FusedPlace::kChannel),
                  static_cast<int64_t>(FusedPlace::kChannel),
                  static_cast<int64_t>(FusedPlace::kElement)};
  fused.result = DataType::kINT8;
  return fused;
}
/// What the program makes of the sums. `channel_of` gives the channel of an element.
template <class F>
Values quantized(const Values& sums, const Values& scale, const Values& bias, const Values& added,
                 F channel_of) {
  return make_values(sums.shape, [&](int64_t i) {
    const int64_t channel = channel_of(i);
    return std::nearbyint(
        std::clamp(sums[i] * scale[channel] + bias[channel] + added[i], -128.0, 127.0));
  });
}
Values scales(const Shape& shape, int seed) {
  return make_values(shape, [&](int64_t i) { return std::ldexp(1, -10 - (seed + i) % 3); });
}

TEST_P(WidenedConvolution, AProgramFollows) {
  const ByteConvolution& c = GetParam();
  const Shape y = result_of(c);
  Shape channels = y;
  for (int axis = 0; axis < channels.rank(); ++axis)
    if (axis != 1) channels[axis] = 1;
  const Values x = bytes_of(c.x, DataType::kUINT8, 1),
               kernel = bytes_of(c.kernel, DataType::kINT8, 2), scale = scales(channels, 1),
               bias = whole_values(channels, 4, -9, 9), added = bytes_of(y, DataType::kUINT8, 5);
  ConvolutionParams params = parameters(c);
  params.zero_point = 3, params.fused = quantizing_program();
  const Convolution op(params);
  const std::vector<TestInput> inputs = {
      {x, DataType::kUINT8},           {kernel, DataType::kINT8, true}, absent(),
      {scale, DataType::kFLOAT, true}, {bias, DataType::kFLOAT},        {added, DataType::kUINT8}};
  const std::vector<TestOutput> outputs = {{y, DataType::kINT8}};
  const int64_t pixels = y.numel(2, y.rank());
  expect_equal(run_kernel(op, widened(op, inputs, outputs), inputs, outputs)[0],
               quantized(sums_of(c, x, kernel, 3), scale, bias, added,
                         [&](int64_t i) { return i / pixels % y[1]; }));
}

/// A tactic of processors with instructions for bytes, and weights as they are packed there.
constexpr const char* kOfAnotherProcessor = "jit_int8:avx512_core_vnni";
PackedInput packed_last_axis_first(const Values& weights) {
  dnnl::memory::dims extents(weights.shape.begin(), weights.shape.end()), strides(extents.size());
  int64_t stride = 1;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    strides[axis] = stride, stride *= extents[axis];
  const dnnl::memory::desc desc(extents, dnnl::memory::data_type::s8, strides);
  std::vector<int8_t> bytes(weights.data.size());
  for (int64_t i = 0; i < weights.size(); ++i) {
    int64_t rest = i, place = 0;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
      place += rest % extents[axis] * strides[axis];
    bytes[static_cast<size_t>(place)] = static_cast<int8_t>(weights[i]);
  }
  return {1, Blob::copy(bytes.data(), bytes.size()), layout_text(desc)};
}

TEST_P(WidenedConvolution, EnginesOfProcessorsWithInstructionsForBytes) {
  const ByteConvolution& c = GetParam();
  const Values x = bytes_of(c.x, DataType::kUINT8, 1),
               kernel = bytes_of(c.kernel, DataType::kINT8, 2);
  ConvolutionParams params = parameters(c);
  params.zero_point = 3;
  const Convolution op(params);
  const std::vector<TestInput> inputs = {{x, DataType::kUINT8}, {kernel, DataType::kINT8, true}};
  const std::vector<TestOutput> outputs = {{result_of(c), DataType::kINT32}};
  Candidate candidate = widened(op, inputs, outputs);
  candidate.tactic_name = kOfAnotherProcessor;
  const Values expected = sums_of(c, x, kernel, 3);
  for (const TensorFormat format : {TensorFormat::kHWC, TensorFormat::kLINEAR}) {
    if (format == TensorFormat::kLINEAR && c.kernel[1] == 1) continue;
    candidate.inputs[0].format = format;
    expect_equal(run_kernel(op, candidate, inputs, outputs)[0], expected);
    if (c.groups > 1) continue;
    const PackedInput packed = packed_last_axis_first(kernel);
    TestKernel loaded(op, candidate, inputs, outputs, std::span(&packed, 1));
    expect_equal(loaded.run(inputs, outputs)[0], expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WidenedConvolution, ::testing::ValuesIn(kConvolutions),
                         [](const auto& info) { return std::string(info.param.name); });

struct ByteProduct {
  const char* name;
  Shape a, b, y;
  bool is_transposed = false, is_constant = true;
};
std::ostream& operator<<(std::ostream& out, const ByteProduct& c) { return out << c.name; }
const ByteProduct kProducts[] = {
    {"Plain", {7, 33}, {33, 20}, {7, 20}},
    {"Transposed", {7, 33}, {20, 33}, {7, 20}, true},
    {"OneRow", {1, 64}, {64, 300}, {1, 300}},
    {"OneColumn", {90, 16}, {16, 1}, {90, 1}},
    {"ManyRows", {3, 50, 130}, {130, 48}, {3, 50, 48}},
    {"Deep", {13, 2500}, {2500, 19}, {13, 19}},
    {"Wide", {40, 12}, {12, 2100}, {40, 2100}},
    {"Vector", {33}, {33, 20}, {20}},
    {"Stack", {3, 5, 8}, {3, 8, 6}, {3, 5, 6}, false, false},
    {"ConstantStack", {3, 5, 8}, {3, 8, 6}, {3, 5, 6}},
    {"StackTransposed", {2, 3, 50, 8}, {2, 3, 70, 8}, {2, 3, 50, 70}, true, false},
    {"SharedA", {1, 50, 9}, {4, 9, 6}, {4, 50, 6}, false, false},
    {"Broadcast", {3, 1, 5, 8}, {1, 4, 8, 6}, {3, 4, 5, 6}, false, false},
    {"OneMatrixOfARun", {70, 30}, {30, 21}, {70, 21}, false, false},
    {"NoRows", {0, 8}, {8, 6}, {0, 6}},
    {"NothingToSum", {2, 4, 0}, {2, 0, 6}, {2, 4, 6}, false, false},
};

Values product_of(const ByteProduct& c, const Values& a, const Values& b) {
  const int64_t k = c.a[c.a.rank() - 1], n = c.y[c.y.rank() - 1];
  return make_values(c.y, [&](int64_t i) {
    const int64_t column = i % n, row = c.a.rank() == 1 ? 0 : i / n % c.a[c.a.rank() - 2];
    Shape stack, of_a, of_b;
    for (int axis = 0; axis < c.y.rank() - 2; ++axis) stack.push_back(c.y[axis]);
    for (int axis = 0; axis < c.a.rank() - 2; ++axis) of_a.push_back(c.a[axis]);
    for (int axis = 0; axis < c.b.rank() - 2; ++axis) of_b.push_back(c.b[axis]);
    const int64_t item = c.a.rank() == 1 ? 0 : i / n / c.a[c.a.rank() - 2];
    const int64_t in_a =
        broadcast_index(of_a, stack, item) * (c.a.rank() == 1 ? 1 : c.a[c.a.rank() - 2]);
    const int64_t in_b = broadcast_index(of_b, stack, item) * k * n;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum +=
          a[(in_a + row) * k + j] * b[in_b + (c.is_transposed ? column * k + j : j * n + column)];
    return sum;
  });
}

class WidenedProduct : public ::testing::TestWithParam<ByteProduct> {
 protected:
  static MatrixMultiplyParams params() {
    MatrixMultiplyParams params;
    if (GetParam().is_transposed) params.op1 = MatrixOperation::kTRANSPOSE;
    if (GetParam().a.rank() == 1) params.op0 = MatrixOperation::kVECTOR;
    return params;
  }
};

TEST_P(WidenedProduct, SumsAreExact) {
  const ByteProduct& c = GetParam();
  for (const DataType type : kByteTypes) {
    const Values a = bytes_of(c.a, type, 1), b = bytes_of(c.b, DataType::kINT8, 2);
    const MatrixMultiply op(params());
    const std::vector<TestInput> inputs = {{a, type}, {b, DataType::kINT8, c.is_constant}};
    const std::vector<TestOutput> outputs = {{c.y, DataType::kINT32}};
    expect_equal(run_kernel(op, widened(op, inputs, outputs), inputs, outputs)[0],
                 product_of(c, a, b));
  }
}

TEST_P(WidenedProduct, AProgramFollows) {
  const ByteProduct& c = GetParam();
  if (!c.is_constant || c.b.rank() > 2) return;  // programs are for one constant matrix
  const int64_t n = c.y[c.y.rank() - 1];
  const Values a = bytes_of(c.a, DataType::kINT8, 1), b = bytes_of(c.b, DataType::kINT8, 2),
               scale = scales({n}, 2), bias = whole_values({n}, 4, -9, 9),
               added = bytes_of(c.y, DataType::kUINT8, 5);
  MatrixMultiplyParams own = params();
  own.fused = quantizing_program();
  const MatrixMultiply op(own);
  const std::vector<TestInput> inputs = {{a, DataType::kINT8},
                                         {b, DataType::kINT8, true},
                                         {scale, DataType::kFLOAT, true},
                                         {bias, DataType::kFLOAT},
                                         {added, DataType::kUINT8}};
  const std::vector<TestOutput> outputs = {{c.y, DataType::kINT8}};
  expect_equal(
      run_kernel(op, widened(op, inputs, outputs), inputs, outputs)[0],
      quantized(product_of(c, a, b), scale, bias, added, [&](int64_t i) { return i % n; }));
}

TEST_P(WidenedProduct, EnginesOfProcessorsWithInstructionsForBytes) {
  const ByteProduct& c = GetParam();
  const Values a = bytes_of(c.a, DataType::kUINT8, 1), b = bytes_of(c.b, DataType::kINT8, 2);
  const MatrixMultiply op(params());
  const std::vector<TestInput> inputs = {{a, DataType::kUINT8},
                                         {b, DataType::kINT8, c.is_constant}};
  const std::vector<TestOutput> outputs = {{c.y, DataType::kINT32}};
  Candidate candidate = widened(op, inputs, outputs);
  candidate.tactic_name = kOfAnotherProcessor;
  const Values expected = product_of(c, a, b);
  expect_equal(run_kernel(op, candidate, inputs, outputs)[0], expected);
  if (!c.is_constant || c.b.rank() > 2) return;
  // oneDNN's matrix has the rows of the product.
  const int64_t k = c.a[c.a.rank() - 1], n = c.y[c.y.rank() - 1];
  const Values rows =
      make_values({k, n}, [&](int64_t i) { return c.is_transposed ? b[i % n * k + i / n] : b[i]; });
  const PackedInput packed = packed_last_axis_first(rows);
  TestKernel loaded(op, candidate, inputs, outputs, std::span(&packed, 1));
  expect_equal(loaded.run(inputs, outputs)[0], expected);
}

INSTANTIATE_TEST_SUITE_P(All, WidenedProduct, ::testing::ValuesIn(kProducts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace opwright::testing
