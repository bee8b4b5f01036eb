#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "compile/program.h"
#include "cuda/profile_cases.h"
#include "operators/fused_normalization.h"

namespace opwright::testing {
namespace {

struct NormalizationCase {
  std::string name;
  Shape x;
  NormalizationParams params;
  double offset = 0;
};

/// The elements that are normalized together have one key.
std::vector<int64_t> key_of(const NormalizationCase& c, int64_t i) {
  std::vector<int64_t> key(c.x.rank());
  for (int axis = c.x.rank() - 1; axis >= 0; --axis) {
    const int64_t index = i % c.x[axis];
    i /= c.x[axis];
    key[axis] = c.params.axes >> axis & 1 ? 0 : index;
    if (axis == 1 && c.params.num_groups > 1) key[axis] = index / (c.x[1] / c.params.num_groups);
  }
  return key;
}

Values normalized(const NormalizationCase& c, const Values& x, const Values& scale,
                  const Values& bias) {
  struct Sums {
    double count = 0, sum = 0, squares = 0;
  };
  std::map<std::vector<int64_t>, Sums> groups;
  for (int64_t i = 0; i < x.size(); ++i) {
    Sums& of = groups[key_of(c, i)];
    ++of.count, of.sum += x[i];
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    Sums& of = groups[key_of(c, i)];
    const double deviation = x[i] - (c.params.rms ? 0 : of.sum / of.count);
    of.squares += deviation * deviation;
  }
  const int64_t plane = c.x.numel(2, c.x.rank());
  return make_values(c.x, [&](int64_t i) {
    const Sums& of = groups[key_of(c, i)];
    const double mean = c.params.rms ? 0 : of.sum / of.count;
    const int64_t channel = i / plane % c.x[1];
    return (x[i] - mean) / std::sqrt(of.squares / of.count + c.params.epsilon) * scale[channel] +
           bias[channel];
  });
}

const NormalizationCase kNormalizationCases[] = {
    {"narrow groups", {2, 32, 19, 23}, {1e-5f, 12, 8}},
    {"groups of vectors", {3, 64, 9, 17}, {1e-5f, 12, 2}, 100},
    {"groups of parts of vectors", {1, 96, 33, 31}, {1e-5f, 12, 8}},
    {"odd channels", {2, 15, 21, 10}, {1e-5f, 12, 5}},
    {"instances", {2, 24, 40, 41}, {1e-5f, 12, 1}, 30},
    {"all channels", {2, 48, 12, 13}, {1e-5f, 14, 1}},
    {"mean squares", {2, 32, 30, 30}, {1e-5f, 12, 4, true}, 1},
    {"rows", {2, 64, 300}, {1e-5f, 4, 8}},
    {"layers", {3, 50, 768}, {1e-5f, 4, 1}},
    {"volumes", {1, 16, 7, 9, 11}, {1e-5f, 28, 4}},
    {"few pixels", {5, 128, 1, 2}, {1e-5f, 12, 8}},
};

/// x / (1 + exp(-x)) + element * 3 of what is normalized.
TEST(CudaNormalization, ProgramsOfGroups) {
  int64_t tested = 0;
  PairSelection pairs;
  for (const NormalizationCase& c : kNormalizationCases)
    for (const DataType type : {DataType::kHALF, DataType::kFLOAT, DataType::kBF16}) {
      const bool is_first = c.name == "narrow groups";
      if ((type == DataType::kBF16 && !is_first) ||
          (type == DataType::kFLOAT && (&c - kNormalizationCases) % 3 == 1))
        continue;
      ProgramWriter writer;
      using Op = ElementWiseOperation;
      const int x = writer.input(0, type);
      const int swish =
          writer.binary(Op::kPROD, x, writer.activation(ActivationType::kSIGMOID, x, 0, 0));
      const int scaled =
          writer.binary(Op::kPROD, writer.input(1, type), writer.input(2, DataType::kFLOAT));
      const int result[] = {writer.binary(Op::kSUM, swish, scaled)};
      std::vector<int> used;
      FusedNormalizationParams params{c.params, {}};
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {2, 0};
      params.fused.result = type;
      const auto values = [&](const Shape& shape, int seed, double from, double to) {
        return rounded(random_values(shape, seed, from, to), type);
      };
      Shape channels(c.x);
      for (int i = 0; i < c.x.rank(); ++i)
        if (i != 1) channels[i] = 1;
      const std::vector<TestInput> inputs = {
          {values(c.x, 1, c.offset - 2, c.offset + 2), type},
          {values(channels, 2, -1, 1), type, true},
          {values(channels, 3, -1, 1), type, true},
          {values(c.x, 4, -1, 1), type},
          {make_values({1}, [](int64_t) { return 3.0; }), DataType::kFLOAT, true}};
      Values expected = normalized(c, inputs[0].values, inputs[1].values, inputs[2].values);
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = expected[i] / (1 + std::exp(-expected[i])) + inputs[3].values[i] * 3;
      const std::vector<TestOutput> outputs = {{c.x, type}};
      const double tolerance =
          type == DataType::kFLOAT ? 2e-5 + 3e-7 * std::abs(c.offset) : 4 * tolerance_of(type);
      const FusedNormalization op(params);
      for (const Candidate& candidate :
           candidates_of(op, inputs, outputs, {.all_tactics = is_first})) {
        if (candidate.inputs[0].dtype != type) continue;
        ++tested;
        if (!pairs.takes(
                {candidate.tactic_name, name(candidate.inputs[0].format), c.name, name(type)}))
          continue;
        TestKernel built(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << c.name << " " << describe(candidate) << " shift " << shift);
          expect_close(built.run(inputs, outputs, -1, shift)[0], expected, tolerance);
          if (::testing::Test::HasFailure()) return;
        }
        SCOPED_TRACE(::testing::Message() << c.name << " over the element " << describe(candidate));
        expect_close(built.run(inputs, outputs, 3)[0], expected, tolerance);
      }
    }
  EXPECT_GE(tested, at_least(60));
}

}  // namespace
}  // namespace opwright::testing
