#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "opwright/runtime.h"

namespace opwright::testing {
namespace {

Values product(const Values& a, const Values& b, int64_t stack, int64_t m, int64_t n, int64_t k) {
  return make_values({stack, m, n}, [&](int64_t i) {
    const int64_t column = i % n, row = i / n;  // of all of a
    double sum = 0;
    for (int64_t e = 0; e < k; ++e) sum += a[row * k + e] * b[(row / m * k + e) * n + column];
    return sum;
  });
}

/// Every tile, on shapes that are no multiple of it and on those that are, at addresses that
/// vectors may have and others.
TEST(CudaProduct, OpenExtentsInEveryTile) {
  const TestAxis stack = {1, 3}, open = {0, 512};
  const MatrixMultiply op;
  struct Sizes {
    int64_t stack, m, n, k;
  };
  const Sizes sizes[] = {{1, 37, 70, 45}, {2, 130, 40, 96}, {3, 5, 131, 7}, {1, 64, 64, 0}};
  std::set<int64_t> tactics;
  for (const DataType type :
       {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32}) {
    const std::vector<PortDesc> inputs = {port_of({stack, open, open}, type),
                                          port_of({stack, open, open}, type)};
    const std::vector<PortDesc> outputs = {port_of({stack, open, open}, type)};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      tactics.insert(candidate.tactic);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const auto& [count, m, n, k] : sizes) {
        Values a = random_values({count, m, k}, 1), b = random_values({count, k, n}, 2);
        if (type == DataType::kINT32)
          for (Values* values : {&a, &b})
            for (double& value : values->data) value = std::round(100 * value);
        a = rounded(a, type), b = rounded(b, type);
        const Values expected = product(a, b, count, m, n, k);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << count << " " << m << "x" << n << "x" << k << " "
                                            << describe(candidate) << " shift " << shift);
          const Values y =
              kernel.run(std::vector<TestInput>{{a, type}, {b, type}},
                         std::vector<TestOutput>{{expected.shape, type}}, -1, shift)[0];
          expect_close(y, expected,
                       type == DataType::kINT32 ? 0 : std::max(1e-5, tolerance_of(type)));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(tactics.size(), at_least(12u)) << "not every tile was tested";
}

/// Blocks that compute one tile after another, of more tiles than there are blocks.
TEST(CudaProduct, BlocksThatStay) {
  const int64_t m = 3200, n = 1504, k = 40;
  const DataType type = DataType::kHALF;
  const MatrixMultiply op;
  const Values a = rounded(random_values({1, m, k}, 1), type);
  const Values b = rounded(random_values({1, k, n}, 2), type);
  const Values expected = product(a, b, 1, m, n, k);
  const std::vector<TestInput> inputs = {{a, type}, {b, type}};
  const std::vector<TestOutput> outputs = {{expected.shape, type}};
  int tested = 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    if (!candidate.tactic_name.ends_with("persistent")) continue;
    SCOPED_TRACE(describe(candidate));
    TestKernel kernel(op, candidate, inputs, outputs);
    expect_close(kernel.run(inputs, outputs)[0], expected, tolerance_of(type));
    ++tested;
  }
  EXPECT_EQ(tested, 8);
}

/// Boxes that the copying unit brings, in every tile that has them: of both orders of the operands,
/// of stacks that a and b advance along and that one of them does not, beyond the ends of all axes,
/// and at addresses that tensor maps may not have.
TEST(CudaProduct, BoxesInEveryTile) {
  constexpr auto kPlain = MatrixOperation::kNONE, kTransposed = MatrixOperation::kTRANSPOSE;
  const int64_t m = 136, n = 200, k = 72;
  struct Case {
    DataType type;
    MatrixOperation order;
    int64_t stack_a, stack_b;
  };
  const Case cases[] = {{DataType::kHALF, kPlain, 2, 2},
                        {DataType::kHALF, kPlain, 2, 1},
                        {DataType::kHALF, kTransposed, 1, 1},
                        {DataType::kBF16, kTransposed, 2, 1}};
  std::set<int64_t> tactics;
  const long before = tensor_maps();
  for (const auto& [type, order, stack_a, stack_b] : cases) {
    MatrixMultiplyParams params;
    params.op0 = params.op1 = order;
    const MatrixMultiply op(params);
    Values a = rounded(random_values({stack_a, m, k}, 1), type);
    Values b = rounded(random_values({stack_b, k, n}, 2), type);
    const Values expected = make_values({stack_a, m, n}, [&, stack_b = stack_b](int64_t i) {
      const int64_t column = i % n, row = i / n, matrix = stack_b == 1 ? 0 : row / m;
      double sum = 0;
      for (int64_t e = 0; e < k; ++e) sum += a[row * k + e] * b[(matrix * k + e) * n + column];
      return sum;
    });
    const auto transposed = [](const Values& x) {
      const int64_t rows = x.shape[1], columns = x.shape[2];
      return make_values({x.shape[0], columns, rows}, [&](int64_t i) {
        const int64_t matrix = i / (rows * columns), at = i % (rows * columns);
        return x[(matrix * rows + at % rows) * columns + at / rows];
      });
    };
    if (order == kTransposed) a = transposed(a), b = transposed(b);
    const std::vector<TestInput> inputs = {{a, type}, {b, type}};
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!candidate.tactic_name.starts_with("warpgroup")) continue;
      tactics.insert(candidate.tactic);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << stack_a << " " << stack_b << " " << describe(candidate)
                                          << " shift " << shift);
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GE(tactics.size(), at_least(5u)) << "not every tile was tested";
  if (before >= 0 && !runs_each_once()) {
    EXPECT_GE(tensor_maps() - before, 2l * 4 * 5) << "tiles came otherwise";
  }
}

