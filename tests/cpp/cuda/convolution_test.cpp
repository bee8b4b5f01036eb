#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "base/types.h"
#include "compile/program.h"
#include "cpu/window_reference.h"
#include "cuda/profile_cases.h"
#include "operators/convolution.h"

namespace opwright::testing {
namespace {

/// Windows as boxes that the copying unit brings, over the borders of images, with a residual that
/// comes behind them.
TEST(CudaConvolution, BoxesOfWindows) {
  struct Case {
    int64_t size_y, size_x, window, stride, dilation, pre, post;
  };
  const Case cases[] = {{7, 9, 3, 1, 1, 1, 1},
                        {11, 8, 3, 2, 1, 1, 0},
                        {9, 10, 3, 1, 2, 2, 2},
                        {8, 8, 1, 2, 1, 0, 0},
                        {9, 7, 1, 1, 1, 0, 0}};
  const DataType type = DataType::kHALF;
  const int64_t images = 3, channels = 64, maps = 72;
  const long before = tensor_maps();
  for (const Case& of : cases)
    for (const bool has_residual : {false, true}) {
      ConvolutionParams params;
      params.stride = {of.stride, of.stride}, params.dilation = {of.dilation, of.dilation};
      params.pre_padding = {of.pre, of.pre}, params.post_padding = {of.post, of.post};
      params.has_residual = has_residual;
      const Convolution op(params);
      const auto extent = [&](int64_t size) {
        return (size + of.pre + of.post - of.dilation * (of.window - 1) - 1) / of.stride + 1;
      };
      const auto values = [&](const Shape& shape, int seed) {
        return rounded(random_values(shape, seed), type);
      };
      const Shape shape = {images, maps, extent(of.size_y), extent(of.size_x)};
      std::vector<TestInput> inputs = {
          {values({images, channels, of.size_y, of.size_x}, 1), type},
          {values({maps, channels, of.window, of.window}, 2), type, true},
          {values({maps}, 3), type, true}};
      Values expected = reference_convolution(inputs[0].values, inputs[1].values, shape, 1,
                                              params.stride, params.dilation, params.pre_padding);
      if (has_residual) inputs.push_back({values(shape, 4), type});
      for (int64_t i = 0; i < expected.size(); ++i) {
        expected[i] += inputs[2].values[i / (shape[2] * shape[3]) % maps];
        if (has_residual) expected[i] += inputs[3].values[i];
      }
      const std::vector<TestOutput> outputs = {{shape, type}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("warpgroup") ||
            candidate.outputs[0].format == TensorFormat::kLINEAR)
          continue;
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << of.size_y << "x" << of.size_x << " window " << of.window << " stride "
                       << of.stride << " " << describe(candidate) << " shift " << shift);
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  if (before >= 0 && !runs_each_once()) {
    EXPECT_GE(tensor_maps() - before, 2l * 2 * 5 * 2) << "windows came otherwise";
  }
}

/// Images of few channels, whose windows are read out of the image itself: places of one pixel and
/// of several, windows over the borders, extents that are no multiple of a tile, maps of several
/// tiles, a bias and a program of channels.
TEST(CudaConvolution, ImagesOfFewChannels) {
  struct Case {
    int64_t channels, maps, size_y, size_x, window_y, window_x, stride_y, stride_x, pre, post;
  };
  const Case cases[] = {{3, 64, 38, 150, 7, 7, 2, 2, 3, 3},
                        {3, 16, 21, 33, 3, 3, 2, 2, 1, 1},
                        {1, 72, 17, 20, 5, 5, 1, 1, 2, 2},
                        {4, 24, 12, 9, 3, 2, 1, 2, 0, 1},
                        {2, 130, 19, 40, 3, 6, 3, 4, 1, 0},
                        {3, 12, 9, 11, 3, 3, 1, 1, 1, 1},
                        // Places of pixels that no one access loads, as in speech.
                        {1, 512, 1, 203, 1, 10, 1, 5, 0, 0},
                        {2, 16, 1, 60, 1, 4, 1, 3, 0, 1},
                        {1, 40, 5, 66, 2, 7, 1, 6, 0, 2},
                        {1, 24, 4, 77, 1, 3, 2, 7, 1, 1}};
  int tested = 0;
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const Case& of : cases) {
      ConvolutionParams params;
      params.stride = {of.stride_y, of.stride_x};
      params.pre_padding = {of.pre, of.pre}, params.post_padding = {of.post, of.post};
      ProgramWriter writer;
      using Op = ElementWiseOperation;
      const int sum = writer.cast(writer.input(0, type), DataType::kFLOAT);
      const int scaled = writer.binary(Op::kPROD, sum, writer.input(1, type));
      const int result[] = {
          writer.binary(Op::kMAX, scaled, writer.constant(-0.5, DataType::kFLOAT))};
      std::vector<int> used;
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {1};
      params.fused.result = type;
      const Convolution op(params);
      const auto extent = [&](int64_t size, int64_t window, int64_t stride) {
        return (size + of.pre + of.post - window) / stride + 1;
      };
      const int64_t images = 2;
      const Shape shape = {images, of.maps, extent(of.size_y, of.window_y, of.stride_y),
                           extent(of.size_x, of.window_x, of.stride_x)};
      const auto values = [&](const Shape& extents, int seed) {
        return rounded(random_values(extents, seed), type);
      };
      const std::vector<TestInput> inputs = {
          {values({images, of.channels, of.size_y, of.size_x}, 1), type},
          {values({of.maps, of.channels, of.window_y, of.window_x}, 2), type, true},
          {values({of.maps}, 3), type, true},
          {values({of.maps, 1, 1}, 4), type, true}};
      Values expected = reference_convolution(inputs[0].values, inputs[1].values, shape, 1,
                                              params.stride, {}, params.pre_padding);
      for (int64_t i = 0; i < expected.size(); ++i) {
        const int64_t map = i / (shape[2] * shape[3]) % of.maps;
        expected[i] = std::max((expected[i] + inputs[2].values[map]) * inputs[3].values[map], -0.5);
      }
      const std::vector<TestOutput> outputs = {{shape, type}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("image")) continue;
        EXPECT_EQ(candidate.inputs[0].format, TensorFormat::kLINEAR);
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << of.channels << " channels, " << of.size_y << "x" << of.size_x
                       << " window " << of.window_y << "x" << of.window_x << " shift " << shift);
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
          if (::testing::Test::HasFailure()) return;
        }
        ++tested;
      }
    }
  EXPECT_TRUE(runs_each_once() || tested == 20) << tested;
}

