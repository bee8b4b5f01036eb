#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"
#include "operators/infer.h"

namespace opwright::testing {
namespace {

struct PatchCase {
  std::string name;
  Shape x, kernel;
  int64_t groups = 1;
  Ints stride = {1, 1}, dilation = {1, 1}, pre = {1, 1}, post = {1, 1};
};

ConvolutionParams params_of(const PatchCase& c) {
  ConvolutionParams params;
  params.groups = c.groups;
  params.stride = c.stride, params.dilation = c.dilation;
  params.pre_padding = c.pre, params.post_padding = c.post;
  return params;
}

Shape output_of(const PatchCase& c) {
  Shape y = {c.x[0], c.kernel[0]};
  for (int i = 0; i < c.x.rank() - 2; ++i)
    y.push_back((c.x[i + 2] + c.pre[i] + c.post[i] - c.dilation[i] * (c.kernel[i + 2] - 1) - 1) /
                    c.stride[i] +
                1);
  return y;
}

bool is_patch(const Candidate& candidate) { return candidate.tactic_name.starts_with("patch "); }

/// x, the constant kernel and bias, and a residual.
std::vector<TestInput> inputs_of(const PatchCase& c, DataType type) {
  const auto values = [&](const Shape& shape, int seed) {
    return rounded(random_values(shape, seed), type);
  };
  return {{values(c.x, 1), type},
          {values(c.kernel, 2), type, true},
          {values({c.kernel[0]}, 3), type, true},
          {values(output_of(c), 4), type}};
}

Values sums_of(const PatchCase& c, const std::vector<TestInput>& inputs) {
  const Shape y = output_of(c);
  Values sums = reference_convolution(inputs[0].values, inputs[1].values, y, c.groups, c.stride,
                                      c.dilation, c.pre);
  const int64_t plane = y.numel() / (y[0] * y[1]);
  for (int64_t i = 0; i < sums.size(); ++i) sums[i] += inputs[2].values[i / plane % y[1]];
  return sums;
}

const Ints k1 = {1, 1, 1};
const PatchCase kPatchCases[] = {
    {"groups of 4", {2, 128, 19, 21}, {128, 4, 3, 3}, 32},
    {"groups of 4, stride 2", {1, 64, 30, 31}, {64, 4, 3, 3}, 16, {2, 2}},
    {"groups of 8", {2, 72, 9, 17}, {72, 8, 3, 3}, 9},
    {"groups of 8, stride 2", {1, 64, 17, 33}, {64, 8, 3, 3}, 8, {2, 2}},
    {"groups of 16", {2, 64, 7, 7}, {64, 16, 3, 3}, 4},
    {"groups of 32, stride 2", {1, 64, 14, 14}, {64, 32, 3, 3}, 2, {2, 2}},
    {"groups of 24", {1, 72, 12, 11}, {72, 24, 3, 3}, 3},
    {"groups of 48", {1, 96, 9, 10}, {96, 48, 3, 3}, 2, {2, 2}},
    {"groups of 2 with more maps", {1, 32, 8, 9}, {64, 2, 3, 3}, 16},
    {"a channel each, twice", {1, 16, 9, 9}, {32, 1, 5, 3}, 16, {1, 1}, {1, 1}, {2, 1}, {2, 1}},
    {"dense", {2, 32, 17, 33}, {32, 32, 3, 3}},
    {"dense, odd maps", {1, 40, 10, 19}, {45, 40, 3, 3}},
    {"dense, several chunks", {1, 96, 16, 16}, {72, 96, 3, 3}},
    {"dense, dilated", {1, 16, 20, 25}, {64, 16, 3, 3}, 1, {1, 1}, {2, 3}, {2, 3}, {2, 3}},
    {"dense, uneven", {1, 24, 23, 22}, {16, 24, 5, 2}, 1, {3, 2}, {2, 1}, {0, 2}, {3, 0}},
    {"dense, large windows", {1, 8, 21, 18}, {32, 8, 9, 9}, 1, {1, 1}, {1, 1}, {4, 4}, {4, 4}},
    {"a pixel", {1, 16, 9, 8}, {24, 16, 1, 1}, 1, {2, 1}, {1, 1}, {0, 0}, {0, 0}},
    {"three channels", {2, 3, 13, 19}, {24, 3, 3, 7}, 1, {2, 2}, {1, 1}, {1, 3}, {1, 3}},
    {"a channel", {1, 1, 12, 21}, {16, 1, 2, 5}, 1, {1, 1}, {1, 3}, {0, 5}, {1, 6}},
    {"twelve channels", {1, 12, 9, 18}, {20, 12, 3, 3}},
    {"pairs that do not lie equally far", {1, 5, 9, 25}, {8, 5, 1, 4}, 1, {1, 3}},
    {"a line", {2, 32, 1, 300}, {48, 32, 1, 5}, 1, {1, 1}, {1, 1}, {0, 2}, {0, 2}},
    {"a dilated line", {1, 24, 1, 141}, {32, 24, 1, 3}, 1, {1, 1}, {1, 9}, {0, 9}, {0, 8}},
    {"a line, stride 2", {1, 64, 1, 333}, {64, 64, 1, 8}, 1, {1, 2}, {1, 1}, {0, 3}, {0, 1}},
    {"a line of groups", {1, 64, 1, 150}, {64, 4, 1, 7}, 16, {1, 1}, {1, 1}, {0, 3}, {0, 3}},
    {"a line of one channel", {2, 1, 1, 270}, {32, 1, 1, 7}, 1, {1, 2}, {1, 1}, {0, 3}, {0, 3}},
    {"volume", {1, 32, 5, 10, 11}, {32, 32, 3, 3, 3}, 1, k1, k1, k1, k1},
    {"volume, stride 2", {2, 48, 5, 9, 17}, {40, 48, 3, 3, 3}, 1, {2, 2, 2}, k1, k1, {0, 1, 1}},
    {"volume, dilated",
     {1, 16, 11, 12, 9},
     {24, 16, 3, 3, 2},
     1,
     k1,
     {2, 2, 3},
     {2, 1, 0},
     {1, 2, 3}},
    {"volume of groups", {1, 32, 5, 9, 10}, {64, 4, 3, 3, 3}, 8, {1, 2, 1}, k1, k1, k1},
    {"volume of one channel", {1, 1, 6, 10, 9}, {32, 1, 3, 3, 3}, 1, k1, k1, k1, k1},
    {"video", {1, 3, 5, 20, 18}, {64, 3, 3, 7, 7}, 1, {1, 2, 2}, k1, {1, 3, 3}, {1, 3, 3}},
    {"volume, flat windows", {1, 16, 3, 9, 17}, {16, 16, 1, 3, 3}, 1, k1, k1, {0, 1, 1}, {0, 1, 1}},
    {"volume, several chunks", {1, 96, 2, 8, 8}, {72, 96, 3, 3, 3}, 1, k1, k1, k1, k1},
};

/// All tiles that can compute a case, with a bias, a residual and an activation, against the loops,
/// at addresses that vectors may have and others.
TEST(CudaPatch, EveryTileAgreesWithTheLoops) {
  std::set<int64_t> tactics;
  Selection selection(12);
  for (const PatchCase& c : kPatchCases)
    for (const DataType type : {DataType::kHALF, DataType::kBF16}) {
      ConvolutionParams params = params_of(c);
      params.has_residual = true;
      params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
      const Convolution op(params);
      const std::vector<TestInput> inputs = inputs_of(c, type);
      Values expected = sums_of(c, inputs);
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(0.0, expected[i] + inputs[3].values[i]);
      const std::vector<TestOutput> outputs = {{output_of(c), type}};
      int number = 0;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
        if (!is_patch(candidate)) continue;
        // BF16 differs in a type of the code.
        if (number++ % 4 != 0 && type == DataType::kBF16) continue;
        tactics.insert(candidate.tactic);
        if (!selection.takes_next()) continue;
        TestKernel built(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << c.name << " " << describe(candidate) << " shift " << shift);
          expect_close(built.run(inputs, outputs, -1, shift)[0], expected, 4 * tolerance_of(type));
          if (::testing::Test::HasFailure()) return;
        }
      }
      EXPECT_GE(number, at_least(1)) << c.name;
    }
  EXPECT_GE(tactics.size(), at_least(35u)) << "a tile is missing";
}