/// Results of 16 bits, which the copying unit stores where rows begin at multiples of 16 bytes:
/// with a bias, GELU or what lies as they do, over the edges of tiles.
TEST(CudaProduct, ResultsOf16Bits) {
  const int64_t m = 392, k = 72;
  std::set<int64_t> tactics;
  struct Case {
    DataType type;
    int64_t n;
    bool has_residual;
  };
  for (const auto& [type, n, has_residual] : {Case{DataType::kHALF, 200, false},
                                              {DataType::kHALF, 200, true},
                                              {DataType::kBF16, 200, true},
                                              {DataType::kHALF, 203, false}}) {
    MatrixMultiplyParams params;
    params.has_bias = true;
    const auto values = [&, type = type](const Shape& shape, int seed) {
      return TestInput{rounded(random_values(shape, seed), type), type, seed == 2};
    };
    std::vector<TestInput> inputs = {values({m, k}, 1), values({k, n}, 2), values({n}, 3)};
    if (has_residual) {
      ProgramWriter writer;
      const int result[] = {
          writer.binary(ElementWiseOperation::kSUM, writer.input(0, type), writer.input(1, type))};
      std::vector<int> used;
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {static_cast<int64_t>(FusedPlace::kElement)};
      params.fused.result = type;
      inputs.push_back(values({m, n}, 4));
    } else {
      params.activation.type = static_cast<int32_t>(ActivationType::kGELU_ERF);
    }
    const MatrixMultiply op(params);
    Values expected = product(inputs[0].values, inputs[1].values, 1, m, n, k);
    expected.shape = {m, n};
    for (int64_t i = 0; i < expected.size(); ++i) {
      double& y = expected[i];
      y += inputs[2].values[i % n];
      y = has_residual ? y + inputs[3].values[i] : 0.5 * y * std::erfc(-y / std::sqrt(2.0));
    }
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!candidate.tactic_name.starts_with("warpgroup")) continue;
      tactics.insert(candidate.tactic);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << n << (has_residual ? " residual " : " GELU ")
                                          << describe(candidate) << " shift " << shift);
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GE(tactics.size(), at_least(6u)) << "not every tile was tested";
}

