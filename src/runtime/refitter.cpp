#include "runtime/refitter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "base/parallel.h"
#include "runtime/weight_update.h"

namespace opwright {
namespace {

const char* role_name(int32_t role) {
  constexpr const char* kNames[] = {"KERNEL", "BIAS", "SHIFT", "SCALE", "CONSTANT", "ANY"};
  return role >= 0 && role < EnumMax<WeightsRole>() ? kNames[role] : "unknown";
}

}  // namespace

Refitter::Refitter(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), set_(weights().size()) {
  require(engine_->is_refittable(), engine_->name(),
          " cannot be refitted: build it with BuilderFlag.REFIT, REFIT_IDENTICAL or "
          "REFIT_INDIVIDUAL (the latter with weights marked in the network)");
  for (size_t i = 0; i < weights().size(); ++i) {
    const RefitWeight& weight = weights()[i];
    by_name_.try_emplace(weight.name, static_cast<int>(i));
    for (const WeightUse& use : weight.uses)
      by_layer_[use.layer].emplace_back(use.role, static_cast<int>(i));
  }
}

int Refitter::require_name(std::string_view name) const {
  const auto found = by_name_.find(name);
  require(found != by_name_.end(), engine_->name(), " has no refittable weights '", name,
          "'; get_all_weights() lists them");
  return found->second;
}

int Refitter::require_role(std::string_view layer, WeightsRole role) const {
  const auto found = by_layer_.find(layer);
  require(found != by_layer_.end(), engine_->name(), " has no refittable weights of a layer '",
          layer, "'; get_all() lists the layers that have some");
  std::string roles;
  for (const auto& [own, weight] : found->second) {
    if (own == static_cast<int32_t>(role)) return weight;
    roles += str(roles.empty() ? "" : ", ", role_name(own));
  }
  fail("layer '", layer, "' has no refittable weights in the role ",
       role_name(static_cast<int32_t>(role)), "; it has ", roles);
}

void Refitter::set(int weight, DataType type, int64_t count, Blob elements,
                   TensorLocation location) {
  const RefitWeight& known = weights()[weight];
  require(type == known.dtype, "the weights '", known.name, "' are ", name(known.dtype),
          " in the engine, the new ones ", name(type), "; convert them");
  require(count == known.shape.numel(), "the weights '", known.name, "' have ", known.shape.numel(),
          " elements (", known.shape, "), the new ones ", count);
  require(elements.data() != nullptr || count == 0, "the new weights '", known.name,
          "' have no elements: their address is null");
  require(location == TensorLocation::kHOST || location == TensorLocation::kDEVICE,
          "the new weights '", known.name, "' lie at the unknown location ",
          static_cast<int>(location));
  if (location == TensorLocation::kDEVICE && !engine_->device().is_host()) {
    const DeviceScope scope(engine_->device());
    engine_->device().check_address(elements.data(), elements.size(),
                                    str("the new weights '", known.name, "'"));
  }
  set_[weight] = {std::move(elements), location};
}

const Blob& Refitter::elements(int weight) const {
  require(!set_[weight].elements.empty(), "the weights '", weights()[weight].name,
          "' were not set");
  return set_[weight].elements;
}

TensorLocation Refitter::location(int weight) const {
  elements(weight);
  return set_[weight].location;
}

bool Refitter::unset(int weight) {
  const bool was_set = !set_[weight].elements.empty();
  set_[weight] = {};
  return was_set;
}

std::vector<int32_t> Refitter::all() const {
  std::vector<int32_t> list(weights().size());
  std::iota(list.begin(), list.end(), 0);
  return list;
}

WeightUse Refitter::use(int weight) const {
  const RefitWeight& each = weights()[weight];
  if (!each.uses.empty()) return each.uses[0];
  return {each.name, static_cast<int32_t>(WeightsRole::kANY)};
}

std::vector<int32_t> Refitter::missing() const {
  std::vector<bool> is_set;
  for (const Set& each : set_) is_set.push_back(!each.elements.empty());
  return missing_weights(engine_->plan(), refit_targets(engine_->plan()), is_set);
}

int Refitter::max_threads() const { return max_threads_ > 0 ? max_threads_ : thread_count(); }

void Refitter::set_max_threads(int threads) {
  max_threads_ = checked_threads(threads, "a refitter");
}

/// Warns of elements that are not finite, or that overflow in the type that kernels read, because
/// they spoil a whole result.
void Refitter::warn_of(int weight, const Blob& elements) const {
  const RefitWeight& known = weights()[weight];
  if (!is_floating(known.dtype)) return;
  std::vector<float> values(static_cast<size_t>(known.shape.numel()));
  convert(elements.data(), known.dtype, values.data(), DataType::kFLOAT,
          static_cast<int64_t>(values.size()));
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      engine_->log().warning("Refitting ", engine_->name(), ": the new weights '", known.name,
                             "' have elements that are not finite");
      return;
    }
    largest = std::max(largest, std::abs(value));
  }
  constexpr float kLargestHalf = 65504;
  if (largest <= kLargestHalf || known.dtype == DataType::kHALF) return;
  for (const Schedule& schedule : engine_->plan().schedules)
    for (const PlanTensor& tensor : schedule.tensors)
      if (tensor.source == weight && tensor.type.dtype == DataType::kHALF) {
        engine_->log().warning("Refitting ", engine_->name(), ": the new weights '", known.name,
                               "' have elements up to ", largest,
                               ", which are infinite in FP16, in which the engine has them");
        return;
      }
}

void Refitter::refit(Queue queue) {
  const std::vector<int32_t> lacking = missing();
  std::string names;
  for (const int32_t weight : lacking) {
    const RefitWeight& each = weights()[weight];
    names += str("\n  '", each.name, "' (", name(each.dtype), ", ", each.shape, ")");
  }
  require(lacking.empty(), engine_->name(), " cannot be refitted yet: ", lacking.size(),
          " weights are missing, because the engine has them only combined with others, or not at "
          "all; set them, too:",
          names);
  const ThreadLimit limit(max_threads_);
  const Device& device = engine_->device();
  const DeviceScope scope(device);
  if (!device.is_host()) device.synchronize(queue);
  std::vector<Blob> elements;
  for (size_t i = 0; i < set_.size(); ++i) {
    const Blob& given = set_[i].elements;
    if (given.empty()) {
      elements.emplace_back();
    } else if (set_[i].location == TensorLocation::kDEVICE && !device.is_host()) {
      elements.push_back(Blob::make(given.size(), [&](void* memory) {
        device.copy(memory, given.data(), given.size(), queue);
        device.synchronize(queue);
      }));
    } else {
      elements.push_back(Blob::copy(given.data(), given.size()));
    }
    if (validates_ && !elements.back().empty()) warn_of(static_cast<int>(i), elements.back());
  }
  const WeightUpdate update(*engine_, refit_targets(engine_->plan()), elements);
  engine_->replace_weights([&](Plan& plan) { update.apply(plan); });
}

}  // namespace opwright
