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

/// A layer's use of weights.
struct WeightUse {
  std::string layer;
  int32_t role = 0;  ///< a WeightsRole
  friend bool operator==(const WeightUse&, const WeightUse&) = default;
};

/// Weights that can be exchanged, as they are in the network.
struct RefitWeight {
  std::string name;
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  std::vector<WeightUse> uses;  ///< the first use describes them best
  Blob data;                    ///< empty where the plan only has results made of them
};

/// A constant that stays, with its bytes, or an operation's result, without bytes.
struct RefitValue {
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;
};

/// An operator that the compiler applied to constants.
struct RefitOperation {
  std::string name;  ///< name of the layer, for messages
  std::string kind;
  Attributes attributes;
  std::vector<int32_t> inputs, outputs;  ///< values, -1: absent
};

/// A program that makes a plan's weights from those of the network. Its first values are the
/// weights. Run with other weights, it makes the bytes that the compiler would have made of them. A
/// PackedInput is arranged by making its kernel again.
struct RefitPlan {
  std::vector<RefitWeight> weights;
  std::vector<RefitValue> values;
  std::vector<RefitOperation> operations;  ///< each after those that it depends on
  bool is_stripped = false;                ///< built to be stored without the weights
  uint64_t stripped_bytes = 0;             ///< bytes that were left out of the file
  bool can_refit = false;                  ///< built for refits, maybe without weights

  /// Whether a refitter takes the engine. A file without the flag may have weights.
  bool is_possible() const { return can_refit || !weights.empty(); }
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

/// A part of a plan that is made of values: a tensor's bytes, or a step's packed inputs.
struct RefitTarget {
  int schedule = 0;
  int tensor = -1;  ///< the tensor whose bytes are read unpacked; -1: a step's packed inputs
  int step = -1;
  std::vector<int32_t> sources;
  bool is_missing = false;  ///< the plan lacks the bytes
};

/// Per value, whether it changes when the weights in `set` change.
std::vector<bool> changed_values(const RefitPlan& refit, const std::vector<bool>& set);
/// Per value, whether a value in `wanted` needs it.
std::vector<bool> needed_values(const RefitPlan& refit, std::vector<bool> wanted);
/// Per tensor, whether a step, an output copy or a debug tensor reads its bytes unpacked.
std::vector<bool> tensors_read(const Schedule& schedule);
/// All parts of a valid plan that change with any weight.
std::vector<RefitTarget> refit_targets(const Plan& plan);
/// The weights that must be set before the plan can be refitted with those in `set`; if none are
/// set, before it can run. Such a weight's bytes are not in the plan, and a result needs them that
/// the plan lacks or that changes.
std::vector<int32_t> missing_weights(const Plan& plan, const std::vector<RefitTarget>& targets,
                                     const std::vector<bool>& set);
/// Per weight, whether the plan keeps its own bytes beside the results made of it. It keeps small
/// weights, and weights that a step reads unpacked.
std::vector<bool> kept_weights(const Plan& plan);
/// The plan without the bytes that refitting restores. Throws Error for a plan that cannot be
/// refitted.
Plan strip(Plan plan);

}  // namespace opwright
