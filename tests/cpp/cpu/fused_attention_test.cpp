#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/run_kernel.h"
#include "operators/fused_attention.h"

namespace opwright::testing {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

enum class MaskKind { kNone, kPerKey, kFull, kNobody, kPrefix, kLowest };

double lowest(DataType type) {
  return type == DataType::kHALF   ? -65504
         : type == DataType::kBF16 ? -0x1.FEp127
                                   : std::numeric_limits<float>::lowest();
}

struct AttentionCase {
  int64_t batch = 1, heads = 2, shared_heads = 2, queries = 5, keys = 7, size = 8, value_size = 8;
  AttentionLayout query = AttentionLayout::kHEADS_FIRST, key = AttentionLayout::kHEADS_FIRST,
                  value = AttentionLayout::kHEADS_FIRST, output = AttentionLayout::kHEADS_FIRST;
  CausalMaskKind causal = CausalMaskKind::kNONE;
  double cap = 0, masked_score = kNothing;
  MaskKind allowed = MaskKind::kNone, bias = MaskKind::kNone;
  DataType type = DataType::kFLOAT, bias_type = DataType::kFLOAT;
  int64_t gap = 0;  ///< elements in front of a row's heads, and between and behind them
};

/// An operand with its layout: where element (batch, head, position, e) lies.
struct Layout {
  AttentionLayout layout;
  int64_t heads, length, size, gap, batch;
  int64_t head_stride() const { return size + gap; }
  int64_t row() const { return gap + heads * head_stride(); }
  Shape shape() const {
    switch (layout) {
      case AttentionLayout::kHEADS_FIRST:
        return {batch, heads, length, size};
      case AttentionLayout::kBATCH_FIRST:
        return {batch, length, row()};
      case AttentionLayout::kLENGTH_FIRST:
        break;
    }
    return {length, batch, row()};
  }
  int64_t at(int64_t b, int64_t h, int64_t position, int64_t e) const {
    if (layout == AttentionLayout::kHEADS_FIRST)
      return ((b * heads + h) * length + position) * size + e;
    const int64_t rows =
        layout == AttentionLayout::kBATCH_FIRST ? b * length + position : position * batch + b;
    return rows * row() + gap + h * head_stride() + e;
  }
};

Shape mask_shape(const AttentionCase& c, MaskKind kind) {
  if (kind == MaskKind::kPerKey || kind == MaskKind::kPrefix) return {c.batch, 1, 1, c.keys};
  if (kind == MaskKind::kNobody) return {c.queries, 1};
  if (kind == MaskKind::kLowest) return {c.queries, c.keys};
  return {c.heads, c.queries, c.keys};
}
int64_t mask_place(const AttentionCase& c, MaskKind kind, int64_t b, int64_t h, int64_t q,
                   int64_t k) {
  if (kind == MaskKind::kPerKey || kind == MaskKind::kPrefix) return b * c.keys + k;
  if (kind == MaskKind::kNobody) return q;
  if (kind == MaskKind::kLowest) return q * c.keys + k;
  return (h * c.queries + q) * c.keys + k;
}

/// Softmax of the scaled products, which masks change, times the values.
Values reference(const AttentionCase& c, std::span<const Layout> layouts, double scale,
                 const std::vector<TestInput>& inputs) {
  Values expected = make_values(layouts[3].shape(), [](int64_t) { return 0; });
  const int64_t group = c.heads / c.shared_heads;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t q = 0; q < c.queries; ++q) {
        std::vector<double> scores(static_cast<size_t>(c.keys), kNothing);
        double most = kNothing, sum = 0;
        for (int64_t k = 0; k < c.keys; ++k) {
          const int64_t shift = c.causal == CausalMaskKind::kLOWER_RIGHT ? c.keys - c.queries : 0;
          if (c.causal != CausalMaskKind::kNONE && k > q + shift) continue;
          const double* const query = &inputs[0].values.data[layouts[0].at(b, h, q, 0)];
          const double* const key = &inputs[1].values.data[layouts[1].at(b, h / group, k, 0)];
          double score = std::inner_product(query, query + c.size, key, 0.0);
          score *= scale;
          if (c.cap != 0) score = c.cap * std::tanh(score / c.cap);
          if (c.bias != MaskKind::kNone)
            score += inputs[4].values[mask_place(c, c.bias, b, h, q, k)];
          if (c.allowed != MaskKind::kNone &&
              inputs[3].values[mask_place(c, c.allowed, b, h, q, k)] == 0)
            score = c.masked_score;
          scores[static_cast<size_t>(k)] = score;
          most = std::max(most, score);
        }
        if (most == kNothing) continue;
        for (double& score : scores) sum += score = std::exp(score - most);
        double* const result = &expected[layouts[3].at(b, h, q, 0)];
        for (int64_t k = 0; k < c.keys; ++k) {
          const double weight = scores[static_cast<size_t>(k)] / sum;
          const double* const value = &inputs[2].values.data[layouts[2].at(b, h / group, k, 0)];
          for (int64_t e = 0; e < c.value_size; ++e) result[e] += weight * value[e];
        }
      }
  return expected;
}

