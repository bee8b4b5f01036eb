#include "operators/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "cpu/reduce_reference.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

constexpr ReduceOperation kOperations[] = {ReduceOperation::kSUM, ReduceOperation::kPROD,
                                           ReduceOperation::kMAX, ReduceOperation::kMIN,
                                           ReduceOperation::kAVG};

void check(const Values& x, DataType type, const ReduceParams& params, double tolerance,
           QueryOptions options = {}) {
  const Reduce op(params);
  const Values expected = reduce(x, params.op, params.axes, params.keep_dims);
  const std::vector<TestInput> inputs = {{x, type}};
  const std::vector<TestOutput> outputs = {{expected.shape, type}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
    SCOPED_TRACE(::testing::Message() << x.shape << " op " << static_cast<int>(params.op)
                                      << " axes " << params.axes << " " << describe(candidate));
    const double wider =
        std::max(tolerance_of(candidate.inputs[0].dtype), tolerance_of(candidate.outputs[0].dtype));
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                 std::max(tolerance, wider));
  }
}

TEST(Reduce, EveryOperationAndSetOfAxes) {
  Selection selection(29);
  for (const Shape& shape : {Shape{3, 16, 5, 7}, Shape{2, 1, 70, 33}, Shape{1, 32, 4, 130}})
    for (const ReduceOperation op : kOperations)
      for (int64_t axes = 0; axes < 16; ++axes) {
        if (!selection.takes_next()) continue;
        for (const bool keep : {false, true}) {
          const bool product = op == ReduceOperation::kPROD;
          check(random_values(shape, 1, product ? 0.98 : -1, product ? 1.02 : 1), DataType::kFLOAT,
                {op, axes, keep}, product ? 1e-4 : 2e-6);
        }
      }
}

TEST(Reduce, LowerPrecisions) {
  const QueryOptions options{.fp16 = true, .bf16 = true};
  Selection selection(3);
  for (const int64_t axes : {1, 2, 8, 12, 15}) {
    if (!selection.takes_next()) continue;
    const Values x = random_values({3, 16, 5, 70}, 1);
    check(x, DataType::kFLOAT, {ReduceOperation::kAVG, axes, true}, 0, options);
    check(rounded(x, DataType::kHALF), DataType::kHALF, {ReduceOperation::kMAX, axes, false}, 0);
  }
}

TEST(Reduce, Integers) {
  Selection selection(7);
  for (const DataType type :
       {DataType::kINT8, DataType::kUINT8, DataType::kINT32, DataType::kINT64})
    for (const int64_t axes : {1, 2, 3, 4, 5, 7}) {
      if (!selection.takes_next()) continue;
      const Values x = make_values({3, 4, 70}, [](int64_t i) { return i * 7 % 11 == 0 ? 1 : 0; });
      check(x, type, {ReduceOperation::kSUM, axes, false}, 0);
      const Values y = make_values({3, 4, 70}, [](int64_t i) { return i * 7 % 101; });
      check(y, type, {ReduceOperation::kMAX, axes, false}, 0);
      check(y, type, {ReduceOperation::kMIN, axes, true}, 0);
    }
  const Values x{Shape{2, 3}, {100, 100, 100, -100, -100, -101}};
  const std::vector<TestOutput> outputs = {{{2}, DataType::kINT8}};
  const std::vector<TestInput> inputs = {{x, DataType::kINT8}};
  const auto run = [&](ReduceOperation op) {
    const Reduce reduce({op, 2, false});
    return run_kernel(reduce, candidates_of(reduce, inputs, outputs).at(0), inputs, outputs)[0];
  };
  expect_close(run(ReduceOperation::kSUM), {Shape{2}, {44, -45}}, 0);  // modulo 256
  expect_close(run(ReduceOperation::kPROD), {Shape{2}, {64, -80}}, 0);
  expect_close(run(ReduceOperation::kAVG), {Shape{2}, {100, -100}}, 0);
}

