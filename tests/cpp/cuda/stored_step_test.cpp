// What a GPU checks of the step of a built-in operator that a plan stores: Device::check().

#include <gtest/gtest.h>

#include "cpu/run_kernel.h"
#include "operators/activation.h"
#include "operators/assertion.h"
#include "operators/bit_cast.h"
#include "operators/movement.h"
#include "operators/reduce.h"

namespace opwright::testing {
namespace {

PortDesc port(DataType dtype, TensorFormat format = TensorFormat::kLINEAR) {
  PortDesc desc;
  desc.type = {dtype, format};
  desc.min = desc.opt = desc.max = Shape{1, 4, 2, 2};
  return desc;
}

/// What a check of a step with these ports says; empty where it says nothing.
std::string fault(const Operator& op, const std::vector<PortDesc>& inputs,
                  const std::vector<PortDesc>& outputs, int64_t tactic = 0) {
  Candidate candidate;
  for (const PortDesc& input : inputs) candidate.inputs.push_back(input.type);
  for (const PortDesc& output : outputs) candidate.outputs.push_back(output.type);
  candidate.tactic = tactic;
  const KernelArgs args{.layer = "the layer",
                        .candidate = &candidate,
                        .inputs = inputs,
                        .outputs = outputs,
                        .packed = {},
                        .device = &test_device(),
                        .inferred = {}};
  try {
    args.device->check_operator(op, args);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(StoredStepOnAGpu, NothingIsCompiledFromAttributes) {
  const std::vector<PortDesc> fp32 = {port(DataType::kFLOAT)};
  for (const OperatorPtr& op : std::initializer_list<OperatorPtr>{
           std::make_shared<Softmax>(), std::make_shared<Concatenation>(),
           std::make_shared<Transpose>(), std::make_shared<Reduce>()}) {
    const std::string said = fault(*op, fp32, fp32);
    EXPECT_TRUE(contains(said, "'the layer'")) << said;
    EXPECT_TRUE(contains(said, "for a GPU without its compiled kernel")) << said;
  }
}

TEST(StoredStepOnAGpu, CopiesKeepTypeAndFormat) {
  const std::vector<PortDesc> fp32 = {port(DataType::kFLOAT)}, fp16 = {port(DataType::kHALF)};
  const std::vector<PortDesc> hwc = {port(DataType::kFLOAT, TensorFormat::kHWC)};
  const std::vector<PortDesc> hwc8 = {port(DataType::kFLOAT, TensorFormat::kHWC8)};
  for (const OperatorPtr& op : std::initializer_list<OperatorPtr>{std::make_shared<Reshape>(),
                                                                  std::make_shared<Reformat>()}) {
    EXPECT_EQ(fault(*op, fp32, fp32), "");
    EXPECT_EQ(fault(*op, fp16, fp16), "");
    EXPECT_TRUE(contains(fault(*op, fp32, fp16), "from FP32 to FP16, and a copy keeps the type"));
    EXPECT_EQ(fault(*op, hwc, hwc), "");
    EXPECT_TRUE(contains(fault(*op, hwc8, fp32), "a copy keeps the type, in LINEAR"));
    EXPECT_TRUE(contains(fault(*op, {}, fp32), "it has 0 inputs"));
    EXPECT_TRUE(contains(fault(*op, fp32, {}), "0 outputs"));
    EXPECT_TRUE(contains(fault(*op, fp32, {fp32[0], fp32[0]}), "2 outputs"));
    EXPECT_TRUE(contains(fault(*op, fp32, fp32, 1), "it has the tactic 1"));
    PortDesc absent = fp32[0];
    absent.present = false;
    EXPECT_TRUE(contains(fault(*op, {absent}, fp32), "a copy needs its first input"));
  }
  // A reshape may see the same elements in another order of the axes, which a reformat does not.
  EXPECT_EQ(fault(Reshape(), hwc, fp32), "");
  EXPECT_TRUE(contains(fault(Reformat(), hwc, fp32), "a copy keeps the type, in LINEAR"));
}

TEST(StoredStepOnAGpu, ABitCastKeepsTheSizeOfElements) {
  const std::vector<PortDesc> fp32 = {port(DataType::kFLOAT)}, fp16 = {port(DataType::kHALF)};
  const std::vector<PortDesc> int32 = {port(DataType::kINT32)};
  const std::vector<PortDesc> hwc = {port(DataType::kINT32, TensorFormat::kHWC)};
  EXPECT_EQ(fault(BitCast(), fp32, int32), "");
  EXPECT_TRUE(contains(fault(BitCast(), fp32, fp16), "a copy keeps the size of elements"));
  EXPECT_TRUE(contains(fault(BitCast(), fp32, hwc), "a copy keeps the size of elements"));
  EXPECT_TRUE(contains(fault(BitCast(), fp32, {}), "0 outputs"));
}

TEST(StoredStepOnAGpu, AnAssertionTakesOneCondition) {
  const std::vector<PortDesc> truth = {port(DataType::kBOOL)}, fp32 = {port(DataType::kFLOAT)};
  EXPECT_EQ(fault(Assertion(), truth, {}), "");
  EXPECT_TRUE(contains(fault(Assertion(), fp32, {}), "takes one condition, BOOL"));
  EXPECT_TRUE(contains(fault(Assertion(), {}, {}), "0 inputs"));
  EXPECT_TRUE(contains(fault(Assertion(), truth, fp32), "1 outputs"));
  EXPECT_TRUE(contains(fault(Assertion(), truth, {}, 1), "by tactic 1"));
}

TEST(StoredStepOnAGpu, AnOperatorThatGpusLackIsRefused) {
  const std::vector<PortDesc> fp32 = {port(DataType::kFLOAT)};
  EXPECT_TRUE(contains(fault(Activation(), fp32, fp32), "has no kernel for"));
}

}  // namespace
}  // namespace opwright::testing
