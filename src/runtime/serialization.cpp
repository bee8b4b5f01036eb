#include "runtime/serialization.h"

#include "base/error.h"
#include "plan/trusted.h"

namespace opwright {
namespace {

/// The plan as ISerializationConfig asks for it. `exclude_weights` leaves out weights that
/// refitting gives. Otherwise, an engine that was built without weights and has got them is stored
/// for good, as one that cannot be refitted, unless `include_refit`. Throws Error for a combination
/// that is not possible.
Plan stored_plan(const Engine& engine, bool exclude_weights, bool include_refit) {
  const auto lock = engine.lock_weights();
  const Plan& plan = engine.plan();
  const auto trusted = [&](Plan changed) {
    trust_as(plan, changed);
    return changed;
  };
  require((!exclude_weights && !include_refit) || plan.refit.is_possible(), "SerializationFlag.",
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

}  // namespace

void SerializationConfig::set_bits(SerializationFlags given) {
  require(given >> EnumMax<SerializationFlag>() == 0, "the serialization flags ", given,
          " have bits that are no SerializationFlag");
  bits = given;
}

std::vector<Blob> serialize_with(const Engine& engine, const SerializationConfig& config) {
  return serialize(stored_plan(engine, config.has(SerializationFlag::kEXCLUDE_WEIGHTS),
                               config.has(SerializationFlag::kINCLUDE_REFIT)));
}

}  // namespace opwright
