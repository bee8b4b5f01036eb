#include "operators/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/window_reference.h"

namespace opwright::testing {
namespace {

struct PoolingCase {
  std::string name;
  Shape x, y;
  PoolingParams params;
  Ints pre, post;  ///< the padding as resolved by hand
};

PoolingParams pooling_params(Ints window, Ints stride, Ints pre, Ints post, Ints dilation = {}) {
  PoolingParams params;
  params.window = window, params.stride = stride, params.dilation = dilation;
  params.pre_padding = pre, params.post_padding = post;
  return params;
}

PoolingParams with_mode(PoolingParams params, PaddingMode mode) {
  params.padding_mode = mode;
  return params;
}

const std::vector<PoolingCase>& pooling_cases() {
  static const std::vector<PoolingCase> all = {
      {"Plain", {2, 16, 8, 10}, {2, 16, 4, 5}, pooling_params({2, 2}, {2, 2}, {}, {}), {}, {}},
      {"Overlapping",
       {1, 20, 9, 9},
       {1, 20, 5, 5},
       pooling_params({3, 3}, {2, 2}, {1, 1}, {1, 1}),
       {1, 1},
       {1, 1}},
      {"Asymmetric",
       {1, 3, 7, 6},
       {1, 3, 7, 4},
       pooling_params({2, 3}, {1, 2}, {0, 1}, {1, 2}),
       {0, 1},
       {1, 2}},
      {"Global", {1, 33, 7, 7}, {1, 33, 1, 1}, pooling_params({7, 7}, {}, {}, {}), {}, {}},
      {"Dilated",
       {1, 16, 9, 9},
       {1, 16, 6, 6},
       pooling_params({3, 3}, {}, {}, {1, 1}, {2, 2}),
       {},
       {1, 1}},
      {"OneDimension", {2, 8, 12}, {2, 8, 6}, pooling_params({3}, {2}, {1}, {1}), {1}, {1}},
      {"ThreeDimensions",
       {1, 16, 4, 6, 8},
       {1, 16, 2, 3, 4},
       pooling_params({2, 2, 2}, {2, 2, 2}, {}, {}),
       {},
       {}},
      {"RoundedUp",
       {1, 16, 8, 8},
       {1, 16, 4, 4},
       with_mode(pooling_params({3, 3}, {2, 2}, {}, {}), PaddingMode::kEXPLICIT_ROUND_UP),
       {},
       {}},
      {"RoundedUpPadded",
       {1, 8, 6, 6},
       {1, 8, 4, 4},
       with_mode(pooling_params({3, 3}, {2, 2}, {1, 1}, {1, 1}), PaddingMode::kEXPLICIT_ROUND_UP),
       {1, 1},
       {1, 1}},
      {"Striding",
       {1, 19, 20, 45},
       {1, 19, 5, 15},
       pooling_params({5, 4}, {4, 3}, {2, 1}, {1, 0}),
       {2, 1},
       {1, 0}},
      {"Halving", {1, 3, 6, 75}, {1, 3, 6, 36}, pooling_params({1, 5}, {1, 2}, {}, {}), {}, {}},
      {"FarApart",
       {1, 2, 3, 40},
       {1, 2, 3, 41},
       pooling_params({1, 2}, {}, {0, 1000}, {0, 1000}, {1, 1999}),
       {0, 1000},
       {0, 1000}},
      {"SameUpper",
       {1, 8, 7, 7},
       {1, 8, 4, 4},
       with_mode(pooling_params({2, 2}, {2, 2}, {}, {}), PaddingMode::kSAME_UPPER),
       {0, 0},
       {1, 1}},
      {"SameLower",
       {1, 8, 7, 7},
       {1, 8, 4, 4},
       with_mode(pooling_params({2, 2}, {2, 2}, {}, {}), PaddingMode::kSAME_LOWER),
       {1, 1},
       {0, 0}},
  };
  return all;
}

Values reference_pooling(const PoolingCase& c, const Values& x, PoolingType type, bool excludes) {
  const int rank = c.x.rank();
  const Spatial in(c.x), out(c.y), window(c.params.window, rank, 1);
  const Spatial step(c.params.stride, rank, 1), spread(c.params.dilation, rank, 1);
  const Spatial before(c.pre, rank, 0), after(c.post, rank, 0);
  return make_values(c.y, [&](int64_t i) {
    int64_t at[3], tap[3], from[3];
    out.position(i % out.numel(), at);
    const int64_t image = i / out.numel();
    double largest = -INFINITY, sum = 0;
    int64_t read = 0, counted = 0;
    for (int64_t k = 0; k < window.numel(); ++k) {
      window.position(k, tap);
      bool inside = true, in_padding = true;
      for (int a = 0; a < 3; ++a) {
        from[a] = at[a] * step[a] - before[a] + tap[a] * spread[a];
        inside &= from[a] >= 0 && from[a] < in[a];
        in_padding &= from[a] < in[a] + after[a];
      }
      counted += in_padding;
      if (!inside) continue;
      const double value = x[image * in.numel() + in.index(from)];
      largest = std::max(largest, value), sum += value, ++read;
    }
    return type == PoolingType::kMAX ? largest
                                     : sum / static_cast<double>(excludes ? read : counted);
  });
}

class PoolingCases : public ::testing::TestWithParam<int> {
 protected:
  void check(PoolingType type, bool excludes) {
    const PoolingCase& c = pooling_cases()[GetParam()];
    if (type != PoolingType::kMAX && c.name == "FarApart")
      GTEST_SKIP() << "some windows are padding alone, of which there is no average";
    PoolingParams params = c.params;
    params.type = type;
    params.average_count_excludes_padding = excludes;
    params.blend_factor = 0.3f;
    const Pooling op(params);
    static Selection selection(5);
    for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
      // Negative values show a maximum that counts padding as zero.
      const std::vector<TestInput> inputs = {{random_values(c.x, 1, -3, -1), dtype}};
      const std::vector<TestOutput> outputs = {{c.y, dtype}};
      const auto candidates = candidates_of(op, inputs, outputs, {true, true});
      ASSERT_TRUE(runs_each_once() || !candidates.empty());
      for (const Candidate& candidate : candidates) {
        if (!selection.takes_next()) continue;
        SCOPED_TRACE(describe(candidate));
        const DataType computed = candidate.inputs[0].dtype;
        const Values x = rounded(rounded(inputs[0].values, dtype), computed);
        Values expected = reference_pooling(c, x, type, excludes);
        if (type == PoolingType::kMAX_AVERAGE_BLEND) {
          const Values largest = reference_pooling(c, x, PoolingType::kMAX, excludes);
          for (int64_t i = 0; i < expected.size(); ++i)
            expected[i] = 0.7 * largest[i] + 0.3 * expected[i];
        }
        expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                     std::max(tolerance_of(dtype), tolerance_of(computed)));
      }
    }
  }
};

