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
  /// The number of the weights with this name. Throws Error for an unknown name.
  int require_name(std::string_view name) const;
  /// The number of a layer's weights in a role. Throws Error if the layer or the role has no
  /// weights to exchange.
  int require_role(std::string_view layer, WeightsRole role) const;

  /// Sets new elements, which the next refit() takes. Their type and number are those of the
  /// weights; throws Error for others. `elements` keeps them alive, and lies in the device's memory
  /// with kDEVICE.
  void set(int weight, DataType type, int64_t count, Blob elements,
           TensorLocation location = TensorLocation::kHOST);
  /// The elements that were set. Throws Error where none were.
  const Blob& elements(int weight) const;
  TensorLocation location(int weight) const;
  /// Forgets the elements that were set; false where none were.
  bool unset(int weight);

  std::vector<int32_t> all() const;
  /// The weights that must be set before refit(), besides those that are.
  std::vector<int32_t> missing() const;
  /// The first layer that uses the weights, and their role in it. If no layer does: the weights'
  /// own name.
  WeightUse use(int weight) const;
  /// Exchanges the weights that are set, once the queue's work is done. Throws Error naming weights
  /// that are missing, and leaves the engine unchanged then.
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
  /// The roles of each layer, and its weights in each role, in order.
  std::unordered_map<std::string_view, std::vector<std::pair<int32_t, int>>> by_layer_;
  bool validates_ = true;
  int max_threads_ = 0;  ///< 0: the machine's number
};

}  // namespace opwright