TEST(Reduce, TruthValues) {
  const Values x{Shape{3, 2}, {1, 1, 0, 1, 0, 0}};
  for (const ReduceOperation op : {ReduceOperation::kMAX, ReduceOperation::kMIN,
                                   ReduceOperation::kSUM, ReduceOperation::kPROD}) {
    const bool all = op == ReduceOperation::kMIN || op == ReduceOperation::kPROD;
    const std::vector<TestInput> inputs = {{x, DataType::kBOOL}};
    const std::vector<TestOutput> outputs = {{{3}, DataType::kBOOL}};
    const Reduce reduce({op, 2, false});
    expect_close(
        run_kernel(reduce, candidates_of(reduce, inputs, outputs).at(0), inputs, outputs)[0],
        {Shape{3}, {1, all ? 0.0 : 1.0, 0}}, 0);
  }
}

TEST(Reduce, LongSumsStayExactAndDoNotDependOnThreads) {
  // 0.1 in FP32 added two million times one by one would be off by thousands.
  const Values x = rounded(make_values({1 << 21}, [](int64_t i) { return 0.1 + 1e-3 * (i % 7); }),
                           DataType::kFLOAT);
  const double sum = reduce(x, ReduceOperation::kSUM, 1, false)[0];
  Values square = x;
  square.shape = {1 << 15, 64};
  for (const Values& in : {x, square}) {
    const std::vector<TestInput> inputs = {{in}};
    const Reduce op({ReduceOperation::kSUM, 1, false});
    const Values expected = reduce(in, ReduceOperation::kSUM, 1, false);
    const std::vector<TestOutput> outputs = {{expected.shape}};
    const Candidate candidate = candidates_of(op, inputs, outputs).at(0);
    const int threads = thread_count();
    set_thread_count(1);
    const Values one = run_kernel(op, candidate, inputs, outputs)[0];
    set_thread_count(3);
    const Values three = run_kernel(op, candidate, inputs, outputs)[0];
    set_thread_count(threads);
    expect_close(one, expected, 1e-6);
    expect_close(three, one, 0);
  }
  EXPECT_GT(sum, 2e5);
}

TEST(Reduce, NanAndInfinity) {
  const double nan = std::nan("");
  Values x = make_values({4, 100}, [](int64_t i) { return static_cast<double>(i); });
  x[37] = nan, x[199] = HUGE_VAL, x[200] = nan, x[399] = nan;
  for (const ReduceOperation op : {ReduceOperation::kMAX, ReduceOperation::kMIN})
    for (const int64_t axes : {1, 2, 3}) check(x, DataType::kFLOAT, {op, axes, false}, 0);
}

TEST(Reduce, EmptyAxesAndTensors) {
  const Values x{Shape{2, 0}, {}};
  const auto run = [&](ReduceOperation op, int64_t axes, const Shape& shape) {
    const std::vector<TestInput> inputs = {{x}};
    const std::vector<TestOutput> outputs = {{shape}};
    const Reduce reduce({op, axes, false});
    return run_kernel(reduce, candidates_of(reduce, inputs, outputs).at(0), inputs, outputs)[0];
  };
  expect_close(run(ReduceOperation::kSUM, 2, {2}), {Shape{2}, {0, 0}}, 0);
  expect_close(run(ReduceOperation::kPROD, 2, {2}), {Shape{2}, {1, 1}}, 0);
  expect_close(run(ReduceOperation::kMAX, 2, {2}), {Shape{2}, {-HUGE_VAL, -HUGE_VAL}}, 0);
  EXPECT_EQ(run(ReduceOperation::kSUM, 1, {0}).size(), 0);

  const std::vector<TestInput> bytes = {{x, DataType::kINT8}};
  const std::vector<TestOutput> outputs = {{{2}, DataType::kINT8}};
  const Reduce least({ReduceOperation::kMIN, 2, false});
  expect_close(run_kernel(least, candidates_of(least, bytes, outputs).at(0), bytes, outputs)[0],
               {Shape{2}, {127, 127}}, 0);
}

}  // namespace
}  // namespace opwright::testing