TEST_P(PoolingCases, Max) { check(PoolingType::kMAX, true); }
TEST_P(PoolingCases, AverageWithoutPadding) { check(PoolingType::kAVERAGE, true); }
TEST_P(PoolingCases, AverageWithPadding) { check(PoolingType::kAVERAGE, false); }
TEST_P(PoolingCases, Blend) { check(PoolingType::kMAX_AVERAGE_BLEND, true); }

INSTANTIATE_TEST_SUITE_P(All, PoolingCases,
                         ::testing::Range(0, static_cast<int>(pooling_cases().size())),
                         [](const auto& info) { return pooling_cases()[info.param].name; });

/// Of each window, NaN where it has one.
Values maxima(const PoolingCase& c, const Values& x) {
  const Values numbers =
      make_values(c.x, [&](int64_t i) { return std::isnan(x[i]) ? -INFINITY : x[i]; });
  const Values marks = make_values(c.x, [&](int64_t i) { return std::isnan(x[i]) ? 1.0 : 0.0; });
  const Values most = reference_pooling(c, numbers, PoolingType::kMAX, true);
  const Values any = reference_pooling(c, marks, PoolingType::kMAX, true);
  return make_values(c.y, [&](int64_t i) { return any[i] == 1 ? NAN : most[i]; });
}

TEST(Pooling, MaximaOfInfinityAndNan) {
  int ran = 0;
  for (const PoolingCase& c : pooling_cases()) {
    // Mostly -infinity, so that whole windows are.
    const Values x = make_values(c.x, [&](int64_t i) {
      const int64_t kind = i * 2654435761 % 97;
      return kind < 3    ? (kind == 1 ? -NAN : NAN)
             : kind == 5 ? INFINITY
             : kind < 16 ? -2.0
                         : -INFINITY;
    });
    const Pooling op(c.params);
    for (const DataType dtype : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16}) {
      const std::vector<TestInput> inputs = {{x, dtype}};
      const std::vector<TestOutput> outputs = {{c.y, dtype}};
      const Values expected = maxima(c, x);
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        // A GPU's kernels are compiled one by one.
        if (!test_device().is_host() && ++ran > 12) continue;
        SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
        const Values y = run_kernel(op, candidate, inputs, outputs)[0];
        for (int64_t i = 0; i < expected.size(); ++i)
          ASSERT_TRUE(y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i])))
              << "element " << i << " is " << y[i] << ", not " << expected[i];
      }
    }
  }
}

