#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "cpu/window_reference.h"
#include "operators/convolution.h"

namespace opwright::testing {
namespace {

struct DeconvolutionCase {
  std::string name;
  Shape x, kernel, y;
  ConvolutionParams params;
  Ints pre;  ///< the padding before, as resolved by hand
};

const std::vector<DeconvolutionCase>& deconvolution_cases() {
  static const std::vector<DeconvolutionCase> all = {
      {"Plain", {2, 16, 5, 6}, {16, 24, 3, 3}, {2, 24, 7, 8}, params_of({}, {}, {}, {}), {}},
      {"Upsampling",
       {1, 32, 7, 7},
       {32, 16, 2, 2},
       {1, 16, 14, 14},
       params_of({2, 2}, {}, {}, {}),
       {}},
      {"Padded",
       {1, 8, 6, 5},
       {8, 12, 4, 4},
       {1, 12, 12, 10},
       params_of({2, 2}, {}, {1, 1}, {1, 1}),
       {1, 1}},
      {"OutputPadding",
       {1, 8, 6, 5},
       {8, 12, 3, 3},
       {1, 12, 12, 10},
       params_of({2, 2}, {}, {1, 1}, {1, 1}, 1, {1, 1}),
       {1, 1}},
      {"Asymmetric",
       {1, 3, 5, 5},
       {3, 5, 3, 2},
       {1, 5, 9, 4},
       params_of({2, 1}, {}, {0, 2}, {2, 0}),
       {0, 2}},
      {"Dilated",
       {1, 8, 6, 6},
       {8, 8, 3, 3},
       {1, 8, 8, 10},
       params_of({}, {2, 3}, {1, 1}, {1, 1}),
       {1, 1}},
      {"Groups", {1, 12, 4, 4}, {12, 6, 3, 3}, {1, 18, 9, 9}, params_of({2, 2}, {}, {}, {}, 3), {}},
      {"Depthwise",
       {1, 16, 5, 5},
       {16, 1, 4, 4},
       {1, 16, 10, 10},
       params_of({2, 2}, {}, {1, 1}, {1, 1}, 16),
       {1, 1}},
      {"OneDimension", {2, 8, 9}, {8, 6, 4}, {2, 6, 18}, params_of({2}, {}, {1}, {1}), {1}},
      {"ManyChannels",
       {1, 512, 4, 4},
       {512, 24, 4, 4},
       {1, 24, 8, 8},
       params_of({2, 2}, {}, {1, 1}, {1, 1}),
       {1, 1}},
      {"ManyTaps", {1, 128, 6}, {128, 16, 64}, {1, 16, 224}, params_of({32}, {}, {}, {}), {}},
      {"ThreeDimensions",
       {1, 4, 3, 4, 5},
       {4, 8, 2, 2, 2},
       {1, 8, 6, 8, 10},
       params_of({2, 2, 2}, {}, {}, {}),
       {}},
      {"SameUpper",
       {1, 8, 5, 5},
       {8, 8, 3, 3},
       {1, 8, 10, 10},
       same_padding(PaddingMode::kSAME_UPPER, {2, 2}),
       {0, 0}},
      {"SameLower",
       {1, 8, 5, 5},
       {8, 8, 3, 3},
       {1, 8, 10, 10},
       same_padding(PaddingMode::kSAME_LOWER, {2, 2}),
       {1, 1}},
  };
  return all;
}

Values reference(const DeconvolutionCase& c, const Values& x, const Values& kernel,
                 const Values* bias) {
  Values y = reference_deconvolution(x, kernel, c.y, c.params.groups, c.params.stride,
                                     c.params.dilation, c.pre);
  if (!bias) return y;
  const int64_t size = c.y.numel(2, c.y.rank());
  for (int64_t i = 0; i < y.size(); ++i) y[i] += (*bias)[i / size % c.y[1]];
  return y;
}

/// How many products an output element sums, at most.
int64_t products_of(const DeconvolutionCase& c) {
  int64_t products = c.x[1] / c.params.groups;
  for (int i = 2; i < c.kernel.rank(); ++i) {
    const int64_t stride = c.params.stride.empty() ? 1 : c.params.stride[i - 2];
    products *= (c.kernel[i] + stride - 1) / stride;
  }
  return products;
}

/// The rounding error of so many products between -1 and 1 that are summed one by one in FP32. The
/// sum grows with the root of their number, and so does the error in units of its last place.
double rounding_of_sums(int64_t products) { return 0x1p-24 * static_cast<double>(products); }

class DeconvolutionCases : public ::testing::TestWithParam<int> {};

TEST_P(DeconvolutionCases, EveryCandidateAgreesWithTheLoops) {
  const DeconvolutionCase& c = deconvolution_cases()[GetParam()];
  const Deconvolution op(c.params);
  static Selection selection(7);
  for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
    for (const bool constant : {true, false}) {
      const std::vector<TestInput> inputs = {{random_values(c.x, 1), dtype},
                                             {random_values(c.kernel, 2), dtype, constant},
                                             {random_values({c.y[1]}, 3), dtype, constant}};
      const std::vector<TestOutput> outputs = {{c.y, dtype}};
      const auto candidates = candidates_of(op, inputs, outputs, {true, true});
      ASSERT_FALSE(candidates.empty());
      std::map<std::pair<DataType, DataType>, Values> references;  // by computed, multiplied
      for (const Candidate& candidate : candidates) {
        if (!selection.takes_next()) continue;
        SCOPED_TRACE(describe(candidate));
        const DataType computed = candidate.inputs[0].dtype;
        // A kernel that multiplies in FP32 keeps constant weights of FP32 as they are.
        const bool in_fp32 = candidate.tactic_name.find("in FP32") != std::string::npos;
        const DataType multiplied = constant && in_fp32 ? dtype : computed;
        Values& expected = references[{computed, multiplied}];
        if (expected.data.empty())
          expected =
              reference(c, rounded(inputs[0].values, computed),
                        rounded(rounded(inputs[1].values, constant ? dtype : computed), multiplied),
                        &inputs[2].values);
        const double tolerance = std::max(
            {tolerance_of(computed), tolerance_of(dtype), rounding_of_sums(products_of(c))});
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, tolerance);
        if (!test_device().is_host()) continue;
        const std::vector<PackedInput> packed = kernel.kernel().packed();
        ASSERT_EQ(packed.size(), constant ? 1u : 0u);
        TestKernel loaded(op, candidate, inputs, outputs, packed);
        expect_close(loaded.run(inputs, outputs)[0], expected, tolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeconvolutionCases,
                         ::testing::Range(0, static_cast<int>(deconvolution_cases().size())),
                         [](const auto& info) { return deconvolution_cases()[info.param].name; });

TEST(Deconvolution, WithoutBiasWithActivation) {
  DeconvolutionCase c = deconvolution_cases()[2];
  c.params.activation.type = static_cast<int32_t>(ActivationType::kTANH);
  const Deconvolution op(c.params);
  const std::vector<TestInput> inputs = {{random_values(c.x, 1)},
                                         {random_values(c.kernel, 2), DataType::kFLOAT, true}};
  const std::vector<TestOutput> outputs = {{c.y}};
  Values expected = reference(c, inputs[0].values, inputs[1].values, nullptr);
  for (double& value : expected.data) value = std::tanh(value);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    SCOPED_TRACE(describe(candidate));
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 1e-4);
  }
}

TEST_P(DeconvolutionCases, EveryCandidateHasAnEpilogue) {
  DeconvolutionCase c = deconvolution_cases()[GetParam()];
  c.params.has_residual = true;
  c.params.activation = {static_cast<int32_t>(ActivationType::kSCALED_TANH), 0.75f, 0.5f};
  const Deconvolution op(c.params);
  for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF}) {
    const std::vector<TestInput> inputs = {{random_values(c.x, 1), dtype},
                                           {random_values(c.kernel, 2), dtype, true},
                                           {random_values({c.y[1]}, 3), dtype, true},
                                           {random_values(c.y, 4), dtype}};
    const std::vector<TestOutput> outputs = {{c.y, dtype}};
    const auto candidates = candidates_of(op, inputs, outputs);
    ASSERT_FALSE(candidates.empty());
    Values expected = reference(c, rounded(inputs[0].values, dtype),
                                rounded(inputs[1].values, dtype), &inputs[2].values);
    for (int64_t i = 0; i < expected.size(); ++i)
      expected[i] = 0.75 * std::tanh(0.5 * (expected[i] + inputs[3].values[i]));
    for (const Candidate& candidate : candidates) {
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      expect_close(kernel.run(inputs, outputs)[0], expected, tolerance_of(dtype));
      // The result in the place of the residual.
      expect_close(kernel.run(inputs, outputs, 3)[0], expected, tolerance_of(dtype));
    }
  }
}

