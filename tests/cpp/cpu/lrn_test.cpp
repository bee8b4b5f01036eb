#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/normalization.h"

namespace opwright::testing {
namespace {

Values reference_lrn(const Values& x, const LrnParams& params) {
  const int64_t channels = x.shape[1], spatial = x.shape.numel(2, x.shape.rank());
  return make_values(x.shape, [&](int64_t i) {
    const int64_t c = i / spatial % channels, reach = params.window / 2;
    double sum = 0;
    for (int64_t k = std::max<int64_t>(c - reach, 0); k <= std::min(c + reach, channels - 1); ++k)
      sum += x[i + (k - c) * spatial] * x[i + (k - c) * spatial];
    const double scale = params.k + params.alpha / static_cast<double>(params.window) * sum;
    return x[i] / std::pow(scale, params.beta);
  });
}

TEST(Lrn, EveryTypeAndFormat) {
  for (const LrnParams& params :
       {LrnParams{}, LrnParams{3, 0.9f, 0.5f, 2.0f}, LrnParams{7, 2, 1, 1}}) {
    const Lrn op(params);
    for (const Shape& shape : {Shape{2, 16, 5, 7}, Shape{1, 21, 6, 6}, Shape{2, 5, 9},
                               Shape{1, 16, 3, 4, 5}, Shape{0, 8, 2, 2}}) {
      for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
        const std::vector<TestInput> inputs = {{random_values(shape, 1, -4, 4), dtype}};
        const std::vector<TestOutput> outputs = {{shape, dtype}};
        const auto candidates = candidates_of(op, inputs, outputs, {true, true});
        ASSERT_FALSE(candidates.empty());
        for (const Candidate& candidate : candidates) {
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
  const Lrn op({4, 1e-4f, 0.75f, 1});
  const std::vector<TestInput> inputs = {{random_values({1, 8, 2, 2}, 1)}};
  const std::vector<TestOutput> outputs = {{{1, 8, 2, 2}}};
  EXPECT_THROW(candidates_of(op, inputs, outputs), std::runtime_error);
}

}  // namespace
}  // namespace opwright::testing
