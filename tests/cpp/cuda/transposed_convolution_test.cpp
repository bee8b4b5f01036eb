#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"

namespace opwright::testing {
namespace {

struct TransposedCase {
  std::string name;
  Shape x;
  int64_t maps, groups;
  Shape window;
  Ints stride, dilation, pre, post, extra;
  bool by_taps, by_phases;
};

Shape output_of(const TransposedCase& c) {
  Shape y = {c.x[0], c.maps};
  for (int i = 0; i < c.window.rank(); ++i)
    y.push_back((c.x[i + 2] - 1) * c.stride[i] + c.dilation[i] * (c.window[i] - 1) + 1 - c.pre[i] -
                c.post[i] + c.extra[i]);
  return y;
}

Values reference_transposed(const Values& x, const Values& kernel, const Shape& output,
                            const TransposedCase& c) {
  return reference_deconvolution(x, kernel, output, c.groups, c.stride, c.dilation, c.pre);
}

const TransposedCase kCases[] = {
    {"2x2 by 2", {2, 64, 5, 7}, 72, 1, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, {0, 0}, true, true},
    {"2x2 by 2, few maps",
     {3, 20, 4, 5},
     12,
     1,
     {2, 2},
     {2, 2},
     {1, 1},
     {0, 0},
     {0, 0},
     {0, 0},
     true,
     true},
    {"3x2, cut", {2, 24, 6, 5}, 5, 1, {3, 2}, {3, 2}, {1, 1}, {1, 1}, {2, 0}, {0, 0}, true, true},
    {"2x2, added rows",
     {2, 8, 4, 5},
     8,
     1,
     {2, 2},
     {2, 2},
     {1, 1},
     {0, 1},
     {0, 0},
     {1, 1},
     false,
     true},
    {"4x4 by 2", {2, 64, 5, 6}, 40, 1, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, true},
    {"3x3 by 2", {1, 64, 6, 5}, 64, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true},
    {"3x5 by 1", {2, 64, 6, 9}, 16, 1, {3, 5}, {1, 1}, {1, 1}, {1, 2}, {0, 2}, {0, 0}, false, true},
    {"5x4 by 3 and 2",
     {1, 17, 4, 5},
     11,
     1,
     {5, 4},
     {3, 2},
     {1, 1},
     {4, 0},
     {0, 3},
     {2, 1},
     false,
     true},
    {"narrow window",
     {2, 9, 5, 4},
     6,
     1,
     {1, 2},
     {3, 4},
     {2, 1},
     {0, 1},
     {0, 0},
     {2, 1},
     false,
     true},
    {"groups", {2, 64, 5, 3}, 48, 2, {2, 2}, {2, 2}, {1, 1}, {0, 1}, {1, 0}, {0, 0}, true, true},
    {"groups of 4x4",
     {2, 48, 4, 3},
     40,
     2,
     {4, 4},
     {2, 2},
     {1, 1},
     {1, 1},
     {1, 1},
     {0, 0},
     false,
     true},
    {"rows", {2, 64, 19}, 32, 1, {16}, {8}, {1}, {4}, {4}, {0}, false, true},
    {"rows by taps", {2, 16, 33}, 24, 1, {4}, {4}, {1}, {0}, {0}, {0}, true, true},
    {"volumes",
     {1, 16, 3, 4, 3},
     8,
     1,
     {2, 2, 2},
     {2, 2, 2},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     {0, 0, 0},
     true,
     true},
    {"volumes by phases",
     {1, 8, 3, 4, 3},
     16,
     1,
     {3, 2, 4},
     {2, 1, 2},
     {1, 1, 1},
     {1, 0, 1},
     {1, 1, 1},
     {1, 0, 0},
     false,
     true},
    {"dilated", {1, 16, 5, 6}, 8, 1, {2, 3}, {2, 2}, {2, 1}, {0, 1}, {0, 1}, {0, 0}, false, false},
};

/// What tactics have in common that make the same code but for its tile.
std::string kind_of(const Candidate& candidate, bool is_coarse = false) {
  const std::string& name = candidate.tactic_name;
  std::string kind;
  for (const char* part : {"by taps", "by phases", "tensor", "scalar", "warpgroup", "TF32",
                           "a thread", "persistent", "in turns", "parts"}) {
    if (is_coarse && std::string(part) == "persistent") break;
    if (name.find(part) != std::string::npos) kind += std::string(part) + ", ";
  }
  return kind;
}
/// The number of results in a tactic's tile; 0 without a tile.
int64_t tile_of(const Candidate& candidate) {
  const std::string& name = candidate.tactic_name;
  const size_t by = name.find('x');
  if (by == std::string::npos) return 0;
  const size_t first = name.rfind(' ', by) + 1;
  return std::stoll(name.substr(first)) * std::stoll(name.substr(by + 1));
}

/// The smallest tile of each kind in both layouts, of the types that tensor cores have and others:
/// with a bias, with and without a residual, with an activation, and at addresses that vectors may
/// have and others.
TEST(CudaTransposedConvolution, EveryWayAgreesWithTheLoops) {
  int64_t warp_groups = 0;
  PairSelection pairs;
  for (const TransposedCase& c : kCases)
    for (const DataType type : {DataType::kHALF, DataType::kFLOAT, DataType::kBF16}) {
      const bool is_first = c.name == "2x2 by 2" || c.name == "4x4 by 2";
      if (type == DataType::kBF16 && !is_first) continue;
      if (type == DataType::kFLOAT && (&c - kCases) % 3 == 2) continue;
      ConvolutionParams params;
      params.groups = c.groups;
      params.stride = c.stride, params.dilation = c.dilation, params.output_padding = c.extra;
      params.pre_padding = c.pre, params.post_padding = c.post;
      params.has_residual = (&c - kCases) % 2 != 0;
      params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
      const Deconvolution op(params);
      const auto values = [&](const Shape& shape, int seed) {
        return rounded(random_values(shape, seed), type);
      };
      Shape kernel = {c.x[1], c.maps / c.groups};
      for (const int64_t extent : c.window) kernel.push_back(extent);
      const Shape y = output_of(c);
      std::vector<TestInput> inputs = {{values(c.x, 1), type},
                                       {values(kernel, 2), type, true},
                                       {values({c.maps}, 3), type, true}};
      if (params.has_residual) inputs.push_back({values(y, 4), type});
      Values expected = reference_transposed(inputs[0].values, inputs[1].values, y, c);
      const int64_t plane = y.numel(2, y.rank());
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(0.0, expected[i] + inputs[2].values[i / plane % c.maps] +
                                        (params.has_residual ? inputs[3].values[i] : 0.0));
      const std::vector<TestOutput> outputs = {{y, type}};
      std::map<std::pair<std::string, TensorFormat>, Candidate> kinds;
      std::set<TensorFormat> by_taps, by_phases;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
        const TensorFormat format = candidate.outputs[0].format;
        if (candidate.tactic_name.starts_with("by taps")) by_taps.insert(format);
        if (candidate.tactic_name.starts_with("by phases")) by_phases.insert(format);
        if (candidate.inputs[0].dtype != type) continue;
        const std::string kind = kind_of(candidate, !is_first || type != DataType::kHALF);
        const auto [at, is_new] = kinds.insert({{kind, format}, candidate});
        if (tile_of(candidate) < tile_of(at->second)) at->second = candidate;
      }
      for (const auto& [kind, candidate] : kinds) {
        if (!is_first && !candidate.tactic_name.starts_with("by ")) continue;
        warp_groups += candidate.tactic_name.find("warpgroup") != std::string::npos;
        if (!pairs.takes({kind.first, name(kind.second), c.name, name(type)})) continue;
        TestKernel built(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << c.name << " " << describe(candidate) << " shift " << shift);
          expect_close(built.run(inputs, outputs, -1, shift)[0], expected,
                       std::max(1e-5, 4 * tolerance_of(type)));
          if (::testing::Test::HasFailure()) return;
        }
      }
      if (runs_each_once()) continue;
      const size_t formats = y.rank() == 3 ? by_phases.size() : 2;
      EXPECT_EQ(by_taps.size(), c.by_taps ? formats : 0) << c.name;
      EXPECT_EQ(by_phases.size(), c.by_phases ? formats : 0) << c.name;
    }
  EXPECT_GE(warp_groups, at_least(8));
}