/// Several blocks compute parts of a tile, again and again: each run leaves the counters of parts
/// as it found them.
TEST(CudaProduct, TilesInParts) {
  const int64_t m = 37, n = 300, k = 4 * 8 * 64;
  const MatrixMultiply op;
  std::set<int> parts_seen, cluster_parts_seen;
  for (const DataType type :
       {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32}) {
    Values a = random_values({1, m, k}, 1), b = random_values({1, k, n}, 2);
    if (type == DataType::kINT32)
      for (Values* values : {&a, &b})
        for (double& value : values->data) value = std::round(100 * value);
    a = rounded(a, type), b = rounded(b, type);
    const Values expected = product(a, b, 1, m, n, k);
    const std::vector<TestInput> inputs = {{a, type}, {b, type}};
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!candidate.tactic_name.ends_with(" parts")) continue;
      const size_t at = candidate.tactic_name.rfind(", in ");
      const bool is_cluster = candidate.tactic_name.starts_with("warpgroup");
      (is_cluster ? cluster_parts_seen : parts_seen)
          .insert(std::stoi(candidate.tactic_name.substr(at + 5)));
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      const Values y = kernel.run(inputs, outputs)[0];
      expect_close(y, expected, type == DataType::kINT32 ? 0 : std::max(3e-5, tolerance_of(type)));
      EXPECT_EQ(kernel.run(inputs, outputs)[0].data, y.data) << "the second run differs";
    }
  }
  if (runs_all_tactics()) return;  // not only what is worth timing
  EXPECT_EQ(parts_seen, (std::set<int>{2, 4, 8}));
  EXPECT_EQ(cluster_parts_seen, (std::set<int>{8}));
}

/// Few rows, read straight from memory: of b along k and across it, with a bias and an activation,
/// at addresses that vectors may have and others. BF16 differs only in its conversions.
TEST(CudaProduct, FewRows) {
  std::set<int64_t> tactics;
  PairSelection pairs;
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const bool transposed : {true, false})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 48, 256},
                                    {3, 70, 45},
                                    {8, 200, 1024},
                                    {11, 131, 40},
                                    {16, 64, 520},
                                    {5, 9, 3}}) {
        if (type == DataType::kBF16 && m != 3 && m != 16) continue;
        const Values a = rounded(random_values({1, m, k}, 1), type);
        const Values b = rounded(random_values({1, k, n}, 2), type);
        const Values bias = rounded(random_values({n}, 3), type);
        Values expected = product(a, b, 1, m, n, k);
        for (size_t i = 0; i < expected.data.size(); ++i)
          expected.data[i] = std::max(0.0, expected.data[i] + bias[static_cast<int64_t>(i) % n]);
        const Values given =
            transposed ? make_values({1, n, k},
                                     [&, n = n, k = k](int64_t i) { return b[i % k * n + i / k]; })
                       : b;
        MatrixMultiplyParams params;
        params.op1 = transposed ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
        params.has_bias = true,
        params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
        const MatrixMultiply op(params);
        // A constant is read before the kernels before are done.
        const bool is_constant = m % 2 == 1;
        const std::vector<TestInput> inputs = {{a, type}, {given, type, is_constant}, {bias, type}};
        const std::vector<TestOutput> outputs = {{expected.shape, type}};
        int found = 0;
        for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
          if (!candidate.tactic_name.starts_with("rows")) continue;
          tactics.insert(candidate.tactic), ++found;
          if (!pairs.takes({candidate.tactic_name, name(type), str(transposed), str(m)})) continue;
          TestKernel kernel(op, candidate, inputs, outputs);
          for (const int shift : {0, 1}) {
            SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " " << transposed
                                              << " " << describe(candidate) << " " << shift);
            expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected,
                         std::max(3e-5, tolerance_of(type)));
            if (::testing::Test::HasFailure()) return;
          }
        }
        EXPECT_GE(found, at_least(1)) << m << "x" << n << "x" << k;
      }
  EXPECT_GE(tactics.size(), at_least(10u)) << "not every tile was tested";
}

