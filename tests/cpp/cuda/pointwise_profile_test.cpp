#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compile/program.h"
#include "cpu/pointwise_program.h"
#include "cuda/profile_cases.h"
#include "error_of.h"
#include "operators/pointwise.h"

namespace opwright::testing {
namespace {

/// The element of a tensor that is broadcast to `shape`, of the same rank, at element i.
double broadcast_element(const Values& tensor, const Shape& shape, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index += tensor.shape[axis] == 1 ? 0 : i % shape[axis] * stride;
    stride *= tensor.shape[axis];
    i /= shape[axis];
  }
  return tensor[index];
}

TEST(CudaPointwise, OpenExtentsMayRepeatOrNotInEveryKernel) {
  std::mt19937 random(3);
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  // max(x0 * x1, x2 - x3) + 0.5
  const Pointwise op =
      make({input(0), input(1), input(2), input(3), constant(0.5),
            binary(ElementWiseOperation::kPROD, 0, 1), binary(ElementWiseOperation::kSUB, 2, 3),
            binary(ElementWiseOperation::kMAX, 5, 6), binary(ElementWiseOperation::kSUM, 7, 4)},
           {8, 6});
  const DataType types[] = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kFLOAT};
  std::set<std::string> kernels;
  int empty_repeated = 0;  // runs in which an extent of 1 meets one of 0
  for (int round = 0; round < 6; ++round) {
    std::vector<TestAxis> axes = {{0, 1 << 20}};
    for (int i = 0; i < 3; ++i) {
      const int64_t fixed[] = {1, 3, 8, 16};
      const int64_t extent = fixed[up_to(3)];
      axes.push_back(up_to(2) == 0 ? TestAxis{1, 40} : TestAxis{extent, extent});
    }
    std::vector<std::vector<TestAxis>> inputs(4, axes);
    for (int i = 1; i < 4; ++i)
      for (TestAxis& axis : inputs[i])
        if (up_to(2) == 0) axis = {1, 1};
    // One input may be the smaller one whatever the others are.
    if (round % 2) inputs[1][0] = {1, 1 << 20};
    std::vector<PortDesc> ports;
    for (int i = 0; i < 4; ++i) ports.push_back(port_of(inputs[i], types[i]));
    const std::vector<PortDesc> results = {port_of(axes, DataType::kFLOAT),
                                           port_of(axes, DataType::kHALF)};

    for (const Candidate& candidate : candidates_of(op, ports, results)) {
      kernels.insert(candidate.tactic_name);
      TestKernel kernel(op, candidate, ports, results);
      for (int run = 0; run < 4; ++run) {
        Shape shape;
        for (const TestAxis& axis : axes)
          shape.push_back(axis.min == axis.max ? axis.min
                                               : 1 + up_to(std::min<int64_t>(axis.max - 1, 11)));
        if (run == 3) shape[0] = 0;
        std::vector<TestInput> given;
        for (int i = 0; i < 4; ++i) {
          Shape own;
          for (int axis = 0; axis < shape.rank(); ++axis) {
            const bool may_repeat = i > 0 && inputs[i][axis].min == 1 && run % 2 == 1;
            own.push_back(inputs[i][axis].max == 1 || (may_repeat && up_to(1) == 0) ? 1
                                                                                    : shape[axis]);
          }
          given.push_back(
              {rounded(random_values(own, round * 16 + run * 4 + i), types[i]), types[i]});
        }
        const std::vector<TestOutput> outputs = {{shape}, {shape, DataType::kHALF}};
        const auto value = [&](int i, int64_t at) {
          return broadcast_element(given[i].values, shape, at);
        };
        empty_repeated += shape[0] == 0 && given[1].values.shape[0] == 1;
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << "round " << round << " " << shape << " "
                                            << describe(candidate) << " shift " << shift);
          const std::vector<Values> y = kernel.run(given, outputs, -1, shift);
          expect_close(y[0],
                       make_values(shape,
                                   [&](int64_t i) {
                                     return std::max(value(0, i) * value(1, i),
                                                     value(2, i) - value(3, i)) +
                                            0.5;
                                   }),
                       1e-6);
          expect_close(
              y[1], make_values(shape, [&](int64_t i) { return value(2, i) - value(3, i); }), 1e-3);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(kernels.size(), at_least(4u)) << "not every kind of kernel was tested";
  EXPECT_GT(empty_repeated, 0);
}

/// Extents that profiles leave open are compared in each run: all that are not 1 are equal.
TEST(CudaPointwise, OpenExtentsAreEqualOrOne) {
  ProgramWriter writer;
  const int results[] = {
      writer.binary(ElementWiseOperation::kPROD,
                    writer.binary(ElementWiseOperation::kSUM, writer.input(0, DataType::kFLOAT),
                                  writer.input(1, DataType::kFLOAT)),
                    writer.input(2, DataType::kFLOAT))};
  std::vector<int> used;
  const Pointwise op(writer.finish(results, &used));
  const std::vector<TestAxis> axes = {{1, 1 << 20}, {4, 4}};
  const std::vector<PortDesc> ports(3, port_of(axes, DataType::kFLOAT));
  const std::vector<PortDesc> result = {port_of(axes, DataType::kFLOAT)};
  for (const Candidate& candidate : candidates_of(op, ports, result)) {
    TestKernel kernel(op, candidate, ports, result);
    const auto run = [&](const std::vector<int64_t>& extents) {
      std::vector<TestInput> given;
      for (const int64_t extent : extents)
        given.push_back({random_values({extent, 4}, static_cast<int>(given.size()))});
      const Shape shape = {std::ranges::max(extents), 4};
      const Values y = kernel.run(given, std::vector<TestOutput>{{shape}})[0];
      const auto value = [&](int i, int64_t at) {
        return broadcast_element(given[i].values, shape, at);
      };
      expect_close(
          y,
          make_values(shape, [&](int64_t i) { return (value(0, i) + value(1, i)) * value(2, i); }),
          1e-6);
    };
    for (const std::vector<int64_t>& extents :
         {std::vector<int64_t>{7, 7, 7}, {7, 1, 1}, {1, 7, 1}, {1, 7, 7}, {1, 1, 1}})
      run(extents);
    for (const std::vector<int64_t>& extents :
         {std::vector<int64_t>{7, 6, 7}, {1, 7, 6}, {6, 7, 1}, {2, 3, 4}})
      EXPECT_NE(error_of([&] { run(extents); }).find("does not fit the other inputs on axis 0"),
                std::string::npos)
          << describe(candidate);
  }
}

/// Rows whose length is no multiple of a vector, and those whose length is, in every tactic.
TEST(CudaPointwise, RowsOfEveryLength) {
  ProgramWriter writer;
  const int results[] = {writer.binary(ElementWiseOperation::kPROD,
                                       writer.input(0, DataType::kFLOAT),
                                       writer.input(1, DataType::kFLOAT))};
  std::vector<int> used;
  const Pointwise op(writer.finish(results, &used));
  std::set<int64_t> tactics;
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF})
    for (const int64_t length : {1, 7, 8, 66, 131}) {
      const Shape shape = {3, 5, length};
      const std::vector<TestInput> inputs = {{rounded(random_values(shape, 1), type), type},
                                             {rounded(random_values({5, 1}, 2), type), type}};
      const std::vector<TestOutput> outputs = {{shape, type}};
      const Values expected = make_values(
          shape, [&](int64_t i) { return inputs[0].values[i] * inputs[1].values[i / length % 5]; });
      for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
        tactics.insert(candidate.tactic);
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << length << " " << describe(candidate));
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
        }
      }
    }
  EXPECT_EQ(tactics.size(), 4u);
}

}  // namespace
}  // namespace opwright::testing
