#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "network/network.h"
#include "operators/boundary.h"

namespace opwright {

/// A loop of TensorRT's API: layers of a network between recurrences, iterators and trip limits on
/// one side and outputs on the other. Layers that depend on an iteration are inside.
class LoopRegion final : public Region {
 public:
  using Region::Region;
  /// Throws Error for a tensor of another network, as all methods that add layers do.
  TypedLayer<RecurrenceBoundary>* add_recurrence(Tensor& initial_value);
  /// Throws Error for a second trip limit of one kind.
  TypedLayer<TripLimitBoundary>* add_trip_limit(Tensor& tensor, TripLimit kind);
  TypedLayer<IteratorBoundary>* add_iterator(Tensor& tensor, int64_t axis, bool reverse);
  TypedLayer<LoopOutputBoundary>* add_loop_output(Tensor& tensor, LoopOutput kind, int64_t axis);

  std::vector<const Layer*> interior() const override;
  /// Becomes its iterations if their number is known and small, else a Loop.
  void expand(Expansion& expansion) const override;
  Region* add_copy_to(Network& network) const override;
};

/// A conditional of TensorRT's API. Layers that depend on its inputs are inside.
class ConditionalRegion final : public Region {
 public:
  using Region::Region;
  /// Throws Error for a second condition.
  TypedLayer<ConditionBoundary>* set_condition(Tensor& condition);
  TypedLayer<ConditionalInputBoundary>* add_input(Tensor& tensor);
  TypedLayer<ConditionalOutputBoundary>* add_output(Tensor& where_true, Tensor& where_false);

  std::vector<const Layer*> interior() const override;
  /// Becomes the branch that runs, if that is known. Otherwise becomes both branches and a choice,
  /// if their shapes are the same, else a Conditional.
  void expand(Expansion& expansion) const override;
  Region* add_copy_to(Network& network) const override;
};

/// The layers in `among` that the tensors depend on. If one belongs to a nested region, all layers
/// of that region.
std::unordered_set<const Layer*> layers_behind(std::vector<const Tensor*> tensors,
                                               const std::unordered_set<const Layer*>& among);

/// Adds a loop or conditional without layers to the network.
LoopRegion* add_loop(Network& network);
ConditionalRegion* add_conditional(Network& network);

}  // namespace opwright
