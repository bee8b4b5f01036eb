#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "base/types.h"
#include "cpu/pointwise_program.h"
#include "cpu/window_reference.h"
#include "error_of.h"
#include "operators/assertion.h"
#include "operators/bit_cast.h"
#include "operators/convolution.h"
#include "operators/dist_collective.h"
#include "operators/fused_attention.h"
#include "operators/indexing.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/type_rules.h"
#include "operators/window_reduction.h"

/// All candidates that can compute small and odd shapes, not only those that are worth timing
/// there, against loops in double precision. Since a GPU's compiler runs for each, of the types
/// that a kernel has there one gets all of its tactics and the others some, unless
/// OPWRIGHT_ALL_TACTICS is set.
namespace opwright::testing {
namespace {

class AllTactics : public ::testing::Test {
 protected:
  struct Count {
    int listed = 0, run = 0;
  };

  /// `every`: of how many candidates one runs.
  void check(const Operator& op, const std::vector<TestInput>& inputs,
             const std::vector<TestOutput>& outputs, const Values& expected, double tolerance,
             int every = 1, QueryOptions options = {}) {
    // tools/tactic_coverage.py runs each tactic of a GPU.
    every = test_device().is_host() || runs_all_tactics() ? 1 : 3 * every;
    options.all_tactics = true;
    const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs, options);
    ASSERT_TRUE(runs_each_once() || !candidates.empty());
    for (const Candidate& candidate : candidates) {
      Count& count = counts_[str(op.kind(), " ", name(candidate.inputs[0].dtype))];
      ++count.listed;
      if (number_++ % every != 0) continue;
      ++count.run;
      SCOPED_TRACE(::testing::Message()
                   << op.kind() << " " << inputs[0].values.shape << " " << describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1})
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance);
    }
  }

  void TearDown() override {
    for (const auto& [kernel, count] : counts_)
      std::printf("%s: %d of %d candidates\n", kernel.c_str(), count.run, count.listed);
  }

  /// Kernels of one tactic, which other tests run on a GPU as well, are compiled there only where
  /// all are asked for.
  static bool is_left_out() { return !test_device().is_host() && !runs_all_tactics(); }
  static TestInput input(const Shape& shape, int seed, DataType type, bool is_constant = false) {
    Values values = random_values(shape, seed);
    if (!is_floating(type) || is_quantized(type))
      for (double& value : values.data) value = std::round(5 * value);
    if (type == DataType::kUINT8)
      for (double& value : values.data) value = std::abs(value);
    return {rounded(values, type), type, is_constant};
  }
  static double tolerance(DataType type) {
    return is_floating(type) ? std::max(3e-5, 2 * tolerance_of(type)) : 0;
  }

 private:
  std::map<std::string, Count> counts_;
  int number_ = 0;
};

TEST_F(AllTactics, Products) {
  struct Case {
    DataType type;
    int64_t m, n, k;
    bool is_transposed;
    int every;
    bool tf32 = false;
  };
  const Case cases[] = {
      {DataType::kHALF, 67, 72, 136, true, 3},
      {DataType::kHALF, 37, 71, 45, false, 7},
      {DataType::kHALF, 3, 131, 2048, true, 9},
      {DataType::kBF16, 65, 129, 72, false, 11},
      {DataType::kFLOAT, 33, 65, 17, true, 3},
      {DataType::kFLOAT, 19, 130, 33, false, 7, true},
      {DataType::kFLOAT, 67, 72, 68, true, 9, true},
      {DataType::kINT8, 67, 130, 144, true, 9},
      {DataType::kINT32, 17, 33, 7, false, 4},
      {DataType::kFP8, 65, 67, 80, true, 9},
      {DataType::kHALF, 1, 1, 1, false, 17},
  };
  for (const Case& c : cases) {
    if (test_device().is_host() && c.type == DataType::kFP8) continue;  // of GPUs alone
    MatrixMultiplyParams params;
    params.op1 = c.is_transposed ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
    const TestInput a = input({c.m, c.k}, 1, c.type);
    const TestInput b =
        input(c.is_transposed ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2, c.type, c.is_transposed);
    const DataType result = c.type == DataType::kINT8  ? DataType::kINT32
                            : c.type == DataType::kFP8 ? DataType::kFLOAT
                                                       : c.type;
    const Values expected = make_values({c.m, c.n}, [&](int64_t i) {
      double sum = 0;
      for (int64_t e = 0; e < c.k; ++e)
        sum += a.values[i / c.n * c.k + e] *
               b.values[c.is_transposed ? i % c.n * c.k + e : e * c.n + i % c.n];
      return sum;
    });
    QueryOptions options;
    options.tf32 = c.tf32;
    check(MatrixMultiply(params), {a, b}, {{{c.m, c.n}, result}}, expected,
          c.tf32 ? 5e-3 : tolerance(result), c.every, options);
    if (HasFailure()) return;
  }
}

