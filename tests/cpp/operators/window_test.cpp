// Convolution, transposed convolution and pooling. Extents are compared with windows that are slid
// one by one, and with results that PyTorch and ONNX document.

#include "operators/context.h"
#include "operators/convolution.h"
#include "operators/pooling.h"

namespace opwright::testing {
namespace {

/// Windows of `kernel` elements, `dilation` apart, that fit into `length` elements.
int64_t slide(int64_t length, int64_t kernel, int64_t stride, int64_t dilation) {
  int64_t count = 0;
  for (int64_t begin = 0; begin + (kernel - 1) * dilation < length; begin += stride) ++count;
  return count;
}

TEST(Convolution, ExtentsEqualWindowsThatFit) {
  for (int64_t kernel : {1, 2, 3, 5})
    for (int64_t stride : {1, 2, 3})
      for (int64_t dilation : {1, 2})
        for (int64_t pre : {0, 1, 2})
          for (int64_t post : {0, 1}) {
            ConvolutionParams params;
            params.stride = {stride};
            params.dilation = {dilation};
            params.pre_padding = {pre};
            params.post_padding = {post};
            const TensorInfo weights = tensor({8, 4, kernel});
            for (int64_t extent : {9, 10, 11, 12, 30}) {
              const Shape expected = {2, 8, slide(extent + pre + post, kernel, stride, dilation)};
              EXPECT_EQ(shape_of<Convolution>(params, {tensor({2, 4, extent}), weights}), expected);
              EXPECT_EQ(
                  shape_at<Convolution>(params, {tensor({s(0), 4, s(1)}), weights}, {2, extent}),
                  expected);
            }
          }
}

TEST(Convolution, GroupsBiasAndDepthwise) {
  ConvolutionParams params;
  params.stride = {2, 2};
  params.pre_padding = params.post_padding = {1, 1};
  params.groups = 32;
  EXPECT_EQ(shape_of<Convolution>(params,
                                  {tensor({1, 32, 112, 112}), tensor({64, 1, 3, 3}), tensor({64})}),
            (Shape{1, 64, 56, 56}));
  ConvolutionParams volume;
  EXPECT_EQ(shape_of<Convolution>(volume, {tensor({1, 3, 8, 9, 10}), tensor({5, 3, 3, 2, 1})}),
            (Shape{1, 5, 6, 8, 10}));
}

TEST(Convolution, SamePaddingDividesTheExtent) {
  ConvolutionParams params;
  params.stride = {3};
  params.padding_mode = PaddingMode::kSAME_UPPER;
  // 10 elements, stride 3: windows begin at 0, 3, 6, 9 and reach to 9 + 4 = 13, 3 more than there
  // are. The larger part of these 3 follows (upper) or precedes (lower).
  EXPECT_EQ(shape_of<Convolution>(params, {tensor({1, 1, 10}), tensor({1, 1, 4})}),
            (Shape{1, 1, 4}));
  ResolvedPadding padding = resolve_padding(params, Shape{1, 1, 10}, Shape{1, 1, 4});
  EXPECT_EQ(padding.pre, (Ints{1}));
  EXPECT_EQ(padding.post, (Ints{2}));
  params.padding_mode = PaddingMode::kSAME_LOWER;
  padding = resolve_padding(params, Shape{1, 1, 10}, Shape{1, 1, 4});
  EXPECT_EQ(padding.pre, (Ints{2}));
  EXPECT_EQ(padding.post, (Ints{1}));
}

TEST(Convolution, RoundingUpAddsPaddingAtTheEnd) {
  ConvolutionParams params;
  params.stride = {2};
  params.pre_padding = {1};
  params.padding_mode = PaddingMode::kEXPLICIT_ROUND_UP;
  // 1 + 8 elements: windows of 3 at 0, 2, 4, 6 end at 9; with 9 elements one more begins at 8.
  EXPECT_EQ(shape_of<Convolution>(params, {tensor({1, 1, 8}), tensor({1, 1, 3})}),
            (Shape{1, 1, 4}));
  EXPECT_EQ(shape_of<Convolution>(params, {tensor({1, 1, 9}), tensor({1, 1, 3})}),
            (Shape{1, 1, 5}));
  EXPECT_EQ(resolve_padding(params, Shape{1, 1, 9}, Shape{1, 1, 3}).post, (Ints{1}));
}

TEST(Convolution, Residual) {
  ConvolutionParams params;
  params.has_residual = true;
  const TensorInfo x = tensor({s(0), 4, 6}), kernel = tensor({2, 4, 3});
  EXPECT_EQ(shape_at<Convolution>(params, {x, kernel, tensor({s(0), 2, 4})}, {3}),
            (Shape{3, 2, 4}));
  EXPECT_EQ(shape_at<Convolution>(params, {x, kernel, std::nullopt, tensor({s(0), 2, 4})}, {3}),
            (Shape{3, 2, 4}));
  expect_contains(error_of<Convolution>(params, {x, kernel, std::nullopt, tensor({s(0), 2, 5})}),
                  {"input 3 (residual)", "extent 4", "axis 2"});
}

TEST(Convolution, Errors) {
  const TensorInfo x = tensor({1, 4, 8, 8}), kernel = tensor({6, 4, 3, 3});
  ConvolutionParams params;
  expect_contains(error_of<Convolution>(params, {tensor({1, 4, 8, 8}, DataType::kINT32), kernel}),
                  {"Convolution", "input 0 (x)", "INT32"});
  expect_contains(error_of<Convolution>(params, {x, tensor({6, 4, 3, 3}, DataType::kHALF)}),
                  {"input 1 (kernel)", "FP32", "FP16"});
  expect_contains(error_of<Convolution>(params, {x, tensor({6, 4, 3})}),
                  {"input 1 (kernel)", "rank 4"});
  expect_contains(error_of<Convolution>(params, {tensor({1, 5, 8, 8}), kernel}),
                  {"input 0 (x)", "extent 4", "channels"});
  expect_contains(error_of<Convolution>(params, {x, tensor({6, 4, 9, 3})}), {"does not fit"});
  expect_contains(error_of<Convolution>(params, {x, kernel, tensor({7})}),
                  {"input 2 (bias)", "extent 6"});
  params.stride = {0, 1};
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"stride", "[0, 1]"});
  params.stride = {1};
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"stride", "2 elements"});
  params.stride = {};
  params.pre_padding = {0, -1};
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"pre-padding", "[0, -1]"});
  params.pre_padding = {};
  params.dilation = {1, int64_t{1} << 40};
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"dilation"});
  params.dilation = {};
  params.groups = 4;
  expect_contains(error_of<Convolution>(params, {x, tensor({6, 1, 3, 3})}),
                  {"groups (4)", "divide"});
  params.groups = 0;
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"groups", "0"});
  params.groups = 1;
  params.activation.type = 77;
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"activation", "77"});
  params.activation.type = FusedActivation::kNone;
  params.padding_mode = static_cast<PaddingMode>(9);
  expect_contains(error_of<Convolution>(params, {x, kernel}), {"padding mode", "9"});
}

