#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "operators/convolution.h"
#include "operators/infer.h"

namespace opwright::testing {
namespace {

/// What a tensor that broadcasts to the shape has for its element `i`.
double broadcast(const Values& values, const Shape& shape, int64_t i) {
  int64_t place = 0, stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t at = i % shape[axis];
    i /= shape[axis];
    const int own = axis - (shape.rank() - values.shape.rank());
    if (own < 0) continue;
    if (values.shape[own] != 1) place += at * stride;
    stride *= values.shape[own];
  }
  return values[place];
}

struct EpilogueCase {
  std::string name;
  Shape x, kernel;
  int64_t groups = 1;
  DataType type = DataType::kFLOAT;
  int64_t padding = 0;
  bool all_tactics = false;
};

/// The operands of every shape that a program may read: with all of the output's axes, as
/// channels-last tensors need, or without those that are 1.
std::vector<Shape> operands_of(const Shape& y, bool has_all_axes) {
  std::vector<Shape> shapes;
  for (int first = 0; first <= y.rank(); ++first) {
    // From the axis `first` on; 1 before it.
    Shape shape;
    for (int axis = 0; axis < y.rank(); ++axis)
      if (axis >= first)
        shape.push_back(y[axis]);
      else if (has_all_axes)
        shape.push_back(1);
    shapes.push_back(shape);
  }
  Shape channel;
  for (int axis = has_all_axes ? 0 : 1; axis < y.rank(); ++axis)
    channel.push_back(axis == 1 ? y[1] : 1);
  shapes.push_back(channel);
  return shapes;
}

/// Operands of all shapes at once. Every other one multiplies the sum, the rest are added. Each
/// candidate runs at aligned addresses and at others.
TEST(CudaEpilogue, OperandsOfEveryShape) {
  const EpilogueCase cases[] = {
      {"3x3", {2, 3, 7, 7}, {4, 3, 3, 3}},
      {"3x3, halves", {2, 8, 7, 7}, {16, 8, 3, 3}, 1, DataType::kHALF},
      {"1x1, halves", {2, 8, 4, 6}, {8, 8, 1, 1}, 1, DataType::kHALF},
      {"groups", {2, 32, 5, 3}, {48, 16, 3, 3}, 2, DataType::kHALF, 1},
      {"groups of eight", {2, 16, 5, 7}, {16, 8, 3, 3}, 2, DataType::kHALF, 1, true},
      {"a channel each", {2, 8, 5, 7}, {8, 1, 3, 3}, 8, DataType::kHALF, 1, true},
      {"a row", {2, 4, 13}, {5, 4, 2}},
      {"volumes", {1, 3, 4, 5, 6}, {4, 3, 2, 2, 2}, 1, DataType::kFLOAT, 1},
  };
  std::set<std::string> seen;
  for (const EpilogueCase& c : cases)
    for (const bool has_all_axes : {true, false}) {
      const int rank = c.x.rank();
      Shape y = {c.x[0], c.kernel[0]};
      for (int axis = 2; axis < rank; ++axis)
        y.push_back(c.x[axis] + 2 * c.padding - c.kernel[axis] + 1);
      const SymShape shape = sym_shape(y);
      const auto values = [&](const Shape& of, int seed) {
        return TestInput{rounded(random_values(of, seed), c.type), c.type};
      };
      std::vector<TestInput> inputs = {values(c.x, 1), values(c.kernel, 2), values({y[1]}, 3)};
      ConvolutionParams params;
      params.groups = c.groups;
      params.pre_padding = params.post_padding = Ints(static_cast<size_t>(rank - 2), c.padding);
      Values expected = reference_convolution(
          inputs[0].values, inputs[1].values, y, c.groups, Ints(static_cast<size_t>(rank - 2), 1),
          Ints(static_cast<size_t>(rank - 2), 1), params.pre_padding);
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] += inputs[2].values[i / y.numel(2, rank) % y[1]];
      ProgramWriter writer;
      int result = writer.input(0, DataType::kFLOAT);
      int number = 0;
      for (const Shape& operand : operands_of(y, has_all_axes)) {
        const int64_t place = fused_place(sym_shape(operand), shape, 1);
        ASSERT_GE(place, 0) << c.name << " " << operand;
        params.fused.places.push_back(place);
        inputs.push_back(values(operand, 10 + number));
        const bool multiplies = number++ % 2 == 1;
        result =
            writer.binary(multiplies ? ElementWiseOperation::kPROD : ElementWiseOperation::kSUM,
                          result, writer.input(number, DataType::kFLOAT));
        for (int64_t i = 0; i < expected.size(); ++i) {
          const double other = broadcast(inputs.back().values, y, i);
          expected[i] = multiplies ? expected[i] * other : expected[i] + other;
        }
      }
      const int results[] = {result};
      std::vector<int> used;
      params.fused.program = writer.finish(results, &used);
      params.fused.result = c.type;
      const Convolution op(params);
      const std::vector<TestOutput> outputs = {{y, c.type}};
      const bool is_float = c.type == DataType::kFLOAT;
      for (const Candidate& candidate :
           candidates_of(op, inputs, outputs, {.all_tactics = c.all_tactics})) {
        const bool is_last = candidate.outputs[0].format != TensorFormat::kLINEAR;
        const std::string unit = candidate.tactic_name.substr(0, candidate.tactic_name.find(' '));
        // One of each kind: tiles differ only in their numbers.
        if (!seen.insert(str(c.name, has_all_axes, is_last, unit)).second) continue;
        SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1})
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected,
                       is_float ? 1e-5 : 8 * tolerance_of(c.type));
        if (::testing::Test::HasFailure()) return;
      }
    }
  EXPECT_GE(seen.size(), at_least(20u)) << "not every kind of kernel was tested";
}

}  // namespace
}  // namespace opwright::testing
