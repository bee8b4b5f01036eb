#include "operators/normalization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

Values reference(const Values& x, const Values* scale, const Values* bias,
                 const NormalizationParams& params) {
  const auto group_of = [&](int64_t i) {
    std::vector<int64_t> key(x.shape.rank());
    for (int axis = x.shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = i % x.shape[axis];
      i /= x.shape[axis];
      key[axis] = params.axes >> axis & 1 ? 0 : index;
      if (axis == 1 && params.num_groups > 1) key[axis] = index / (x.shape[1] / params.num_groups);
    }
    return key;
  };
  std::map<std::vector<int64_t>, std::vector<double>> groups;
  for (int64_t i = 0; i < x.size(); ++i) groups[group_of(i)].push_back(x[i]);
  std::map<std::vector<int64_t>, std::pair<double, double>> moments;
  for (const auto& [key, elements] : groups) {
    double mean = 0, variance = 0;
    if (!params.rms)
      for (const double v : elements) mean += v / elements.size();
    for (const double v : elements) variance += (v - mean) * (v - mean) / elements.size();
    moments[key] = {mean, 1 / std::sqrt(variance + params.epsilon)};
  }
  return make_values(x.shape, [&](int64_t i) {
    const auto [mean, factor] = moments[group_of(i)];
    const double y = (x[i] - mean) * factor;
    return y * (scale ? (*scale)[broadcast_index(scale->shape, x.shape, i)] : 1) +
           (bias ? (*bias)[broadcast_index(bias->shape, x.shape, i)] : 0);
  });
}

void check(const Shape& shape, const NormalizationParams& params, const Shape& affine,
           double offset = 0, QueryOptions options = {}) {
  Values x = random_values(shape, 1, offset - 2, offset + 2);
  x = rounded(x, DataType::kFLOAT);
  static PairSelection pairs;
  const Values scale = random_values(affine, 2), bias = random_values(affine, 3);
  for (int given = 0; given < 4; ++given) {
    const std::vector<TestInput> inputs = {
        {x}, given & 1 ? TestInput{scale} : absent(), given & 2 ? TestInput{bias} : absent()};
    const Values expected =
        reference(x, given & 1 ? &scale : nullptr, given & 2 ? &bias : nullptr, params);
    const std::vector<TestOutput> outputs = {{shape}};
    const Normalization op(params);
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
      if (!pairs.takes({candidate.tactic_name, name(candidate.inputs[0].dtype),
                        str(shape, " ", params.axes, params.rms ? " squares" : ""), str(affine),
                        str(given)}))
        continue;
      SCOPED_TRACE(::testing::Message()
                   << shape << " " << params.axes << " " << describe(candidate));
      expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                   candidate.inputs[0].dtype == DataType::kFLOAT
                       ? 1e-5 + 3e-7 * offset  // FP32 resolves the mean no better
                       : 2 * tolerance_of(candidate.inputs[0].dtype));
    }
  }
}

TEST(Normalization, Layer) {
  check({2, 5, 768}, {1e-5f, 4}, {768});
  check({2, 5, 7, 33}, {1e-5f, 12}, {7, 33});
  check({4, 1}, {1e-3f, 2}, {1});
  check({3, 5000}, {1e-5f, 2}, {5000});
  check({4, 3}, {1e-5f, 3}, {4, 3});
}
TEST(Normalization, Rms) {
  check({2, 5, 768}, {1e-5f, 4, 1, true}, {768}, 1);
  check({2, 6, 40}, {1e-5f, 2, 1, true}, {1, 6, 1}, 1);
}
TEST(Normalization, Instance) {
  check({2, 5, 7, 9}, {1e-5f, 12}, {1, 5, 1, 1});
  check({1, 300, 20}, {1e-5f, 4}, {1, 300, 1});
  check({2, 3, 3, 4, 5}, {1e-5f, 28}, {1, 3, 1, 1, 1});
}
TEST(Normalization, Group) {
  check({2, 12, 5, 7}, {1e-5f, 12, 3}, {1, 12, 1, 1});
  check({1, 64, 9, 9}, {1e-5f, 12, 32}, {1, 64, 1, 1});
  check({2, 32, 17}, {1e-5f, 4, 32}, {1, 32, 1});
}
TEST(Normalization, AnyAxesAndScales) {
  for (int64_t axes = 1; axes < 8; ++axes) {
    check({3, 20, 70}, {1e-5f, axes}, {1, 20, 1});
    check({3, 20, 70}, {1e-5f, axes}, {70});
    check({3, 20, 70}, {1e-5f, axes}, {3, 1, 70});
    check({3, 20, 70}, {1e-5f, axes}, {1});
  }
}
TEST(Normalization, DoesNotCancelFarFromZero) {
  // With E[x^2] - E[x]^2 in FP32 nothing of the variance would be left.
  const QueryOptions options = {.all_tactics = true};
  check({2, 4000}, {1e-5f, 2}, {4000}, 3000, options);
  check({2, 3, 60, 60}, {1e-5f, 12}, {1, 3, 1, 1}, 3000, options);
  check({2, 500, 6}, {1e-5f, 2}, {1}, 3000, options);
}
TEST(Normalization, LowerPrecisions) {
  check({2, 5, 768}, {1e-5f, 4}, {768}, 0, {.fp16 = true, .bf16 = true});
  check({2, 32, 9, 9}, {1e-5f, 12, 4}, {1, 32, 1, 1}, 0, {.fp16 = true, .bf16 = true});
}
TEST(Normalization, TensorsWithoutElements) { check({0, 4}, {1e-5f, 2}, {4}); }

}  // namespace
}  // namespace opwright::testing