/// An attention with its inputs.
struct Problem {
  std::vector<Layout> layouts;
  FusedAttentionParams params;
  std::vector<TestInput> inputs;
  std::vector<TestOutput> outputs;
};

Problem problem_of(const AttentionCase& c) {
  const Layout layouts[] = {{c.query, c.heads, c.queries, c.size, c.gap, c.batch},
                            {c.key, c.shared_heads, c.keys, c.size, c.gap, c.batch},
                            {c.value, c.shared_heads, c.keys, c.value_size, c.gap, c.batch},
                            {c.output, c.heads, c.queries, c.value_size, 0, c.batch}};
  Problem made;
  made.layouts.assign(std::begin(layouts), std::end(layouts));
  FusedAttentionParams& params = made.params;
  params.scale = 0.375f, params.causal_kind = c.causal;
  params.cap = static_cast<float>(c.cap), params.masked_score = static_cast<float>(c.masked_score);
  params.heads = c.heads, params.shared_heads = c.shared_heads;
  params.size = c.size, params.value_size = c.value_size;
  for (size_t i = 0; i < 4; ++i) {
    params.layouts[i] = static_cast<int64_t>(layouts[i].layout);
    if (i == 3 || layouts[i].layout == AttentionLayout::kHEADS_FIRST) continue;
    params.offsets[i] = c.gap, params.head_strides[i] = layouts[i].head_stride();
  }
  std::vector<TestInput>& inputs = made.inputs;
  for (int i = 0; i < 3; ++i)
    inputs.push_back({rounded(random_values(layouts[i].shape(), i + 1, -2, 2), c.type), c.type});
  if (c.allowed != MaskKind::kNone || c.bias != MaskKind::kNone) {
    if (c.allowed == MaskKind::kNone) {
      inputs.push_back(absent());
    } else {
      const bool nobody = c.allowed == MaskKind::kNobody;
      inputs.push_back({make_values(mask_shape(c, c.allowed),
                                    [&](int64_t i) {
                                      // A cache that is full up to there.
                                      if (c.allowed == MaskKind::kPrefix)
                                        return double(i % c.keys < c.keys / (2 + i / c.keys));
                                      return nobody ? double(i % 3 != 1) : double(i * 7 % 5 != 2);
                                    }),
                        DataType::kBOOL});
    }
  }
  if (c.bias != MaskKind::kNone) {
    Values bias = random_values(mask_shape(c, c.bias), 9, -3, 3);
    if (c.bias == MaskKind::kLowest)
      // A row sees all keys, every other one, or all but the forbidden ones.
      for (int64_t i = 0; i < bias.size(); ++i) {
        const int64_t row = i / c.keys, key = i % c.keys;
        bias[i] = row % 3 == 1 && key % 2 == 0   ? 0
                  : row % 3 == 2 && key % 4 == 0 ? kNothing
                                                 : lowest(c.bias_type);
      }
    for (int64_t i = 0; i < bias.size() && c.bias != MaskKind::kLowest; ++i)
      if (c.bias == MaskKind::kNobody ? i % 3 == 1 : i % 6 == 2) bias[i] = kNothing;
    inputs.push_back({rounded(bias, c.bias_type), c.bias_type});
  }
  made.outputs = {{layouts[3].shape(), c.type}};
  return made;
}