/// The elements that a transposed convolution reaches: every input element spreads a kernel.
int64_t spread(int64_t input, int64_t kernel, int64_t stride, int64_t dilation) {
  int64_t end = 0;
  for (int64_t i = 0; i < input; ++i)
    for (int64_t k = 0; k < kernel; ++k) end = std::max(end, i * stride + k * dilation + 1);
  return end;
}

TEST(Deconvolution, ExtentsAreWhatTheInputSpreadsOver) {
  for (int64_t kernel : {2, 3, 4})
    for (int64_t stride : {1, 2})
      for (int64_t dilation : {1, 2})
        for (int64_t extra : {0, 1}) {
          ConvolutionParams params;
          params.stride = {stride};
          params.dilation = {dilation};
          params.pre_padding = {1};
          params.output_padding = {extra};
          params.groups = 2;
          const TensorInfo weights = tensor({4, 3, kernel});
          const Shape expected = {5, 6, spread(7, kernel, stride, dilation) - 1 + extra};
          EXPECT_EQ(shape_of<Deconvolution>(params, {tensor({5, 4, 7}), weights, tensor({6})}),
                    expected);
          EXPECT_EQ(shape_at<Deconvolution>(params, {tensor({s(0), 4, s(1)}), weights}, {5, 7}),
                    expected);
          const ResolvedPadding padding =
              resolve_transposed_padding(params, Shape{5, 4, 7}, Shape{4, 3, kernel});
          EXPECT_EQ(spread(7, kernel, stride, dilation) - padding.pre[0] - padding.post[0],
                    expected[2]);
        }
}