TEST_F(AllTactics, Convolutions) {
  struct Case {
    DataType type;
    Shape x, kernel;
    int64_t groups, stride, pre;
    int every;
    bool tf32 = false;
  };
  const Case cases[] = {
      {DataType::kHALF, {2, 16, 7, 5}, {24, 16, 3, 3}, 1, 1, 1, 23},
      {DataType::kHALF, {1, 40, 5, 7}, {72, 40, 1, 1}, 1, 1, 0, 23},
      {DataType::kHALF, {1, 3, 8, 12}, {17, 3, 4, 4}, 1, 4, 0, 29},
      {DataType::kHALF, {1, 3, 15, 13}, {32, 3, 3, 3}, 1, 2, 1, 29},
      {DataType::kHALF, {2, 8, 7, 11}, {8, 1, 3, 3}, 8, 1, 1, 13},
      {DataType::kHALF, {1, 6, 5, 5}, {9, 2, 3, 3}, 3, 1, 0, 23},
      {DataType::kFLOAT, {1, 5, 7, 7}, {13, 5, 3, 3}, 1, 1, 1, 5},
      {DataType::kFLOAT, {1, 4, 19}, {4, 1, 5}, 4, 1, 2, 4},
      {DataType::kFLOAT, {1, 8, 6, 7}, {12, 8, 3, 3}, 1, 1, 1, 41, true},
      {DataType::kFLOAT, {2, 32, 6, 7}, {40, 32, 3, 3}, 1, 2, 1, 29, true},
      {DataType::kFLOAT, {1, 3, 8, 12}, {17, 3, 4, 4}, 1, 4, 0, 43, true},
      {DataType::kBF16, {1, 1, 1, 1}, {1, 1, 1, 1}, 1, 1, 0, 37},
      {DataType::kINT8, {1, 3, 8, 12}, {17, 3, 4, 4}, 1, 4, 0, 47},
      {DataType::kFP8, {1, 16, 5, 9}, {16, 1, 3, 3}, 16, 1, 1, 3},
  };
  // Of narrow types, biases of the type and constants of FP32 take turns; bytes and FP8 have none.
  bool is_wide = false;
  for (const Case& c : cases) {
    if (test_device().is_host() && c.type == DataType::kFP8) continue;  // of GPUs alone
    is_wide = !is_wide;
    const int rank = c.x.rank();
    const auto spatial = [&](int64_t value) { return Ints(static_cast<size_t>(rank - 2), value); };
    ConvolutionParams params;
    params.groups = c.groups, params.stride = spatial(c.stride);
    params.pre_padding = params.post_padding = spatial(c.pre);
    Shape y = {c.x[0], c.kernel[0]};
    for (int axis = 2; axis < rank; ++axis)
      y.push_back((c.x[axis] + 2 * c.pre - c.kernel[axis]) / c.stride + 1);
    const DataType result = type_of_product(c.type);
    std::vector<TestInput> inputs = {input(c.x, 1, c.type), input(c.kernel, 2, c.type, true)};
    const bool has_bias = !is_quantized(c.type);
    if (has_bias) inputs.push_back(input({y[1]}, 3, is_wide ? DataType::kFLOAT : c.type, is_wide));
    Values expected = reference_convolution(inputs[0].values, inputs[1].values, y, c.groups,
                                            params.stride, spatial(1), params.pre_padding);
    for (int64_t i = 0; has_bias && i < expected.size(); ++i)
      expected[i] += inputs[2].values[i / y.numel(2, rank) % y[1]];
    QueryOptions options;
    options.tf32 = c.tf32;
    check(Convolution(params), inputs, {{y, result}}, expected, c.tf32 ? 3e-2 : tolerance(result),
          c.every, options);
    if (HasFailure()) return;
  }
}