void check(const AttentionCase& c, Selection& selection) {
  SCOPED_TRACE(::testing::Message()
               << c.batch << "x" << c.heads << "/" << c.shared_heads << " " << c.queries << "x"
               << c.keys << " sizes " << c.size << " " << c.value_size << " layouts "
               << static_cast<int>(c.query) << static_cast<int>(c.key) << static_cast<int>(c.value)
               << static_cast<int>(c.output) << " causal " << static_cast<int>(c.causal) << " cap "
               << c.cap << " masks " << static_cast<int>(c.allowed) << static_cast<int>(c.bias)
               << " " << name(c.type) << " gap " << c.gap);
  const Problem problem = problem_of(c);
  const std::vector<TestInput>& inputs = problem.inputs;
  const std::vector<TestOutput>& outputs = problem.outputs;
  const FusedAttention op(problem.params);
  // Weights are rounded to the type before they meet the values.
  const double tolerance = (c.type == DataType::kFLOAT ? 2 : 1.5) * tolerance_of(c.type);
  const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs);
  ASSERT_FALSE(candidates.empty());
  Values expected;
  for (const Candidate& candidate : candidates) {
    if (!selection.takes_next()) continue;
    if (expected.size() == 0)
      expected = reference(c, problem.layouts, problem.params.scale, inputs);
    SCOPED_TRACE(describe(candidate));
    double own = candidate.inputs[0].dtype == c.type ? tolerance
                                                     : 2 * tolerance_of(candidate.inputs[0].dtype);
    // Beside the lowest number of FP16 scores in FP32 have steps of 2^-8.
    if (c.bias == MaskKind::kLowest && c.bias_type == DataType::kHALF) own = std::max(own, 4e-3);
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, own);
    TestKernel kernel(op, candidate, inputs, outputs);
    expect_close(kernel.run(inputs, outputs, -1, 1)[0], expected, own);
    // What a run leaves behind changes no later one.
    expect_close(kernel.run(inputs, outputs)[0], expected, own);
  }
}

constexpr AttentionLayout kLayouts[] = {
    AttentionLayout::kHEADS_FIRST, AttentionLayout::kBATCH_FIRST, AttentionLayout::kLENGTH_FIRST};
constexpr DataType kAttentionTypes[] = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16};

TEST(FusedAttention, Layouts) {
  Selection selection(61);
  for (const DataType type : kAttentionTypes)
    for (const AttentionLayout query : kLayouts)
      for (const AttentionLayout key : kLayouts)
        for (const AttentionLayout output : kLayouts)
          for (const int64_t gap : {0, 8, 3}) {
            AttentionCase c;
            c.batch = 2, c.heads = 3, c.shared_heads = 3, c.type = type, c.gap = gap;
            c.query = query, c.key = key, c.value = query, c.output = output;
            check(c, selection);
          }
}

TEST(FusedAttention, SizesAndLengths) {
  Selection selection(37);
  for (const DataType type : kAttentionTypes)
    for (const int64_t size : {1, 8, 20, 32, 64, 80, 128, 256})
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1},
                                          {1, 300},
                                          {3, 130},
                                          {5, 64},
                                          {17, 33},
                                          {70, 150},
                                          {200, 129}}) {
        AttentionCase c;
        c.type = type, c.size = size, c.value_size = size == 20 ? 36 : size;
        c.queries = queries, c.keys = keys;
        c.key = AttentionLayout::kBATCH_FIRST, c.output = AttentionLayout::kBATCH_FIRST;
        check(c, selection);
      }
}

TEST(FusedAttention, CausalMasksAndGroups) {
  Selection selection(41);
  for (const DataType type : kAttentionTypes)
    for (const CausalMaskKind causal :
         {CausalMaskKind::kNONE, CausalMaskKind::kUPPER_LEFT, CausalMaskKind::kLOWER_RIGHT})
      for (const int64_t shared : {1, 2, 6})
        for (const auto& [queries, keys] :
             {std::pair<int64_t, int64_t>{1, 140}, {40, 40}, {33, 150}, {150, 33}}) {
          AttentionCase c;
          c.type = type, c.causal = causal, c.heads = 6, c.shared_heads = shared, c.size = 16;
          c.queries = queries, c.keys = keys, c.batch = 2;
          c.output = AttentionLayout::kBATCH_FIRST;
          check(c, selection);
        }
}

