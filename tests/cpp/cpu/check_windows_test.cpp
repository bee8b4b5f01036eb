// The steps of convolutions, pooling and what else looks at windows of images: what a plan may not
// say of them, and what their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "operators/col2im.h"
#include "operators/convolution.h"
#include "operators/pooling.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/window_reduction.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

Step convolution(ConvolutionParams params = {}) {
  return step<Convolution>(params, {port({1, 16, 8, 8}), weights({32, 16, 3, 3}), weights({32})},
                           {port({1, 32, 6, 6})});
}
Step deconvolution() {
  return step<Deconvolution>({}, {port({1, 16, 8, 8}), weights({16, 32, 3, 3})},
                             {port({1, 32, 10, 10})});
}
Step residual() {
  ConvolutionParams params;
  params.has_residual = true;
  Step result = convolution(params);
  result.inputs.push_back(port({1, 32, 6, 6}));
  return result;
}
Step byte_convolution() {
  return step<Convolution>({}, {port({1, 16, 8, 8}, kUINT8), port({32, 16, 3, 3}, kINT8)},
                           {port({1, 32, 6, 6}, kINT32)});
}
Step pooling(PoolingType type = PoolingType::kMAX) {
  PoolingParams params;
  params.type = type;
  params.window = params.stride = {2, 2};
  return step<Pooling>(params, {port({1, 16, 8, 8})}, {port({1, 16, 4, 4})});
}
Step grid_sample() {
  return step<GridSample>({}, {port({1, 2, 4, 4}), port({1, 3, 3, 2})}, {port({1, 2, 3, 3})});
}
Step deformable_columns() {
  return step<DeformableColumns>({}, {port({1, 2, 4, 4}), port({1, 2, 4, 4}), port({1, 1, 4, 4})},
                                 {port({1, 2, 4, 4})});
}
Step roi_align() {
  return step<RoiAlign>({}, {port({1, 2, 4, 4}), port({3, 4}), port({3}, kINT64)},
                        {port({3, 2, 1, 1})});
}
Step roi_pool() {
  return step<RoiPool>({}, {port({1, 2, 4, 4}), port({3, 5})}, {port({3, 2, 1, 1})});
}
Step col2im() {
  Col2ImParams params;
  params.block = {2, 2};
  Step result = step<Col2Im>(params, {port({1, 8, 6}), port({2}, kINT64)}, {port({1, 2, 3, 4})});
  result.values = {{1, {3, 4}}};
  return result;
}
Step max_unpool() {
  Step result =
      step<MaxUnpool>({}, {port({1, 2, 2, 2}), port({1, 2, 2, 2}, kINT64), port({4}, kINT64)},
                      {port({1, 2, 4, 4})});
  result.values = {{2, {1, 2, 4, 4}}};
  return result;
}
Step indexed_pooling() {
  IndexedMaxPoolingParams params;
  params.pooling.window = params.pooling.stride = {2, 2};
  return step<IndexedMaxPooling>(params, {port({1, 2, 4, 4})},
                                 {port({1, 2, 2, 2}), port({1, 2, 2, 2}, kINT64)});
}
Step lp_pooling() {
  LpPoolingParams params;
  params.pooling.window = params.pooling.stride = {2, 2};
  return step<LpPooling>(params, {port({1, 2, 4, 4})}, {port({1, 2, 2, 2})});
}

std::vector<Step> windows_steps() {
  return {convolution(),
          deconvolution(),
          residual(),
          pooling(),
          pooling(PoolingType::kAVERAGE),
          byte_convolution(),
          grid_sample(),
          deformable_columns(),
          roi_align(),
          roi_pool(),
          col2im(),
          max_unpool(),
          indexed_pooling(),
          lp_pooling()};
}