/// What is beside a window, but in the same place of shared memory, does not count, whatever it is.
TEST(CudaConvolution, InfinitiesBesideWindows) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const int64_t images = 2, channels = 3, maps = 40, size_y = 21, size_x = 33;
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    for (const auto& [window, stride, pre] :
         {std::array<int64_t, 3>{7, 2, 3}, {3, 2, 1}, {3, 2, 0}, {3, 1, 1}}) {
      ConvolutionParams params;
      params.stride = {stride, stride};
      params.pre_padding = params.post_padding = {pre, pre};
      const Convolution op(params);
      const auto extent = [&, window = window, stride = stride, pre = pre](int64_t size) {
        return (size + 2 * pre - window) / stride + 1;
      };
      const Shape shape = {images, maps, extent(size_y), extent(size_x)};
      std::vector<TestInput> inputs = {
          {rounded(random_values({images, channels, size_y, size_x}, 1), type), type},
          {rounded(random_values({maps, channels, window, window}, 2), type), type, true}};
      Values& x = inputs[0].values;
      const auto at = [&](int64_t image, int64_t channel, int64_t y, int64_t column) -> double& {
        return x[((image * channels + channel) * size_y + y) * size_x + column];
      };
      at(0, 1, 9, 12) = kInfinity, at(0, 2, 20, 5) = -kInfinity, at(0, 0, 0, 31) = std::nan("");
      const Values expected = reference_convolution(x, inputs[1].values, shape, 1, params.stride,
                                                    {}, params.pre_padding);
      const int64_t finite = std::count_if(expected.data.begin(), expected.data.end(),
                                           [](double y) { return std::isfinite(y); });
      ASSERT_TRUE(finite > expected.size() / 2 && finite < expected.size());
      const std::vector<TestOutput> outputs = {{shape, type}};
      int tested = 0;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("image")) continue;
        SCOPED_TRACE(::testing::Message() << "window " << window << " stride " << stride);
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1})
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(type));
        ++tested;
      }
      EXPECT_TRUE(runs_each_once() || tested == 1) << tested;
    }
}

