#include "runtime/stored_plan.h"

#include "base/error.h"
#include "plan/trusted.h"

namespace opwright {

Plan stored_plan(const Engine& engine, bool exclude_weights, bool include_refit) {
  const auto lock = engine.lock_weights();
  const Plan& plan = engine.plan();
  const auto trusted = [&](Plan changed) {
    trust_as(plan, changed);
    return changed;
  };
  require((!exclude_weights && !include_refit) || !plan.refit.weights.empty(), "SerializationFlag.",
          exclude_weights ? "EXCLUDE_WEIGHTS" : "INCLUDE_REFIT", " is set, but ", engine.name(),
          " cannot be refitted: build it with BuilderFlag.REFIT, REFIT_IDENTICAL or "
          "REFIT_INDIVIDUAL, or clear the flag");
  if (exclude_weights) return trusted(strip(plan));
  if (!plan.refit.is_stripped || include_refit || !engine.absent_weights().empty()) return plan;
  Plan changed = plan;
  changed.refit = {};
  for (Schedule& schedule : changed.schedules)
    for (PlanTensor& tensor : schedule.tensors) tensor.source = -1;
  return trusted(std::move(changed));
}

}  // namespace opwright
