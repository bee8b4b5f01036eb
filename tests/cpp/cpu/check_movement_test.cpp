// The steps of what moves elements: what a plan may not say of them, and what their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "operators/bit_cast.h"
#include "operators/indexing.h"
#include "operators/movement.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

Step concatenation() {
  return step<Concatenation>({1}, {port({1, 16, 4, 4}), port({1, 16, 4, 4})},
                             {port({1, 32, 4, 4})});
}
Step reverse_sequence() {
  return step<ReverseSequence>({}, {port({4, 3}), port({3}, kINT64)}, {port({4, 3})});
}
Step bit_cast() { return step<BitCast>({kINT32}, {port({4, 3})}, {port({4, 3}, kINT32)}); }
Step reformat() { return step<Reformat>({}, {port({1, 3, 4, 4})}, {port({1, 3, 4, 4})}); }
Step reshape() { return step<Reshape>({}, {port({2, 6})}, {port({3, 4})}); }
Step resize(InterpolationMode mode = InterpolationMode::kNEAREST) {
  ResizeParams params;
  params.mode = mode;
  Step result =
      step<Resize>(params, {port({1, 16, 4, 4}), port({4}, kINT64)}, {port({1, 16, 8, 8})});
  result.values = {{1, {1, 16, 8, 8}}};
  return result;
}
Step slice() {
  SliceParams params;
  params.mode = SampleMode::kFILL;
  Step result = step<Slice>(
      params, {port({4, 8}), port({2}, kINT32), port({2}, kINT64), port({2}, kINT64), port({})},
      {port({2, 4})});
  result.values = {{1, {1, -2}}, {2, {2, 4}}, {3, {1, 3}}};
  return result;
}
Step transpose() { return step<Transpose>({{1, 0}}, {port({4, 8})}, {port({8, 4})}); }
Step channel_shuffle() {
  return step<ChannelShuffle>({4}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})});
}

std::vector<Step> movement_steps() {
  return {concatenation(),
          reverse_sequence(),
          bit_cast(),
          reformat(),
          reshape(),
          resize(),
          resize(InterpolationMode::kLINEAR),
          slice(),
          transpose()};
}

std::vector<FaultCase> movement_cases() {
  return {
      {"2^62 elements, none of them there", transpose(),
       [](Step& s) {
         s.inputs[0].max = {int64_t{1} << 31, int64_t{1} << 31}, s.inputs[0].min = {0, 0};
       },
       "count up to 2^53 elements"},
      {"an empty tensor beyond counting", transpose(),
       [](Step& s) {
         s.inputs[0].max = {int64_t{1} << 62, 4, 0};
       },
       "count up to 2^53 elements"},
      {"Concatenation in CHW32", concatenation(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW32});
       },
       "must have the format LINEAR, CHW16 or HWC, but has CHW32"},
      {"Concatenation of blocks with padding", concatenation(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW16});
         s.inputs[0] = port({1, 17, 4, 4}, kFLOAT, kCHW16);
         s.inputs[1] = port({1, 15, 4, 4}, kFLOAT, kCHW16);
       },
       "input 0 must fill whole blocks of the format CHW16"},
      {"Concatenation of mixed types", concatenation(),
       [](Step& s) { s.inputs[1].type.dtype = kHALF; }, "input 1 must be FP32 like output 0"},
      {"Concatenation of mixed formats", concatenation(),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "input 0 must be FP32:HWC like output 0"},
      {"Concatenation of 4 bits", concatenation(), [](Step& s) { set_all(s, {kINT4}); },
       "output 0 must be"},
      {"Concatenation of nothing", concatenation(), [](Step& s) { s.inputs.clear(); },
       "at least one input"},
      {"ReverseSequence by floats", reverse_sequence(),
       [](Step& s) { s.inputs[1].type.dtype = kFLOAT; }, "input 1 must be INT32 or INT64"},
      {"Bits of another size", bit_cast(), [](Step& s) { s.inputs[0].type.dtype = kHALF; },
       "elements of the input's size"},
      {"Bits of another type", bit_cast(), [](Step& s) { s.outputs[0].type.dtype = kFLOAT; },
       "output 0 must be INT32"},
      {"Reformat from 4 bits", reformat(), [](Step& s) { s.inputs[0].type.dtype = kINT4; },
       "cannot convert from INT4 to FP32"},
      {"Reformat of 4 bits to another format", reformat(),
       [](Step& s) { set_all(s, {kINT4}), s.outputs[0].type.format = kCHW32; },
       "cannot convert from INT4 to INT4:CHW32"},
      {"Reformat from E8M0", reformat(), [](Step& s) { s.inputs[0].type.dtype = kE8M0; },
       "cannot convert from E8M0 to FP32"},
      {"Reformat to another shape", reformat(),
       [](Step& s) {
         s.outputs[0].max = {1, 3, 2, 2};
       },
       "must have the shape of input 0"},
      {"Reshape from BOOL to INT64", reshape(),
       [](Step& s) { s.inputs[0].type.dtype = kBOOL, s.outputs[0].type.dtype = kINT64; },
       "a reshape keeps the bytes"},
      {"Reshape in CHW32", reshape(),
       [](Step& s) {
         s.inputs[0] = port({1, 3, 4, 4}), s.outputs[0] = port({1, 3, 4, 4}, kFLOAT, kCHW32);
       },
       "a reshape keeps the bytes"},
      {"Resize to another type", resize(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Resize of channels in HWC", resize(),
       [](Step& s) {
         s.inputs[0].type.format = s.outputs[0].type.format = kHWC, s.outputs[0].max = {1, 8, 8, 8};
       },
       "cannot resize"},
      {"interpolation in CHW16", resize(InterpolationMode::kLINEAR),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kCHW16; },
       "cannot resize"},
      {"interpolation of integers", resize(InterpolationMode::kCUBIC),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kINT32; },
       "input 0 must be"},
      {"Slice to another type", slice(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Slice filled with another type", slice(), [](Step& s) { s.inputs[4].type.dtype = kBOOL; },
       "input 4 must be FP32 like input 0"},
      {"Slice of 4 bits", slice(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kINT4; },
       "input 0 must be"},
      {"Transpose to another type", transpose(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Transpose in HWC", transpose(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC});
       },
       "input 0 must have the format LINEAR"},
      {"ChannelShuffle to another format", channel_shuffle(),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "output 0 must be FP32 like input 0"},
      {"ChannelShuffle in CHW32", channel_shuffle(),
       [](Step& s) {
         set_all(s, {kFLOAT, TensorFormat::kCHW32});
       },
       "input 0 must have the format"},
  };
}