/// So many images that blocks take several, and keep the weights of all chunks.
TEST(CudaPatch, BlocksTakeSeveralTiles) {
  const std::pair<PatchCase, std::string> cases[] = {
      {{"groups", {550, 64, 3, 4}, {64, 8, 3, 3}, 8}, "patch tensor 8x8x64, 4 warps"},
      {{"dense", {420, 72, 3, 4}, {16, 72, 3, 3}}, "patch warpgroup 8x16x64, 4 warps"},
  };
  for (const auto& [c, name] : cases) {
    std::vector<TestInput> inputs = inputs_of(c, DataType::kHALF);
    inputs.pop_back();
    const Values expected = sums_of(c, inputs);
    const Convolution op(params_of(c));
    const std::vector<TestOutput> outputs = {{output_of(c), DataType::kHALF}};
    int number = 0;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
      if (candidate.tactic_name != name) continue;
      ++number;
      SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
      expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                   4 * tolerance_of(DataType::kHALF));
    }
    EXPECT_GE(number, at_least(1)) << c.name;
  }
}

/// A program that reads an element, an element per channel and a scalar, and stores bytes.
TEST(CudaPatch, ProgramsAndOtherResults) {
  for (const PatchCase& c : kPatchCases) {
    if (c.name != "groups of 8" && c.name != "dense" && c.name != "dense, odd maps" &&
        c.name != "volume, stride 2")
      continue;
    for (const DataType result : {DataType::kHALF, DataType::kINT8}) {
      ConvolutionParams params = params_of(c);
      const Shape y = output_of(c);
      std::vector<TestInput> inputs = inputs_of(c, DataType::kHALF);
      Shape of_channels = {y[1]};
      while (of_channels.rank() < y.rank() - 1) of_channels.push_back(1);
      inputs.push_back({random_values(of_channels, 5), DataType::kFLOAT});
      Values expected = sums_of(c, inputs);
      ProgramWriter writer;
      int value = writer.input(0, DataType::kFLOAT);
      value = writer.binary(ElementWiseOperation::kSUM, value, writer.input(1, DataType::kFLOAT));
      value = writer.binary(ElementWiseOperation::kPROD, value, writer.input(2, DataType::kFLOAT));
      for (int i : {3, 4})
        params.fused.places.push_back(
            fused_place(sym_shape(inputs[i].values.shape), sym_shape(y), 1));
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = (expected[i] + inputs[3].values[i]) *
                      inputs[4].values[i / (y.numel() / (y[0] * y[1])) % y[1]];
      if (result == DataType::kINT8) {
        value =
            writer.binary(ElementWiseOperation::kPROD, value, writer.constant(8, DataType::kFLOAT));
        value = writer.unary(UnaryOperation::kROUND, value);
        value = writer.cast(writer.activation(ActivationType::kCLIP, value, -128, 127), result);
        for (double& element : expected.data)
          element = std::clamp(std::nearbyint(8 * element), -128.0, 127.0);
      }
      const int results[] = {value};
      std::vector<int> used;
      params.fused.program = writer.finish(results, &used);
      params.fused.result = result;
      const Convolution op(params);
      const std::vector<TestOutput> outputs = {{y, result}};
      int number = 0;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
        if (!is_patch(candidate) || candidate.outputs[0].dtype != result ||
            candidate.inputs[0].dtype != DataType::kHALF || number++ % 5 != 0)
          continue;
        SCOPED_TRACE(::testing::Message() << c.name << " " << describe(candidate));
        const Values actual = run_kernel(op, candidate, inputs, outputs)[0];
        if (result == DataType::kHALF) {
          expect_close(actual, expected, 8 * tolerance_of(result));
        } else {
          for (int64_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1) << i;
        }
        if (::testing::Test::HasFailure()) return;
      }
      EXPECT_GE(number, at_least(1)) << c.name;
    }
  }
}

