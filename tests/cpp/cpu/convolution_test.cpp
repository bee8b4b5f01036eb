#include "operators/convolution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu/window_reference.h"

namespace opwright::testing {
namespace {

struct ConvolutionCase {
  std::string name;
  Shape x, kernel, y;
  ConvolutionParams params;
  Ints pre;  ///< the padding before, as resolved by hand
};

const std::vector<ConvolutionCase>& convolution_cases() {
  static const std::vector<ConvolutionCase> all = {
      {"Plain",
       {2, 16, 9, 11},
       {32, 16, 3, 3},
       {2, 32, 9, 11},
       params_of({}, {}, {1, 1}, {1, 1}),
       {1, 1}},
      {"Pointwise", {1, 24, 7, 7}, {40, 24, 1, 1}, {1, 40, 7, 7}, params_of({}, {}, {}, {}), {}},
      {"FirstLayer",
       {1, 3, 17, 19},
       {16, 3, 7, 7},
       {1, 16, 9, 10},
       params_of({2, 2}, {}, {3, 3}, {3, 3}),
       {3, 3}},
      {"OddChannels", {1, 5, 8, 8}, {7, 5, 3, 3}, {1, 7, 6, 6}, params_of({}, {}, {}, {}), {}},
      {"Asymmetric",
       {1, 8, 9, 8},
       {8, 8, 3, 2},
       {1, 8, 5, 9},
       params_of({2, 1}, {}, {0, 2}, {2, 0}),
       {0, 2}},
      {"Dilated",
       {1, 16, 12, 12},
       {16, 16, 3, 3},
       {1, 16, 12, 10},
       params_of({}, {2, 3}, {2, 2}, {2, 2}),
       {2, 2}},
      {"Groups",
       {1, 12, 8, 8},
       {18, 4, 3, 3},
       {1, 18, 4, 4},
       params_of({2, 2}, {}, {1, 1}, {1, 1}, 3),
       {1, 1}},
      {"Depthwise",
       {2, 32, 10, 10},
       {32, 1, 3, 3},
       {2, 32, 5, 5},
       params_of({2, 2}, {}, {1, 1}, {1, 1}, 32),
       {1, 1}},
      {"DepthwiseOdd",
       {1, 19, 6, 6},
       {19, 1, 3, 3},
       {1, 19, 6, 6},
       params_of({}, {}, {1, 1}, {1, 1}, 19),
       {1, 1}},
      {"DepthMultiplier",
       {1, 8, 6, 6},
       {16, 1, 3, 3},
       {1, 16, 4, 4},
       params_of({}, {}, {}, {}, 8),
       {}},
      {"OneDimension", {2, 16, 20}, {24, 16, 5}, {2, 24, 10}, params_of({2}, {}, {2}, {2}), {2}},
      {"DepthwiseRows", {2, 19, 37}, {19, 1, 4}, {2, 19, 37}, params_of({}, {}, {3}, {0}, 19), {3}},
      {"DepthwiseRowsApart",
       {1, 6, 50},
       {6, 1, 5},
       {1, 6, 19},
       params_of({3}, {2}, {9}, {5}, 6),
       {9}},
      {"ThreeDimensions",
       {1, 8, 5, 6, 7},
       {16, 8, 3, 3, 3},
       {1, 16, 5, 6, 7},
       params_of({}, {}, {1, 1, 1}, {1, 1, 1}),
       {1, 1, 1}},
      {"RoundedDown", {1, 8, 8, 8}, {8, 8, 3, 3}, {1, 8, 3, 3}, params_of({2, 2}, {}, {}, {}), {}},
      {"SameUpper",
       {1, 8, 7, 8},
       {16, 8, 4, 2},
       {1, 16, 4, 4},
       same_padding(PaddingMode::kSAME_UPPER, {2, 2}),
       {1, 0}},
      {"SameLower",
       {1, 8, 7, 8},
       {16, 8, 4, 2},
       {1, 16, 4, 4},
       same_padding(PaddingMode::kSAME_LOWER, {2, 2}),
       {2, 0}},
  };
  return all;
}

class ConvolutionCases : public ::testing::TestWithParam<int> {};

std::vector<TestInput> inputs_of(const ConvolutionCase& c, DataType dtype, bool constant_weights) {
  return {{random_values(c.x, 1), dtype},
          {random_values(c.kernel, 2), dtype, constant_weights},
          {random_values({c.kernel[0]}, 3), dtype, constant_weights}};
}

Values expected_of(const ConvolutionCase& c, std::span<const TestInput> inputs, DataType computed) {
  Values y = reference_convolution(rounded(inputs[0].values, computed),
                                   rounded(inputs[1].values, computed), c.y, c.params.groups,
                                   c.params.stride, c.params.dilation, c.pre);
  const int64_t spatial = c.y.numel(2, c.y.rank());
  if (inputs.size() > 2 && inputs[2].present)
    for (int64_t i = 0; i < y.size(); ++i) y[i] += inputs[2].values[i / spatial % c.y[1]];
  return y;
}

TEST_P(ConvolutionCases, EveryCandidateAgreesWithTheLoops) {
  const ConvolutionCase& c = convolution_cases()[GetParam()];
  const Convolution op(c.params);
  static Selection selection(7);
  for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
    const std::vector<TestInput> inputs = inputs_of(c, dtype, true);
    const std::vector<TestOutput> outputs = {{c.y, dtype}};
    const auto candidates = candidates_of(op, inputs, outputs, {true, true});
    ASSERT_FALSE(candidates.empty());
    for (const Candidate& candidate : candidates) {
      if (!selection.takes_next()) continue;
      SCOPED_TRACE(describe(candidate));
      const DataType computed = candidate.inputs[0].dtype;
      const Values expected = expected_of(c, inputs, computed);
      TestKernel built(op, candidate, inputs, outputs);
      const double tolerance = std::max(tolerance_of(computed), tolerance_of(dtype));
      expect_close(built.run(inputs, outputs)[0], expected, tolerance);

      if (!test_device().is_host()) continue;
      const std::vector<PackedInput> packed = built.kernel().packed();
      // Only oneDNN wants weights in an order of its own.
      const bool is_rows = candidate.tactic_name == "depthwise rows";
      ASSERT_EQ(packed.size(), is_rows ? 0u : 1u);
      if (!is_rows) {
        EXPECT_EQ(packed[0].input, 1);
      }
      TestKernel loaded(op, candidate, inputs, outputs, packed);
      expect_close(loaded.run(inputs, outputs)[0], expected, tolerance);
    }
  }
}

TEST_P(ConvolutionCases, WeightsThatAreNotConstant) {
  const ConvolutionCase& c = convolution_cases()[GetParam()];
  const Convolution op(c.params);
  const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, false);
  const std::vector<TestOutput> outputs = {{c.y}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    SCOPED_TRACE(describe(candidate));
    TestKernel kernel(op, candidate, inputs, outputs);
    EXPECT_TRUE(kernel.kernel().packed().empty());
    expect_close(kernel.run(inputs, outputs)[0], expected_of(c, inputs, DataType::kFLOAT),
                 tolerance_of(DataType::kFLOAT));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvolutionCases,
                         ::testing::Range(0, static_cast<int>(convolution_cases().size())),
                         [](const auto& info) { return convolution_cases()[info.param].name; });

TEST(Convolution, OffersChannelsLast) {
  const ConvolutionCase& c = convolution_cases()[0];
  const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  const std::vector<TestOutput> outputs = {{c.y}};
  bool linear = false, channels_last = false;
  for (const Candidate& candidate : candidates_of(Convolution(c.params), inputs, outputs)) {
    linear |= candidate.inputs[0].format == TensorFormat::kLINEAR;
    channels_last |= candidate.inputs[0].format == TensorFormat::kHWC &&
                     candidate.outputs[0].format == TensorFormat::kHWC;
    EXPECT_EQ(candidate.inputs[0].dtype, candidate.outputs[0].dtype);
    // GPUs' tiles of the kernel are read as they lie.
    EXPECT_EQ(candidate.inputs[1].format,
              test_device().is_host() ? TensorFormat::kLINEAR : candidate.inputs[0].format);
  }
  EXPECT_TRUE(linear || runs_each_once());
  EXPECT_TRUE(channels_last || runs_each_once());
}

TEST(Convolution, StronglyTypedNetworksKeepTheirType) {
  const ConvolutionCase& c = convolution_cases()[0];
  for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
    const std::vector<TestInput> inputs = inputs_of(c, dtype, true);
    const std::vector<TestOutput> outputs = {{c.y, dtype}};
    const auto candidates =
        candidates_of(Convolution(c.params), inputs, outputs, {true, true, true});
    ASSERT_FALSE(candidates.empty());
    for (const Candidate& candidate : candidates) EXPECT_EQ(candidate.inputs[0].dtype, dtype);
  }
}