TEST(Deconvolution, SamePaddingMultipliesTheExtent) {
  ConvolutionParams params;
  params.stride = {2};
  params.padding_mode = PaddingMode::kSAME_UPPER;
  const TensorInfo x = tensor({1, 1, 5});
  for (int64_t kernel : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(shape_of<Deconvolution>(params, {x, tensor({1, 1, kernel})}), (Shape{1, 1, 10}));
    const ResolvedPadding padding =
        resolve_transposed_padding(params, Shape{1, 1, 5}, Shape{1, 1, kernel});
    EXPECT_EQ(spread(5, kernel, 2, 1) - padding.pre[0] - padding.post[0], 10);
  }
  // As in ONNX: a kernel of 3 leaves 1 too much, cut at the end (upper) or the beginning (lower).
  EXPECT_EQ(resolve_transposed_padding(params, Shape{1, 1, 5}, Shape{1, 1, 3}).pre, (Ints{0}));
  params.padding_mode = PaddingMode::kSAME_LOWER;
  EXPECT_EQ(resolve_transposed_padding(params, Shape{1, 1, 5}, Shape{1, 1, 3}).pre, (Ints{1}));
}

TEST(Deconvolution, Residual) {
  ConvolutionParams params;
  params.has_residual = true;
  params.stride = {2};
  const TensorInfo x = tensor({s(0), 4, 6}), kernel = tensor({4, 2, 3});
  EXPECT_EQ(shape_at<Deconvolution>(params, {x, kernel, tensor({s(0), 2, 13})}, {3}),
            (Shape{3, 2, 13}));
  expect_contains(error_of<Deconvolution>(params, {x, kernel, tensor({2}), tensor({s(0), 2, 12})}),
                  {"Deconvolution", "input 3 (residual)", "extent 13", "axis 2"});
  params.has_residual = false;
  expect_contains(error_of<Deconvolution>(params, {x, kernel, tensor({2}), tensor({s(0), 2, 13})}),
                  {"Deconvolution", "4"});
}

TEST(Deconvolution, Errors) {
  const TensorInfo x = tensor({1, 4, 8}), kernel = tensor({4, 2, 3});
  ConvolutionParams params;
  expect_contains(error_of<Deconvolution>(params, {x, tensor({5, 2, 3})}),
                  {"Deconvolution", "input 1 (kernel)", "extent 4"});
  params.output_padding = {-1};
  expect_contains(error_of<Deconvolution>(params, {x, kernel}), {"output padding"});
  params.output_padding = {};
  params.pre_padding = {20};
  expect_contains(error_of<Deconvolution>(params, {x, kernel}), {"padding leaves nothing"});
}

PoolingParams pooling(Ints window, Ints stride, Ints pre, Ints post,
                      PaddingMode mode = PaddingMode::kEXPLICIT_ROUND_DOWN) {
  PoolingParams params;
  params.window = std::move(window);
  params.stride = std::move(stride);
  params.pre_padding = std::move(pre);
  params.post_padding = std::move(post);
  params.padding_mode = mode;
  return params;
}