TEST(FusedAttention, MasksCapsAndRowsWithoutKeys) {
  Selection selection(97);
  constexpr MaskKind kKinds[] = {MaskKind::kNone, MaskKind::kPerKey, MaskKind::kFull,
                                 MaskKind::kNobody};
  for (const DataType type : kAttentionTypes)
    for (const MaskKind allowed : kKinds)
      for (const MaskKind bias : kKinds)
        for (const double cap : {0.0, 1.5})
          for (const double masked : {kNothing, -1e4}) {
            AttentionCase c;
            c.type = type, c.allowed = allowed, c.bias = bias, c.cap = cap, c.masked_score = masked;
            c.bias_type = type == DataType::kHALF ? DataType::kHALF : DataType::kFLOAT;
            c.batch = 2, c.heads = 4, c.shared_heads = 2, c.queries = 19, c.keys = 150;
            if (bias == MaskKind::kFull) c.causal = CausalMaskKind::kLOWER_RIGHT;
            check(c, selection);
          }
}

/// A row whose scores all are the lowest number gives the mean of the values.
TEST(FusedAttention, LowestFiniteScores) {
  Selection selection(31);
  for (const DataType type : kAttentionTypes)
    for (const auto& [queries, keys] :
         {std::pair<int64_t, int64_t>{2, 130}, {19, 33}, {70, 150}, {200, 129}})
      for (const bool by_bias : {true, false})
        for (const double cap : {0.0, 1.5}) {
          AttentionCase c;
          c.type = c.bias_type = type, c.cap = cap, c.size = c.value_size = 64;
          c.queries = queries, c.keys = keys;
          (by_bias ? c.bias : c.allowed) = by_bias ? MaskKind::kLowest : MaskKind::kNobody;
          c.masked_score = lowest(DataType::kFLOAT);
          check(c, selection);
        }
}

TEST(FusedAttention, FewQueriesOverALongCache) {
  Selection selection(61);
  for (const DataType type : kAttentionTypes)
    for (const int64_t size : {16, 64, 128})
      for (const int64_t shared : {1, 2, 8})
        for (const int64_t queries : {1, 2})
          for (const MaskKind allowed : {MaskKind::kNone, MaskKind::kPrefix}) {
            AttentionCase c;
            c.type = type, c.size = c.value_size = size, c.heads = 8, c.shared_heads = shared;
            c.batch = 2, c.queries = queries, c.keys = 1100, c.allowed = allowed;
            c.output = AttentionLayout::kBATCH_FIRST;
            check(c, selection);
          }
}

/// Queries that a decoder guesses ahead, and heads that fill no whole instructions.
TEST(FusedAttention, SeveralQueriesOverACache) {
  Selection selection(29);
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const auto& [size, queries] :
         {std::pair<int64_t, int64_t>{80, 3}, {96, 1}, {128, 16}, {256, 2}, {64, 5}})
      for (const CausalMaskKind causal : {CausalMaskKind::kNONE, CausalMaskKind::kLOWER_RIGHT})
        for (const MaskKind allowed : {MaskKind::kNone, MaskKind::kPerKey, MaskKind::kFull}) {
          AttentionCase c;
          c.type = type, c.size = c.value_size = size, c.heads = 8, c.shared_heads = 2;
          c.queries = queries, c.keys = 530, c.causal = causal, c.allowed = allowed;
          c.output = AttentionLayout::kBATCH_FIRST;
          check(c, selection);
        }
}