TEST_F(AllTactics, Deconvolutions) {
  constexpr int64_t kIn = 8, kOut = 12, kHeight = 3, kWidth = 5, kStride = 2;
  // Windows that meet, which are computed by taps as well, and windows that overlap.
  for (const int64_t window : {2, 3})
    for (const DataType type : {DataType::kFLOAT, DataType::kHALF}) {
      const int64_t rows = (kHeight - 1) * kStride + window,
                    columns = (kWidth - 1) * kStride + window, taps = window * window;
      ConvolutionParams params;
      params.stride = {kStride, kStride}, params.pre_padding = params.post_padding = {0, 0};
      const TestInput x = input({1, kIn, kHeight, kWidth}, 1, type),
                      kernel = input({kIn, kOut, window, window}, 2, type, true),
                      bias = input({kOut}, 3, DataType::kFLOAT, true);
      Values expected = make_values({1, kOut, rows, columns},
                                    [&](int64_t i) { return bias.values[i / (rows * columns)]; });
      for (int64_t i = 0; i < x.values.size(); ++i)
        for (int64_t e = 0; e < kOut * taps; ++e) {
          const int64_t row = i / kWidth % kHeight * kStride + e / window % window,
                        column = i % kWidth * kStride + e % window,
                        to = (e / taps * rows + row) * columns + column;
          expected[to] += x.values[i] * kernel.values[i / (kHeight * kWidth) * kOut * taps + e];
        }
      QueryOptions options;
      options.tf32 = type == DataType::kFLOAT;
      const bool is_rounded = options.tf32 && !test_device().is_host();
      check(Deconvolution(params), {x, kernel, bias}, {{expected.shape, type}}, expected,
            is_rounded ? 3e-2 : tolerance(type), 41, options);
      if (HasFailure()) return;
    }
}

TEST_F(AllTactics, Collectives) {
  DistCollectiveParams sum;
  sum.reduce_op = ReduceOperation::kSUM;
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kINT8}) {
    const TestInput x = input({3, 5}, 1, type);
    check(DistCollective(sum), {x}, {{{3, 5}, type}}, x.values, 0);
  }
}

TEST_F(AllTactics, BitCasts) {
  const TestInput floats = input({3, 5}, 1, DataType::kFLOAT);
  const TestInput integers = {make_values({3, 5},
                                          [&](int64_t i) {
                                            const auto value = static_cast<float>(floats.values[i]);
                                            return std::bit_cast<int32_t>(value);
                                          }),
                              DataType::kINT32};
  check(BitCast({DataType::kINT32}), {floats}, {{{3, 5}, DataType::kINT32}}, integers.values, 0);
  check(BitCast({DataType::kFLOAT}), {integers}, {{{3, 5}, DataType::kFLOAT}}, floats.values, 0);
}

TEST_F(AllTactics, Assertions) {
  const Assertion op({"all hold"});
  const TestInput holds = {make_values({3}, [](int64_t) { return 1; }), DataType::kBOOL};
  const TestInput fails = {make_values({3}, [](int64_t i) { return i != 1; }), DataType::kBOOL};
  const std::vector<Candidate> candidates = candidates_of(op, std::vector{holds}, {});
  ASSERT_EQ(candidates.size(), 1U);
  TestKernel kernel(op, candidates[0], std::vector{holds}, {});
  EXPECT_TRUE(kernel.run(std::vector{holds}, {}).empty());
  EXPECT_EQ(error_of([&] { kernel.run(std::vector{fails}, {}); }),
            "Assertion 'test' failed: all hold");
  const TestInput empty = {make_values({0}, [](int64_t) { return 0; }), DataType::kBOOL};
  EXPECT_TRUE(kernel.run(std::vector{empty}, {}).empty());
}

TEST_F(AllTactics, MatricesAndIndices) {
  const DataType type = DataType::kFLOAT;
  const TestInput matrices = input({5, 2, 2}, 1, type);
  check(Determinant(), {matrices}, {{{5}, type}},
        make_values({5},
                    [&](int64_t i) {
                      const double* const m = &matrices.values.data[static_cast<size_t>(4 * i)];
                      return m[0] * m[3] - m[1] * m[2];
                    }),
        1e-5);
  const auto integers = [](const Shape& shape, const std::vector<double>& values, bool constant) {
    return TestInput{{shape, values}, DataType::kINT32, constant};
  };
  const TestInput indices = integers({3}, {2, -1, 7}, false), depth = integers({}, {5}, true);
  check(OneHot(OneHotParams()), {indices, {{{2}, {-1, 3}}, type}, depth}, {{{3, 5}, type}},
        make_values({3, 5}, [](int64_t i) { return i == 2 || i == 9 ? 3 : -1; }), 0);
}