TEST(Pooling, MaximaOfBytes) {
  for (const PoolingCase& c : pooling_cases()) {
    const Pooling op(c.params);
    for (const DataType dtype : {DataType::kINT8, DataType::kUINT8}) {
      const double least = dtype == DataType::kINT8 ? -128 : 0;
      const Values x = make_values(
          c.x, [&](int64_t i) { return least + static_cast<double>(i * 2654435761 % 11 * 25); });
      const std::vector<TestInput> inputs = {{x, dtype}};
      const std::vector<TestOutput> outputs = {{c.y, dtype}};
      const Values expected = reference_pooling(c, x, PoolingType::kMAX, true);
      for (const Candidate& candidate :
           candidates_of(op, inputs, outputs, {.strongly_typed = true})) {
        if (!test_device().is_host() && c.name != "Overlapping") continue;
        SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
        expect_close(run_kernel(op, candidate, inputs, outputs)[0],
                     make_values(c.y, [&](int64_t i) { return std::max(expected[i], least); }), 0);
      }
    }
  }
}

TEST(Pooling, OffersChannelsLastWithAFastKernel) {
  if (!test_device().is_host()) GTEST_SKIP() << "it looks for a kernel of oneDNN's";
  const PoolingCase& c = pooling_cases()[0];
  PoolingParams params = c.params;
  params.type = PoolingType::kAVERAGE;
  const std::vector<TestInput> inputs = {{random_values(c.x, 1)}};
  const std::vector<TestOutput> outputs = {{c.y}};
  bool found = false;
  const auto is_loop = [](const std::string& name) {
    return name.find("ref") != std::string::npos || name.find("simple") != std::string::npos;
  };
  for (const Candidate& candidate : candidates_of(Pooling(params), inputs, outputs))
    found |= candidate.inputs[0].format == TensorFormat::kHWC && !candidate.tactic_name.empty() &&
             !is_loop(candidate.tactic_name);
  EXPECT_TRUE(found);
}

/// oneDNN has nothing to choose for an optimum without elements.
TEST(Pooling, EveryCandidateHasItsTactic) {
  PoolingParams params;
  params.type = PoolingType::kAVERAGE, params.window = {2, 2};
  for (const int64_t batch : {0, 1}) {
    std::vector<PortDesc> x =
        describe(std::vector<TestInput>{{random_values({batch, 3, 5, 4}, 1)}});
    std::vector<PortDesc> y = describe(std::vector<TestOutput>{{{batch, 3, 4, 3}}});
    for (PortDesc* const port : {&x[0], &y[0]}) port->min[0] = 0, port->max[0] = 2;
    const std::vector<Candidate> candidates = candidates_of(Pooling(params), x, y);
    ASSERT_FALSE(candidates.empty());
    for (const Candidate& candidate : candidates) EXPECT_NE(candidate.tactic_name, "") << batch;
  }
}

TEST(Pooling, ChangingShapes) {
  if (!test_device().is_host()) GTEST_SKIP() << "a kernel is compiled for its profile";
  PoolingCase c = pooling_cases()[1];
  const Pooling op(c.params);
  const std::vector<TestInput> inputs = {{random_values(c.x, 1)}};
  const std::vector<TestOutput> outputs = {{c.y}};
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    TestKernel kernel(op, candidate, inputs, outputs);
    const Shape shapes[] = {{2, 20, 5, 7}, {0, 20, 9, 9}, {1, 20, 17, 3}, {2, 20, 5, 7}};
    for (const Shape& shape : shapes) {
      c.x = shape;
      c.y = {shape[0], 20, (shape[2] + 1) / 2, (shape[3] + 1) / 2};
      const std::vector<TestInput> now = {{random_values(c.x, 3)}};
      const std::vector<TestOutput> now_out = {{c.y}};
      expect_close(kernel.run(now, now_out)[0],
                   reference_pooling(c, now[0].values, PoolingType::kMAX, true), 1e-6);
    }
  }
}

}  // namespace
}  // namespace opwright::testing