/// A cache whose number of keys is open. Runs of one kernel have few keys and many.
TEST(FusedAttention, OpenKeys) {
  Selection selection(7);
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const int64_t queries : {1, 3})
      for (const bool is_causal : {false, true}) {
        AttentionCase c;
        c.type = type, c.size = c.value_size = 128, c.heads = 8, c.shared_heads = 2;
        c.queries = queries, c.keys = 1030;
        if (is_causal) c.causal = CausalMaskKind::kLOWER_RIGHT;
        AttentionCase most = c;
        most.keys = 9000;
        const Problem problem = problem_of(c);
        std::vector<Shape> most_inputs, most_outputs = {problem.outputs[0].shape};
        for (const TestInput& input : problem_of(most).inputs)
          most_inputs.push_back(input.values.shape);
        const FusedAttention op(problem.params);
        for (const Candidate& candidate :
             candidates_of(op, with_max(describe(problem.inputs), most_inputs),
                           with_max(describe(problem.outputs), most_outputs))) {
          if (!selection.takes_next()) continue;
          SCOPED_TRACE(describe(candidate));
          TestKernel kernel(op, candidate, problem.inputs, problem.outputs, {}, most_inputs,
                            most_outputs);
          for (const int64_t keys : {1030, 3, 2200, 64, 0, 1030}) {
            SCOPED_TRACE(::testing::Message() << keys << " keys");
            AttentionCase now = c;
            now.keys = keys;
            const Problem run = problem_of(now);
            expect_close(kernel.run(run.inputs, run.outputs)[0],
                         reference(now, run.layouts, run.params.scale, run.inputs),
                         1.5 * tolerance_of(type));
          }
        }
      }
}

/// What lies beyond the last key has the weight 0, which times infinity would be a NaN.
TEST(FusedAttention, AnInfiniteValueOfTheLastKey) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Selection selection(3);
  for (const int64_t queries : {1, 16}) {
    AttentionCase c;
    c.type = DataType::kHALF, c.size = c.value_size = 64, c.heads = 8, c.shared_heads = 2;
    c.queries = queries, c.keys = 1100;
    Problem problem = problem_of(c);
    for (double& element : problem.inputs[0].values.data) element = 0;  // all weights are equal
    for (int64_t head = 0; head < c.shared_heads; ++head)
      problem.inputs[2].values[problem.layouts[2].at(0, head, c.keys - 1, 0)] = kInfinity;
    const FusedAttention op(problem.params);
    for (const Candidate& candidate : candidates_of(op, problem.inputs, problem.outputs)) {
      if (!selection.takes_next()) continue;
      SCOPED_TRACE(describe(candidate));
      const Values y = run_kernel(op, candidate, problem.inputs, problem.outputs)[0];
      for (int64_t head = 0; head < c.heads; ++head)
        EXPECT_EQ(y[problem.layouts[3].at(0, head, queries - 1, 0)], kInfinity);
    }
  }
}

/// Tiles of many queries and keys, with rows and keys beyond the last whole tile.
TEST(FusedAttention, ManyQueries) {
  Selection selection(41);
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const int64_t size : {64, 80, 128})
      for (const CausalMaskKind causal : {CausalMaskKind::kNONE, CausalMaskKind::kLOWER_RIGHT})
        for (const MaskKind allowed : {MaskKind::kNone, MaskKind::kFull})
          for (const auto& [queries, keys] :
               {std::pair<int64_t, int64_t>{200, 200}, {130, 400}, {1030, 70}}) {
            AttentionCase c;
            c.type = type, c.size = size, c.value_size = size == 80 ? 64 : size;
            c.queries = queries, c.keys = keys, c.causal = causal, c.allowed = allowed;
            c.heads = 2, c.shared_heads = 1;
            c.query = c.key = c.value = c.output = AttentionLayout::kBATCH_FIRST;
            check(c, selection);
          }
}

/// Blocks that take one task after the other, of more than a GPU has blocks.
TEST(FusedAttention, MoreTasksThanBlocks) {
  Selection selection(11);
  for (const CausalMaskKind causal : {CausalMaskKind::kUPPER_LEFT, CausalMaskKind::kNONE}) {
    AttentionCase c;
    c.type = DataType::kHALF, c.causal = causal, c.gap = causal == CausalMaskKind::kNONE ? 3 : 0;
    c.batch = 34, c.heads = 4, c.shared_heads = 4, c.size = 16, c.value_size = 16;
    c.queries = 72, c.keys = 70;
    if (c.gap > 0) c.key = c.value = AttentionLayout::kBATCH_FIRST;
    check(c, selection);
  }
}

TEST(FusedAttention, NothingToDo) {
  for (const auto& [batch, queries, keys] :
       {std::tuple<int64_t, int64_t, int64_t>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}}) {
    AttentionCase c;
    c.batch = batch, c.queries = queries, c.keys = keys;
    Selection selection(1);
    check(c, selection);
  }
}

}  // namespace
}  // namespace opwright::testing