/// Constant columns that come ahead through shared memory, to blocks that have several tiles, more
/// of them than they have sums of at once, and a last one that is no whole tile; with what the
/// epilogue reads, at addresses that whole rows may be copied from and others.
TEST(CudaProduct, StreamedRows) {
  std::set<int64_t> tactics;
  for (const auto& [type, m, n, k] :
       {std::tuple<DataType, int64_t, int64_t, int64_t>{DataType::kHALF, 1, 4251, 2048},
        {DataType::kBF16, 8, 203, 4096},
        {DataType::kHALF, 3, 10573, 2048}}) {
    const bool is_large = n > 10000;
    const Values a = rounded(random_values({m, k}, 1), type);
    const Values b = rounded(random_values({n, k}, 2), type);
    const Values bias = rounded(random_values({n}, 3), type);
    const Values expected = make_values({m, n}, [&, n = n, k = k](int64_t i) {
      const double* const row = &a.data[static_cast<size_t>(i / n * k)];
      const double* const column = &b.data[static_cast<size_t>(i % n * k)];
      double sum = bias[i % n];
      for (int64_t e = 0; e < k; ++e) sum += row[e] * column[e];
      return std::max(0.0, sum);
    });
    MatrixMultiplyParams params;
    params.op1 = MatrixOperation::kTRANSPOSE;
    params.has_bias = true, params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
    const MatrixMultiply op(params);
    const std::vector<TestInput> inputs = {{a, type}, {b, type, true}, {bias, type}};
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    int found = 0;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      if (!candidate.tactic_name.starts_with("streamed")) continue;
      tactics.insert(candidate.tactic), ++found;
      if (is_large && !candidate.tactic_name.starts_with("streamed rows 8x8x256")) continue;
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message()
                     << m << "x" << n << "x" << k << " " << describe(candidate) << " " << shift);
        const Values y = kernel.run(inputs, outputs, -1, shift)[0];
        expect_close(y, expected, std::max(3e-5, tolerance_of(type)));
        EXPECT_EQ(y.data, kernel.run(inputs, outputs, -1, shift)[0].data);
        if (::testing::Test::HasFailure()) return;
        if (is_large) break;
      }
    }
    EXPECT_GE(found, at_least(1)) << m << "x" << n << "x" << k;
  }
  EXPECT_GE(tactics.size(), at_least(5u)) << "not every tile was tested";
  // Columns that another kernel may still write do not come before.
  const std::vector<TestInput> computed = {{random_values({1, 2048}, 1), DataType::kHALF},
                                           {random_values({16, 2048}, 2), DataType::kHALF}};
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  for (const Candidate& candidate : candidates_of(
           MatrixMultiply(params), computed, std::vector<TestOutput>{{{1, 16}, DataType::kHALF}}))
    EXPECT_FALSE(candidate.tactic_name.starts_with("streamed"));
}