std::vector<FaultCase> windows_cases() {
  const auto pack = [](Step& s) { s.packed = {{0, Blob::copy("", 1), "1:1:1:1::"}}; };
  return {
      {"a constant that grows", convolution(), [](Step& s) { s.inputs[2].max = {64}; },
       "is a constant, but its shape changes"},
      {"a constant that is cut off", convolution(),
       [](Step& s) { s.inputs[2].constant = Blob::copy("1234", 4); },
       "input 2 is a constant of 128 bytes, of which the engine has 4"},
      {"a packed image", convolution(), pack, "input 0 is packed"},
      {"packed twice", convolution(),
       [](Step& s) {
         const PackedInput packed{1, Blob::copy("1234", 4), "3:1:1:1::"};
         s.packed = {packed, packed};
       },
       "input 1 is packed"},
      {"packed weights that are none", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:1:1:1::"}};
         s.inputs[1].is_constant = false;
       },
       "input 1 is packed"},
      {"packed weights in no layout", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "any"}};
       },
       "The layout of packed weights 'any'"},
      {"packed weights of another type", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "99:1:1:1::"}};
       },
       "The layout of packed weights '99:1:1:1::'"},
      {"packed weights that are too short", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:2:2:1::"}};
       },
       "The layout of packed weights '3:2:2:1::'"},
      {"packed weights of 2^64 elements", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:1,1:4294967296,4294967296:1,1::"}};
       },
       "The layout of packed weights"},
      {"Convolution in FP8", convolution(), [](Step& s) { set_all(s, {kFP8}); },
       "input 0 must be FP32, FP16 or BF16"},
      {"Convolution to another type", convolution(),
       [](Step& s) { s.outputs[0].type.dtype = kHALF; }, "output 0 must have the type of input 0"},
      {"Convolution in CHW32", convolution(),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kCHW32; },
       "input 0 must have the format LINEAR, CHW16 or HWC, but has CHW32"},
      {"Convolution from HWC to CHW16", convolution(),
       [](Step& s) { s.inputs[0].type.format = kHWC, s.outputs[0].type.format = kCHW16; },
       "and its format unless that is LINEAR"},
      {"a kernel in HWC", convolution(), [](Step& s) { s.inputs[1].type.format = kHWC; },
       "input 1 must have the format LINEAR"},
      {"a bias of integers", convolution(), [](Step& s) { s.inputs[2].type.dtype = kINT32; },
       "input 2 must be FP32, FP16 or BF16"},
      {"an absent kernel", convolution(), [](Step& s) { s.inputs[1].present = false; },
       "input 1 is missing"},
      {"an absent residual", residual(), [](Step& s) { s.inputs[3].present = false; },
       "the residual, input 3, is missing"},
      {"a residual that is the kernel", residual(), [](Step& s) { s.inputs.resize(2); },
       "the residual, input 1, is missing"},
      {"a residual in another format", residual(), [](Step& s) { s.inputs[3].type.format = kHWC; },
       "input 3 must be FP32 like output 0"},
      {"Deconvolution to another type", deconvolution(),
       [](Step& s) { s.outputs[0].type.dtype = kBF16; }, "output 0 must have the type of input 0"},
      {"Pooling in FP32 to bytes", pooling(), [](Step& s) { s.outputs[0].type.dtype = kINT8; },
       "output 0 must be FP32 like input 0"},
      {"an average of bytes", pooling(PoolingType::kAVERAGE), [](Step& s) { set_all(s, {kINT8}); },
       "input 0 must be FP32, FP16 or BF16"},
      {"Pooling in HWC8", pooling(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC8});
       },
       "input 0 must have the format"},
      {"a convolution by unsigned bytes", byte_convolution(),
       [](Step& s) { s.inputs[1].type.dtype = kUINT8; }, "input 1 must be INT8"},
      {"a convolution of bytes to bytes", byte_convolution(),
       [](Step& s) { s.outputs[0].type.dtype = kINT8; }, "output 0 must"},
      {"a convolution of bytes with a bias", byte_convolution(),
       [](Step& s) { s.inputs.push_back(port({32}, kINT8)); }, "take neither a bias"},
      {"GridSample of integers", grid_sample(), [](Step& s) { set_all(s, {kINT32}); },
       "input 0 must be"},
      {"RoiAlign of images by floats", roi_align(),
       [](Step& s) { s.inputs[2].type.dtype = kFLOAT; }, "input 2 must be INT32 or INT64"},
      {"RoiPool to another type", roi_pool(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"Maxima with narrow indices", indexed_pooling(),
       [](Step& s) { s.outputs[1].type.dtype = kINT32; }, "output 1 must be INT64"},
      {"Columns of another type", col2im(), [](Step& s) { set_all(s, {kHALF}); },
       "input 0 must be FP32"},
      {"Maxima put back as another type", max_unpool(),
       [](Step& s) { s.outputs[0].type.dtype = kHALF; }, "output 0 must be FP32 like input 0"},
      {"Maxima put back where floats say", max_unpool(),
       [](Step& s) { s.inputs[1].type.dtype = kFLOAT; }, "input 1 must be INT32 or INT64"},
      {"Norms of integers", lp_pooling(), [](Step& s) { set_all(s, {kINT8}); }, "input 0 must be"},
      {"Columns of windows of three axes",
       step<DeformableColumns>({.window = {1, 1, 1}}, {port({1, 2, 4, 4}), port({1, 2, 4, 4})},
                               {port({1, 2, 4, 4})}),
       [](Step&) {}, "windows of two axes"},
  };
}

