// What a plan may say of a step and the kernels cannot do: PlannedOperator::check refuses it before
// a kernel is made. The steps and what may be wrong with each are in check_*_test.cpp, by family.

#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "cpu/check_steps.h"
#include "operators/context.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright::testing {
namespace {

using enum DataType;

TEST(Check, RefusesWhatKernelsCannotDo) {
  for (const FaultCase& each : registered_cases()) {
    SCOPED_TRACE(each.name);
    Step changed = each.step;
    each.change(changed);
    const std::string message = refusal(changed);
    EXPECT_NE(message.find(each.message), std::string::npos) << message;
  }
}

TEST(Check, PassesWhatTheyCan) {
  for (const Step& each : registered_steps()) EXPECT_EQ(refusal(each), "") << each.op->kind();
}

/// Whether inference gives the step's outputs, with floating types mixed as the tuner may.
bool is_inferred(const Step& step) {
  if (step.op->kind() == Reshape::kKind || step.op->kind() == Reformat::kKind) return true;
  Tensors tensors;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const PortDesc& desc = step.inputs[i];
    const bool is_mixed = is_floating(desc.type.dtype) && step.op->kind() != Fill::kKind;
    tensors.push_back(tensor(sym_shape(desc.opt), is_mixed ? kFLOAT : desc.type.dtype));
    const auto values = step.values.find(static_cast<int>(i));
    if (values == step.values.end()) continue;
    tensors.back()->values =
        std::make_shared<const std::vector<Expr>>(values->second.begin(), values->second.end());
  }
  return error_of([&] {
           Context context(tensors);
           const auto outputs = step.op->infer(context);
           require(outputs.size() == step.outputs.size(), "another number of outputs");
           for (size_t i = 0; i < outputs.size(); ++i) {
             const PortDesc& desc = step.outputs[i];
             require(constant_shape(outputs[i].dims) == desc.opt, "another shape");
             require(outputs[i].dtype == desc.type.dtype ||
                         (is_floating(outputs[i].dtype) && is_floating(desc.type.dtype)),
                     "another type");
           }
         })
      .empty();
}

/// Whatever is listed may be stored, with every type that a network may have and all precisions.
TEST(Check, PassesEveryCandidate) {
  int listed = 0;
  for (Step each : registered_steps()) {
    for (int type = 0; type < EnumMax<DataType>(); ++type) {
      for (int options = 0; options < 16; ++options) {
        CandidateQuery query;
        Step asked = each;
        for (auto* ports : {&asked.inputs, &asked.outputs}) {
          for (PortDesc& desc : *ports) {
            if (desc.type.dtype == kFLOAT) desc.type.dtype = static_cast<DataType>(type);
            if (options & 8 && desc.max.rank() > 1 && !desc.is_constant) desc.min[0] = 0;
          }
        }
        // A filling says itself what type it has.
        if (!is_inferred(asked) || (each.op->kind() == Fill::kKind && type != 0)) continue;
        query.layer = "test";
        query.inputs = asked.inputs;
        query.outputs = asked.outputs;
        query.device = &test_device();
        query.fp16 = options & 1, query.bf16 = options & 2, query.strongly_typed = options & 4;
        std::vector<Candidate> candidates;
        const std::string lack = error_of([&] { candidates = asked.op->candidates(query); });
        for (const Candidate& candidate : candidates) {
          ++listed;
          SCOPED_TRACE(::testing::Message() << each.op->kind() << " " << describe(candidate));
          EXPECT_EQ(
              error_of([&] { check_ports(*asked.op, candidate, asked.inputs, asked.outputs); }),
              "");
        }
      }
    }
  }
  EXPECT_GT(listed, 500);
}

/// Random types and formats: what passes runs within its tensors.
TEST(Check, WhatPassesIsSafeToRun) {
  std::mt19937 random(14);
  const auto below = [&](int count) { return static_cast<int>(random() % count); };
  int passed = 0, refused = 0;
  for (const Step& each : registered_steps()) {
    for (int round = 0; round < 100; ++round) {
      Step changed = each;
      for (PortDesc& desc : changed.inputs) desc.is_constant = false;
      const auto type = static_cast<DataType>(below(EnumMax<DataType>()));
      const auto format = static_cast<TensorFormat>(below(EnumMax<TensorFormat>()));
      const int which = below(4);
      for (auto* ports : {&changed.inputs, &changed.outputs}) {
        for (PortDesc& desc : *ports) {
          if (which == 0 || below(3) == 0) {
            if (desc.type.dtype == kFLOAT || below(4) == 0) desc.type.dtype = type;
          }
          if (is_valid(format, desc.opt.rank()) && (which == 1 || below(3) == 0))
            desc.type.format = format;
        }
      }
      if (!is_inferred(changed) || !refusal(changed).empty()) {
        ++refused;
        continue;
      }
      ++passed;
      std::string types;
      for (auto* ports : {&changed.inputs, &changed.outputs})
        for (const PortDesc& desc : *ports) types += " " + str(desc.type);
      SCOPED_TRACE(std::string(each.op->kind()) + types);
      try {
        Made made(changed);
        ASSERT_EQ(made.tell_opt(), "");
        made.run(random);
      } catch (const Error& error) {  // bytes, of a tactic for more than this processor has
        ASSERT_NE(std::string_view(error.what()).find("for a processor that"),
                  std::string_view::npos)
            << error.what();
      }
    }
  }
  EXPECT_GT(passed, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace opwright::testing
