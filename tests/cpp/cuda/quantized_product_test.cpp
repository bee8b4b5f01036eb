#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/type_rules.h"

/// Products of INT8, UINT8 and FP8 on tensor cores.
namespace opwright::testing {
namespace {

struct Types {
  DataType a, b;
};
constexpr Types kTypes[] = {{DataType::kFP8, DataType::kFP8},
                            {DataType::kINT8, DataType::kINT8},
                            {DataType::kUINT8, DataType::kINT8}};

/// Numbers of the type, whose sums are exact. Warpgroups cut sums of FP8 to 13 bits behind the
/// largest product (Zhao et al., "Insights into DeepSeek-V3", 2025), so those are quarters.
Values numbers(const Shape& shape, int seed, DataType type) {
  Values made = random_values(shape, seed);
  for (double& value : made.data)
    value = type == DataType::kFP8    ? std::round(7 * value) / 4
            : type == DataType::kINT8 ? std::round(127 * value)
                                      : std::round(127.5 * (value + 1));
  return rounded(made, type);
}

/// All finite numbers of FP8, again and again.
Values all_fp8(const Shape& shape) {
  return make_values(shape, [](int64_t i) {
    return fp8_to_float(static_cast<uint8_t>(i * 5 % 127 | (i / 127 % 2) << 7));
  });
}

/// a[stack_a, m, k] x b[stack_b, n, k].
Values product_along_k(const Values& a, const Values& b) {
  const int64_t m = a.shape[1], n = b.shape[1], k = a.shape[2];
  return make_values({a.shape[0], m, n}, [&](int64_t i) {
    const int64_t row = i / n, column = i % n + (b.shape[0] == 1 ? 0 : row / m * n);
    double sum = 0;
    for (int64_t e = 0; e < k; ++e) sum += a[row * k + e] * b[column * k + e];
    return sum;
  });
}

bool is_tensor(const Candidate& candidate) {
  return candidate.tactic_name.starts_with("tensor") ||
         candidate.tactic_name.starts_with("warpgroup");
}

/// Every tile, of operands along k, copied by boxes and by threads, beyond the ends of all axes and
/// at addresses that vectors may not have. UINT8 differs from INT8 only in the instruction's name.
TEST(CudaQuantizedProduct, EveryTile) {
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  const MatrixMultiply op(params);
  const long before = tensor_maps();
  for (const auto& [type_a, type_b] : kTypes) {
    std::set<int64_t> tactics;
    struct Stacks {
      int64_t k, a, b;
    };
    for (const auto& [k, stack_a, stack_b] : {Stacks{160, 1, 1}, {160, 2, 1}, {149, 2, 2}}) {
      const int64_t m = 140, n = 136;
      if (k == 160 && stack_a != (type_a == DataType::kINT8 ? 1 : 2)) continue;
      if (k != 160 && type_a == DataType::kUINT8) continue;
      const Values a = numbers({stack_a, m, k}, 1, type_a);
      const Values b = numbers({stack_b, n, k}, 2, type_b);
      const Values expected = product_along_k(a, b);
      const std::vector<TestInput> inputs = {{a, type_a}, {b, type_b}};
      const std::vector<TestOutput> outputs = {{expected.shape, type_of_product(type_a)}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!is_tensor(candidate)) continue;
        tactics.insert(candidate.tactic);
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << "k " << k << " stacks " << stack_a << " " << stack_b
                                            << " " << describe(candidate) << " shift " << shift);
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, 0);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
    EXPECT_GE(tactics.size(), at_least(10u)) << "not every tile was tested";
  }
  if (before >= 0 && !runs_each_once()) {
    EXPECT_GE(tensor_maps() - before, 3l * 2 * 5) << "tiles came otherwise";
  }
}

/// Columns with one number each, whatever its size: sums of one product are exact.
TEST(CudaQuantizedProduct, EveryNumberOfFp8) {
  const int64_t k = 160;
  const DataType type = DataType::kFP8;
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  const MatrixMultiply op(params);
  const Values a = all_fp8({2, 140, k}), numbers_of_b = all_fp8({136});
  Values b = make_values({1, 136, k}, [](int64_t) { return 0; });
  for (int64_t j = 0; j < 136; ++j) b[j * k + j * 7 % k] = numbers_of_b[j];
  const Values expected = product_along_k(a, b);
  const std::vector<TestInput> inputs = {{a, type}, {b, type}};
  const std::vector<TestOutput> outputs = {{expected.shape, DataType::kFLOAT}};
  int tested = 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    if (!is_tensor(candidate)) continue;
    SCOPED_TRACE(describe(candidate));
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 0);
    ++tested;
  }
  EXPECT_GE(tested, at_least(10));
}