/// Rows that are normalized before they are multiplied, two matrices whose sums meet in a program,
/// and both.
TEST(CudaProduct, RowProducts) {
  using Op = ElementWiseOperation;
  struct Case {
    DataType type;
    int64_t m, n, k;
    bool normalizes, is_paired, has_bias;
  };
  for (const auto& [type, m, n, k, normalizes, is_paired, has_bias] :
       {Case{DataType::kHALF, 1, 1029, 2048, true, false, true},
        Case{DataType::kBF16, 2, 521, 2048, false, true, false},
        Case{DataType::kHALF, 1, 8501, 1024, true, true, false},
        Case{DataType::kHALF, 2, 527, 2048, true, true, false},
        Case{DataType::kBF16, 1, 517, 4096, true, false, false}}) {
    const Values a = rounded(random_values({1, m, k}, 1), type);
    const auto weights = [&, n = n, k = k, type = type](int seed) {
      Values values = random_values({n, k}, seed);
      for (double& value : values.data) value /= std::sqrt(static_cast<double>(k));
      return rounded(values, type);
    };
    const Values b = weights(2), other = weights(3);
    const Values bias = rounded(random_values({n}, 4), type);
    const Values scale = rounded(random_values({1, 1, k}, 5), type);
    const Values behind = rounded(random_values({1, m, n}, 6), type);
    RowProductParams params;
    params.op1 = MatrixOperation::kTRANSPOSE;
    params.has_bias = has_bias, params.normalizes = normalizes, params.epsilon = 0.01f;
    std::vector<TestInput> inputs = {{a, type}, {b, type, true}};
    if (has_bias) inputs.push_back({bias, type, true});
    if (normalizes) inputs.push_back({scale, type, true});
    ProgramWriter writer;
    int result = writer.input(0, type);
    if (is_paired) {
      const int sigmoid = writer.activation(ActivationType::kSIGMOID, result, 0, 0);
      result = writer.binary(Op::kPROD, writer.binary(Op::kPROD, result, sigmoid),
                             writer.input(1, type));
      params.fused.places.push_back(static_cast<int64_t>(FusedPlace::kProduct));
      inputs.push_back({other, type, true});
    }
    result = writer.binary(Op::kSUM, result,
                           writer.input(static_cast<int>(params.fused.places.size()) + 1, type));
    params.fused.places.push_back(static_cast<int64_t>(FusedPlace::kElement));
    inputs.push_back({behind, type});
    const int results[] = {result};
    std::vector<int> used;
    params.fused.program = writer.finish(results, &used), params.fused.result = type;

    Values rows = a;
    for (int64_t row = 0; normalizes && row < m; ++row) {
      double squares = 0;
      for (int64_t e = 0; e < k; ++e) squares += a[row * k + e] * a[row * k + e];
      for (int64_t e = 0; e < k; ++e)
        rows[row * k + e] *= scale[e] / std::sqrt(squares / static_cast<double>(k) + 0.01);
    }
    const auto sum = [&, n = n, k = k](const Values& matrix, int64_t i) {
      double sum = 0;
      for (int64_t e = 0; e < k; ++e) sum += rows[i / n * k + e] * matrix[i % n * k + e];
      return sum;
    };
    const Values expected =
        make_values({1, m, n}, [&, n = n, is_paired = is_paired, has_bias = has_bias](int64_t i) {
          const double x = sum(b, i) + (has_bias ? bias[i % n] : 0);
          return behind[i] + (is_paired ? x / (1 + std::exp(-x)) * sum(other, i) : x);
        });
    const RowProduct op(params);
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    const auto candidates = candidates_of(op, inputs, outputs);
    ASSERT_TRUE(runs_each_once() || !candidates.empty());
    for (const Candidate& candidate : candidates) {
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << name(type) << " " << m << "x" << n << "x" << k << " "
                                          << describe(candidate) << " " << shift);
        // Normalized rows are rounded before they are multiplied.
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, 2 * tolerance_of(type));
        if (::testing::Test::HasFailure()) return;
      }
    }
    // Columns of computed matrices do not come before.
    inputs[1].constant = false;
    EXPECT_TRUE(candidates_of(op, inputs, outputs).empty());
  }
}

/// Streamed products are the best ones in a chain of kernels, whatever they take by themselves.
TEST(CudaProduct, LargeProductsOfARowHaveOneCandidate) {
  if (runs_all_tactics()) GTEST_SKIP() << "only what is worth timing";
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  const MatrixMultiply op(params);
  const auto count = [&](int64_t m, int64_t n) {
    const std::vector<TestInput> inputs = {
        {make_values({m, 2048}, [](int64_t) { return 0.0; }), DataType::kHALF},
        {make_values({n, 2048}, [](int64_t) { return 0.0; }), DataType::kHALF, true}};
    return candidates_of(op, inputs, std::vector<TestOutput>{{{m, n}, DataType::kHALF}}).size();
  };
  EXPECT_EQ(count(1, 1024), 1u);
  EXPECT_GT(count(1, 1000), 1u);
  EXPECT_GT(count(3, 1024), 1u);
}