TEST_F(AllTactics, WindowReductions) {
  constexpr int64_t kHeight = 5, kWidth = 7, kRows = 4, kColumns = 6;
  const DataType type = DataType::kFLOAT;
  const TestInput x = input({1, 2, kHeight, kWidth}, 1, type);
  PoolingParams pooling;
  pooling.window = {2, 2};
  const Shape y = {1, 2, kRows, kColumns};
  /// The place in x of the first of the output's window.
  const auto begin = [](int64_t i) {
    const int64_t plane = i / (kRows * kColumns), at = i % (kRows * kColumns);
    return plane * kHeight * kWidth + at / kColumns * kWidth + at % kColumns;
  };
  const int64_t steps[] = {0, 1, kWidth, kWidth + 1};
  const Values norms = make_values(y, [&](int64_t i) {
    double sum = 0;
    for (const int64_t step : steps) sum += std::pow(std::abs(x.values[begin(i) + step]), 3);
    return std::cbrt(sum);
  });
  check(LpPooling({pooling, 3}), {x}, {{y, type}}, norms, 1e-4);
  const Values places = make_values(y, [&](int64_t i) {
    int64_t best = begin(i);
    for (const int64_t step : steps)
      if (x.values[begin(i) + step] > x.values[best]) best = begin(i) + step;
    return static_cast<double>(best);
  });
  const auto maximum = [&](int64_t i) { return x.values[static_cast<int64_t>(places[i])]; };
  const IndexedMaxPooling indexed({pooling, false});
  const std::vector<TestOutput> outputs = {{y, type}, {y, DataType::kINT64}};
  for (const Candidate& candidate : candidates_of(indexed, std::vector{x}, outputs)) {
    SCOPED_TRACE(describe(candidate));
    const std::vector<Values> found = run_kernel(indexed, candidate, std::vector{x}, outputs);
    expect_close(found[0], make_values(y, maximum), 0);
    expect_close(found[1], places, 0);
  }
  Values put = make_values(x.values.shape, [](int64_t) { return 0; });
  for (int64_t i = 0; i < places.size(); ++i) put[static_cast<int64_t>(places[i])] = maximum(i);
  const TestInput extents = {{{4}, {1, 2, kHeight, kWidth}}, DataType::kINT64, true};
  check(MaxUnpool(MaxUnpoolParams()),
        {{make_values(y, maximum), type}, {places, DataType::kINT64}, extents}, {{put.shape, type}},
        put, 0);
}

TEST_F(AllTactics, Sampling) {
  constexpr int64_t kHeight = 4, kWidth = 5;
  const DataType type = DataType::kFLOAT;
  const TestInput x = input({1, 2, kHeight, kWidth}, 1, type);
  const auto between = [&](int64_t channel, double row, double column) {
    const auto top = static_cast<int64_t>(row), left = static_cast<int64_t>(column);
    double sum = 0;
    for (const int64_t r : {top, top + 1})
      for (const int64_t c : {left, left + 1})
        if (r < kHeight && c < kWidth)
          sum += x.values[(channel * kHeight + r) * kWidth + c] *
                 (1 - std::abs(row - static_cast<double>(r))) *
                 (1 - std::abs(column - static_cast<double>(c)));
    return sum;
  };
  const TestInput grid = input({1, 2, 3, 2}, 2, type);
  GridSampleParams sample;
  sample.align_corners = true;
  check(GridSample(sample), {x, grid}, {{{1, 2, 2, 3}, type}},
        make_values({1, 2, 2, 3},
                    [&](int64_t i) {
                      const int64_t at = i % 6 * 2;
                      return between(i / 6, (grid.values[at + 1] + 1) / 2 * (kHeight - 1),
                                     (grid.values[at] + 1) / 2 * (kWidth - 1));
                    }),
        1e-4);
  RoiAlignParams align;
  align.width = 2, align.sampling_ratio = 1;
  const TestInput region = {{{1, 4}, {0.5, 1, 3.5, 3}}, type},
                  image = {{{1}, {0}}, DataType::kINT32};
  check(RoiAlign(align), {x, region, image}, {{{1, 2, 1, 2}, type}},
        make_values({1, 2, 1, 2},
                    [&](int64_t i) { return between(i / 2, 1.5, i % 2 == 0 ? 0.75 : 2.25); }),
        1e-4);
  const TestInput box = {{{1, 5}, {0, 1, 0, 3, 2}}, type};
  check(RoiPool(RoiPoolParams()), {x, box}, {{{1, 2, 1, 1}, type}},
        make_values({1, 2, 1, 1},
                    [&](int64_t channel) {
                      double most = -1e9;
                      for (int64_t r = 0; r <= 2; ++r)
                        for (int64_t c = 1; c <= 3; ++c)
                          most = std::max(most, x.values[(channel * kHeight + r) * kWidth + c]);
                      return most;
                    }),
        0);
}

