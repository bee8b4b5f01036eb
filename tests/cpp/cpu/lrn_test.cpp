#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/normalization.h"

namespace opwright::testing {
namespace {

Values reference_lrn(const Values& x, const LrnParams& params) {
  const int64_t channels = x.shape[1], spatial = x.shape.numel(2, x.shape.rank());
  const int64_t before = (params.window - 1) / 2, behind = params.window / 2;
  return make_values(x.shape, [&](int64_t i) {
    const int64_t c = i / spatial % channels;
    double sum = 0;
    for (int64_t k = std::max<int64_t>(c - before, 0); k <= std::min(c + behind, channels - 1); ++k)
      sum += x[i + (k - c) * spatial] * x[i + (k - c) * spatial];
    const double scale = params.k + params.alpha / static_cast<double>(params.window) * sum;
    return x[i] / std::pow(scale, params.beta);
  });
}

TEST(Lrn, EveryTypeAndFormat) {
  std::vector<LrnParams> all = {{}, {3, 0.9f, 0.5f, 2.0f}, {7, 2, 1, 1}};
  // What the CPU refuses, and windows whose squares are not kept.
  if (!test_device().is_host())
    all.insert(all.end(),
               {{4, 0.9f, 0.6f, 2}, {1, 2, 0.75f, 1}, {19, 0.5f, 0.3f, 1}, {1000, 9, 1, 2}});
  static Selection selection(4);
  for (const LrnParams& params : all) {
    const Lrn op(params);
    for (const Shape& shape : {Shape{2, 16, 5, 7}, Shape{1, 21, 6, 6}, Shape{2, 5, 9},
                               Shape{1, 16, 3, 4, 5}, Shape{0, 8, 2, 2}}) {
      for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
        const std::vector<TestInput> inputs = {{random_values(shape, 1, -4, 4), dtype}};
        const std::vector<TestOutput> outputs = {{shape, dtype}};
        const auto candidates = candidates_of(op, inputs, outputs, {true, true});
        ASSERT_TRUE(runs_each_once() || !candidates.empty());
        for (const Candidate& candidate : candidates) {
          if (!selection.takes_next()) continue;
          SCOPED_TRACE(::testing::Message() << describe(candidate) << " " << shape);
          const DataType computed = candidate.inputs[0].dtype;
          const Values x = rounded(rounded(inputs[0].values, dtype), computed);
          expect_close(run_kernel(op, candidate, inputs, outputs)[0], reference_lrn(x, params),
                       std::max(tolerance_of(dtype), tolerance_of(computed)));
        }
      }
    }
  }
}

TEST(Lrn, EvenWindowsAreRefused) {
  if (!test_device().is_host()) GTEST_SKIP() << "GPUs have them";
  const Lrn op({4, 1e-4f, 0.75f, 1});
  const std::vector<TestInput> inputs = {{random_values({1, 8, 2, 2}, 1)}};
  const std::vector<TestOutput> outputs = {{{1, 8, 2, 2}}};
  EXPECT_THROW(candidates_of(op, inputs, outputs), std::runtime_error);
}

}  // namespace
}  // namespace opwright::testing