/// More rows than a tile has, where the number of rows is open.
TEST(CudaProduct, FewRowsOfOpenExtent) {
  const int64_t n = 48, k = 64;
  MatrixMultiplyParams params;
  params.op1 = MatrixOperation::kTRANSPOSE;
  const MatrixMultiply op(params);
  const DataType type = DataType::kHALF;
  const std::vector<PortDesc> inputs = {port_of({{0, 40}, {k, k}}, type),
                                        port_of({{n, n}, {k, k}}, type)};
  const std::vector<PortDesc> outputs = {port_of({{0, 40}, {n, n}}, type)};
  const Values b = rounded(random_values({n, k}, 2), type);
  int found = 0;
  for (const auto& [tactic, name] : {std::pair(60, "rows 8x16x128, 4 warps, 1 stages"),
                                     std::pair(71, "rows 16x16x128, 4 warps, 1 stages")}) {
    Candidate candidate;
    candidate.inputs = {{type}, {type}}, candidate.outputs = {{type}};
    candidate.tactic = tactic, candidate.tactic_name = name;
    TestKernel kernel(op, candidate, inputs, outputs);
    for (const int64_t m : {1, 8, 9, 40}) {
      const Values a = rounded(random_values({m, k}, 1), type);
      const Values expected = make_values({m, n}, [&](int64_t at) {
        double sum = 0;
        for (int64_t e = 0; e < k; ++e) sum += a[at / n * k + e] * b[at % n * k + e];
        return sum;
      });
      SCOPED_TRACE(::testing::Message() << m << " rows, tactic " << candidate.tactic);
      expect_close(kernel.run(std::vector<TestInput>{{a, type}, {b, type}},
                              std::vector<TestOutput>{{{m, n}, type}}, -1, 0)[0],
                   expected, tolerance_of(type));
      ++found;
    }
  }
  EXPECT_EQ(found, 8);
}

Values as_tf32(Values values) {
  for (double& value : values.data) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value)) + 0x1000u;
    value = std::bit_cast<float>(bits & 0xffffe000u);
  }
  return values;
}

/// Tensor cores on FP32, whose first bits they take, and on INT8, exactly. Matrices as they are and
/// transposed.
TEST(CudaProduct, TensorCoresOfTf32AndBytes) {
  const int64_t sizes[][3] = {{37, 70, 45}, {64, 96, 128}, {130, 40, 96}};
  PairSelection pairs;
  for (const DataType type : {DataType::kFLOAT, DataType::kINT8})
    for (const auto& [m, n, k] : sizes)
      for (const bool transposed : {false, true}) {
        if (transposed && m == 64) continue;
        Values a = random_values({1, m, k}, 1), b = random_values({1, k, n}, 2);
        if (type == DataType::kINT8)
          for (Values* values : {&a, &b})
            for (double& value : values->data) value = std::round(127 * value);
        const bool is_tf32 = type == DataType::kFLOAT;
        const Values expected =
            is_tf32 ? product(as_tf32(a), as_tf32(b), 1, m, n, k) : product(a, b, 1, m, n, k);
        MatrixMultiplyParams params;
        if (transposed) {
          const Values a_rows = a, b_rows = b;
          a = make_values({1, k, m},
                          [&, m = m, k = k](int64_t i) { return a_rows[i % m * k + i / m]; });
          b = make_values({1, n, k},
                          [&, n = n, k = k](int64_t i) { return b_rows[i % k * n + i / k]; });
          params.op0 = params.op1 = MatrixOperation::kTRANSPOSE;
        }
        const MatrixMultiply op(params);
        const std::vector<TestInput> inputs = {{a, type}, {b, type}};
        const DataType result = is_tf32 ? type : DataType::kINT32;
        const std::vector<TestOutput> outputs = {{expected.shape, result}};
        const std::vector<PortDesc> in = describe(inputs), out = describe(outputs);
        CandidateQuery query;
        query.layer = "test", query.inputs = in, query.outputs = out, query.device = &test_device();
        const auto tensor_tactics = [&] {
          const std::vector<Candidate> all = op.candidates(query);
          return std::ranges::count_if(all, [](const Candidate& each) {
            return each.tactic_name.find("tensor") != std::string::npos;
          });
        };
        EXPECT_EQ(tensor_tactics() == 0, is_tf32);  // allowed by nobody
        query.tf32 = true;
        int found = 0;
        for (const Candidate& candidate : op.candidates(query)) {
          if (candidate.tactic_name.find("tensor") == std::string::npos) continue;
          ++found;
          EXPECT_EQ(candidate.tactic_name.starts_with("TF32 "), is_tf32);
          if (!pairs.takes({candidate.tactic_name, name(type), str(m), str(transposed)})) continue;
          SCOPED_TRACE(describe(candidate) + (transposed ? " transposed" : ""));
          TestKernel kernel(op, candidate, inputs, outputs);
          expect_close(kernel.run(inputs, outputs)[0], expected, is_tf32 ? 1e-5 : 0);
        }
        EXPECT_GE(found, at_least(4));
      }
}