TEST_F(AllTactics, Movement) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kINT8}) {
    for (const Shape& shape : {Shape{3, 33, 35}, Shape{2, 64, 128}}) {
      TransposeParams params;
      params.permutation = {0, 2, 1};
      const TestInput x = input(shape, 1, type);
      const Values expected = make_values({shape[0], shape[2], shape[1]}, [&](int64_t i) {
        const int64_t matrix = shape[1] * shape[2], at = i % matrix;
        return x.values[i / matrix * matrix + at % shape[1] * shape[2] + at / shape[1]];
      });
      check(Transpose(params), {x}, {{expected.shape, type}}, expected, 0, 3);
    }
    const TestInput parts[] = {input({3, 5, 7}, 1, type), input({3, 1, 7}, 2, type),
                               input({3, 2, 7}, 3, type)};
    const Values joined = make_values({3, 8, 7}, [&](int64_t i) {
      const int64_t row = i / 56, at = i % 56;
      return at < 35   ? parts[0].values[row * 35 + at]
             : at < 42 ? parts[1].values[row * 7 + at - 35]
                       : parts[2].values[row * 14 + at - 42];
    });
    check(Concatenation({1}), {parts[0], parts[1], parts[2]}, {{joined.shape, type}}, joined, 0, 3);
  }
  ScatterParams params;
  params.axis = 1;
  const TestInput data = input({3, 13}, 1, DataType::kFLOAT),
                  updates = input({3, 5}, 2, DataType::kFLOAT);
  const TestInput indices = {make_values({3, 5}, [](int64_t i) { return i % 5 * 2 + i / 5; }),
                             DataType::kINT32};
  Values expected = data.values;
  for (int64_t i = 0; i < 15; ++i)
    expected[i / 5 * 13 + static_cast<int64_t>(indices.values[i])] = updates.values[i];
  check(Scatter(params), {data, indices, updates}, {{expected.shape}}, expected, 0);
}

/// Accesses of two, four and eight elements, with a factor for each row.
TEST_F(AllTactics, Elementwise) {
  for (const DataType type : {DataType::kINT64, DataType::kFLOAT, DataType::kHALF}) {
    const DataType computed = is_floating(type) ? DataType::kFLOAT : type;
    const Pointwise op = make({testing::input(0, computed), testing::input(1, computed),
                               binary(ElementWiseOperation::kPROD, 0, 1, computed)},
                              {2});
    const TestInput x = input({3, 16}, 1, type), factors = input({3, 1}, 2, type);
    check(op, {x, factors}, {{x.values.shape, type}},
          make_values(x.values.shape,
                      [&](int64_t i) { return x.values[i] * factors.values[i / 16]; }),
          tolerance(type), 12);
  }
}

