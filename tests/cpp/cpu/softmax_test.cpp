#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

Values reference_softmax(const Values& x, int axis, bool log) {
  const int64_t extent = x.shape[axis], inner = x.shape.numel(axis + 1, x.shape.rank());
  Values y = x;
  for (int64_t row = 0; extent > 0 && row < x.size() / extent; ++row) {
    double* const first = y.data.data() + row / inner * extent * inner + row % inner;
    double largest = -INFINITY, sum = 0;
    for (int64_t k = 0; k < extent; ++k) largest = std::max(largest, first[k * inner]);
    for (int64_t k = 0; k < extent; ++k) sum += std::exp(first[k * inner] - largest);
    for (int64_t k = 0; k < extent; ++k) {
      const double shifted = first[k * inner] - largest;
      first[k * inner] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    }
  }
  return y;
}

TEST(Softmax, EveryAxisTypeAndFormat) {
  Selection selection(13);
  for (const Shape& shape : {Shape{10}, Shape{3, 17}, Shape{2, 1, 9}, Shape{2, 5, 7, 6},
                             Shape{1, 33, 4, 3, 2}, Shape{2, 0, 3}, Shape{1, 12, 64, 64}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const bool log : {false, true}) {
        const Softmax op({int64_t{1} << axis, log});
        for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
          if (!selection.takes_next()) continue;
          const std::vector<TestInput> inputs = {{random_values(shape, 1, -8, 8), dtype}};
          const std::vector<TestOutput> outputs = {{shape, dtype}};
          const auto candidates = candidates_of(op, inputs, outputs, {true, true});
          ASSERT_FALSE(candidates.empty());
          for (const Candidate& candidate : candidates) {
            SCOPED_TRACE(::testing::Message() << describe(candidate) << " axis " << axis);
            const DataType computed = candidate.inputs[0].dtype;
            const Values x = rounded(rounded(inputs[0].values, dtype), computed);
            expect_close(run_kernel(op, candidate, inputs, outputs)[0],
                         reference_softmax(x, axis, log),
                         std::max(tolerance_of(dtype), tolerance_of(computed)));
          }
        }
      }
    }
  }
}

TEST(Softmax, LongRows) {
  for (const Shape& shape : {Shape{3, 1500}, Shape{1, 40000}, Shape{2, 3000, 1}}) {
    const Values x = rounded(random_values(shape, 2, -8, 8), DataType::kFLOAT);
    std::vector<double> sums(static_cast<size_t>(shape[0]));
    for (int64_t i = 0; i < x.size(); ++i) sums[i / shape[1]] += std::exp(x[i]);
    for (const bool log : {false, true}) {
      const Softmax op({2, log});
      const Values expected = make_values(shape, [&](int64_t i) {
        const double sum = sums[i / shape[1]];
        return log ? x[i] - std::log(sum) : std::exp(x[i]) / sum;
      });
      const std::vector<TestInput> inputs = {{x}};
      const std::vector<TestOutput> outputs = {{shape}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        SCOPED_TRACE(::testing::Message() << shape << " " << describe(candidate));
        // Relative: a probability is about 1 / 40000.
        const Values y = run_kernel(op, candidate, inputs, outputs)[0];
        for (int64_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], expected[i], 2e-5 * std::abs(expected[i])) << i;
      }
    }
  }
}

TEST(Softmax, LargeValuesDoNotOverflow) {
  const Softmax op({2, false});
  const Shape shape = {1, 3};
  const std::vector<TestInput> inputs = {{{shape, {1e30, -1e30, 1e30}}}};
  const std::vector<TestOutput> outputs = {{shape}};
  const Values expected{shape, {0.5, 0, 0.5}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 1e-6);
}

TEST(Softmax, RowsOfEveryLengthAroundAVector) {
  for (const bool log : {false, true}) {
    for (int64_t extent = 1; extent <= 40; ++extent) {
      const Shape shape = {3, extent};
      const Softmax op({2, log});
      const std::vector<TestInput> inputs = {{random_values(shape, 5, -30, 30)}};
      const std::vector<TestOutput> outputs = {{shape}};
      const Values x = rounded(inputs[0].values, DataType::kFLOAT);
      for (const Candidate& candidate : candidates_of(op, inputs, outputs))
        expect_close(run_kernel(op, candidate, inputs, outputs)[0], reference_softmax(x, 1, log),
                     2e-6);
    }
  }
}

/// Columns beside each other; no probability is above 1.
TEST(Softmax, ColumnsOfEveryNumberAroundAVector) {
  Selection selection(5);
  for (const int64_t columns : {1, 7, 16, 63, 65, 130})
    for (const int64_t extent : {1, 65, 130})
      for (const bool log : {false, true})
        for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
          if ((!log && type != DataType::kFLOAT) || !selection.takes_next()) continue;
          const Shape shape = {2, extent, columns};
          const Softmax op({2, log});
          const Values x = rounded(random_values(shape, 5, -30, 30), type);
          const std::vector<TestInput> inputs = {{x, type}};
          const std::vector<TestOutput> outputs = {{shape, type}};
          const double tolerance = type == DataType::kFLOAT ? 4e-7 : tolerance_of(type);
          for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
            SCOPED_TRACE(::testing::Message() << shape << " " << describe(candidate));
            const Values y = run_kernel(op, candidate, inputs, outputs)[0];
            expect_close(y, reference_softmax(x, 1, log), tolerance);
            for (const double value : y.data) ASSERT_LE(value, log ? 0 : 1 + 1e-6);
          }
        }
}

