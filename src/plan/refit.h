#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/shape.h"
#include "base/types.h"
#include "network/attributes.h"

namespace opwright {

struct Plan;
struct Schedule;

/// What a layer uses weights for.
struct WeightUse {
  std::string layer;
  int32_t role = 0;  ///< a WeightsRole
  friend bool operator==(const WeightUse&, const WeightUse&) = default;
};

/// Weights that can be exchanged, as the network had them.
struct RefitWeight {
  std::string name;
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  std::vector<WeightUse> uses;  ///< the first one says most of what they are
  Blob data;                    ///< empty where the plan has only what was made of them
};

/// A constant that stays, with its bytes, or the result of an operation, without.
struct RefitValue {
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;
};

/// An operator that the compiler applied to constants.
struct RefitOperation {
  std::string name;  ///< of the layer, for messages
  std::string kind;
  Attributes attributes;
  std::vector<int32_t> inputs, outputs;  ///< values, -1: absent
};

/// How a plan's weights came from those of the network: a program over values, of which the first
/// are the weights. With other weights it gives the bytes that the compiler would have made of
/// them: kernels' own arrangements by making the kernel again, as PackedInput.
struct RefitPlan {
  std::vector<RefitWeight> weights;
  std::vector<RefitValue> values;
  std::vector<RefitOperation> operations;  ///< each after those whose results it reads
  bool is_stripped = false;                ///< built to be stored without the weights
  uint64_t stripped_bytes = 0;             ///< that were left out then

  int32_t num_values() const { return static_cast<int32_t>(weights.size() + values.size()); }
  DataType dtype(int32_t value) const {
    return is_weight(value) ? weights[value].dtype : values[value - weights.size()].dtype;
  }
  const Shape& shape(int32_t value) const {
    return is_weight(value) ? weights[value].shape : values[value - weights.size()].shape;
  }
  const Blob& data(int32_t value) const {
    return is_weight(value) ? weights[value].data : values[value - weights.size()].data;
  }
  bool is_weight(int32_t value) const { return value < static_cast<int32_t>(weights.size()); }
};

/// Something in a plan that is made of values: a tensor's bytes, or what a step has packed.
struct RefitTarget {
  int schedule = 0;
  int tensor = -1;  ///< whose bytes are read as they are; -1: a step's packed inputs
  int step = -1;
  std::vector<int32_t> sources;
  bool is_missing = false;  ///< the plan lacks the bytes
};

/// Per value, whether it changes when the weights that are `set` do.
std::vector<bool> changed_values(const RefitPlan& refit, const std::vector<bool>& set);
/// Per value, whether it is needed for `wanted` ones.
std::vector<bool> needed_values(const RefitPlan& refit, std::vector<bool> wanted);
/// Per tensor, whether a step or an output copy reads its bytes as they are.
std::vector<bool> tensors_read(const Schedule& schedule);
/// All that changes with some weight. Of a valid plan.
std::vector<RefitTarget> refit_targets(const Plan& plan);
/// The weights that have to be set before the plan can be refitted with those that are `set`, or,
/// when none are, before it can run: those of which it lacks what is made of them.
std::vector<int32_t> missing_weights(const Plan& plan, const std::vector<RefitTarget>& targets,
                                     const std::vector<bool>& set);
/// Whether the plan keeps the weight's own bytes beside what is made of them: small ones, and
/// those that a step reads as they are.
std::vector<bool> kept_weights(const Plan& plan);
/// The plan without the bytes that refitting gives back. Throws Error for one that cannot be
/// refitted.
Plan strip(Plan plan);

}  // namespace opwright