/// Windows of linear images of few channels that lie inside of them, with results channels-last: in
/// every tile, with pieces of all lengths, rows and columns left over at the ends, windows that
/// overlap, and addresses that vectors may not have.
TEST(CudaConvolution, PatchesOfImages) {
  struct Case {
    int64_t channels, maps, size_y, size_x, window_y, window_x, stride_y, stride_x;
  };
  const Case cases[] = {{3, 72, 32, 48, 16, 16, 16, 16}, {3, 40, 43, 47, 14, 14, 14, 14},
                        {1, 24, 25, 33, 4, 4, 4, 4},     {4, 72, 30, 56, 5, 8, 3, 4},
                        {2, 16, 12, 26, 2, 2, 2, 2},     {3, 8, 40, 48, 1, 16, 2, 16}};
  std::set<int64_t> tactics;
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const Case& of : cases) {
      if (type != DataType::kHALF && &of != &cases[0] && &of != &cases[1]) continue;
      ConvolutionParams params;
      params.stride = {of.stride_y, of.stride_x};
      params.has_residual = true;
      params.activation.type = static_cast<int32_t>(ActivationType::kRELU);
      const Convolution op(params);
      const int64_t images = 3;
      const Shape shape = {images, of.maps, (of.size_y - of.window_y) / of.stride_y + 1,
                           (of.size_x - of.window_x) / of.stride_x + 1};
      const auto values = [&](const Shape& extents, int seed) {
        return rounded(random_values(extents, seed), type);
      };
      const std::vector<TestInput> inputs = {
          {values({images, of.channels, of.size_y, of.size_x}, 1), type},
          {values({of.maps, of.channels, of.window_y, of.window_x}, 2), type, true},
          {values({of.maps}, 3), type, true},
          {values(shape, 4), type}};
      Values expected = reference_convolution(inputs[0].values, inputs[1].values, shape, 1,
                                              params.stride, {}, {});
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(expected[i] + inputs[2].values[i / (shape[2] * shape[3]) % of.maps] +
                                   inputs[3].values[i],
                               0.0);
      const std::vector<TestOutput> outputs = {{shape, type}};
      int tested = 0;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("patches")) continue;
        EXPECT_EQ(candidate.inputs[0].format, TensorFormat::kLINEAR);
        EXPECT_EQ(candidate.outputs[0].format, TensorFormat::kHWC);
        tactics.insert(candidate.tactic);
        TestKernel kernel(op, candidate, inputs, outputs);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << of.size_y << "x" << of.size_x << " window " << of.window_y << "x"
                       << of.window_x << " " << describe(candidate) << " shift " << shift);
          expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected,
                       std::max(1e-4, tolerance_of(type)));
          if (::testing::Test::HasFailure()) return;
        }
        ++tested;
      }
      EXPECT_GE(tested, at_least(1));
    }
  EXPECT_GE(tactics.size(), at_least(6u)) << "not every tile was tested";
}