/// Results of an H200, whose warpgroups cut sums of FP8. Each 128 products are added up in FP32.
TEST(CudaQuantizedProduct, SumsAreThoseOfAnH200) {
  struct Element {
    Shape a, b;
    int64_t place;
    double exact, cut;
  };
  const Element elements[] = {
      {{2, 140, 160}, {1, 136, 160}, 0, 5.5748291015625, 5.57568359375},
      {{2, 140, 160}, {1, 136, 160}, 7, 5.19915771484375, 5.1953125},
      {{1, 37, 2048}, {1, 300, 2048}, 1, -2.6798248291015625, -2.67529296875}};
  const DataType type = DataType::kFP8;
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  const MatrixMultiply op(params);
  int tested = 0;
  for (const Element& element : elements) {
    const Values a = rounded(random_values(element.a, 1, -2, 2), type);
    const Values b = rounded(random_values(element.b, 2, -2, 2), type);
    const Values exact = product_along_k(a, b);
    ASSERT_EQ(exact[element.place], element.exact);
    const std::vector<TestInput> inputs = {{a, type}, {b, type}};
    const std::vector<TestOutput> outputs = {{exact.shape, DataType::kFLOAT}};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!candidate.tactic_name.starts_with("warpgroup")) continue;
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      EXPECT_EQ(kernel.run(inputs, outputs)[0][element.place], element.cut);
      ++tested;
    }
  }
  EXPECT_GE(tested, at_least(9));
}

/// Operands that lie across k, and extents that are open.
TEST(CudaQuantizedProduct, AcrossKAndOpenExtents) {
  const TestAxis open = {0, 512};
  for (const auto& [type_a, type_b] : kTypes)
    for (const MatrixOperation of_b : {MatrixOperation::kNONE, MatrixOperation::kTRANSPOSE}) {
      if (of_b == MatrixOperation::kTRANSPOSE && type_a == DataType::kUINT8) continue;
      MatrixMultiplyParams params;
      params.op1 = of_b;
      const MatrixMultiply op(params);
      const std::vector<PortDesc> in = {port_of({{1, 1}, open, open}, type_a),
                                        port_of({{1, 1}, open, open}, type_b)};
      const std::vector<PortDesc> out = {port_of({{1, 1}, open, open}, type_of_product(type_a))};
      int tested = 0;
      for (const Candidate& candidate : candidates_of(op, in, out)) {
        if (!is_tensor(candidate)) continue;
        ++tested;
        TestKernel kernel(op, candidate, in, out);
        for (const Shape& size : {Shape{37, 70, 45}, Shape{130, 48, 96}, Shape{64, 64, 0}}) {
          const int64_t m = size[0], n = size[1], k = size[2];
          const Values a = numbers({1, m, k}, 1, type_a), b = numbers({1, n, k}, 2, type_b);
          const Values expected = product_along_k(a, b);
          Values given = b;
          if (of_b == MatrixOperation::kNONE)
            given = make_values({1, k, n}, [&](int64_t i) { return b[i % n * k + i / n]; });
          SCOPED_TRACE(::testing::Message()
                       << m << "x" << n << "x" << k << " " << describe(candidate));
          const Values y =
              kernel.run(std::vector<TestInput>{{a, type_a}, {given, type_b}},
                         std::vector<TestOutput>{{expected.shape, type_of_product(type_a)}})[0];
          expect_close(y, expected, 0);
          if (::testing::Test::HasFailure()) return;
        }
      }
      EXPECT_GE(tested, at_least(6));
    }
}

