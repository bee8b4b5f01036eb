#include <gtest/gtest.h>

#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

void check(const Values& x, DataType type, CumulativeParams params,
           double tolerance_of_floats = 1e-6) {
  SCOPED_TRACE(::testing::Message()
               << x.shape << " axis " << params.axis << " exclusive " << params.exclusive
               << " reverse " << params.reverse << " " << name(type));
  Values expected = x;
  const int axis = static_cast<int>(params.axis);
  const int64_t n = x.shape[axis], inner = x.shape.numel(axis + 1, x.shape.rank());
  for (int64_t line = 0; line < x.shape.numel(0, axis) * inner; ++line) {
    double sum = params.product ? 1 : 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at =
          line / inner * inner * n + line % inner + (params.reverse ? n - 1 - k : k) * inner;
      const double next = params.product ? sum * x[at] : sum + x[at];
      expected[at] = params.exclusive ? sum : next;
      sum = next;
    }
  }
  const Cumulative op(params);
  const std::vector<TestInput> inputs = {{x, type}};
  const std::vector<TestOutput> outputs = {{x.shape, type}};
  const double tolerance = type == DataType::kFLOAT  ? tolerance_of_floats
                           : type == DataType::kHALF ? 1e-3
                           : type == DataType::kBF16 ? 1e-2
                                                     : 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, tolerance);
}

/// Exact in all types, as are their sums.
Values integers(const Shape& shape, int seed) {
  Values x = random_values(shape, seed, -4, 5);
  for (double& v : x.data) v = std::trunc(v);
  return x;
}

TEST(Cumulative, EveryAxisTypeAndDirection) {
  Selection selection(11);
  for (const DataType type :
       {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32, DataType::kINT64})
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true})
        for (int axis = 0; axis < 3; ++axis)
          if (selection.takes_next())
            check(integers({3, 5, 19}, axis), type,
                  {CumulativeOperation::kSUM, exclusive, reverse, axis});
}

TEST(Cumulative, LinesAndRowsOfSeveralPieces) {
  for (const bool reverse : {false, true}) {
    check(random_values({2, 1700}, 1), DataType::kFLOAT,
          {CumulativeOperation::kSUM, false, reverse, 1});
    check(integers({2, 1700}, 2), DataType::kHALF, {CumulativeOperation::kSUM, true, reverse, 1});
    check(random_values({2, 3, 1111}, 3), DataType::kFLOAT,
          {CumulativeOperation::kSUM, true, reverse, 1});
  }
}

/// Nothing is lost along a line but what the last rounding loses.
TEST(Cumulative, LongLines) {
  constexpr double kRounding = 0x1p-23;
  const Values x = rounded(random_values({1, 30000}, 4, 0, 1), DataType::kFLOAT);
  for (const bool exclusive : {false, true})
    check(x, DataType::kFLOAT, {CumulativeOperation::kSUM, exclusive, false, 1}, kRounding);
  Values factors = rounded(random_values({1, 30000}, 5, 0.99, 1.01), DataType::kFLOAT);
  CumulativeParams product{CumulativeOperation::kSUM, false, true, 1};
  product.product = true;
  check(factors, DataType::kFLOAT, product, kRounding);
}

TEST(Cumulative, NothingAndOneElement) {
  check(random_values({2, 0, 3}, 1), DataType::kFLOAT,
        {CumulativeOperation::kSUM, false, false, 1});
  check(random_values({0, 4}, 1), DataType::kFLOAT, {CumulativeOperation::kSUM, false, false, 1});
  check(random_values({1}, 1), DataType::kFLOAT, {CumulativeOperation::kSUM, false, true, 0});
}

}  // namespace
}  // namespace opwright::testing
