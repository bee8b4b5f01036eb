#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/sample_plan.h"

namespace opwright {
namespace {

using Numbers = std::vector<int32_t>;

std::vector<bool> none(const Plan& plan) { return std::vector<bool>(plan.refit.weights.size()); }

TEST(RefitPlan, ValuesChangeWithTheWeightsThatTheyAreMadeOf) {
  const Plan plan = sample_plan();
  EXPECT_EQ(changed_values(plan.refit, {true, false}),
            (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(changed_values(plan.refit, {false, true}),
            (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(needed_values(plan.refit, {false, false, false, true}),
            (std::vector<bool>{true, false, true, true}));
}

TEST(RefitPlan, TargetsAreWhatStepsReadAndPack) {
  const Plan plan = sample_plan();
  const std::vector<RefitTarget> targets = refit_targets(plan);
  ASSERT_EQ(targets.size(), 4U);  // per schedule the copied constant and the packed weight
  EXPECT_EQ(targets[0].tensor, 3);
  EXPECT_EQ(targets[0].sources, Numbers{1});
  EXPECT_EQ(targets[1].step, 0);
  EXPECT_EQ(targets[1].sources, Numbers{3});
  for (const RefitTarget& target : targets) EXPECT_FALSE(target.is_missing);
  EXPECT_EQ(missing_weights(plan, targets, none(plan)), Numbers{});
  EXPECT_EQ(kept_weights(plan), (std::vector<bool>{true, true}));
}

TEST(RefitPlan, AStrippedPlanIsValidAndMissesItsWeights) {
  const Plan plan = strip(sample_plan());
  EXPECT_NO_THROW(validate(plan));
  EXPECT_EQ(plan.refit.stripped_bytes, 2 * (8 + 16U));
  EXPECT_EQ(plan.schedules[0].tensors[3].data.size(), 0U);
  EXPECT_EQ(plan.schedules[0].steps[0].packed[0].data.size(), 0U);
  const std::vector<RefitTarget> targets = refit_targets(plan);
  EXPECT_EQ(missing_weights(plan, targets, none(plan)), (Numbers{0, 1}));
  EXPECT_EQ(missing_weights(plan, targets, {true, false}), Numbers{1});
  EXPECT_EQ(missing_weights(plan, targets, {true, true}), Numbers{});
  EXPECT_EQ(strip(plan).refit.stripped_bytes, plan.refit.stripped_bytes);

  const auto bytes = join(serialize(plan));
  const Plan read = deserialize(Blob::copy(bytes.data(), bytes.size()));
  EXPECT_EQ(missing_weights(read, refit_targets(read), none(read)), (Numbers{0, 1}));
}

TEST(RefitPlan, OnlyRefittableWeightsMayBeMissing) {
  Plan plan = strip(sample_plan());
  plan.schedules[0].tensors[3].source = -1;
  EXPECT_THROW(validate(plan), Error);
  plan = sample_plan();
  plan.refit = {};
  for (Schedule& schedule : plan.schedules)
    for (PlanTensor& tensor : schedule.tensors) tensor.source = -1;
  EXPECT_NO_THROW(validate(plan));
  EXPECT_THROW(strip(plan), Error);
}

}  // namespace
}  // namespace opwright