TEST(Softmax, LongColumns) {
  const Shape shape = {1, 100000, 2};
  const Values x = rounded(random_values(shape, 3, 0, 1), DataType::kFLOAT);
  double sums[2] = {};
  for (int64_t i = 0; i < x.size(); ++i) sums[i % 2] += std::exp(x[i]);
  const Softmax op({2, false});
  const std::vector<TestInput> inputs = {{x}};
  const std::vector<TestOutput> outputs = {{shape}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    SCOPED_TRACE(describe(candidate));
    const Values y = run_kernel(op, candidate, inputs, outputs)[0];
    for (int64_t i = 0; i < y.size(); ++i) {
      const double expected = std::exp(x[i]) / sums[i % 2];
      ASSERT_NEAR(y[i], expected, 1e-6 * expected) << i;
    }
  }
}

TEST(Softmax, InfinitiesAndNaN) {
  // As NumPy's exp(x - max(x)) / sum: masked elements become 0, rows that have no sum NaN.
  const int64_t extent = 37;
  const Shape shape = {4, extent};
  Values x = random_values(shape, 6);
  for (int64_t i = 0; i < extent; ++i) {
    if (i % 3) x[i] = -INFINITY;
    x[extent + i] = -INFINITY;
  }
  x[2 * extent + 3] = NAN, x[4 * extent - 1] = INFINITY;
  for (const bool log : {false, true}) {
    const Softmax op({2, log});
    const std::vector<TestInput> inputs = {{x}};
    const std::vector<TestOutput> outputs = {{shape}};
    Values first{{1, extent}, {x.data.begin(), x.data.begin() + extent}};
    const Values masked = reference_softmax(rounded(first, DataType::kFLOAT), 1, log);
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      const Values y = run_kernel(op, candidate, inputs, outputs)[0];
      for (int64_t i = 0; i < extent; ++i) {
        if (i % 3)
          EXPECT_EQ(y[i], log ? -INFINITY : 0) << i;
        else
          EXPECT_NEAR(y[i], masked[i], 1e-5) << i;
      }
      for (int64_t i = extent; i < 3 * extent; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
      EXPECT_TRUE(std::isnan(y[4 * extent - 1]));
    }
  }
}

/// Of 16 bits results are rounded once, but for what FP32 leaves on the other side of a middle, and
/// one NaN makes the row.
TEST(Softmax, NarrowTypesAreRoundedOnce) {
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const Shape& shape : {Shape{5, 257, 1}, Shape{2, 33, 70}, Shape{1, 5003, 1}}) {
      Values x = rounded(random_values(shape, 9, -4, 4), type);
      const Softmax op({2, false});
      const std::vector<TestOutput> outputs = {{shape, type}};
      const Values exact = reference_softmax(x, 1, false), nearest = rounded(exact, type);
      const std::vector<TestInput> inputs = {{x, type}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (candidate.inputs[0].dtype != type) continue;
        SCOPED_TRACE(::testing::Message() << shape << " " << describe(candidate));
        const Values y = run_kernel(op, candidate, inputs, outputs)[0];
        int64_t others = 0;
        for (int64_t i = 0; i < y.size(); ++i) others += y[i] != nearest[i];
        EXPECT_LE(others, y.size() / 200);
        expect_close(y, nearest, tolerance_of(type));
        std::vector<TestInput> with_nan = inputs;
        with_nan[0].values[3 * shape[2]] = NAN;
        const Values z = run_kernel(op, candidate, with_nan, outputs)[0];
        for (int64_t i = 0; i < shape[1]; ++i) ASSERT_TRUE(std::isnan(z[i * shape[2]])) << i;
      }
    }
}

TEST(Softmax, ChangingShapes) {
  const Softmax op({2, false});
  const std::vector<TestInput> inputs = {{random_values({2, 5, 7, 6}, 1)}};
  std::vector<PortDesc> ports = describe(inputs);
  ports[0].min = {0, 1, 1, 1};
  ports[0].max = {3, 40, 20, 10};
  for (const Candidate& candidate : candidates_of(op, ports, ports)) {
    TestKernel kernel(op, candidate, ports, ports);
    for (const Shape& shape : {Shape{1, 9, 2, 2}, Shape{0, 5, 7, 6}, Shape{3, 40, 20, 10}}) {
      const std::vector<TestInput> now = {{random_values(shape, 4)}};
      const std::vector<TestOutput> now_out = {{shape}};
      expect_close(kernel.run(now, now_out)[0], reference_softmax(now[0].values, 1, false), 2e-5);
    }
  }
}

}  // namespace
}  // namespace opwright::testing