TEST(Pooling, RoundingDown) {
  EXPECT_EQ(shape_of<Pooling>(pooling({3, 3}, {2, 2}, {1, 1}, {1, 1}), {tensor({1, 64, 112, 112})}),
            (Shape{1, 64, 56, 56}));
  EXPECT_EQ(shape_of<Pooling>(pooling({2, 3}, {}, {}, {}), {tensor({1, 2, 5, 5})}),
            (Shape{1, 2, 4, 3}));
}

TEST(Pooling, RoundingUpDropsWindowsThatBeginInThePadding) {
  const auto up = PaddingMode::kEXPLICIT_ROUND_UP;
  // GoogLeNet's first pooling.
  EXPECT_EQ(shape_of<Pooling>(pooling({3, 3}, {2, 2}, {}, {}, up), {tensor({1, 64, 112, 112})}),
            (Shape{1, 64, 56, 56}));
  // ONNX's test_averagepool_2d_ceil_last_window_starts_on_pad.
  const PoolingParams on_pad = pooling({3, 3}, {3, 3}, {1, 1}, {1, 1}, up);
  EXPECT_EQ(shape_of<Pooling>(on_pad, {tensor({1, 3, 2, 2})}), (Shape{1, 3, 1, 1}));
  // Windows begin at 0, 2, 4, .. and end beyond the input at most once.
  for (int64_t extent = 2; extent < 20; ++extent) {
    const PoolingParams params = pooling({3}, {2}, {1}, {1}, up);
    int64_t count = 0;
    for (int64_t begin = -1; begin < extent; begin += 2) {
      ++count;
      if (begin + 3 >= extent + 1) break;
    }
    EXPECT_EQ(shape_of<Pooling>(params, {tensor({1, 1, extent})}), (Shape{1, 1, count}));
    EXPECT_EQ(shape_at<Pooling>(params, {tensor({1, 1, s(0)})}, {extent}), (Shape{1, 1, count}));
    const ResolvedPadding padding = resolve_padding(params, Shape{1, 1, extent});
    EXPECT_EQ(padding.pre, (Ints{1}));
    EXPECT_EQ(slide(extent + padding.pre[0] + padding.post[0], 3, 2, 1), count);
  }
}

TEST(Pooling, SamePadding) {
  PoolingParams params = pooling({3}, {2}, {}, {}, PaddingMode::kSAME_LOWER);
  EXPECT_EQ(shape_of<Pooling>(params, {tensor({1, 1, 8})}), (Shape{1, 1, 4}));
  // Windows at 0, 2, 4, 6 reach to 9: one more than there is.
  EXPECT_EQ(resolve_padding(params, Shape{1, 1, 8}).pre, (Ints{1}));
  EXPECT_EQ(resolve_padding(params, Shape{1, 1, 8}).post, (Ints{0}));
}

TEST(Pooling, Errors) {
  const TensorInfo x = tensor({1, 2, 8, 8});
  expect_contains(error_of<Pooling>({}, {x}), {"Pooling", "window"});
  expect_contains(error_of<Pooling>(pooling({3, 3}, {2, 0}, {}, {}), {x}), {"stride", "[2, 0]"});
  expect_contains(error_of<Pooling>(pooling({3, 3}, {}, {3, 0}, {}), {x}),
                  {"padding", "smaller than the window"});
  expect_contains(error_of<Pooling>(pooling({9, 3}, {}, {}, {}), {x}), {"does not fit", "axis 2"});
  expect_contains(error_of<Pooling>(pooling({3}, {}, {}, {}), {tensor({1, 8})}),
                  {"input 0 (x)", "rank 3 to 5"});
  PoolingParams blend = pooling({2, 2}, {}, {}, {});
  blend.type = PoolingType::kMAX_AVERAGE_BLEND;
  blend.blend_factor = 2;
  expect_contains(error_of<Pooling>(blend, {x}), {"blend factor", "2"});
  PoolingParams average = pooling({2, 2}, {}, {}, {});
  average.type = PoolingType::kAVERAGE;
  expect_contains(error_of<Pooling>(average, {tensor({1, 2, 8, 8}, DataType::kINT8)}), {"INT8"});
}

}  // namespace
}  // namespace opwright::testing