/// Tiles whose parts of k several blocks multiply, again and again: clusters of warpgroups, and of
/// what lies across k the last block that is done adds them up.
TEST(CudaQuantizedProduct, TilesInParts) {
  const int64_t m = 37, n = 300, k = 2 * 8 * 128;
  for (const auto& [type_a, type_b] : kTypes)
    for (const bool is_along_k : {true, false}) {
      MatrixMultiplyParams params;
      params.op1 = is_along_k ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
      const MatrixMultiply op(params);
      const Values a = numbers({1, m, k}, 1, type_a), b = numbers({1, n, k}, 2, type_b);
      const Values expected = product_along_k(a, b);
      const Values turned = make_values({1, k, n}, [&](int64_t i) { return b[i % n * k + i / n]; });
      const std::vector<TestInput> inputs = {{a, type_a}, {is_along_k ? b : turned, type_b}};
      const std::vector<TestOutput> outputs = {{expected.shape, type_of_product(type_a)}};
      std::set<std::string> units;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (candidate.tactic_name.find(", in ") == std::string::npos) continue;
        if (candidate.tactic_name.find(" parts") == std::string::npos) continue;
        units.insert(candidate.tactic_name.substr(0, candidate.tactic_name.find(' ')));
        SCOPED_TRACE(describe(candidate));
        TestKernel kernel(op, candidate, inputs, outputs);
        const Values y = kernel.run(inputs, outputs)[0];
        expect_close(y, expected, 0);
        EXPECT_EQ(kernel.run(inputs, outputs)[0].data, y.data) << "the second run differs";
      }
      const std::set<std::string> expected_units = {is_along_k ? "warpgroup" : "tensor"};
      EXPECT_TRUE(runs_all_tactics() || units == expected_units);
    }
}

/// Scales, a bias, an activation and the next layer's quantization behind the sums: results of FP8
/// and of INT8, and of FP16 with a residual of that type. A long k has only tiles in parts.
TEST(CudaQuantizedProduct, FusedPrograms) {
  using Op = ElementWiseOperation;
  const int64_t m = 70, n = 136, long_k = 1040;
  struct Case {
    DataType type_a, type_b, result, residual;
    int64_t k = 160;
  };
  std::vector<Case> cases;
  for (const auto& [type_a, type_b] : kTypes)
    for (const auto& [result, residual] :
         {std::pair(type_b, DataType::kHALF), std::pair(DataType::kHALF, DataType::kHALF),
          std::pair(type_b, type_b), std::pair(DataType::kHALF, type_b)})
      for (const int64_t k : {int64_t{160}, long_k})
        if (k != long_k || (result == residual && type_a != DataType::kUINT8))
          cases.push_back({type_a, type_b, result, residual, k});
  PairSelection pairs;
  for (const auto& [type_a, type_b, result, type_of_residual, k] : cases) {
    constexpr DataType kFloat = DataType::kFLOAT;
    ProgramWriter writer;
    int y = writer.cast(writer.input(0, type_of_product(type_a)), kFloat);
    y = writer.binary(Op::kPROD, y, writer.input(1, kFloat));
    y = writer.binary(Op::kSUM, y, writer.cast(writer.input(2, type_of_residual), kFloat));
    y = writer.binary(Op::kMAX, y, writer.constant(0, kFloat));
    if (result == DataType::kINT8) {
      y = writer.binary(Op::kDIV, y, writer.constant(0.5, kFloat));
      y = writer.unary(UnaryOperation::kROUND, y);
      y = writer.activation(ActivationType::kCLIP, y, -128, 127);
    }
    const int results[] = {writer.cast(y, result)};
    std::vector<int> used;
    MatrixMultiplyParams params;
    params.op1 = MatrixOperation::kTRANSPOSE;
    params.fused.program = writer.finish(results, &used);
    params.fused.places = {static_cast<int64_t>(FusedPlace::kChannel),
                           static_cast<int64_t>(FusedPlace::kElement)};
    params.fused.result = result;
    const MatrixMultiply op(params);
    Values scales = random_values({n}, 3);
    for (double& scale : scales.data)
      scale = (type_a == DataType::kFP8 ? 0.05 : 0.001) * (1.5 + scale);
    scales = rounded(scales, kFloat);
    Values residual = random_values({1, m, n}, 4);
    for (double& value : residual.data) value = std::nearbyint(value * 9);
    const std::vector<TestInput> inputs = {{numbers({1, m, k}, 1, type_a), type_a},
                                           {numbers({1, n, k}, 2, type_b), type_b, true},
                                           {scales, kFloat, true},
                                           {residual, type_of_residual}};
    Values expected = product_along_k(inputs[0].values, inputs[1].values);
    for (int64_t i = 0; i < expected.size(); ++i) {
      expected[i] = std::max(expected[i] * scales[i % n] + inputs[3].values[i], 0.0);
      if (result == DataType::kINT8)
        expected[i] = std::min(std::nearbyint(expected[i] / 0.5), 127.0);
    }
    if (result == DataType::kFP8) expected = rounded(expected, result);
    const std::vector<TestOutput> outputs = {{expected.shape, result}};
    int tested = 0;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!is_tensor(candidate) ||
          (k == long_k && candidate.tactic_name.find("parts") == std::string::npos))
        continue;
      ++tested;
      if (!pairs.takes({candidate.tactic_name, name(type_a), name(result), name(type_of_residual)}))
        continue;
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      const Values y = kernel.run(inputs, outputs)[0];
      // A sum that is rounded in FP32 may fall on the other side of a half.
      int64_t apart = 0;
      for (int64_t i = 0; i < y.size(); ++i) {
        const double step = result == DataType::kFP8    ? std::max(expected[i] / 8, 0x1p-9)
                            : result == DataType::kINT8 ? 1
                                                        : std::max(expected[i] * 0x1p-10, 1e-3);
        EXPECT_LE(std::abs(y[i] - expected[i]), step) << "at " << i;
        if (y[i] != expected[i] && result != DataType::kHALF) ++apart;
      }
      EXPECT_LE(apart, y.size() / 500);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GE(tested, at_least(k == long_k ? 1 : 6));
  }
}