/// An infinity in a group's channels reaches no map of another group, and one beside a window no
/// pixel of that window.
TEST(CudaPatch, InfinitiesStayInTheirGroup) {
  Selection selection(2);
  for (const int64_t channels : {1, 3, 4, 8}) {
    const int64_t all = channels == 3 ? 3 : 32;
    const PatchCase c = {"", {1, all, 9, 10}, {64, channels, 3, 3}, all / channels};
    std::vector<TestInput> inputs = inputs_of(c, DataType::kHALF);
    inputs.pop_back();
    inputs[0].values[(channels == 1 ? 5
                      : all == 3    ? 1
                                    : 9) *
                         90 +
                     44] = std::numeric_limits<double>::infinity();
    const Values expected = sums_of(c, inputs);
    const Convolution op(params_of(c));
    const std::vector<TestOutput> outputs = {{output_of(c), DataType::kHALF}};
    int number = 0;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, {.all_tactics = true})) {
      if (!is_patch(candidate)) continue;
      ++number;
      if (!selection.takes_next()) continue;
      SCOPED_TRACE(::testing::Message() << channels << " " << describe(candidate));
      const Values actual = run_kernel(op, candidate, inputs, outputs)[0];
      for (int64_t i = 0; i < expected.size(); ++i) {
        if (std::isfinite(expected[i]))
          ASSERT_NEAR(actual[i], expected[i], 0.02) << i;
        else if (std::isinf(expected[i]))
          ASSERT_EQ(actual[i], expected[i]) << i;
        else
          ASSERT_TRUE(std::isnan(actual[i])) << i;
      }
    }
    EXPECT_GE(number, at_least(1));
  }
}

