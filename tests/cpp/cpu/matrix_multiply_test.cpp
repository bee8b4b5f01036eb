#include "operators/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

constexpr MatrixOperation kNone = MatrixOperation::kNONE;
constexpr MatrixOperation kTranspose = MatrixOperation::kTRANSPOSE;
constexpr MatrixOperation kVector = MatrixOperation::kVECTOR;

struct ProductCase {
  std::string name;
  Shape a, b, output;
  MatrixOperation op0 = kNone, op1 = kNone;
};

const std::vector<ProductCase>& product_cases() {
  static const std::vector<ProductCase> all = {
      {"Plain", {7, 33}, {33, 20}, {7, 20}},
      {"OneRow", {1, 64}, {64, 48}, {1, 48}},
      {"OneColumn", {9, 16}, {16, 1}, {9, 1}},
      {"TransposedA", {33, 7}, {33, 20}, {7, 20}, kTranspose, kNone},
      {"TransposedB", {7, 33}, {20, 33}, {7, 20}, kNone, kTranspose},
      {"TransposedBoth", {33, 7}, {20, 33}, {7, 20}, kTranspose, kTranspose},
      {"Stack", {3, 5, 8}, {3, 8, 6}, {3, 5, 6}},
      {"StackTransposed", {2, 3, 5, 8}, {2, 3, 6, 8}, {2, 3, 5, 6}, kNone, kTranspose},
      {"SharedB", {4, 5, 8}, {1, 8, 6}, {4, 5, 6}},
      {"SharedBOfLowerRank", {2, 4, 5, 8}, {8, 6}, {2, 4, 5, 6}},
      {"SharedBTransposedA", {4, 8, 5}, {1, 8, 6}, {4, 5, 6}, kTranspose, kNone},
      {"SharedA", {1, 5, 8}, {4, 8, 6}, {4, 5, 6}},
      {"BroadcastBoth", {3, 1, 5, 8}, {1, 4, 8, 6}, {3, 4, 5, 6}},
      {"BroadcastInner", {2, 1, 5, 8}, {2, 4, 8, 6}, {2, 4, 5, 6}},
      {"BroadcastMixed", {2, 3, 1, 5, 8}, {3, 4, 8, 6}, {2, 3, 4, 5, 6}},
      {"VectorMatrix", {33}, {33, 20}, {20}, kVector, kNone},
      {"MatrixVector", {7, 33}, {33}, {7}, kNone, kVector},
      {"VectorVector", {33}, {33}, {}, kVector, kVector},
      {"VectorsMatrices", {4, 8}, {4, 8, 6}, {4, 6}, kVector, kNone},
      {"MatricesVectors", {4, 5, 8}, {4, 8}, {4, 5}, kNone, kVector},
      {"VectorsSharedMatrix", {4, 8}, {1, 8, 6}, {4, 6}, kVector, kNone},
      {"VectorsVectors", {4, 8}, {4, 8}, {4}, kVector, kVector},
      {"NothingToSum", {4, 0}, {0, 6}, {4, 6}},
      {"NoRows", {0, 8}, {8, 6}, {0, 6}},
      {"NoStack", {0, 3, 8}, {0, 8, 6}, {0, 3, 6}},
  };
  return all;
}

/// The element of the product at an output position, straight from the definition.
Values reference_product(const ProductCase& c, const Values& a, const Values& b) {
  struct Side {
    int stack_rank;
    int64_t rows, columns, row_step, column_step;
  };
  const auto side = [](const Shape& s, MatrixOperation op, bool first) {
    const int r = s.rank();
    if (op == kVector)
      return first ? Side{r - 1, 1, s[r - 1], 0, 1} : Side{r - 1, s[r - 1], 1, 1, 0};
    if (op == kTranspose) return Side{r - 2, s[r - 1], s[r - 2], 1, s[r - 1]};
    return Side{r - 2, s[r - 2], s[r - 1], s[r - 1], 1};
  };
  const Side left = side(c.a, c.op0, true), right = side(c.b, c.op1, false);
  const int stack_rank = std::max(left.stack_rank, right.stack_rank);
  return make_values(c.output, [&](int64_t i) {
    const int64_t column = i % right.columns, row = i / right.columns % left.rows;
    int64_t rest = i / right.columns / left.rows, in_a = 0, in_b = 0, step_a = 1, step_b = 1;
    for (int axis = stack_rank - 1; axis >= 0; --axis) {
      const int own_a = axis - stack_rank + left.stack_rank;
      const int own_b = axis - stack_rank + right.stack_rank;
      const int64_t extent_a = own_a < 0 ? 1 : c.a[own_a], extent_b = own_b < 0 ? 1 : c.b[own_b];
      const int64_t extent = std::max(extent_a, extent_b), at = rest % extent;
      rest /= extent;
      in_a += (extent_a == 1 ? 0 : at) * step_a, step_a *= extent_a;
      in_b += (extent_b == 1 ? 0 : at) * step_b, step_b *= extent_b;
    }
    in_a = in_a * left.rows * left.columns + row * left.row_step;
    in_b = in_b * right.rows * right.columns + column * right.column_step;
    double sum = 0;
    for (int64_t k = 0; k < left.columns; ++k)
      sum += a[in_a + k * left.column_step] * b[in_b + k * right.row_step];
    return sum;
  });
}