/// Windows that are half a row lower than they would be.
TEST_F(AllTactics, DeformableColumns) {
  if (is_left_out()) GTEST_SKIP();
  constexpr int64_t kHeight = 4, kWidth = 5, kRows = 3, kColumns = 4, kPlaces = 4;
  const DataType type = DataType::kFLOAT;
  DeformableColumnsParams params;
  params.window = {2, 2};
  const TestInput x = input({1, 2, kHeight, kWidth}, 1, type);
  // Of each place that along the height, then that along the width.
  const TestInput offsets = {
      make_values({1, 2 * kPlaces, kRows, kColumns},
                  [](int64_t i) { return i / (kRows * kColumns) % 2 == 0 ? 0.5 : 0; }),
      type};
  const Shape shape = {1, 2 * kPlaces, kRows, kColumns};
  check(DeformableColumns(params), {x, offsets, absent()}, {{shape, type}},
        make_values(
            shape,
            [&](int64_t i) {
              const int64_t plane = i / (kRows * kColumns), place = plane % kPlaces;
              const int64_t row = i / kColumns % kRows + place / 2;
              const double* const from = &x.values.data[static_cast<size_t>(
                  plane / kPlaces * kHeight * kWidth + row * kWidth + i % kColumns + place % 2)];
              return (from[0] + (row + 1 < kHeight ? from[kWidth] : 0)) / 2;
            }),
        1e-5);
}

/// tanh(x w + h r), step by step.
TEST_F(AllTactics, Recurrence) {
  if (is_left_out()) GTEST_SKIP();
  constexpr int64_t kSteps = 3, kBatch = 2, kInput = 4, kHidden = 5;
  const DataType type = DataType::kFLOAT;
  RecurrenceParams params;
  params.cell = RecurrentCell::kRNN;
  params.activations = {static_cast<int64_t>(RecurrentActivation::kTANH)};
  params.alphas = params.betas = {0};
  const TestInput x = input({kSteps, kBatch, kInput}, 1, type),
                  w = input({1, kHidden, kInput}, 2, type),
                  r = input({1, kHidden, kHidden}, 3, type);
  Values y = make_values({kSteps, 1, kBatch, kHidden}, [](int64_t) { return 0; });
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / kHidden, unit = i % kHidden;
    double sum = 0;
    for (int64_t e = 0; e < kInput; ++e)
      sum += x.values[row * kInput + e] * w.values[unit * kInput + e];
    for (int64_t e = 0; e < kHidden && row >= kBatch; ++e)
      sum += y[(row - kBatch) * kHidden + e] * r.values[unit * kHidden + e];
    y[i] = std::tanh(sum);
  }
  check(Recurrence(params), {x, w, r, absent(), absent(), absent(), absent(), absent()},
        {{y.shape, type}, {{1, kBatch, kHidden}, type}}, y, 3e-5);
}

/// Outputs have room for the most elements; what was found lies in front.
TEST_F(AllTactics, Selections) {
  if (is_left_out()) GTEST_SKIP();
  const auto check_all = [](const Operator& op, const std::vector<TestInput>& inputs,
                            const std::vector<TestOutput>& outputs,
                            const std::vector<Values>& expected) {
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      SCOPED_TRACE(::testing::Message() << op.kind() << " " << describe(candidate));
      std::vector<Values> found = run_kernel(op, candidate, inputs, outputs);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_GE(found[i].size(), expected[i].size());
        found[i].shape = expected[i].shape;
        found[i].data.resize(expected[i].data.size());
        expect_close(found[i], expected[i], 0);
      }
    }
  };
  const auto number = [](double value) { return Values{{}, {value}}; };
  const DataType index = DataType::kINT32, wide = DataType::kINT64;
  check_all(NonZero(NonZeroParams()), {{{{2, 3}, {0, 2, 0, -1, 0, 5}}}},
            {{{2, 6}, index}, {{}, wide}}, {{{2, 3}, {0, 1, 1, 1, 0, 2}}, number(3)});
  // The second box covers most of the first.
  const Values boxes = {{1, 3, 4}, {0, 0, 2, 2, 0, 0, 2, 1.75, 5, 5, 6, 6}};
  check_all(Nms(NmsParams()),
            {{boxes}, {{{1, 3, 1}, {0.5, 0.9, 0.7}}}, {number(3), index}, {number(0.5)}},
            {{{3, 3}, index}, {{}, index}}, {{{2, 3}, {0, 0, 1, 0, 0, 2}}, number(2)});
  check_all(
      Unique(UniqueParams()), {{{{5}, {3, 1, 3, 2, 1}}}},
      {{{5}}, {{5}, wide}, {{5}, wide}, {{5}, wide}, {{}, wide}},
      {{{3}, {1, 2, 3}}, {{3}, {1, 3, 0}}, {{5}, {2, 0, 2, 1, 0}}, {{3}, {2, 1, 2}}, number(3)});
  check_all(DataExtent({1}), {{{{3}, {4, 7, 9}}, index}, {number(100), index}}, {{{}, wide}},
            {number(7)});
}