TEST(Deconvolution, ChangingShapes) {
  DeconvolutionCase c = deconvolution_cases()[1];
  const Deconvolution op(c.params);
  const std::vector<TestInput> inputs = {{random_values(c.x, 1)},
                                         {random_values(c.kernel, 2), DataType::kFLOAT, true}};
  const std::vector<TestOutput> outputs = {{c.y}};
  const Shape largest_in[] = {{2, 32, 15, 15}, c.kernel}, largest_out[] = {{2, 16, 30, 30}};
  const std::vector<Candidate> candidates = candidates_of(
      op, with_max(describe(inputs), largest_in), with_max(describe(outputs), largest_out));
  for (const Candidate& candidate : candidates) {
    SCOPED_TRACE(describe(candidate));
    TestKernel kernel(op, candidate, inputs, outputs, {}, largest_in, largest_out);
    for (const Shape& shape : {Shape{2, 32, 3, 4}, Shape{0, 32, 7, 7}, Shape{1, 32, 15, 2}}) {
      c.x = shape;
      c.y = {shape[0], 16, shape[2] * 2, shape[3] * 2};
      const std::vector<TestInput> now = {{random_values(c.x, 5)}, inputs[1]};
      const std::vector<TestOutput> now_out = {{c.y}};
      expect_close(kernel.run(now, now_out)[0],
                   reference(c, now[0].values, inputs[1].values, nullptr), 2e-5);
    }
  }
}

}  // namespace
}  // namespace opwright::testing
