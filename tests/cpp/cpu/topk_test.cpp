#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/run_kernel.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

void check(const Values& x, DataType type, TopKOperation operation, int axis, int64_t k,
           DataType index_type) {
  SCOPED_TRACE(::testing::Message()
               << x.shape << " axis " << axis << " k " << k << " " << name(type));
  Shape shape = x.shape;
  shape[axis] = k;
  const TopK op({operation, k, int64_t{1} << axis, index_type});
  const std::vector<TestInput> inputs = {{x, type}};
  const std::vector<TestOutput> outputs = {{shape, type}, {shape, index_type}};
  const int64_t n = x.shape[axis], inner = x.shape.numel(axis + 1, x.shape.rank());
  Values values{shape, std::vector<double>(static_cast<size_t>(shape.numel()))}, indices = values;
  for (int64_t row = 0; row < x.size() / n; ++row) {
    const int64_t base = row / inner * inner * n + row % inner;
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double u = x[base + a * inner], v = x[base + b * inner];
      if (operation == TopKOperation::kMAX)  // NaN is the greatest
        return std::isnan(u) ? !std::isnan(v) : u > v;
      return std::isnan(v) ? !std::isnan(u) : u < v;
    });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = row / inner * inner * k + row % inner + i * inner;
      values[to] = x[base + order[i] * inner];
      indices[to] = static_cast<double>(order[i]);
    }
  }
  static Selection selection(7);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    if (!selection.takes_next()) continue;
    SCOPED_TRACE(describe(candidate));
    const std::vector<Values> y = run_kernel(op, candidate, inputs, outputs);
    expect_close(y[0], values, 0);
    expect_close(y[1], indices, 0);
  }
}

TEST(TopK, EveryAxisTypeAndLength) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT8,
                              DataType::kUINT8, DataType::kINT32, DataType::kINT64})
    for (const TopKOperation op : {TopKOperation::kMAX, TopKOperation::kMIN})
      for (int axis = 0; axis < 3; ++axis) {
        // Few distinct values, so that the order of equal ones matters.
        Values x = random_values({6, 7, 9}, axis, type == DataType::kUINT8 ? 0 : -5, 6);
        for (double& v : x.data) v = std::trunc(v);
        for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{4}, x.shape[axis]})
          check(x, type, op, axis, k, k == 4 ? DataType::kINT64 : DataType::kINT32);
      }
}

// The best of long rows, which several blocks of a GPU share, in runs one after the other.
TEST(TopK, BestOfLongRows) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kINT64})
    for (const TopKOperation op : {TopKOperation::kMAX, TopKOperation::kMIN})
      for (const Shape& shape : {Shape{1, 9000}, Shape{11, 5003}, Shape{70, 2100}}) {
        Values x = random_values(shape, 5, -500, 500);
        for (double& v : x.data) v = std::trunc(v);
        check(x, type, op, 1, 1, DataType::kINT32);
      }
}

// Rows whose length vectors do not divide, with equal elements and what is no number.
TEST(TopK, RowsOfFloatsWithSpecialValues) {
  for (const int64_t length : {1, 15, 64, 67, 131, 1003})
    for (const int kind : {0, 1, 2, 3})
      for (const TopKOperation op : {TopKOperation::kMAX, TopKOperation::kMIN}) {
        SCOPED_TRACE(::testing::Message() << length << " kind " << kind);
        Values x = random_values({5, length}, static_cast<int>(length), -20, 20);
        for (double& v : x.data) v = std::trunc(v);
        if (kind == 1)
          for (int64_t i = 0; i < x.size(); i += 7) x[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
        if (kind == 2)
          for (int64_t i = 3; i < x.size(); i += 29) x[i] = std::nan("");
        if (kind == 3)
          for (int64_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 0 ? -0.0 : 0.0;
        for (const int64_t k : {int64_t{1}, std::min<int64_t>(8, length), length})
          check(x, DataType::kFLOAT, op, 1, k, DataType::kINT64);
      }
}

// The first of rows that lie side by side, of whole vectors and a rest.
TEST(TopK, ColumnsOfFloatsWithSpecialValues) {
  for (const int64_t columns : {3, 16, 67})
    for (const int kind : {0, 1, 2, 3})
      for (const TopKOperation op : {TopKOperation::kMAX, TopKOperation::kMIN}) {
        SCOPED_TRACE(::testing::Message() << columns << " kind " << kind);
        Values x = random_values({2, 21, columns}, static_cast<int>(columns), -20, 20);
        for (double& v : x.data) v = std::trunc(v);
        for (int64_t i = 0; kind == 1 && i < x.size(); i += 7)
          x[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
        // Some columns begin with NaN, and one has nothing else.
        for (int64_t i = 0; kind == 2 && i < x.size(); ++i)
          if (i % 29 == 3 || i % columns == 1 || i < 2) x[i] = std::nan("");
        for (int64_t i = 0; kind == 3 && i < x.size(); ++i) x[i] = i % 3 == 0 ? -0.0 : 0.0;
        check(x, DataType::kFLOAT, op, 1, 1, DataType::kINT32);
      }
}

TEST(TopK, LongRows) {
  const Values x = rounded(random_values({3, 20000}, 1), DataType::kFLOAT);
  for (const int64_t k : {1, 5, 300, 20000})
    check(x, DataType::kFLOAT, TopKOperation::kMAX, 1, k, DataType::kINT32);
  const Values rising = make_values({20000}, [](int64_t i) { return static_cast<double>(i); });
  check(rising, DataType::kINT64, TopKOperation::kMAX, 0, 10, DataType::kINT64);
}

TEST(TopK, NanInfinityAndSignedZero) {
  const double nan = std::nan("");
  const Values x{Shape{9}, {0.0, nan, -HUGE_VAL, 3, -0.0, nan, HUGE_VAL, 0.0, -nan}};
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const TopKOperation op : {TopKOperation::kMAX, TopKOperation::kMIN})
      check(x, type, op, 0, 9, DataType::kINT32);
}

}  // namespace
}  // namespace opwright::testing