/// The same images as bytes with a zero point, which stands beyond the borders, too: sums are
/// exact.
TEST(CudaConvolution, ImagesOfBytes) {
  int tested = 0;
  for (const DataType type : {DataType::kINT8, DataType::kUINT8})
    for (const auto& [channels, maps, stride] : {std::tuple(3, 64, 2), std::tuple(1, 24, 1)}) {
      ConvolutionParams params;
      params.stride = {stride, stride};
      params.pre_padding = params.post_padding = {3, 3};
      params.zero_point = type == DataType::kINT8 ? -7 : 113;
      ProgramWriter writer;
      int y = writer.cast(writer.input(0, DataType::kINT32), DataType::kFLOAT);
      y = writer.binary(ElementWiseOperation::kDIV, y, writer.input(1, DataType::kFLOAT));
      y = writer.unary(UnaryOperation::kROUND, y);
      y = writer.activation(ActivationType::kCLIP, y, -128, 127);
      const int result[] = {writer.cast(y, DataType::kINT8)};
      std::vector<int> used;
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {1};
      params.fused.result = DataType::kINT8;
      const Convolution op(params);
      const int64_t images = 2, height = 21, width = 34;
      const Shape shape = {images, maps, (height - 1) / stride + 1, (width - 1) / stride + 1};
      const auto bytes = [](const Shape& extents, int seed, double from, double to) {
        Values values = random_values(extents, seed);
        for (double& value : values.data)
          value = std::clamp(std::nearbyint((value + 1) / 2 * (to - from) + from), from, to);
        return values;
      };
      const double low = type == DataType::kINT8 ? -128 : 0;
      Values divisors = random_values({maps, 1, 1}, 4);
      for (double& value : divisors.data) value = std::exp2(std::floor(value * 2) + 12);
      const std::vector<TestInput> inputs = {
          {bytes({images, channels, height, width}, 1, low, low + 255), type},
          {bytes({maps, channels, 7, 7}, 2, -127, 127), DataType::kINT8, true},
          absent(),
          {divisors, DataType::kFLOAT, true}};
      Values moved = inputs[0].values;
      for (double& value : moved.data) value -= static_cast<double>(params.zero_point);
      Values expected = reference_convolution(moved, inputs[1].values, shape, 1, params.stride, {},
                                              params.pre_padding);
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] =
            std::clamp(std::nearbyint(expected[i] / divisors[i / (shape[2] * shape[3]) % maps]),
                       -128.0, 127.0);
      const std::vector<TestOutput> outputs = {{shape, DataType::kINT8}};
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        if (!candidate.tactic_name.starts_with("image")) continue;
        SCOPED_TRACE(::testing::Message()
                     << channels << " channels of type " << static_cast<int>(type));
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, 0);
        ++tested;
      }
    }
  EXPECT_GE(tested, at_least(4));
}

/// In both layouts and by threads for themselves: max(sum, 0) * channel + element, and the result
/// as bytes where the sums are of bytes.
TEST(CudaConvolution, FusedPrograms) {
  const int64_t maps = 24, size = 9;
  for (const int64_t groups : {int64_t{1}, maps})
    for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kINT8}) {
      const bool bytes = type == DataType::kINT8;
      if (bytes && groups != 1) continue;
      const DataType other = bytes ? DataType::kFLOAT : type;
      ProgramWriter writer;
      using Op = ElementWiseOperation;
      const int sum =
          writer.cast(writer.input(0, bytes ? DataType::kINT32 : type), DataType::kFLOAT);
      const int zero = writer.constant(0, DataType::kFLOAT);
      const int scaled =
          writer.binary(Op::kPROD, writer.binary(Op::kMAX, sum, zero), writer.input(1, other));
      const int result[] = {writer.binary(Op::kSUM, scaled, writer.input(2, other))};
      std::vector<int> used;
      ConvolutionParams params;
      params.groups = groups, params.pre_padding = params.post_padding = {1, 1};
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {1, 2};
      params.fused.result = other;
      const Convolution op(params);
      const auto values = [&](const Shape& shape, int seed) {
        Values made = random_values(shape, seed);
        if (bytes)
          for (double& value : made.data) value = std::round(9 * value);
        return rounded(made, type);
      };
      const int64_t channels = groups == 1 ? 20 : maps;
      std::vector<TestInput> inputs = {
          {values({2, channels, size, size}, 1), type},
          {values({maps, channels / groups, 3, 3}, 2), type, true},
          absent(),
          {rounded(random_values({maps, 1, 1}, 3), other), other, true},
          {rounded(random_values({2, maps, size, size}, 4), other), other}};
      Values expected = reference_convolution(inputs[0].values, inputs[1].values,
                                              {2, maps, size, size}, groups, {}, {}, {1, 1});
      for (int64_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(expected[i], 0.0) * inputs[3].values[i / (size * size) % maps] +
                      inputs[4].values[i];
      const std::vector<TestOutput> outputs = {{expected.shape, other}};
      const auto candidates = candidates_of(op, inputs, outputs);
      std::set<TensorFormat> formats;
      for (const Candidate& candidate : candidates) {
        formats.insert(candidate.outputs[0].format);
        SCOPED_TRACE(describe(candidate));
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, std::max(1e-5, tolerance_of(other)));
      }
      EXPECT_TRUE(runs_each_once() || formats.size() == 2) << "a layout is missing";
    }
}