/// Lengths for each number of lanes and of accesses that a thread has under way (rows.cpp), in
/// single elements of FP32: what moves 8 at once has two accesses.
constexpr int64_t kRowLengths[] = {1,   2,   3,   5,   8,   9,   31,  63,   95,   127,  159,  191,
                                   223, 255, 319, 383, 447, 511, 767, 1023, 1279, 1535, 1791, 2047};

TEST_F(AllTactics, Rows) {
  const DataType type = DataType::kFLOAT;
  const int every = 97;
  for (const int64_t n : kRowLengths) {
    const TestInput x = input({3, n + 1}, 1, type), rows = input({5, n}, 2, type);
    SliceParams slice;
    // Rows of one element are columns, unless there is one.
    const int64_t lines = n == 1 ? 1 : 3;
    slice.start = {0, 1}, slice.size = {lines, n}, slice.stride = {1, 1};
    check(Slice(slice), {x}, {{{lines, n}, type}},
          make_values({lines, n}, [&](int64_t i) { return x.values[i / n * (n + 1) + 1 + i % n]; }),
          0, every);
    const int64_t places[] = {4, 0, 2};
    const TestInput indices = {make_values({3}, [&](int64_t i) { return places[i]; }),
                               DataType::kINT32};
    check(Gather(GatherParams()), {rows, indices}, {{{3, n}, type}},
          make_values({3, n}, [&](int64_t i) { return rows.values[places[i / n] * n + i % n]; }), 0,
          every);
    const TestInput blocks = input({2, 3, n}, 3, type);
    TransposeParams turned;
    turned.permutation = {1, 0, 2};
    check(Transpose(turned), {blocks}, {{{3, 2, n}, type}},
          make_values({3, 2, n},
                      [&](int64_t i) {
                        const int64_t row = i / n;
                        return blocks.values[(row % 2 * 3 + row / 2) * n + i % n];
                      }),
          0, every);
    ReverseSequenceParams reversed;
    reversed.batch_axis = 0, reversed.sequence_axis = 1;
    const int64_t lengths[] = {3, 2};
    const TestInput counts = {make_values({2}, [&](int64_t i) { return lengths[i]; }),
                              DataType::kINT32};
    check(ReverseSequence(reversed), {blocks, counts}, {{{2, 3, n}, type}},
          make_values({2, 3, n},
                      [&](int64_t i) {
                        const int64_t batch = i / (3 * n), row = i / n % 3, length = lengths[batch];
                        const int64_t from = row < length ? length - 1 - row : row;
                        return blocks.values[(batch * 3 + from) * n + i % n];
                      }),
          0, every);
    // Alone where it is one element, and with one behind it: rows of each length are there both
    // ways.
    for (const int64_t rest : {0, 1}) {
      if (rest == 0 && n > 1) continue;
      std::vector<TestInput> parts = {rows};
      if (rest > 0) parts.push_back(input({5, rest}, 4, type));
      check(Concatenation({1}), parts, {{{5, n + rest}, type}},
            make_values({5, n + rest},
                        [&](int64_t i) {
                          const int64_t row = i / (n + rest), at = i % (n + rest);
                          return at < n ? rows.values[row * n + at] : parts[1].values[row];
                        }),
            0, every);
    }
    if (HasFailure()) return;
  }
}