const RegisteredChecks registered_windows(windows_steps, windows_cases);

TEST(Check, PackedWeightsMayBeElsewhere) {
  Step stripped = convolution();
  stripped.packed = {{1, Blob(), "3:32,16,3,3:32,16,3,3:144,9,3,1::"}};
  EXPECT_EQ(refusal(stripped), "");
}

TEST(Check, WindowsThatOverflowAreRefused) {
  const int64_t far = (int64_t{1} << 31) - 1;
  Step step = pooling();
  PoolingParams pooling_params;
  pooling_params.window = {1, 1}, pooling_params.stride = {far, far};
  step.op = std::make_shared<Pooling>(pooling_params);
  step.inputs[0] = port({1, 16, 8, 8}), step.outputs[0] = port({1, 16, 1, 1});
  EXPECT_NE(obstacle(step).find("2^24"), std::string::npos);
  Step padded = convolution();
  ConvolutionParams params;
  params.pre_padding = {1 << 25, 0};
  padded.op = std::make_shared<Convolution>(params);
  padded.inputs[1].is_constant = padded.inputs[2].is_constant = false;
  padded.outputs[0] = port({1, 32, (1 << 25) + 6, 6});
  EXPECT_NE(obstacle(padded).find("2^24"), std::string::npos) << obstacle(padded);
}

TEST(Check, AveragesOverManyPositionsEnd) {
  PoolingParams params;
  params.type = PoolingType::kAVERAGE;
  params.average_count_excludes_padding = false;
  params.padding_mode = PaddingMode::kEXPLICIT_ROUND_UP;
  params.window = {1, 2}, params.stride = {1, 3};
  Made made(
      step<Pooling>(params, {port({1, 1, 1, 1 << 20})}, {port({1, 1, 1, (1 << 20) / 3 + 1})}));
  EXPECT_EQ(made.tell_opt(), "");
}

TEST(Check, WindowsOfVeryManyTapsAreRefused) {
  PoolingParams params;
  params.window = {1, 1 << 20};
  const Step each = step<Pooling>(params, {port({1, 1, 1, 1 << 20})}, {port({1, 1, 1, 1})});
  EXPECT_NE(obstacle(each).find("2^16"), std::string::npos) << obstacle(each);
}

/// oneDNN does nothing then, so that the output would be what its memory held before.
TEST(Check, WindowsOverNothingAreRefused) {
  ConvolutionParams params;
  params.pre_padding = params.post_padding = {2, 2};
  for (const Shape& x : {Shape{1, 16, 0, 0}, Shape{1, 0, 4, 4}}) {
    const Step each = step<Convolution>(params, {port(x), port({16, x[1], 3, 3})},
                                        {port({1, 16, x[2] + 2, x[3] + 2})});
    EXPECT_NE(obstacle(each).find("nothing to convolve"), std::string::npos) << obstacle(each);
  }
}

TEST(Check, ShapesOfWindowsFit) {
  Made folded(col2im());
  EXPECT_NE(folded.tell({{1, 8, 9}, {2}}, {{1, 2, 3, 4}}).find("do not fit 6 blocks"),
            std::string::npos);
  EXPECT_NE(folded.tell({{1, 8, 6}, {2}}, {{1, 3, 3, 4}}).find("do not fit"), std::string::npos);
  Made put_back(max_unpool());
  EXPECT_NE(put_back.tell({{1, 2, 2, 2}, {1, 2, 2, 3}, {4}}, {{1, 2, 4, 4}}).find("as many"),
            std::string::npos);
  Made sampled(grid_sample());
  EXPECT_NE(sampled.tell({{1, 2, 4, 4}, {1, 3, 3, 3}}, {{1, 2, 3, 3}}).find("cannot be sampled"),
            std::string::npos);
  EXPECT_NE(sampled.tell({{1, 2, 0, 4}, {1, 3, 3, 2}}, {{1, 2, 3, 3}}).find("nothing to sample"),
            std::string::npos);
  Made regions(roi_align());
  EXPECT_NE(regions.tell({{1, 2, 4, 4}, {3, 4}, {2}}, {{3, 2, 1, 1}}).find("images of shape"),
            std::string::npos);
}

TEST(Check, AnyElementsKeepWindowsWithinBounds) {
  for (const Step& each : {grid_sample(), deformable_columns(), roi_align(), roi_pool(),
                           indexed_pooling(), lp_pooling()})
    run_on_any_bytes(each);
}

}  // namespace
}  // namespace opwright::testing