class MatrixMultiplyCases : public ::testing::TestWithParam<int> {
 protected:
  const ProductCase& c() const { return product_cases()[GetParam()]; }
  MatrixMultiplyParams params() const {
    MatrixMultiplyParams params;
    params.op0 = c().op0, params.op1 = c().op1;
    return params;
  }
};

TEST_P(MatrixMultiplyCases, EveryTypeAgreesWithTheLoops) {
  const MatrixMultiply op(params());
  Selection selection(3);
  // Cases begin with different candidates: together they have all of them.
  for (int i = 0; i < GetParam() % 3; ++i) selection.takes_next();
  for (const bool constant : {false, true}) {
    for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
      const std::vector<TestInput> inputs = {{random_values(c().a, 1), dtype},
                                             {random_values(c().b, 2), dtype, constant}};
      const std::vector<TestOutput> outputs = {{c().output, dtype}};
      const auto candidates = candidates_of(op, inputs, outputs, {true, true});
      ASSERT_FALSE(candidates.empty());
      for (const Candidate& candidate : candidates) {
        if (!selection.takes_next()) continue;
        SCOPED_TRACE(describe(candidate));
        const DataType computed = candidate.inputs[0].dtype;
        const Values expected =
            reference_product(c(), rounded(rounded(inputs[0].values, dtype), computed),
                              rounded(rounded(inputs[1].values, dtype), computed));
        const double tolerance = std::max(tolerance_of(dtype), tolerance_of(computed));
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, tolerance);
        const std::vector<PackedInput> packed = kernel.kernel().packed();
        if (packed.empty()) continue;
        EXPECT_TRUE(constant);
        TestKernel loaded(op, candidate, inputs, outputs, packed);
        expect_close(loaded.run(inputs, outputs)[0], expected, tolerance);
      }
    }
  }
}

TEST_P(MatrixMultiplyCases, IntegersAreExact) {
  const MatrixMultiply op(params());
  for (const DataType dtype : {DataType::kINT32, DataType::kINT64}) {
    const auto integers = [](const Shape& shape, int seed) {
      Values values = random_values(shape, seed, -100, 100);
      for (double& value : values.data) value = std::round(value);
      return values;
    };
    const std::vector<TestInput> inputs = {{integers(c().a, 1), dtype},
                                           {integers(c().b, 2), dtype}};
    const std::vector<TestOutput> outputs = {{c().output, dtype}};
    const auto candidates = candidates_of(op, inputs, outputs);
    ASSERT_FALSE(candidates.empty());
    for (const Candidate& candidate : candidates)
      expect_close(run_kernel(op, candidate, inputs, outputs)[0],
                   reference_product(c(), inputs[0].values, inputs[1].values), 0);
  }
}

TEST_P(MatrixMultiplyCases, BiasAndActivation) {
  if (c().op0 == kVector && c().op1 == kVector) GTEST_SKIP() << "no axis for a bias";
  MatrixMultiplyParams with_bias = params();
  with_bias.has_bias = true;
  with_bias.activation = {static_cast<int32_t>(ActivationType::kRELU), 0, 0};
  const MatrixMultiply op(with_bias);
  const int64_t last = c().output[c().output.rank() - 1];
  for (const Shape& shape : {Shape{last}, Shape{1, last}, Shape{1}}) {
    for (const bool constant : {false, true}) {
      const std::vector<TestInput> inputs = {{random_values(c().a, 1)},
                                             {random_values(c().b, 2), DataType::kFLOAT, constant},
                                             {random_values(shape, 3), DataType::kFLOAT, constant}};
      const std::vector<TestOutput> outputs = {{c().output}};
      Values expected = reference_product(c(), inputs[0].values, inputs[1].values);
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(0.0, expected[i] + inputs[2].values[i % last % shape.numel()]);
      const auto candidates = candidates_of(op, inputs, outputs);
      ASSERT_FALSE(candidates.empty());
      for (const Candidate& candidate : candidates) {
        SCOPED_TRACE(describe(candidate));
        expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 2e-5);
      }
    }
  }
}