/// What warpgroups multiply: FP32 without its last bits.
Values cut_to_tf32(Values values) {
  for (double& value : values.data)
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xffffe000u);
  return values;
}

/// Warpgroups on FP32 along k. TMA rounds to nearest, and reads rows of whole vectors. Threads copy
/// other rows as they are.
TEST(CudaProduct, WarpGroupsOfTf32) {
  if (test_device().architecture() != "sm_90") GTEST_SKIP() << "needs compute capability 9.0";
  const int64_t sizes[][3] = {{130, 70, 96}, {67, 129, 45}, {300, 260, 36}};
  for (const auto& [m, n, k] : sizes) {
    const Values a = random_values({1, m, k}, 1), b = random_values({1, k, n}, 2);
    const bool has_boxes = k % 4 == 0;
    const auto rounded_values = [&](const Values& of) {
      return has_boxes ? as_tf32(of) : cut_to_tf32(of);
    };
    const Values expected = product(rounded_values(a), rounded_values(b), 1, m, n, k);
    const Values columns =
        make_values({1, n, k}, [&, n = n, k = k](int64_t i) { return b[i % k * n + i / k]; });
    MatrixMultiplyParams params;
    const std::vector<TestOutput> outputs = {{expected.shape, DataType::kFLOAT}};
    const auto tactics = [&](const std::vector<TestInput>& inputs) {
      std::vector<Candidate> found =
          candidates_of(MatrixMultiply(params), inputs, outputs, {.tf32 = true});
      std::erase_if(found, [](const Candidate& each) {
        return !each.tactic_name.starts_with("TF32 warpgroup");
      });
      return found;
    };
    // Neighbours of b that lie across k are for other tiles.
    EXPECT_TRUE(tactics({{a, DataType::kFLOAT}, {b, DataType::kFLOAT}}).empty());
    params.op1 = MatrixOperation::kTRANSPOSE;
    const std::vector<TestInput> inputs = {{a, DataType::kFLOAT}, {columns, DataType::kFLOAT}};
    const std::vector<Candidate> found = tactics(inputs);
    EXPECT_GE(std::ssize(found), at_least(3));
    for (const Candidate& candidate : found) {
      SCOPED_TRACE(::testing::Message() << describe(candidate) << ", k " << k);
      TestKernel kernel(MatrixMultiply(params), candidate, inputs, outputs);
      expect_close(kernel.run(inputs, outputs)[0], expected, 1e-5);
    }
  }
}

/// What is to run on all GPUs from 8.0 on is neither of one architecture nor larger than the least
/// of their shared memories.
TEST(CudaProduct, KernelsForOtherGpus) {
  const MatrixMultiply op{MatrixMultiplyParams()};
  const std::vector<TestInput> inputs = {{random_values({512, 512}, 1), DataType::kHALF},
                                         {random_values({512, 512}, 2), DataType::kHALF}};
  const std::vector<TestOutput> outputs = {{{512, 512}, DataType::kHALF}};
  const std::vector<PortDesc> in = describe(inputs), out = describe(outputs);
  CandidateQuery query;
  query.layer = "test", query.inputs = in, query.outputs = out, query.device = &test_device();
  const auto has = [&](std::string_view text) {
    const std::vector<Candidate> all = op.candidates(query);
    EXPECT_FALSE(all.empty());
    return std::ranges::any_of(all, [&](const Candidate& each) {
      return each.tactic_name.find(text) != std::string::npos;
    });
  };
  if (query.device->architecture() == "sm_90") {
    EXPECT_TRUE(has("warpgroup"));
  }
  query.hardware_compatibility = HardwareCompatibilityLevel::kAMPERE_PLUS;
  EXPECT_FALSE(has("warpgroup"));
  EXPECT_TRUE(has("tensor"));
  // 3 stages of 64 elements of 128 rows and 256 columns take 144 KiB.
  EXPECT_FALSE(has("tensor 128x256x64"));
}