/// Where a transposed convolution can be computed by taps or by phases, no candidate that is worth
/// timing multiplies the zeros between pixels.
TEST(CudaTransposedConvolution, NothingIsMultipliedWithZeros) {
  if (runs_all_tactics()) GTEST_SKIP() << "only what is worth timing";
  for (const TransposedCase& c : kCases) {
    ConvolutionParams params;
    params.groups = c.groups;
    params.stride = c.stride, params.dilation = c.dilation, params.output_padding = c.extra;
    params.pre_padding = c.pre, params.post_padding = c.post;
    Shape kernel = {c.x[1], c.maps / c.groups};
    for (const int64_t extent : c.window) kernel.push_back(extent);
    const DataType type = DataType::kHALF;
    const std::vector<TestInput> inputs = {{random_values(c.x, 1), type},
                                           {random_values(kernel, 2), type, true}};
    const std::vector<TestOutput> outputs = {{output_of(c), type}};
    for (const Candidate& candidate : candidates_of(Deconvolution(params), inputs, outputs)) {
      if (candidate.tactic_name == "a thread per element") continue;
      EXPECT_EQ(candidate.tactic_name.starts_with("by taps"), c.by_taps) << c.name;
      EXPECT_EQ(candidate.tactic_name.starts_with("by phases"), c.by_phases && !c.by_taps)
          << c.name;
    }
  }
}

