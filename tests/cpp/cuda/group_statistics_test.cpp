#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "cpu/run_kernel.h"
#include "operators/normalization.h"

namespace opwright::testing {
namespace {

struct StatisticsCase {
  std::string name;
  Shape x;
  int64_t groups;  ///< 0: all channels of an image are one group
  DataType type;
  double mean = 0;
  double of_first_channel = 0;  ///< added to the first channel of each image
};

/// Every candidate against sums in double precision: channels that fill vectors and others, parts
/// that the pixels divide and others, and addresses that vectors may have and others.
TEST(GroupStatistics, EveryCandidateAgreesWithDoublePrecision) {
  const StatisticsCase cases[] = {
      {"one part", {3, 8, 5, 7}, 4, DataType::kFLOAT},
      {"parts", {2, 32, 150, 161}, 8, DataType::kHALF},
      {"channels of no vector", {1, 9, 96, 95}, 3, DataType::kBF16},
      {"more channels than threads", {1, 520, 24, 20}, 26, DataType::kHALF},
      {"instances", {2, 20, 61, 64}, 20, DataType::kFLOAT},
      {"all channels", {2, 12, 64, 66}, 0, DataType::kFLOAT},
      {"sequences", {2, 6, 5000}, 2, DataType::kFLOAT},
      {"volumes", {1, 16, 9, 20, 30}, 4, DataType::kHALF},
      {"one group of many channels", {1, 512, 130}, 0, DataType::kHALF},
      {"vectors of several groups", {5, 24, 11, 13}, 8, DataType::kHALF},
      {"vectors of parts of groups", {3, 24, 16, 31}, 2, DataType::kBF16},
      {"sections of channels", {1, 64, 60, 70}, 64, DataType::kFLOAT},
      {"one group of an odd number of channels", {2, 521, 40}, 0, DataType::kBF16},
      {"many images", {40, 64, 200}, 8, DataType::kFLOAT},
      // Squares of FP32 would lose the variance, which is 1/3.
      {"far from zero", {1, 8, 64, 64}, 2, DataType::kFLOAT, 3000},
      {"a channel far from others", {2, 16, 50, 52}, 2, DataType::kFLOAT, 0, 3000},
  };
  for (const StatisticsCase& c : cases) {
    const int64_t images = c.x[0], channels = c.x[1], pixels = c.x.numel() / (images * channels);
    NormalizationParams params;
    params.axes = ((int64_t{1} << c.x.rank()) - 1) & (c.groups == 0 ? ~int64_t{1} : ~int64_t{3});
    params.num_groups = c.groups == 0 || c.groups == channels ? 1 : c.groups;
    params.epsilon = 1e-3F;
    Values x = random_values(c.x, 1);
    // One outlier, which is the first element.
    for (int64_t i = 0; i < x.shape.numel(); ++i)
      x[i] += c.mean + (i / pixels % channels == 0 ? c.of_first_channel : 0);
    x.data[0] = c.mean + 50;
    x = rounded(x, c.type);
    const Values scale = rounded(random_values({1, channels, 1, 1}, 2), c.type);
    Shape dims = c.x;
    for (int i = 2; i < dims.rank(); ++i) dims[i] = 1;
    Values of_scale = scale;
    of_scale.shape = dims, of_scale.shape[0] = 1;
    Values mean = make_values(dims, [](int64_t) { return 0; }), factor = mean;
    const int64_t of_group = channels / params.groups_of(channels);
    for (int64_t i = 0; i < images * channels; ++i) {
      const int64_t count = of_group * pixels, first = i / of_group * count;
      double sum = 0, squares = 0;
      for (int64_t e = 0; e < count; ++e) sum += x[first + e];
      mean[i] = sum / static_cast<double>(count);
      for (int64_t e = 0; e < count; ++e) squares += std::pow(x[first + e] - mean[i], 2);
      factor[i] =
          scale[i % channels] / std::sqrt(squares / static_cast<double>(count) + params.epsilon);
    }
    const GroupStatistics op(params);
    const std::vector<TestInput> inputs = {{x, c.type}, {of_scale, c.type, true}};
    const std::vector<TestOutput> outputs = {{dims}, {dims}};
    QueryOptions options;
    options.all_tactics = true;
    std::set<TensorFormat> formats;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
      SCOPED_TRACE(c.name + " " + describe(candidate));
      formats.insert(candidate.inputs[0].format);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1, 0}) {
        const std::vector<Values> results = kernel.run(inputs, outputs, -1, shift);
        expect_close(results[0], mean, 1e-5);
        expect_close(results[1], factor, 1e-4);
      }
    }
    EXPECT_TRUE(runs_each_once() || formats.size() == 2) << formats.size();
  }
}

TEST(GroupStatistics, EqualNumbersHaveNoVariance) {
  NormalizationParams params;
  params.axes = 14, params.epsilon = 0.25F;
  const Values x = make_values({1, 6, 45, 47}, [](int64_t) { return 30001; });
  const GroupStatistics op(params);
  const std::vector<TestInput> inputs = {{x}, absent()};
  const std::vector<TestOutput> outputs = {{{1, 6, 1, 1}}, {{1, 6, 1, 1}}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    const std::vector<Values> results = run_kernel(op, candidate, inputs, outputs);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(results[0][i], 30001);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(results[1][i], 2);
  }
}

TEST(GroupStatistics, TheScaleMayLackAndNaNSpreadsOverItsGroup) {
  NormalizationParams params;
  params.axes = 12, params.num_groups = 2, params.epsilon = 0.25F;
  Values x = make_values({1, 4, 3, 3}, [](int64_t i) { return i % 2 ? 1 : -1; });
  x[3] = std::nan("");
  const GroupStatistics op(params);
  const std::vector<TestInput> inputs = {{x}, absent()};
  const std::vector<TestOutput> outputs = {{{1, 4, 1, 1}}, {{1, 4, 1, 1}}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    const std::vector<Values> results = run_kernel(op, candidate, inputs, outputs);
    for (const int i : {0, 1}) {
      EXPECT_TRUE(std::isnan(results[i][0]) && std::isnan(results[i][1]));
      EXPECT_FALSE(std::isnan(results[i][2]) || std::isnan(results[i][3]));
    }
    EXPECT_NEAR(results[1][3], 1 / std::sqrt(1.25), 1e-6);
  }
}

}  // namespace
}  // namespace opwright::testing