TEST(Convolution, AddsTheResidualInPlaceAndCopied) {
  ConvolutionCase c = convolution_cases()[0];
  c.params.has_residual = true;
  c.params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
  const Convolution op(c.params);
  std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  inputs.push_back({random_values(c.y, 4)});
  const std::vector<TestOutput> outputs = {{c.y}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, {false, true})) {
    SCOPED_TRACE(describe(candidate));
    const DataType computed = candidate.inputs[0].dtype;
    Values expected = expected_of(c, inputs, computed);
    for (int64_t i = 0; i < expected.size(); ++i)
      expected[i] = std::max(0.0, expected[i] + inputs[3].values[i]);
    TestKernel kernel(op, candidate, inputs, outputs);
    expect_close(kernel.run(inputs, outputs)[0], expected, tolerance_of(computed));
    expect_close(kernel.run(inputs, outputs, 3)[0], expected, tolerance_of(computed));
  }
}

TEST(Convolution, ResidualWithoutBias) {
  ConvolutionCase c = convolution_cases()[1];
  c.params.has_residual = true;
  const Convolution op(c.params);
  std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  const std::vector<TestOutput> outputs = {{c.y}};
  inputs[2] = absent();
  Values expected = expected_of(c, inputs, DataType::kFLOAT);
  inputs.push_back({random_values(c.y, 4)});
  for (int64_t i = 0; i < expected.size(); ++i) expected[i] += inputs[3].values[i];
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 2e-5);
  inputs.erase(inputs.begin() + 2);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 2e-5);
}

