// The steps of pointwise programs and of tables of bytes: what a plan may not say of them, and what
// their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "cpu/pointwise_program.h"
#include "operators/byte_lookup.h"
#include "operators/pointwise.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

Step pointwise() {
  Step result;
  result.op = std::make_shared<Pointwise>(make(
      {input(0), input(1), binary(ElementWiseOperation::kSUM, 0, 1), cast(2, kINT32)}, {2, 3}));
  result.inputs = {port({1, 16, 4, 4}), port({1, 16, 1, 1})};
  result.outputs = {port({1, 16, 4, 4}), port({1, 16, 4, 4}, kINT32)};
  return result;
}

Step byte_lookup() {
  return step<ByteLookup>({}, {port({1, 16, 4, 4}, kUINT8), weights({256}, kINT8)},
                          {port({1, 16, 4, 4}, kINT8)});
}

std::vector<Step> pointwise_steps() { return {pointwise(), byte_lookup()}; }

std::vector<FaultCase> pointwise_cases() {
  return {
      {"Pointwise outputs in different formats", pointwise(),
       [](Step& s) { s.outputs[1].type.format = kHWC; }, "output 1 must have the format LINEAR"},
      {"a broadcast input in HWC", pointwise(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC}), s.outputs[1].type.dtype = kINT32;
       },
       "input 1 must have the format LINEAR, but has HWC"},
      {"an input in HWC of LINEAR outputs", pointwise(),
       [](Step& s) { s.inputs[0].type.format = kHWC; }, "input 0 must have the format LINEAR"},
      {"Pointwise in blocks with padding", pointwise(),
       [](Step& s) {
         s.inputs = {port({1, 17, 4, 4}), port({1, 17, 1, 1})};
         s.outputs = {port({1, 17, 4, 4}, kFLOAT, kCHW16), port({1, 17, 4, 4}, kINT32, kCHW16)};
       },
       "output 0 must fill whole blocks"},
      {"Pointwise to another type", pointwise(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 is INT64, but the program computes INT32"},
      {"Pointwise of 4 bits", pointwise(), [](Step& s) { s.inputs[1].type.dtype = kINT4; },
       "input 1 must be"},
      {"Pointwise from another type", pointwise(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "the program reads input 1 as FP32"},
      {"Pointwise without an input", pointwise(), [](Step& s) { s.inputs.pop_back(); },
       "the program reads input 1 as FP32"},
      {"Pointwise without an output", pointwise(), [](Step& s) { s.outputs.pop_back(); },
       "2 outputs"},
      {"Pointwise outputs of different shapes", pointwise(),
       [](Step& s) {
         s.outputs[1].max = {1, 16, 1, 1};
       },
       "all outputs must have one shape"},
      {"ByteLookup of floats", byte_lookup(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be INT8 or UINT8"},
      {"ByteLookup in a table of floats", byte_lookup(),
       [](Step& s) { s.inputs[1].type.dtype = s.outputs[0].type.dtype = kFLOAT; },
       "output 0 must be INT8 or UINT8"},
      {"ByteLookup to another type", byte_lookup(),
       [](Step& s) { s.outputs[0].type.dtype = kUINT8; }, "input 1 must be UINT8"},
      {"ByteLookup to another format", byte_lookup(),
       [](Step& s) { s.inputs[0].type.format = kHWC; }, "output 0 must have the format HWC"},
      {"ByteLookup in blocks with padding", byte_lookup(),
       [](Step& s) {
         s.inputs[0] = port({1, 17, 4, 4}, kUINT8, kCHW16);
         s.outputs[0] = port({1, 17, 4, 4}, kINT8, kCHW16);
       },
       "output 0 must fill whole blocks"},
      {"ByteLookup without a table", byte_lookup(), [](Step& s) { s.inputs.pop_back(); },
       "2 inputs"},
  };
}

const RegisteredChecks registered_pointwise(pointwise_steps, pointwise_cases);

/// Shapes as they are between the ends of a profile, of an expression such as n * (8 - n).
TEST(Check, PointwiseRefusesShapesBeyondTheProfile) {
  std::mt19937 random(1);
  Step added = pointwise();
  added.inputs[0].type.format = kHWC;
  for (PortDesc& each : added.outputs) each.type.format = kHWC;
  Made program(added);
  EXPECT_NE(program.tell({{1, 16, 1, 1}, {1, 16, 4, 4}}, {{1, 16, 4, 4}, {1, 16, 4, 4}})
                .find("is not broadcast"),
            std::string::npos);
  EXPECT_EQ(program.tell_opt(), "");
  program.run(random);
}

TEST(Check, ByteLookupRefusesOtherTables) {
  std::mt19937 random(1);
  Made lookup(byte_lookup());
  EXPECT_NE(lookup.tell({{1, 16, 4, 4}, {255}}, {{1, 16, 4, 4}}).find("a table of shape 255"),
            std::string::npos);
  EXPECT_NE(lookup.tell({{1, 16, 4, 4}, {256}}, {{1, 16, 4, 5}}).find("output of shape 1x16x4x5"),
            std::string::npos);
  EXPECT_EQ(lookup.tell_opt(), "");
  lookup.run(random);
}

}  // namespace
}  // namespace opwright::testing
