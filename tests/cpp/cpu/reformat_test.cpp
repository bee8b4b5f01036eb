#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/run_kernel.h"
#include "operators/movement.h"

namespace opwright::testing {
namespace {

constexpr TensorFormat kFormats[] = {
    TensorFormat::kLINEAR, TensorFormat::kHWC,   TensorFormat::kCHW2, TensorFormat::kCHW4,
    TensorFormat::kCHW16,  TensorFormat::kCHW32, TensorFormat::kHWC8, TensorFormat::kHWC16};

/// Runs every kernel of the reformat on whole buffers and compares every byte, the padding's as
/// well.
void check(const Shape& shape, const Shape& opt, PortType from, PortType to, const Values& values,
           const Values& expected, float scale = 0) {
  SCOPED_TRACE(::testing::Message() << name(from.dtype) << " " << name(from.format) << " -> "
                                    << name(to.dtype) << " " << name(to.format) << " " << shape);
  const Device& device = test_device();
  static Selection selection(23);
  static PairSelection pairs;
  if (from.format != to.format && !selection.takes_next()) return;
  const Reformat op;
  PortDesc input, output;
  input.type = from, output.type = to;
  input.scale = output.scale = scale;
  input.min = input.opt = input.max = opt;
  // Only on the host kernels work beyond the shapes that they are made for.
  for (int i = 0; i < opt.rank(); ++i)
    if (!device.is_host()) input.max[i] = std::max(opt[i], shape[i]);
  output.min = output.opt = opt, output.max = input.max;
  const std::vector<PortDesc> inputs = {input}, outputs = {output};
  const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs);
  ASSERT_TRUE(runs_each_once() || !candidates.empty());
  for (const Candidate& candidate : candidates) {
    ASSERT_EQ(candidate.inputs[0], from);
    ASSERT_EQ(candidate.outputs[0], to);
    if (!pairs.takes({candidate.tactic_name, name(from.format), name(to.format), name(from.dtype),
                      name(to.dtype)}))
      continue;
    TestKernel kernel(op, candidate, inputs, outputs);
    kernel.run(std::vector<TestInput>{{values, from.dtype}},
               std::vector<TestOutput>{{shape, to.dtype}});
    const Blob wanted = to_bytes(expected, to);
    ASSERT_EQ(kernel.written(0).size(), wanted.size());
    if (wanted.size() == 0) continue;
    EXPECT_EQ(std::memcmp(kernel.written(0).data(), wanted.data(), wanted.size()), 0);
  }
}

TEST(Reformat, BetweenAnyTwoFormats) {
  const DataType types[] = {DataType::kFLOAT, DataType::kHALF,  DataType::kINT8,
                            DataType::kINT32, DataType::kINT64, DataType::kBOOL};
  const Shape shapes[] = {{2, 5, 3, 7}, {1, 32, 9, 9}, {1, 3, 11}, {2, 17, 2, 3, 4}, {0, 4, 2, 2}};
  for (const Shape& shape : shapes) {
    for (const DataType type : types) {
      const Values values = make_values(
          shape, [&](int64_t i) { return type == DataType::kBOOL ? i % 3 == 0 : i % 119 + 1; });
      for (const TensorFormat from : kFormats)
        for (const TensorFormat to : kFormats)
          if (is_valid(from, shape.rank()) && is_valid(to, shape.rank()))
            check(shape, shape, {type, from}, {type, to}, values, values);
    }
  }
}

TEST(Reformat, BetweenFloatingTypes) {
  const DataType types[] = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16};
  const Shape shape = {2, 19, 5, 6};
  for (const DataType from : types) {
    const Values values = rounded(random_values(shape, 1), from);
    for (const DataType to : types)
      for (const TensorFormat from_format : kFormats)
        for (const TensorFormat to_format : kFormats)
          check(shape, shape, {from, from_format}, {to, to_format}, values, rounded(values, to));
  }
}

TEST(Reformat, FloatingToIntegerTruncatesAndSaturates) {
  const Shape shape = {1, 3, 2, 2};
  const double given[] = {0, 0.9, -0.9, 1.5, -1.5, 127.4, 128, 1e9, -128.9, -129, -1e9, 7};
  const double wanted[] = {0, 0, 0, 1, -1, 127, 127, 127, -128, -128, -128, 7};
  const Values values = make_values(shape, [&](int64_t i) { return given[i]; });
  const Values expected = make_values(shape, [&](int64_t i) { return wanted[i]; });
  for (const TensorFormat to : kFormats)
    check(shape, shape, {DataType::kFLOAT, TensorFormat::kLINEAR}, {DataType::kINT8, to}, values,
          expected);
}

TEST(Reformat, IntegersToFloating) {
  const Shape shape = {1, 5, 3, 3};
  const Values values = make_values(shape, [](int64_t i) { return i - 20; });
  for (const DataType from : {DataType::kINT8, DataType::kINT32, DataType::kINT64})
    for (const TensorFormat format : kFormats)
      check(shape, shape, {from, format}, {DataType::kFLOAT, TensorFormat::kHWC}, values, values);
}

TEST(Reformat, LowRanksAndScalars) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5}}) {
    const Values values = random_values(shape, 1, 0, 100);
    check(shape, shape, {DataType::kFLOAT}, {DataType::kFLOAT}, rounded(values, DataType::kFLOAT),
          values);
    check(shape, shape, {DataType::kFLOAT}, {DataType::kBF16}, values, values);
    check(shape, shape, {DataType::kINT64}, {DataType::kINT32}, values, values);
  }
}

TEST(Reformat, BeyondThePlannedShape) {
  const Shape opt = {1, 4, 2, 2}, shape = {3, 21, 8, 9};
  const Values values = make_values(shape, [](int64_t i) { return i % 100; });
  for (const TensorFormat to : kFormats) {
    check(shape, opt, {DataType::kFLOAT, TensorFormat::kHWC}, {DataType::kINT8, to}, values,
          values);
    check(shape, opt, {DataType::kFLOAT, TensorFormat::kHWC}, {DataType::kHALF, to}, values,
          values);
  }
}

}  // namespace
}  // namespace opwright::testing