/// Each pixel becomes four, which no other reaches: max(sum, 0) * channel + element.
TEST(CudaConvolution, FusedProgramsBehindTransposedOnes) {
  const int64_t maps = 24, size = 5, twice = 2 * size;
  for (const int64_t groups : {int64_t{1}, maps})
    for (const DataType type : {DataType::kFLOAT, DataType::kHALF}) {
      ProgramWriter writer;
      using Op = ElementWiseOperation;
      const int zero = writer.constant(0, DataType::kFLOAT);
      const int positive = writer.binary(Op::kMAX, writer.input(0, type), zero);
      const int scaled = writer.binary(Op::kPROD, positive, writer.input(1, type));
      const int result[] = {writer.binary(Op::kSUM, scaled, writer.input(2, type))};
      std::vector<int> used;
      ConvolutionParams params;
      params.groups = groups, params.stride = {2, 2};
      params.fused.program = writer.finish(result, &used);
      params.fused.places = {1, 2};
      params.fused.result = type;
      const Deconvolution op(params);
      const int64_t channels = groups == 1 ? 20 : maps, of_group = maps / groups;
      const auto values = [&](const Shape& shape, int seed) {
        return rounded(random_values(shape, seed), type);
      };
      const std::vector<TestInput> inputs = {{values({2, channels, size, size}, 1), type},
                                             {values({channels, of_group, 2, 2}, 2), type, true},
                                             absent(),
                                             {values({maps, 1, 1}, 3), type, true},
                                             {values({2, maps, twice, twice}, 4), type}};
      const Values& x = inputs[0].values;
      const Values expected = make_values({2, maps, twice, twice}, [&](int64_t i) {
        const int64_t column = i % twice, row = i / twice % twice;
        const int64_t map = i / (twice * twice) % maps, image = i / (twice * twice) / maps;
        const int64_t each = channels / groups, first = map / of_group * each;
        double sum = 0;
        for (int64_t c = first; c < first + each; ++c)
          sum += x[((image * channels + c) * size + row / 2) * size + column / 2] *
                 inputs[1].values[((c * of_group + map % of_group) * 2 + row % 2) * 2 + column % 2];
        return std::max(sum, 0.0) * inputs[3].values[map] + inputs[4].values[i];
      });
      const std::vector<TestOutput> outputs = {{expected.shape, type}};
      std::set<TensorFormat> formats;
      for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
        formats.insert(candidate.outputs[0].format);
        SCOPED_TRACE(describe(candidate));
        TestKernel kernel(op, candidate, inputs, outputs);
        expect_close(kernel.run(inputs, outputs)[0], expected, std::max(1e-5, tolerance_of(type)));
      }
      EXPECT_TRUE(runs_each_once() || formats.size() == 2) << "a layout is missing";
    }
}

}  // namespace
}  // namespace opwright::testing
