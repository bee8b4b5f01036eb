#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "opwright/refitter.h"
#include "runtime/engine.h"

namespace opwright {

/// New weights for an engine, as IRefitter takes them; methods throw. One thread at a time.
class Refitter {
 public:
  /// Throws Error for an engine that cannot be refitted.
  explicit Refitter(std::shared_ptr<Engine> engine);

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const std::vector<RefitWeight>& weights() const { return engine_->plan().refit.weights; }
  /// The number of the weights. Throws Error for a name that there is not.
  int require_name(std::string_view name) const;
  /// Throws Error for a layer, or a role of it, that has no weights to exchange.
  int require_role(std::string_view layer, WeightsRole role) const;

  /// Takes the elements, in the type and number of the weights, at the next refit(); `elements`
  /// keeps them alive and is in the device's memory with kDEVICE. Throws Error for others.
  void set(int weight, DataType type, int64_t count, Blob elements,
           TensorLocation location = TensorLocation::kHOST);
  /// What was set; throws Error where nothing was.
  const Blob& elements(int weight) const;
  TensorLocation location(int weight) const;
  /// False where nothing was set.
  bool unset(int weight);

  std::vector<int32_t> all() const;
  /// The weights that have to be set, too.
  std::vector<int32_t> missing() const;
  /// The first layer that uses them, and as what; by their own name where none does.
  WeightUse use(int weight) const;
  /// Puts what is set into the engine, after what the queue was given. Throws Error naming weights
  /// that are missing; the engine is not changed then.
  void refit(Queue queue = nullptr);

  bool validates() const { return validates_; }
  void set_validates(bool validates) { validates_ = validates; }
  int max_threads() const;
  /// Throws Error unless there is at least 1.
  void set_max_threads(int threads);

 private:
  struct Set {
    Blob elements;
    TensorLocation location = TensorLocation::kHOST;
  };
  void warn_of(int weight, const Blob& elements) const;

  std::shared_ptr<Engine> engine_;
  std::vector<Set> set_;  ///< per weight
  std::unordered_map<std::string_view, int> by_name_;
  /// By layer its roles and the weights that it has in them, in their order.
  std::unordered_map<std::string_view, std::vector<std::pair<int32_t, int>>> by_layer_;
  bool validates_ = true;
  int max_threads_ = 0;  ///< 0: those of the machine
};

/// What is behind the public refitter.
Refitter& refitter_of(IRefitter& refitter);

}  // namespace opwright