struct NamedActivation {
  FusedActivation activation;
  double (*apply)(double);
};

TEST(Convolution, FusedActivations) {
  const auto make = [](ActivationType type, float alpha = 0, float beta = 0) {
    return FusedActivation{static_cast<int32_t>(type), alpha, beta};
  };
  const NamedActivation activations[] = {
      {make(ActivationType::kRELU), [](double x) { return std::max(x, 0.0); }},
      {make(ActivationType::kSIGMOID), [](double x) { return 1 / (1 + std::exp(-x)); }},
      {make(ActivationType::kTANH), [](double x) { return std::tanh(x); }},
      {make(ActivationType::kLEAKY_RELU, 0.1f), [](double x) { return x < 0 ? 0.1 * x : x; }},
      {make(ActivationType::kELU, 0.7f), [](double x) { return x < 0 ? 0.7 * std::expm1(x) : x; }},
      {make(ActivationType::kSELU, 1.6f, 1.05f),
       [](double x) { return 1.05 * (x < 0 ? 1.6 * std::expm1(x) : x); }},
      {make(ActivationType::kCLIP, -0.5f, 1.5f),
       [](double x) { return std::min(std::max(x, -0.5), 1.5); }},
      {make(ActivationType::kHARD_SIGMOID, 0.2f, 0.5f),
       [](double x) { return std::min(std::max(0.2 * x + 0.5, 0.0), 1.0); }},
      {make(ActivationType::kSCALED_TANH, 1.5f, 0.6f),
       [](double x) { return 1.5 * std::tanh(0.6 * x); }},
      {make(ActivationType::kGELU_ERF),
       [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {make(ActivationType::kGELU_TANH),
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {{FusedActivation::kSwish, 1.7f, 0}, [](double x) { return x / (1 + std::exp(-1.7 * x)); }},
      {{FusedActivation::kHardSwish, 1.0f / 6, 0.5f},
       [](double x) { return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0); }},
  };
  std::vector<ConvolutionCase> cases;
  for (const NamedActivation& item : activations)
    for (const ConvolutionCase& c : convolution_cases())
      if (&c == &convolution_cases()[0] || c.name == std::string("DepthwiseRows"))
        cases.push_back(c), cases.back().params.activation = item.activation;
  for (const ConvolutionCase& c : cases) {
    const NamedActivation& item = activations[(&c - cases.data()) / 2];
    const Convolution op(c.params);
    const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
    const std::vector<TestOutput> outputs = {{c.y}};
    Selection selection(5);
    Values expected = expected_of(c, inputs, DataType::kFLOAT);
    for (int64_t i = 0; i < expected.size(); ++i) expected[i] = item.apply(expected[i]);
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!selection.takes_next()) continue;
      SCOPED_TRACE(describe(candidate) + " activation " + std::to_string(item.activation.type));
      expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 2e-4);
    }
  }
}