/// What is added to sums of nothing is added once, by every kernel for shapes that may have more.
TEST(MatrixMultiply, NothingAlongKButABias) {
  MatrixMultiplyParams params;
  params.has_bias = true;
  const MatrixMultiply op(params);
  Selection selection(13);
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const int64_t most : {0, 256})
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 512}, {5, 72}, {130, 200}}) {
        const auto port = [&](const Shape& least, const Shape& greatest) {
          PortDesc result;
          result.type.dtype = type;
          result.min = least, result.opt = result.max = greatest;
          return result;
        };
        const std::vector<PortDesc> ports = {port({m, 0}, {m, most}), port({0, n}, {most, n}),
                                             port({n}, {n})};
        const std::vector<PortDesc> results = {port({m, n}, {m, n})};
        const Values bias = rounded(random_values({n}, 3), type);
        const std::vector<TestInput> inputs = {
            {{{m, 0}, {}}, type}, {{{0, n}, {}}, type}, {bias, type}};
        const std::vector<TestOutput> outputs = {{{m, n}, type}};
        const Values expected = make_values({m, n}, [&, n = n](int64_t i) { return bias[i % n]; });
        for (const Candidate& candidate : candidates_of(op, ports, results)) {
          if (!selection.takes_next()) continue;
          SCOPED_TRACE(::testing::Message() << m << "x" << n << " " << describe(candidate));
          TestKernel kernel(op, candidate, ports, results);
          expect_close(kernel.run(inputs, outputs)[0], expected, 0);
        }
      }
}

INSTANTIATE_TEST_SUITE_P(All, MatrixMultiplyCases,
                         ::testing::Range(0, static_cast<int>(product_cases().size())),
                         [](const auto& info) { return product_cases()[info.param].name; });

TEST(MatrixMultiply, PacksASharedConstant) {
  if (!test_device().is_host()) GTEST_SKIP() << "tiles of b are read as they lie";
  for (const char* name : {"Plain", "TransposedB", "SharedB", "SharedBOfLowerRank"}) {
    const ProductCase& c =
        *std::find_if(product_cases().begin(), product_cases().end(),
                      [&](const ProductCase& each) { return each.name == name; });
    MatrixMultiplyParams params;
    params.op1 = c.op1;
    const MatrixMultiply op(params);
    const std::vector<TestInput> inputs = {{random_values(c.a, 1)},
                                           {random_values(c.b, 2), DataType::kFLOAT, true}};
    const std::vector<TestOutput> outputs = {{c.output}};
    TestKernel kernel(op, candidates_of(op, inputs, outputs)[0], inputs, outputs);
    EXPECT_EQ(kernel.kernel().packed().size(), 1u) << name;
  }
}

TEST(MatrixMultiply, ChangingShapesKeepThePackedWeights) {
  if (!test_device().is_host()) GTEST_SKIP() << "a kernel is compiled for its profile";
  const MatrixMultiply op;
  const Values b = random_values({40, 24}, 2);
  const std::vector<TestInput> inputs = {{random_values({1, 16, 40}, 1)},
                                         {b, DataType::kFLOAT, true}};
  const std::vector<TestOutput> outputs = {{{1, 16, 24}}};
  TestKernel kernel(op, candidates_of(op, inputs, outputs)[0], inputs, outputs);
  const Shape stacks[] = {{1, 1}, {2, 16}, {0, 5}, {3, 7}, {1, 128}, {1, 1}, {64, 1}};
  for (const Shape& stack : stacks) {
    const ProductCase c{"", {stack[0], stack[1], 40}, {40, 24}, {stack[0], stack[1], 24}};
    const std::vector<TestInput> now = {{random_values(c.a, 5)}, inputs[1]};
    const std::vector<TestOutput> now_out = {{c.output}};
    expect_close(kernel.run(now, now_out)[0], reference_product(c, now[0].values, b), 2e-5);
  }
}

}  // namespace
}  // namespace opwright::testing
