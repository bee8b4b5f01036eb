// The steps of what goes along axes: sums, normalizations, selections: what a plan may not say of
// them, and what their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "operators/normalization.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

Step lrn(int64_t window = 5) {
  return step<Lrn>({.window = window}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})});
}
Step normalization(int64_t axes = 12) {
  return step<Normalization>({.axes = axes}, {port({1, 16, 4, 4}), port({1, 16, 1, 1})},
                             {port({1, 16, 4, 4})});
}
Step softmax() { return step<Softmax>({.axes = 2}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})}); }
Step reduce(bool keep_dims = false) {
  return step<Reduce>({ReduceOperation::kSUM, 12, keep_dims}, {port({1, 16, 4, 4})},
                      {keep_dims ? port({1, 16, 1, 1}) : port({1, 16})});
}
Step topk() {
  TopKParams params;
  params.axes = 2;
  Step result =
      step<TopK>(params, {port({4, 8}), port({1}, kINT64)}, {port({4, 3}), port({4, 3}, kINT32)});
  result.values = {{1, {3}}};
  return result;
}
Step cumulative() { return step<Cumulative>({.axis = 1}, {port({4, 8})}, {port({4, 8})}); }

std::vector<Step> reductions_steps() {
  return {lrn(), normalization(), softmax(), reduce(), reduce(true), topk(), cumulative()};
}

std::vector<FaultCase> reductions_cases() {
  const auto pack = [](Step& s) { s.packed = {{0, Blob::copy("", 1), "1:1:1:1::"}}; };
  return {
      {"a port too many", softmax(), [](Step& s) { s.inputs.push_back(port({1})); },
       "expected 1 inputs and 1 outputs, but there are 2 and 1"},
      {"no input", softmax(), [](Step& s) { s.inputs.clear(); }, "there are 0 and 1"},
      {"no output", softmax(), [](Step& s) { s.outputs.clear(); }, "there are 1 and 0"},
      {"an absent input", softmax(), [](Step& s) { s.inputs[0].present = false; },
       "input 0 is missing"},
      {"an absent output", softmax(), [](Step& s) { s.outputs[0].present = false; },
       "output 0 is missing"},
      {"a packed input that is not packed", softmax(), pack, "input 0 is packed"},
      {"LRN to FP16", lrn(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"LRN in CHW4", lrn(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW4});
       },
       "input 0 must have the format"},
      {"LRN of integers", lrn(), [](Step& s) { set_all(s, {kINT32}); }, "input 0 must be FP32"},
      {"LRN with an even window", lrn(4), [](Step&) {}, "odd window"},
      {"LRN with a window of 40 bits", lrn((int64_t{1} << 40) + 1), [](Step&) {}, "odd window"},
      {"Normalization in HWC along rows", normalization(8),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kHWC; },
       "input 0 must have the format LINEAR"},
      {"Normalization to another format", normalization(),
       [](Step& s) { s.inputs[0].type.format = kHWC; }, "output 0 must be FP32:HWC like input 0"},
      {"a scale of integers", normalization(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "input 1 must be"},
      {"a scale in HWC", normalization(), [](Step& s) { s.inputs[1].type.format = kHWC; },
       "input 1 must have the format LINEAR"},
      {"Softmax from FP32 to FP16", softmax(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0, but is FP16"},
      {"Softmax in CHW16", softmax(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW16});
       },
       "input 0 must have the format LINEAR or HWC"},
      {"Softmax in FP8", softmax(), [](Step& s) { set_all(s, {kFP8}); }, "input 0 must be FP32"},
      {"Reduce to E8M0", reduce(), [](Step& s) { s.outputs[0].type.dtype = kE8M0; },
       "output 0 must be FP32, FP16, FP8 or BF16 on the CPU, but is E8M0"},
      {"Reduce from E8M0", reduce(), [](Step& s) { set_all(s, {kE8M0}); }, "input 0 must be"},
      {"Reduce from INT32 to INT64", reduce(),
       [](Step& s) { s.inputs[0].type.dtype = kINT32, s.outputs[0].type.dtype = kINT64; },
       "output 0 must be INT32"},
      {"Reduce of blocks with padding", reduce(),
       [](Step& s) {
         s.inputs[0] = port({1, 17, 4, 4}, kFLOAT, kCHW16), s.outputs[0] = port({1, 17});
       },
       "input 0 must fill whole blocks"},
      {"Reduce to another format", reduce(true), [](Step& s) { s.outputs[0].type.format = kHWC; },
       "output 0 must have the format LINEAR"},
      {"Cumulative of bytes", cumulative(), [](Step& s) { set_all(s, {kINT8}); },
       "input 0 must be"},
      {"Cumulative to another type", cumulative(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"TopK to another type", topk(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"TopK to wider indices", topk(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 must be INT32"},
      {"TopK in FP8", topk(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kFP8; }, "input 0 must be"},
      {"TopK without indices", topk(), [](Step& s) { s.outputs.pop_back(); }, "2 outputs"},
  };
}

const RegisteredChecks registered_reductions(reductions_steps, reductions_cases);

/// Shapes as they are between the ends of a profile, of an expression such as n * (8 - n).
TEST(Check, ReductionsRefuseShapesBeyondTheProfile) {
  std::mt19937 random(1);
  Step selection = topk();
  Made most(selection);
  EXPECT_NE(most.tell({{4, 8}, {1}}, {{4, 9}, {4, 9}}).find("k must not exceed"),
            std::string::npos);
  EXPECT_NE(most.tell({{4, 8}, {1}}, {{4, 3}, {4, 4}}).find("cannot select"), std::string::npos);
  EXPECT_NE(most.tell({{4, 4000}, {1}}, {{4, 3000}, {4, 3000}}).find("more memory"),
            std::string::npos);
  EXPECT_EQ(most.tell_opt(), "");
  most.run(random);

  Step sum = reduce();
  sum.inputs[0].type.format = kCHW16;
  Made sums(sum);
  EXPECT_NE(sums.tell({{1, 17, 4, 4}}, {{1, 17}}).find("whole blocks"), std::string::npos);
  EXPECT_EQ(sums.tell_opt(), "");
  sums.run(random);
}

}  // namespace
}  // namespace opwright::testing