/// Open images, depths, heights and widths.
TEST(CudaPatch, OpenExtents) {
  Selection selection(4);
  const std::pair<int64_t, int> cases[] = {{1, 2}, {8, 2}, {1, 3}};
  for (const auto& [groups, count] : cases) {
    ConvolutionParams params;
    params.groups = groups;
    params.pre_padding = params.post_padding = params.dilation = Ints(count, 1);
    params.stride = Ints(count, 2);
    const Convolution op(params);
    std::vector<std::vector<TestAxis>> axes = {
        {{1, 4}, {64, 64}}, {{64, 64}, {64 / groups, 64 / groups}}, {{1, 4}, {64, 64}}};
    for (int axis = 0; axis < count; ++axis) {
      axes[0].push_back({1, 60});
      axes[1].push_back({3, 3});
      axes[2].push_back({1, 30});
    }
    std::vector<PortDesc> inputs = {port_of(axes[0], DataType::kHALF),
                                    port_of(axes[1], DataType::kHALF)};
    std::vector<PortDesc> outputs = {port_of(axes[2], DataType::kHALF)};
    int number = 0;
    for (const Candidate& candidate :
         candidates_of(op, std::span<const PortDesc>(inputs), outputs, {.all_tactics = true})) {
      if (!is_patch(candidate)) continue;
      ++number;
      if (!selection.takes_next()) continue;
      std::vector<PortDesc> of_inputs = inputs, of_outputs = outputs;
      for (size_t i = 0; i < 2; ++i) of_inputs[i].type = candidate.inputs[i];
      of_outputs[0].type = candidate.outputs[0];
      TestKernel built(op, candidate, of_inputs, of_outputs);
      for (const Shape& extents : {Shape{1, 1, 1, 1}, Shape{2, 3, 11, 34}, Shape{1, 5, 60, 8}}) {
        PatchCase c = {"", {extents[0], 64}, {64, 64 / groups}, groups};
        c.stride = params.stride, c.dilation = params.dilation;
        c.pre = c.post = params.pre_padding;
        for (int axis = 0; axis < count; ++axis) {
          c.x.push_back(extents[axis + 4 - count]);
          c.kernel.push_back(3);
        }
        std::vector<TestInput> tensors = inputs_of(c, DataType::kHALF);
        tensors.resize(2), tensors[1].constant = false;
        SCOPED_TRACE(::testing::Message() << c.x << " " << describe(candidate));
        const std::vector<TestOutput> results = {{output_of(c), DataType::kHALF}};
        const Values expected =
            reference_convolution(tensors[0].values, tensors[1].values, results[0].shape, groups,
                                  c.stride, c.dilation, c.pre);
        expect_close(built.run(tensors, results)[0], expected, 4 * tolerance_of(DataType::kHALF));
        if (::testing::Test::HasFailure()) return;
      }
    }
    EXPECT_GE(number, at_least(1));
  }
}