const RegisteredChecks registered_movement(movement_steps, movement_cases);

TEST(Check, WorkspacesThatOverflowAreRefused) {
  ResizeParams params;
  params.mode = InterpolationMode::kLINEAR;
  const int64_t large = int64_t{1} << 50;
  EXPECT_NE(obstacle(step<Resize>(params, {port({large, 1})}, {port({1, large})}))
                .find("does not fit 63 bits"),
            std::string::npos);
}

TEST(Check, SlicesGoByTheValuesThatTheyWereTold) {
  std::mt19937 random(2);
  Made made(slice());
  const std::vector<Shape> inputs = {{4, 8}, {2}, {2}, {2}, {}}, outputs = {{2, 4}};
  made.tell(1, {INT64_MAX, 0}), made.tell(3, {INT64_MAX, 1});
  EXPECT_NE(made.tell(inputs, outputs).find("overflow"), std::string::npos);
  made.tell(1, {0});
  EXPECT_NE(made.tell(inputs, outputs).find("one per sliced axis"), std::string::npos);
  made.tell(1, {0, 0}), made.tell(3, {1, 1});
  EXPECT_EQ(made.tell(inputs, outputs), "");
  made.run(random);  // whatever the memory of the shape inputs holds

  SliceParams params;
  params.start = {0}, params.size = {2}, params.stride = {1}, params.axes = {1 << 20};
  Made beyond(step<Slice>(params, {port({4})}, {port({2})}));
  EXPECT_NE(beyond.tell_opt().find("there is no axis"), std::string::npos);
  params.axes = {0};
  Made strict(step<Slice>(params, {port({4})}, {port({2})}));
  EXPECT_EQ(strict.tell_opt(), "");
  EXPECT_NE(strict.tell({{1}}, {{2}}).find("reads index 1"), std::string::npos);
}

/// Shapes as they are between the ends of a profile, of an expression such as n * (8 - n).
TEST(Check, MovementRefusesShapesBeyondTheProfile) {
  std::mt19937 random(1);
  Made interpolation(resize(InterpolationMode::kLINEAR));
  EXPECT_NE(interpolation.tell({{1, 16, 40, 40}, {4}}, {{1, 16, 80, 80}})
                .find("beyond the optimization profile"),
            std::string::npos);
  // Neither shape is beyond it, but what lies between two passes is.
  EXPECT_NE(interpolation.tell({{1, 16, 64, 1}, {4}}, {{1, 16, 1, 64}})
                .find("beyond the optimization profile"),
            std::string::npos);
  EXPECT_EQ(interpolation.tell_opt(), "");
  interpolation.run(random);

  Step blocks = concatenation();
  for (auto* ports : {&blocks.inputs, &blocks.outputs})
    for (PortDesc& each : *ports) each.type.format = kCHW16;
  Made joined(blocks);
  EXPECT_NE(joined.tell({{1, 17, 4, 4}, {1, 15, 4, 4}}, {{1, 32, 4, 4}}).find("whole blocks"),
            std::string::npos);
  EXPECT_NE(joined.tell({{1, 16, 4, 4}, {1, 16, 8, 8}}, {{1, 32, 4, 4}}).find("must agree"),
            std::string::npos);
  EXPECT_EQ(joined.tell_opt(), "");
  joined.run(random);

  Made shuffled(channel_shuffle());
  EXPECT_NE(shuffled.tell({{1, 18, 4, 4}}, {{1, 18, 4, 4}}).find("cannot shuffle"),
            std::string::npos);
  EXPECT_NE(shuffled.tell({{1, 16, 4, 4}}, {{1, 16, 4, 5}}), "");
  EXPECT_EQ(shuffled.tell({{1, 16, 4, 4}}, {{1, 16, 4, 4}}), "");
  shuffled.run(random);

  Made moved(transpose());
  EXPECT_NE(moved.tell({{int64_t{1} << 40, 0}}, {{int64_t{1} << 40, int64_t{1} << 40}}), "");
  EXPECT_EQ(moved.tell({{0, int64_t{1} << 40}}, {{int64_t{1} << 40, 0}}), "");
  moved.run(random);
}

TEST(Check, ShapesOfMovementFit) {
  Made back(reverse_sequence());
  EXPECT_NE(back.tell({{4, 3}, {2}}, {{4, 3}}).find("do not fit"), std::string::npos);
}

TEST(Check, AnyElementsKeepMovementWithinBounds) {
  for (const Step& each : {reverse_sequence(), bit_cast()}) run_on_any_bytes(each);
}

}  // namespace
}  // namespace opwright::testing