/// The extents of x are open: max(sum, 0) * channel + element.
TEST(CudaTransposedConvolution, OpenExtentsWithPrograms) {
  for (const TransposedCase& c : kCases) {
    if (c.name != "2x2 by 2" && c.name != "3x2, cut" && c.name != "4x4 by 2" && c.name != "rows")
      continue;
    const DataType type = DataType::kHALF;
    ProgramWriter writer;
    using Op = ElementWiseOperation;
    const int zero = writer.constant(0, DataType::kFLOAT);
    const int positive = writer.binary(Op::kMAX, writer.input(0, type), zero);
    const int scaled = writer.binary(Op::kPROD, positive, writer.input(1, type));
    const int result[] = {writer.binary(Op::kSUM, scaled, writer.input(2, type))};
    std::vector<int> used;
    ConvolutionParams params;
    params.stride = c.stride, params.pre_padding = c.pre, params.post_padding = c.post;
    params.fused.program = writer.finish(result, &used);
    params.fused.places = {1, 2};
    params.fused.result = type;
    const Deconvolution op(params);
    Shape kernel = {c.x[1], c.maps};
    for (const int64_t extent : c.window) kernel.push_back(extent);
    Shape channels = {c.maps};
    while (channels.rank() < c.x.rank() - 1) channels.push_back(1);
    TransposedCase largest = c;
    largest.x[0] = 4;
    for (int i = 2; i < c.x.rank(); ++i) largest.x[i] += 3;
    const std::vector<Shape> most = {largest.x, kernel, {}, channels, output_of(largest)};
    const std::vector<Shape> most_outputs = {output_of(largest)};
    const auto values = [&](const Shape& shape, int seed) {
      return rounded(random_values(shape, seed), type);
    };
    const auto inputs_of = [&](const TransposedCase& of) {
      return std::vector<TestInput>{{values(of.x, 1), type},
                                    {values(kernel, 2), type, true},
                                    absent(),
                                    {values(channels, 3), type, true},
                                    {values(output_of(of), 4), type}};
    };
    const std::vector<TestInput> inputs = inputs_of(c);
    const std::vector<TestOutput> outputs = {{output_of(c), type}};
    std::set<std::tuple<std::string, TensorFormat>> kinds;
    for (const Candidate& candidate : candidates_of(op, with_max(describe(inputs), most),
                                                    with_max(describe(outputs), most_outputs))) {
      if (!kinds.insert({kind_of(candidate), candidate.outputs[0].format}).second) continue;
      TestKernel built(op, candidate, inputs, outputs, {}, most, most_outputs);
      for (const TransposedCase& of : {c, largest}) {
        SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
        const std::vector<TestInput> now = inputs_of(of);
        const Shape y = output_of(of);
        Values expected = reference_transposed(now[0].values, now[1].values, y, of);
        const int64_t plane = y.numel(2, y.rank());
        for (int64_t i = 0; i < expected.size(); ++i)
          expected[i] =
              std::max(expected[i], 0.0) * now[3].values[i / plane % c.maps] + now[4].values[i];
        const std::vector<TestOutput> to = {{y, type}};
        expect_close(built.run(now, to)[0], expected, 4 * tolerance_of(type));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace opwright::testing
