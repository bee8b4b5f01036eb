#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/types.h"
#include "cpu/reduce_reference.h"
#include "cuda/profile_cases.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

/// Those that are not reduced.
std::vector<TestAxis> kept_of(const std::vector<TestAxis>& axes, int64_t reduced) {
  std::vector<TestAxis> kept;
  for (size_t i = 0; i < axes.size(); ++i)
    if (!(reduced >> i & 1)) kept.push_back(axes[i]);
  return kept;
}

TEST(CudaReduce, OpenExtentsInEveryKernel) {
  std::mt19937 random(5);
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  struct Case {
    std::vector<TestAxis> axes;
    int64_t reduced;
    DataType type;
    ReduceOperation op;
  };
  const TestAxis open = {0, 1 << 10}, small = {1, 6};
  const Case cases[] = {
      {{open, {6, 6}, open}, 4, DataType::kHALF, ReduceOperation::kAVG},  // rows
      {{open, {6, 6}, {16, 16}}, 4, DataType::kFLOAT, ReduceOperation::kSUM},
      {{open, {6, 6}, open, {8, 8}}, 13, DataType::kFLOAT, ReduceOperation::kMAX},  // of several
      {{open, {6, 6}, open}, 1, DataType::kFLOAT, ReduceOperation::kSUM},           // columns
      {{small, open, {3, 3}, small}, 6, DataType::kINT8, ReduceOperation::kMIN},
      {{small, open, {5, 5}}, 1, DataType::kFLOAT, ReduceOperation::kPROD},
      {{open, open}, 3, DataType::kBF16, ReduceOperation::kSUM},  // all
  };
  std::set<int64_t> rows, columns;
  for (const Case& test : cases) {
    const Reduce op({test.op, test.reduced, false});
    const std::vector<PortDesc> inputs = {port_of(test.axes, test.type)};
    const std::vector<PortDesc> outputs = {port_of(kept_of(test.axes, test.reduced), test.type)};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      (test.reduced >> (test.axes.size() - 1) & 1 ? rows : columns).insert(candidate.tactic);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (int run = 0; run < 4; ++run) {
        Shape shape;
        for (const TestAxis& axis : test.axes)
          shape.push_back(axis.min == axis.max ? axis.min
                                               : 1 + up_to(std::min<int64_t>(axis.max - 1, 60)));
        for (size_t i = 0; i < test.axes.size(); ++i)
          if (run == 3 && test.axes[i].min == 0 && test.type != DataType::kHALF) shape[i] = 0;
        const bool integer = test.type == DataType::kINT8;
        Values x = rounded(random_values(shape, run), test.type);
        if (integer) x = make_values(shape, [](int64_t i) { return i * 37 % 101 - 50; });
        Values expected = reduce(x, test.op, test.reduced, false);
        if (integer)
          for (double& v : expected.data) v = std::min(v, 127.0);  // of no elements
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << shape << " axes " << test.reduced << " "
                                            << describe(candidate) << " shift " << shift);
          const Values y =
              kernel.run(std::vector<TestInput>{{x, test.type}},
                         std::vector<TestOutput>{{expected.shape, test.type}}, -1, shift)[0];
          expect_close(y, expected, test.type == DataType::kFLOAT ? 2e-6 : tolerance_of(test.type));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(rows.size(), at_least(4u)) << "not every size of a team was tested";
  EXPECT_GE(columns.size(), at_least(3u));
}

/// The candidates that split outputs among blocks.
std::vector<Candidate> in_parts(const Operator& op, std::span<const PortDesc> inputs,
                                std::span<const PortDesc> outputs) {
  std::vector<Candidate> found;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    if (candidate.tactic_name.find("per part") != std::string::npos) found.push_back(candidate);
  return found;
}

TEST(CudaReduce, OutputsInPartsOfEveryLength) {
  struct Case {
    std::vector<TestAxis> axes;
    int64_t reduced;
    DataType type;
    ReduceOperation op;
    std::vector<Shape> shapes;
  };
  const TestAxis open = {0, 1 << 20}, few = {0, 40};
  const Case cases[] = {
      {{open}, 1, DataType::kFLOAT, ReduceOperation::kSUM, {{40000}, {8193}, {0}, {7}, {65536}}},
      {{open}, 1, DataType::kBF16, ReduceOperation::kAVG, {{40001}}},
      {{open}, 1, DataType::kINT64, ReduceOperation::kPROD, {{30000}}},
      {{few, open}, 2, DataType::kHALF, ReduceOperation::kMAX, {{9, 17001}, {0, 5}, {1, 33333}}},
      {{{3, 3}, open}, 2, DataType::kINT32, ReduceOperation::kSUM, {{3, 20000}}},
      {{open, {5, 5}, {77, 77}}, 5, DataType::kFLOAT, ReduceOperation::kMIN, {{300, 5, 77}}},
      {{open, {4, 4}, {8, 8}}, 5, DataType::kFLOAT, ReduceOperation::kSUM, {{2500, 4, 8}}},
      {{open, few}, 1, DataType::kFLOAT, ReduceOperation::kSUM, {{999, 40}, {0, 3}, {5000, 3}}},
      {{open, few}, 1, DataType::kINT8, ReduceOperation::kAVG, {{700, 33}}},
  };
  for (const Case& test : cases) {
    const Reduce op({test.op, test.reduced, false});
    const std::vector<PortDesc> inputs = {port_of(test.axes, test.type)};
    const std::vector<PortDesc> outputs = {port_of(kept_of(test.axes, test.reduced), test.type)};
    const std::vector<Candidate> candidates = in_parts(op, inputs, outputs);
    EXPECT_GE(candidates.size(), at_least(2u));
    const bool is_product = test.op == ReduceOperation::kPROD;
    for (const Candidate& candidate : candidates) {
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const Shape& shape : test.shapes) {
        SCOPED_TRACE(::testing::Message()
                     << shape << " axes " << test.reduced << " " << describe(candidate));
        Values x = rounded(random_values(shape, 1), test.type);
        if (!is_floating(test.type))
          x = make_values(shape, [&](int64_t i) {
            return is_product ? (i % 1000 == 7 ? -2 : 1) : static_cast<double>(i * 37 % 101 - 50);
          });
        const TestInput input = {x, test.type};
        Values expected = reduce(x, test.op, test.reduced, false);
        if (!is_floating(test.type))
          for (double& value : expected.data) value = std::trunc(value);
        const std::vector<TestOutput> output = {{expected.shape, test.type}};
        const double tolerance = is_floating(test.type) && test.type != DataType::kFLOAT
                                     ? tolerance_of(test.type)
                                     : 2e-6;
        // The next run finds the counter as the first one did; what it computes is the same.
        const Values y = kernel.run({&input, 1}, output)[0];
        expect_close(y, expected, tolerance);
        expect_close(kernel.run({&input, 1}, output)[0], y, 0);
        expect_close(kernel.run({&input, 1}, output, -1, 1)[0], expected, tolerance);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CudaReduce, FewOutputsFillTheDevice) {
  if (runs_all_tactics()) GTEST_SKIP() << "only what is worth timing";
  const auto names = [](const std::vector<TestAxis>& axes, int64_t reduced) {
    const Reduce op({ReduceOperation::kSUM, reduced, true});
    const std::vector<PortDesc> ports = {port_of(axes, DataType::kFLOAT)};
    return in_parts(op, ports, ports).size();
  };
  EXPECT_GT(names({{1 << 26, 1 << 26}}, 1), 0u);
  EXPECT_GT(names({{100, 100}, {1 << 16, 1 << 16}}, 2), 0u);
  EXPECT_GT(names({{1 << 20, 1 << 20}, {64, 64}}, 1), 0u);
  // There are enough outputs, or too few elements.
  EXPECT_EQ(names({{4096, 4096}, {4096, 4096}}, 2), 0u);
  EXPECT_EQ(names({{4096, 4096}, {4096, 4096}}, 1), 0u);
  EXPECT_EQ(names({{4096, 4096}}, 1), 0u);
}

}  // namespace
}  // namespace opwright::testing
