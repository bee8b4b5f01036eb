#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "cpu/reduce_reference.h"
#include "cuda/profile_cases.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

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
    std::vector<TestAxis> kept;
    for (size_t i = 0; i < test.axes.size(); ++i)
      if (!(test.reduced >> i & 1)) kept.push_back(test.axes[i]);
    const std::vector<PortDesc> inputs = {port_of(test.axes, test.type)};
    const std::vector<PortDesc> outputs = {port_of(kept, test.type)};
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
  EXPECT_GE(rows.size(), 4u) << "not every size of a team was tested";
  EXPECT_GE(columns.size(), 3u);
}

}  // namespace
}  // namespace opwright::testing