TEST_F(AllTactics, Reductions) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF})
    for (const bool is_inner : {true, false}) {
      const Shape shape = {3, 67, 5};
      const TestInput x = input(shape, 1, type);
      const int every = type == DataType::kFLOAT ? 3 : 7;
      // Over the axes 1 and 2, or over 0 and 1.
      ReduceParams params;
      params.axes = is_inner ? 6 : 3;
      const int64_t outputs = is_inner ? 3 : 5, count = shape.numel() / outputs;
      const auto element = [&](int64_t output, int64_t e) {
        return x.values[is_inner ? output * count + e : e * outputs + output];
      };
      Values sums = make_values({outputs}, [](int64_t) { return 0; }), squares = sums;
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t e = 0; e < count; ++e) sums[o] += element(o, e);
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t e = 0; e < count; ++e)
          squares[o] += std::pow(element(o, e) - sums[o] / static_cast<double>(count), 2);
      check(Reduce(params), {x}, {{{outputs}, type}}, sums, tolerance(type), every);
      NormalizationParams normalization;
      normalization.axes = params.axes;
      const Values normal = make_values(shape, [&](int64_t i) {
        const int64_t o = is_inner ? i / count : i % outputs;
        return (x.values[i] - sums[o] / static_cast<double>(count)) /
               std::sqrt(squares[o] / static_cast<double>(count) + 1e-5);
      });
      check(Normalization(normalization), {x, absent(), absent()}, {{shape, type}}, normal,
            4 * tolerance(type), every);
      if (!test_device().is_host()) {
        QuantizedNormalizationParams quantized;
        quantized.axes = params.axes, quantized.keeps_result = false;
        constexpr double kScale = 1.0 / 16, kZeroPoint = 3;
        const TestInput scale = {make_values({1}, [&](int64_t) { return kScale; }),
                                 DataType::kFLOAT, true},
                        zero = {make_values({1}, [&](int64_t) { return kZeroPoint; }),
                                DataType::kINT8, true};
        const Values bytes = make_values(shape, [&](int64_t i) {
          return std::clamp(std::nearbyint(normal[i] / kScale) + kZeroPoint, -128.0, 127.0);
        });
        // What lies between two numbers may become either.
        check(QuantizedNormalization(quantized), {x, absent(), absent(), scale, zero},
              {{shape, DataType::kINT8}}, bytes, 1, every);
      }
      SoftmaxParams softmax;
      softmax.axes = is_inner ? 4 : 2;
      const int64_t length = is_inner ? 5 : 67, step = is_inner ? 1 : 5;
      const Values soft = make_values(shape, [&](int64_t i) {
        const int64_t first = i / (length * step) * length * step + i % step;
        double sum = 0;
        for (int64_t e = 0; e < length; ++e) sum += std::exp(x.values[first + e * step]);
        return std::exp(x.values[i]) / sum;
      });
      check(Softmax(softmax), {x}, {{shape, type}}, soft, tolerance(type), every);
    }
  for (const int64_t k : {1, 5}) {
    TopKParams params;
    params.k = k, params.axes = 2;
    const TestInput x = input({3, 131}, 1, DataType::kFLOAT);
    Values expected = make_values({3, k}, [](int64_t) { return 0; });
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<double> sorted(x.values.data.begin() + row * 131,
                                 x.values.data.begin() + (row + 1) * 131);
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      std::copy_n(sorted.begin(), k, expected.data.begin() + row * k);
    }
    check(TopK(params), {x}, {{expected.shape}, {expected.shape, DataType::kINT32}}, expected, 0,
          2);
  }
}

TEST_F(AllTactics, Attentions) {
  struct Case {
    DataType type;
    int64_t queries, keys, size;
    int every;
  };
  for (const auto& [type, queries, keys, size, every] : {Case{DataType::kHALF, 19, 37, 24, 4},
                                                         {DataType::kHALF, 1, 1, 1, 9},
                                                         {DataType::kBF16, 67, 131, 64, 5},
                                                         {DataType::kFLOAT, 5, 67, 33, 2}}) {
    FusedAttentionParams params;
    params.heads = params.shared_heads = 2, params.size = params.value_size = size;
    params.scale = 0.5f;
    const TestInput q = input({1, 2, queries, size}, 1, type),
                    k = input({1, 2, keys, size}, 2, type), v = input({1, 2, keys, size}, 3, type);
    Values expected = make_values({1, 2, queries, size}, [](int64_t) { return 0; });
    for (int64_t row = 0; row < 2 * queries; ++row) {
      const int64_t first = row / queries * keys;
      std::vector<double> weights(static_cast<size_t>(keys));
      double sum = 0;
      for (int64_t key = 0; key < keys; ++key) {
        double score = 0;
        for (int64_t e = 0; e < size; ++e)
          score += q.values[row * size + e] * k.values[(first + key) * size + e];
        sum += weights[static_cast<size_t>(key)] = std::exp(0.5 * score);
      }
      for (int64_t key = 0; key < keys; ++key)
        for (int64_t e = 0; e < size; ++e)
          expected[row * size + e] +=
              weights[static_cast<size_t>(key)] / sum * v.values[(first + key) * size + e];
    }
    check(FusedAttention(params), {q, k, v}, {{expected.shape, type}}, expected, tolerance(type),
          every);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace opwright::testing