TEST(Convolution, ChangingShapesKeepThePackedWeights) {
  ConvolutionCase c = convolution_cases()[0];
  const Convolution op(c.params);
  const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  const std::vector<TestOutput> outputs = {{c.y}};
  const Shape largest_in[] = {{4, 16, 20, 20}, c.kernel, {32}}, largest_out[] = {{4, 32, 20, 20}};
  const std::vector<Candidate> candidates = candidates_of(
      op, with_max(describe(inputs), largest_in), with_max(describe(outputs), largest_out));
  for (const Candidate& candidate : candidates) {
    SCOPED_TRACE(describe(candidate));
    TestKernel kernel(op, candidate, inputs, outputs, {}, largest_in, largest_out);
    // Alternating, empty, up to the largest, and beyond what was planned.
    const Shape shapes[] = {{1, 16, 4, 5},   {4, 16, 20, 20}, {1, 16, 4, 5},  {0, 16, 9, 11},
                            {2, 16, 9, 11},  {1, 16, 1, 1},   {1, 16, 31, 8}, {3, 16, 7, 7},
                            {1, 16, 12, 12}, {1, 16, 2, 9},   {5, 16, 3, 3},  {1, 16, 4, 5}};
    for (const Shape& shape : shapes) {
      std::vector<TestInput> now = inputs;
      now[0].values = random_values(shape, 7);
      ConvolutionCase changed = c;
      changed.y = {shape[0], 32, shape[2], shape[3]};
      const std::vector<TestOutput> now_out = {{changed.y}};
      expect_close(kernel.run(now, now_out)[0], expected_of(changed, now, DataType::kFLOAT), 2e-5);
    }
  }
}

TEST(Convolution, WeightsPackedElsewhereAreRepacked) {
  if (!test_device().is_host()) GTEST_SKIP() << "tiles of the kernel are read as they lie";
  const ConvolutionCase& c = convolution_cases()[0];
  const Convolution op(c.params);
  const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  const std::vector<TestOutput> outputs = {{c.y}};
  const Candidate candidate = candidates_of(op, inputs, outputs)[0];
  // oihw with blocks of 8 output channels: f32 is 3 in oneDNN's list of types.
  const Values& kernel = inputs[1].values;
  Values blocked{{4 * 16 * 9 * 8}, std::vector<double>(kernel.size())};
  for (int64_t o = 0; o < 32; ++o)
    for (int64_t i = 0; i < 16 * 9; ++i)
      blocked[(o / 8 * 16 * 9 + i) * 8 + o % 8] = kernel[o * 16 * 9 + i];
  PackedInput packed{1, to_bytes(blocked, {DataType::kFLOAT}),
                     "3:32,16,3,3:32,16,3,3:1152,72,24,8:8:0"};
  TestKernel loaded(op, candidate, inputs, outputs, std::span(&packed, 1));
  expect_close(loaded.run(inputs, outputs)[0], expected_of(c, inputs, DataType::kFLOAT), 2e-5);

  for (const char* wrong :
       {"", "3", "3:32,16,3,3:32,16,3,3:1152,72,24,8:8:4",
        "3:32,16,3,3:32,16,3,3:115200,72,24,8:8:0",
        "3:32,16,3,3:32,16,3,3:9223372036854775807,72,24,8:8:0", "3:32,16,3:32,16,3:144,9,3::",
        "99:32,16,3,3:32,16,3,3:144,9,3,1::", "3:32,16,3,3:32,16,3,3:1152,72,24,8:0:0"}) {
    packed.layout = wrong;
    EXPECT_THROW(TestKernel(op, candidate, inputs, outputs, std::span(&packed, 1)),
                 std::runtime_error)
        << wrong;
  }
}

TEST(Convolution, MappedWeightsAreUsedAsTheyAre) {
  if (!test_device().is_host()) GTEST_SKIP() << "tiles of the kernel are read as they lie";
  const ConvolutionCase& c = convolution_cases()[0];
  const Convolution op(c.params);
  const std::vector<TestInput> inputs = inputs_of(c, DataType::kFLOAT, true);
  const std::vector<TestOutput> outputs = {{c.y}};
  const Candidate candidate = candidates_of(op, inputs, outputs)[0];
  TestKernel built(op, candidate, inputs, outputs);
  const std::vector<PackedInput> packed = built.kernel().packed();
  TestKernel loaded(op, candidate, inputs, outputs, packed);
  ASSERT_EQ(loaded.kernel().packed().size(), 1u);
  EXPECT_EQ(loaded.kernel().packed()[0].data.data(), packed[0].data.data());
}

}  // namespace
}  // namespace opwright::testing