/// A program with an input of each kind: select(mask, max(sum, scalar), element * channel) +
/// repeated.
TEST(CudaProduct, FusedPrograms) {
  const int64_t stack = 2, m = 37, n = 72, k = 40;
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
    ProgramWriter writer;
    const int sum = writer.input(0, type), scalar = writer.input(1, type);
    const int element = writer.input(2, type), channel = writer.input(3, type);
    const int repeated = writer.input(4, type), mask = writer.input(5, DataType::kBOOL);
    using Op = ElementWiseOperation;
    const int chosen = writer.select(mask, writer.binary(Op::kMAX, sum, scalar),
                                     writer.binary(Op::kPROD, element, channel));
    const int result[] = {writer.binary(Op::kSUM, chosen, repeated)};
    std::vector<int> used;
    MatrixMultiplyParams params;
    params.has_bias = true;
    params.fused.program = writer.finish(result, &used);
    params.fused.places = {0, 2, 1, 3, 2};
    params.fused.result = type;
    const MatrixMultiply op(params);
    const auto floats = [&](const Shape& shape, int seed) {
      return TestInput{rounded(random_values(shape, seed), type), type};
    };
    Values bits = random_values({stack, m, n}, 9);
    for (double& bit : bits.data) bit = bit > 0;
    const std::vector<TestInput> inputs = {floats({stack, m, k}, 1), floats({stack, k, n}, 2),
                                           floats({n}, 3),           floats({1, 1}, 4),
                                           floats({stack, m, n}, 5), floats({n}, 6),
                                           floats({1, m, n}, 7),     {bits, DataType::kBOOL}};
    Values expected = product(inputs[0].values, inputs[1].values, stack, m, n, k);
    for (int64_t i = 0; i < expected.size(); ++i) {
      const double y = expected[i] + inputs[2].values[i % n];
      expected[i] = (bits[i] != 0 ? std::max(y, inputs[3].values[0])
                                  : inputs[4].values[i] * inputs[5].values[i % n]) +
                    inputs[6].values[i % (m * n)];
    }
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    const auto candidates = candidates_of(op, inputs, outputs);
    ASSERT_FALSE(candidates.empty());
    EXPECT_TRUE(op.may_overwrite(4, 8));
    EXPECT_FALSE(op.may_overwrite(6, 8) || op.may_overwrite(0, 8) || op.may_overwrite(3, 8));
    for (const Candidate& candidate : candidates) {
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      const double tolerance = std::max(1e-5, tolerance_of(type));
      expect_close(kernel.run(inputs, outputs)[0], expected, tolerance);
      expect_close(kernel.run(inputs, outputs, 4)[0], expected, tolerance);
      expect_close(kernel.run(inputs, outputs, -1, 1)[0], expected, tolerance);
    }
  }
}

/// Tiles that warpgroups take in turns, of linear convolutions, whose code has names of its own.
TEST(CudaProduct, LinearConvolutionsInTurns) {
  const Shape x = {3, 8, 5, 7}, y = {3, 16, 5, 7};
  for (const int64_t groups : {1, 2}) {
    ConvolutionParams params;
    params.groups = groups, params.pre_padding = params.post_padding = {1, 1};
    constexpr DataType kType = DataType::kHALF;
    const std::vector<TestInput> inputs = {
        {rounded(random_values(x, 1), kType), kType},
        {rounded(random_values({16, 8 / groups, 3, 3}, 2), kType), kType, true}};
    const Values expected = reference_convolution(inputs[0].values, inputs[1].values, y, groups,
                                                  {1, 1}, {1, 1}, {1, 1});
    const std::vector<TestOutput> outputs = {{y, kType}};
    const Convolution op(params);
    bool is_there = false;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
      if (candidate.tactic_name.find("in turns") == std::string::npos || is_there ||
          candidate.outputs[0].format != TensorFormat::kLINEAR)
        continue;
      is_there = true;
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      expect_close(kernel.run(inputs, outputs)[0], expected, 2 * tolerance_of(kType));
    }
    EXPECT_TRUE(is_there);
  }
}

}  // namespace
}  // namespace opwright::testing
