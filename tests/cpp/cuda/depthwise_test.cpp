#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"

namespace opwright::testing {
namespace {

struct DepthwiseCase {
  std::string name;
  Shape x, window;  ///< the window's extents
  Ints stride, dilation, pre, post;
};

Shape output_of(const DepthwiseCase& c) {
  Shape y = c.x;
  for (int i = 2; i < y.rank(); ++i) {
    const int at = i - 2;
    y[i] =
        (c.x[i] + c.pre[at] + c.post[at] - c.dilation[at] * (c.window[at] - 1) - 1) / c.stride[at] +
        1;
  }
  return y;
}

/// Every candidate, with a bias, a residual and an activation, against the loops: all numbers of
/// pixels a thread, whose last ones lie behind the row's end, lanes that divide the channels and
/// others, taps in the padding, and addresses that vectors may have and others.
TEST(CudaDepthwise, EveryCandidateAgreesWithTheLoops) {
  const DepthwiseCase cases[] = {
      {"3x3", {4, 64, 24, 23}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {"5x5, stride 2", {1, 72, 41, 39}, {5, 5}, {2, 2}, {1, 1}, {2, 2}, {2, 2}},
      {"5x5, dilated", {1, 200, 20, 21}, {5, 5}, {1, 1}, {2, 3}, {4, 6}, {4, 6}},
      {"7x2, uneven", {2, 24, 31, 30}, {7, 2}, {3, 1}, {1, 2}, {0, 2}, {5, 0}},
      {"rows", {2, 16, 1200}, {31}, {2}, {1}, {15}, {15}},
      {"taps far apart", {2, 16, 700}, {3}, {1}, {128}, {128}, {128}},
      {"pixels far apart", {1, 16, 5, 900}, {2, 3}, {1, 300}, {1, 2}, {0, 1}, {0, 1}},
      {"volumes", {1, 16, 9, 12, 19}, {3, 2, 3}, {1, 2, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}},
      {"large windows", {1, 8, 40, 40}, {25, 25}, {1, 1}, {1, 1}, {12, 12}, {12, 12}},
  };
  std::set<int64_t> tactics;
  for (const DepthwiseCase& c : cases)
    for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
      if (c.name == "large windows" && type != DataType::kHALF) continue;
      const int64_t channels = c.x[1];
      ConvolutionParams params;
      params.groups = channels;
      params.stride = c.stride, params.dilation = c.dilation;
      params.pre_padding = c.pre, params.post_padding = c.post;
      params.has_residual = true;
      params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
      const Convolution op(params);
      const auto values = [&](const Shape& shape, int seed) {
        return rounded(random_values(shape, seed), type);
      };
      Shape kernel = {channels, 1};
      for (const int64_t extent : c.window) kernel.push_back(extent);
      const Shape y = output_of(c);
      const std::vector<TestInput> inputs = {{values(c.x, 1), type},
                                             {values(kernel, 2), type, true},
                                             {values({channels}, 3), type, true},
                                             {values(y, 4), type}};
      Values expected = reference_convolution(inputs[0].values, inputs[1].values, y, channels,
                                              params.stride, params.dilation, params.pre_padding);
      const int64_t plane = y.numel(2, y.rank());
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(
            0.0, expected[i] + inputs[2].values[i / plane % channels] + inputs[3].values[i]);
      const std::vector<TestOutput> outputs = {{y, type}};
      bool is_there = false;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("depthwise")) continue;
        is_there = true;
        tactics.insert(candidate.tactic);
        TestKernel built(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << c.name << " " << describe(candidate) << " shift " << shift);
          expect_close(built.run(inputs, outputs, -1, shift)[0], expected, 4 * tolerance_of(type));
          if (::testing::Test::HasFailure()) return;
        }
      }
      EXPECT_TRUE(runs_each_once() || is_there) << c.name;
    }
  EXPECT_EQ(tactics.size(), 4u) << "a number of pixels is missing";
}

}  // namespace
}  // namespace opwright::testing
