// What a GPU checks of a collective operation that a plan stores.

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "cpu/run_kernel.h"
#include "error_of.h"
#include "network/operator_registry.h"
#include "operators/dist_collective.h"

namespace opwright::testing {
namespace {

/// A collective operation of FP32 tensors of eight elements, as a build plans it and a plan stores
/// it.
class StoredCollective : public ::testing::Test {
 protected:
  StoredCollective() {
    port_.min = port_.opt = port_.max = Shape{8};
    output_ = port_;
    candidate_.inputs = candidate_.outputs = {port_.type};
  }
  KernelArgs args() const {
    return {.layer = "the layer",
            .candidate = &candidate_,
            .inputs = std::span(&port_, 1),
            .outputs = std::span(&output_, 1),
            .packed = {},
            .device = &test_device(),
            .inferred = {}};
  }
  PlannedOperatorPtr planned(DistCollectiveParams params) const {
    return test_device().compile(DistCollective(std::move(params)), args());
  }
  /// Loads what `from` stores with another value of an attribute.
  static PlannedOperatorPtr loaded(const PlannedOperator& from, std::string_view name = {},
                                   const AttributeValue& value = int64_t{}) {
    Attributes attributes = from.attributes();
    for (Attribute& attribute : attributes)
      if (attribute.name == name) attribute.value = value;
    std::vector<LoadedCode> code;
    for (const CodeObject& object : from.code()) code.push_back({object, true});
    OperatorLoadContext context;
    context.layer = "the layer", context.code = code, context.device = &test_device();
    return load_operator(from.kind(), attributes, context);
  }
  static DistCollectiveParams sum(Ints groups) {
    DistCollectiveParams params;
    params.reduce_op = ReduceOperation::kSUM;
    params.num_ranks = 2;
    params.groups = std::move(groups);
    return params;
  }

  PortDesc port_, output_;
  Candidate candidate_;
};

TEST_F(StoredCollective, RunsWhatABuildHasPlanned) {
  for (const Ints& groups : {Ints{}, Ints{1, 0}}) {
    const PlannedOperatorPtr op = loaded(*planned(sum(groups)));
    EXPECT_TRUE(op->communicates());
    op->check(args());
    EXPECT_NE(op->make_kernel(args()), nullptr);
  }
}

TEST_F(StoredCollective, RefusesWhatNoBuildPlans) {
  const PlannedOperatorPtr whole = planned(sum({})), in_group = planned(sum({1, 0}));
  const auto expect_refused = [&](const PlannedOperatorPtr& op, const char* why) {
    expect_contains(error_of([&] { op->check(args()); }), {"the layer", why});
  };
  expect_refused(loaded(*whole, "num_ranks", int64_t{0}), "num_ranks is 0");
  expect_refused(loaded(*whole, "reduce_op", int64_t{99}), "no ReduceOperation 99");
  expect_refused(loaded(*in_group, "groups", Ints{0, 1, 2}), "groups has 3 ranks");
  // The plan has another kernel than that of a group.
  expect_contains(error_of([&] {
                    loaded(*whole, "groups", Ints{1, 0});
                  }),
                  {"the attribute 'launch' is missing"});
  output_.type.dtype = DataType::kHALF;
  expect_refused(loaded(*whole), "its input and its output differ");
  port_.type.dtype = output_.type.dtype = DataType::kFP8;
  expect_refused(loaded(*whole), "it is of FP8");
}

}  // namespace
}  // namespace opwright::testing