/// What is listed for ResNeXt-50 and for a U-Net without all_tactics.
TEST(CudaPatch, NetworksHaveCandidates) {
  const PatchCase cases[] = {
      {"ResNeXt 1", {16, 128, 56, 56}, {128, 4, 3, 3}, 32},
      {"ResNeXt 2", {16, 256, 56, 56}, {256, 8, 3, 3}, 32, {2, 2}},
      {"ResNeXt 2b", {16, 256, 28, 28}, {256, 8, 3, 3}, 32},
      {"ResNeXt 3", {16, 512, 28, 28}, {512, 16, 3, 3}, 32, {2, 2}},
      {"ResNeXt 3b", {16, 512, 14, 14}, {512, 16, 3, 3}, 32},
      {"ResNeXt 4", {16, 1024, 14, 14}, {1024, 32, 3, 3}, 32, {2, 2}},
      {"ResNeXt 4b", {16, 1024, 7, 7}, {1024, 32, 3, 3}, 32},
      {"U-Net 1", {4, 32, 512, 512}, {32, 32, 3, 3}},
      {"U-Net 2", {4, 64, 512, 512}, {64, 64, 3, 3}},
      {"U-Net 3", {4, 128, 512, 512}, {64, 128, 3, 3}},
      {"U-Net 4", {4, 128, 256, 256}, {128, 128, 3, 3}},
      {"U-Net of volumes 1", {1, 1, 64, 64, 64}, {32, 1, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"U-Net of volumes 2", {1, 32, 64, 64, 64}, {32, 32, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"U-Net of volumes 3", {1, 64, 32, 32, 32}, {64, 64, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"U-Net of volumes 4", {1, 128, 32, 32, 32}, {64, 128, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"U-Net of volumes 5", {1, 64, 64, 64, 64}, {32, 64, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"R3D 1", {1, 3, 16, 112, 112}, {64, 3, 3, 7, 7}, 1, {1, 2, 2}, k1, {1, 3, 3}, {1, 3, 3}},
      {"R3D 2", {1, 64, 16, 56, 56}, {64, 64, 3, 3, 3}, 1, k1, k1, k1, k1},
      {"vocoder", {1, 64, 1, 20000}, {64, 64, 1, 7}, 1, {1, 1}, {1, 3}, {0, 9}, {0, 9}},
  };
  for (const PatchCase& c : cases) {
    std::vector<PortDesc> inputs, outputs;
    for (const Shape& shape : {c.x, c.kernel, output_of(c)}) {
      PortDesc port;
      port.type.dtype = DataType::kHALF;
      port.min = port.opt = port.max = shape;
      port.is_constant = inputs.size() == 1;
      (inputs.size() < 2 ? inputs : outputs).push_back(port);
    }
    const Convolution op(params_of(c));
    int number = 0;
    for (const Candidate& candidate : candidates_of(op, std::span<const PortDesc>(inputs), outputs))
      number += is_patch(candidate) ? 1 : 0;
    EXPECT_GE(number, at_least(1)) << c.name;
    EXPECT_TRUE(runs_all_tactics() || number <= 6) << c.name << ": " << number;
  }
}

}  // namespace
}  // namespace opwright::testing
