#include "operators/squeeze_excitation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

struct GateCase {
  std::string name;
  Shape x;
  int64_t hidden;
  DataType type;
  bool multiplies;
  bool has_biases = true;
  bool has_constants = true;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The gates of each image's channels in double precision, with SiLU and the sigmoid.
Values gates_of(const Values& x, const Values& reduce, const Values& reduce_bias,
                const Values& expand, const Values& expand_bias, bool has_biases) {
  const int64_t channels = x.shape[1], hidden = reduce.shape[0];
  const int64_t pixels = x.shape.numel(2, x.shape.rank());
  Shape dims = x.shape;
  for (int i = 2; i < dims.rank(); ++i) dims[i] = 1;
  Values gates = make_values(dims, [](int64_t) { return 0; });
  for (int64_t image = 0; image < x.shape[0]; ++image) {
    std::vector<double> means(channels), results(hidden);
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p) means[c] += x[(image * channels + c) * pixels + p];
      means[c] /= static_cast<double>(pixels);
    }
    for (int64_t h = 0; h < hidden; ++h) {
      double sum = has_biases ? reduce_bias[h] : 0;
      for (int64_t c = 0; c < channels; ++c) sum += reduce[h * channels + c] * means[c];
      results[h] = sum * sigmoid(sum);
    }
    for (int64_t c = 0; c < channels; ++c) {
      double sum = has_biases ? expand_bias[c] : 0;
      for (int64_t h = 0; h < hidden; ++h) sum += expand[c * hidden + h] * results[h];
      gates[image * channels + c] = sigmoid(sum);
    }
  }
  return gates;
}

/// Every candidate against double precision: channels and pixels that fill vectors and others,
/// slices that divide the channels and others, blocks without any, and addresses that vectors may
/// have and others.
TEST(SqueezeExcitation, EveryCandidateAgreesWithDoublePrecision) {
  const GateCase cases[] = {
      {"few channels", {2, 32, 12, 13}, 8, DataType::kHALF, true},
      {"slices with an empty one", {1, 784, 7, 7}, 196, DataType::kHALF, true},
      {"channels of no vector", {3, 37, 5, 9}, 5, DataType::kBF16, true},
      {"more channels than a row of threads", {1, 4600, 3, 2}, 7, DataType::kHALF, true},
      {"channels of no vector, more than threads", {1, 1031, 3, 3}, 33, DataType::kFLOAT, true},
      {"gates", {2, 96, 8, 8}, 24, DataType::kHALF, false},
      {"gates of FP32", {1, 40, 31, 33}, 10, DataType::kFLOAT, false, false},
      {"sequences", {4, 64, 50}, 16, DataType::kFLOAT, true},
      {"volumes", {1, 16, 4, 6, 8}, 4, DataType::kHALF, true, false},
      {"weights of a run", {2, 48, 6, 6}, 12, DataType::kHALF, true, true, false},
      {"weights beyond shared memory", {1, 1280, 4, 4}, 320, DataType::kFLOAT, true},
      {"one pixel", {3, 24, 1, 1}, 6, DataType::kFLOAT, true},
  };
  PairSelection selection;
  for (const GateCase& c : cases) {
    const int64_t channels = c.x[1];
    Values x = random_values(c.x, 1);
    for (int64_t i = 0; i < c.x.numel(); ++i) x[i] += 0.5;
    x = rounded(x, c.type);
    const auto weights = [&](Shape shape, int seed) {
      return rounded(random_values(shape, seed), c.type);
    };
    const Values reduce = weights({c.hidden, channels, 1, 1}, 2), bias = weights({c.hidden}, 3);
    const Values expand = weights({channels, c.hidden}, 4), gate_bias = weights({channels}, 5);
    Values expected = gates_of(x, reduce, bias, expand, gate_bias, c.has_biases);
    if (c.multiplies) {
      const int64_t pixels = c.x.numel(2, c.x.rank());
      const Values gates = expected;
      expected = make_values(c.x, [&](int64_t i) { return x[i] * gates[i / pixels]; });
    }
    SqueezeExcitationParams params;
    params.hidden.activation = {FusedActivation::kSwish, 1, 0};
    params.gate.activation = {static_cast<int32_t>(ActivationType::kSIGMOID), 0, 0};
    params.multiplies = c.multiplies;
    const SqueezeExcitation op(params);
    const auto bias_input = [&](const Values& values) {
      return c.has_biases ? TestInput{values, c.type, c.has_constants} : absent();
    };
    const std::vector<TestInput> inputs = {{x, c.type},
                                           {reduce, c.type, c.has_constants},
                                           bias_input(bias),
                                           {expand, c.type, c.has_constants},
                                           bias_input(gate_bias)};
    const std::vector<TestOutput> outputs = {{expected.shape, c.type}};
    const double limit = c.type == DataType::kFLOAT  ? 1e-5
                         : c.type == DataType::kHALF ? 2e-3
                                                     : 2e-2;
    QueryOptions options;
    options.all_tactics = true;
    std::set<TensorFormat> formats;
    std::set<int64_t> tactics;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
      SCOPED_TRACE(c.name + " " + describe(candidate));
      formats.insert(candidate.inputs[0].format), tactics.insert(candidate.tactic);
      const std::string format = str(static_cast<int>(candidate.inputs[0].format));
      if (!selection.takes({c.name, candidate.tactic_name, format})) continue;
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1, 0})
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, limit);
    }
    EXPECT_TRUE(runs_each_once() || formats.size() == 2 || c.x.rank() == 3) << formats.size();
    EXPECT_GE(tactics.size(), at_least(3U));
  }
}

TEST(SqueezeExcitation, ClustersHaveSeveralImages) {
  const Values x = random_values({1027, 8, 1, 2}, 1);
  const Values reduce = random_values({4, 8}, 2), expand = random_values({8, 4}, 3);
  SqueezeExcitationParams params;
  params.hidden.activation = {FusedActivation::kSwish, 1, 0};
  params.gate.activation = {static_cast<int32_t>(ActivationType::kSIGMOID), 0, 0};
  const SqueezeExcitation op(params);
  const std::vector<TestInput> inputs = {
      {x}, {reduce, DataType::kFLOAT, true}, absent(), {expand, DataType::kFLOAT, true}, absent()};
  const std::vector<TestOutput> outputs = {{{1027, 8, 1, 1}}};
  const Values expected = gates_of(x, reduce, {}, expand, {}, false);
  QueryOptions options;
  options.all_tactics = true;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options))
    if (candidate.tactic_name == "a block per image") {
      SCOPED_TRACE(describe(candidate));
      expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 1e-5);
    }
}

}  // namespace
}  // namespace opwright::testing
