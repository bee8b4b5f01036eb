#include "cpu/movement_cases.h"

#include <gtest/gtest.h>

namespace opwright::testing {
namespace {

void check(const Operator& op, const std::vector<TestInput>& inputs, const TestOutput& output,
           const Values& expected) {
  const std::vector<TestOutput> outputs = {output};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    SCOPED_TRACE(describe(candidate));
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 0);
  }
}

TEST(Transpose, EveryPermutationAndElementSize) { transpositions(check); }

TEST(Transpose, LargeMatricesAndEmptyTensors) { large_transpositions(check); }

TEST(Reshape, CopiesTheElements) { reshapes(check); }

TEST(Slice, RandomSlicesInEveryMode) { random_slices(check); }

TEST(Slice, ReadsShapeTensorsAnewInEveryRun) {
  const Values x = numbered({10});
  const Slice op(SliceParams{});
  const auto inputs = [&](double start) {
    return std::vector<TestInput>{
        {x}, {{Shape{1}, {start}}, DataType::kINT32}, {{Shape{1}, {3}}, DataType::kINT32}};
  };
  const std::vector<TestOutput> outputs = {{{3}}};
  SliceParams params;
  params.stride = {1};
  TestKernel kernel(Slice(params), candidates_of(op, inputs(0), outputs).at(0), inputs(0), outputs);
  for (const double start : {0.0, 4.0, 7.0}) {
    const Values expected{Shape{3}, {x[start], x[start + 1], x[start + 2]}};
    expect_close(kernel.run(inputs(start), outputs)[0], expected, 0);
  }
  EXPECT_THROW(kernel.run(inputs(8), outputs), std::exception);
  EXPECT_THROW(kernel.run(inputs(-1), outputs), std::exception);
  const Values expected{Shape{3}, {x[2], x[3], x[4]}};
  expect_close(kernel.run(inputs(2), outputs)[0], expected, 0);
}

TEST(Slice, AxesAndPadding) { padding(check); }

TEST(Concatenation, EveryAxisFormatAndElementSize) { concatenations(check); }

TEST(Concatenation, PaddedChannelsOnlyAtTheEnd) {
  const std::vector<TestInput> inputs = {{numbered({1, 5, 2, 2})}, {numbered({1, 16, 2, 2})}};
  const std::vector<TestOutput> outputs = {{{1, 21, 2, 2}}};
  for (const Candidate& candidate : candidates_of(Concatenation({1}), inputs, outputs))
    EXPECT_NE(candidate.outputs[0].format, TensorFormat::kCHW16);
}

TEST(Gather, SlicesAlongEveryAxis) { gathered_slices(check); }

TEST(Gather, BatchesOfSlicesAndScalarIndices) { gathered_batches(check); }

TEST(Gather, SingleElements) { gathered_elements(check); }

TEST(Gather, Tuples) { gathered_tuples(check); }

TEST(Gather, EmptyTensorsGiveZeros) { gathers_of_nothing(check); }

}  // namespace
}  // namespace opwright::testing
