#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "network/network.h"
#include "operators/boundary.h"

namespace opwright {

/// A loop as TensorRT's API has it: layers of a network between recurrences, iterators and trip
/// limits on the one side and outputs on the other. Those that depend on an iteration are inside.
class LoopRegion final : public Region {
 public:
  using Region::Region;
  /// Throws Error for a tensor of another network; so do all that add layers.
  TypedLayer<RecurrenceBoundary>* add_recurrence(Tensor& initial_value);
  /// Throws Error for a second one of a kind.
  TypedLayer<TripLimitBoundary>* add_trip_limit(Tensor& tensor, TripLimit kind);
  TypedLayer<IteratorBoundary>* add_iterator(Tensor& tensor, int64_t axis, bool reverse);
  TypedLayer<LoopOutputBoundary>* add_loop_output(Tensor& tensor, LoopOutput kind, int64_t axis);

  std::vector<const Layer*> interior() const override;
  /// Its iterations where their number is known and small, else a Loop.
  void expand(Expansion& expansion) const override;
  Region* add_copy_to(Network& network) const override;
};

/// A conditional as TensorRT's API has it. What depends on its inputs is inside.
class ConditionalRegion final : public Region {
 public:
  using Region::Region;
  /// Throws Error for a second condition.
  TypedLayer<ConditionBoundary>* set_condition(Tensor& condition);
  TypedLayer<ConditionalInputBoundary>* add_input(Tensor& tensor);
  TypedLayer<ConditionalOutputBoundary>* add_output(Tensor& where_true, Tensor& where_false);

  std::vector<const Layer*> interior() const override;
  /// The branch that runs where that is known; both and a choice where they give the same shapes,
  /// else a Conditional.
  void expand(Expansion& expansion) const override;
  Region* add_copy_to(Network& network) const override;
};

/// Those of the layers that the tensors depend on; of a region among them all layers, where one is.
std::unordered_set<const Layer*> layers_behind(std::vector<const Tensor*> tensors,
                                               const std::unordered_set<const Layer*>& among);

/// A loop or conditional of the network, without layers.
LoopRegion* add_loop(Network& network);
ConditionalRegion* add_conditional(Network& network);

}  // namespace opwright