/// Windows of both layouts: of channels that boxes have and of others, over borders, with strides,
/// dilations and groups. All types find windows alike, so two types have only some cases.
TEST(CudaQuantizedConvolution, Windows) {
  struct Case {
    int64_t channels, maps, groups, size, window, stride, dilation, padding;
  };
  const Case cases[] = {{128, 72, 1, 9, 3, 1, 1, 1}, {128, 40, 1, 10, 3, 2, 1, 1},
                        {64, 72, 1, 7, 3, 1, 2, 2},  {3, 24, 1, 13, 5, 2, 1, 2},
                        {96, 72, 1, 6, 1, 1, 1, 0},  {64, 64, 2, 6, 3, 1, 1, 1}};
  PairSelection pairs;
  const long before = tensor_maps();
  for (const auto& [type_a, type_b] : kTypes)
    for (const Case& of : cases) {
      if (type_a == DataType::kFP8 && of.maps != 72) continue;
      if (type_a == DataType::kUINT8 && of.maps != 40 && of.groups == 1) continue;
      ConvolutionParams params;
      params.groups = of.groups;
      params.stride = {of.stride, of.stride}, params.dilation = {of.dilation, of.dilation};
      params.pre_padding = params.post_padding = {of.padding, of.padding};
      const Convolution op(params);
      const int64_t extent =
          (of.size + 2 * of.padding - of.dilation * (of.window - 1) - 1) / of.stride + 1;
      const Shape shape = {2, of.maps, extent, extent};
      const std::vector<TestInput> inputs = {
          {numbers({2, of.channels, of.size, of.size}, 1, type_a), type_a},
          {numbers({of.maps, of.channels / of.groups, of.window, of.window}, 2, type_b), type_b,
           true}};
      const Values expected =
          reference_convolution(inputs[0].values, inputs[1].values, shape, of.groups, params.stride,
                                params.dilation, params.pre_padding);
      const std::vector<TestOutput> outputs = {{shape, type_of_product(type_a)}};
      std::set<TensorFormat> formats;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!is_tensor(candidate)) continue;
        const TensorFormat format = candidate.outputs[0].format;
        formats.insert(format);
        if (!pairs.takes({candidate.tactic_name, name(format), name(type_a), str(&of - cases)}))
          continue;
        SCOPED_TRACE(::testing::Message()
                     << of.channels << " channels, " << of.maps << " maps, window " << of.window
                     << " " << describe(candidate));
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, 0);
        if (::testing::Test::HasFailure()) return;
      }
      // Where each class of a tactic runs once, what ran before is not listed again.
      if (!runs_each_once()) {
        EXPECT_EQ(formats.size(), 2u) << "a layout is missing";
      }
    }
  if (before >= 0 && !runs_each_once()) {
    EXPECT_GE(tensor_maps() - before, 2l * 2 * 3) << "windows came otherwise";
  }
}

}  // namespace
}  // namespace opwright::testing
