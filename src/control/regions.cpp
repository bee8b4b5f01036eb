#include "control/regions.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "network/shape_inputs.h"

namespace opwright {
namespace {

std::string unused_name(const Network& network, std::string_view kind) {
  for (size_t number = network.regions().size();; ++number) {
    std::string name = str(kind, ' ', number);
    if (std::ranges::none_of(network.regions(),
                             [&](const auto& region) { return region->name() == name; }))
      return name;
  }
}

/// The layers that depend on the tensors that enter a region. `lets_out` says whether an input of a
/// layer at the border may read a tensor from inside.
std::vector<const Layer*> inside_of(const Region& region, const std::vector<const Layer*>& entries,
                                    const std::function<bool(const Layer&, int)>& lets_out) {
  std::vector<const Layer*> inside;
  std::unordered_set<const Layer*> seen;
  std::vector<const Tensor*> pending;
  const auto add_outputs = [&](const Layer& layer) {
    pending.insert(pending.end(), layer.outputs().begin(), layer.outputs().end());
  };
  const auto add = [&](const Layer& layer) {
    if (!seen.insert(&layer).second) return;
    inside.push_back(&layer);
    add_outputs(layer);
  };
  for (const Layer* entry : entries) add_outputs(*entry);
  while (!pending.empty()) {
    const Tensor& tensor = *pending.back();
    pending.pop_back();
    const auto refuse = [&](const auto&... parts) {
      fail(region.name(), ": tensor '", tensor.name(), "' lies inside, but ", parts...,
           "; expected that it leaves by an output that the region was given");
    };
    if (tensor.is_network_output()) refuse("is an output of the network");
    for (const Layer* user : tensor.users()) {
      const BoundaryOperator* const boundary = boundary_of(*user);
      if (boundary == nullptr) {
        add(*user);
      } else if (&boundary->region() != &region) {
        // For a nested region, adds all layers at its border.
        for (const Layer* other : boundary->region().boundary()) add(*other);
      } else {
        for (int i = 0; i < user->num_inputs(); ++i)
          if (user->input(i) == &tensor && !lets_out(*user, i))
            refuse("is input ", i, " of its layer '", user->name(), "' (", user->op()->kind(),
                   "), which comes from outside");
      }
    }
  }
  return inside;
}

template <class Op>
bool is_a(const Layer& layer) {
  return layer.op()->kind() == Op::kKind;
}

template <class... Ops>
std::vector<const Layer*> boundary_layers(const Region& region) {
  std::vector<const Layer*> found;
  for (const Layer* layer : region.boundary())
    if ((is_a<Ops>(*layer) || ...)) found.push_back(layer);
  return found;
}

}  // namespace

std::unordered_set<const Layer*> layers_behind(std::vector<const Tensor*> tensors,
                                               const std::unordered_set<const Layer*>& among) {
  std::unordered_set<const Layer*> needed;
  while (!tensors.empty()) {
    const Layer* const producer = tensors.back()->producer();
    tensors.pop_back();
    if (producer == nullptr || !among.contains(producer)) continue;
    std::vector<const Layer*> all = {producer};
    if (const BoundaryOperator* boundary = boundary_of(*producer)) {
      const std::vector<const Layer*> inside = boundary->region().interior();
      all.insert(all.end(), inside.begin(), inside.end());
      all.insert(all.end(), boundary->region().boundary().begin(),
                 boundary->region().boundary().end());
    }
    for (const Layer* layer : all) {
      if (!needed.insert(layer).second) continue;
      for (const Tensor* input : layer->inputs())
        if (input != nullptr) tensors.push_back(input);
    }
  }
  return needed;
}

TypedLayer<RecurrenceBoundary>* LoopRegion::add_recurrence(Tensor& initial_value) {
  auto* const layer = network_.add<RecurrenceBoundary>({this}, {&initial_value});
  add_boundary(*layer);
  return layer;
}

TypedLayer<TripLimitBoundary>* LoopRegion::add_trip_limit(Tensor& tensor, TripLimit kind) {
  for (const Layer* other : boundary_layers<TripLimitBoundary>(*this))
    require(static_cast<const TripLimitBoundary&>(*other->op()).params().kind != kind, name_,
            ": has a trip limit of this kind already, '", other->name(),
            "'; expected at most one COUNT and one WHILE");
  auto* const layer = network_.add<TripLimitBoundary>({{this}, kind}, {&tensor});
  add_boundary(*layer);
  return layer;
}

TypedLayer<IteratorBoundary>* LoopRegion::add_iterator(Tensor& tensor, int64_t axis, bool reverse) {
  auto* const layer = network_.add<IteratorBoundary>({{this}, axis, reverse}, {&tensor});
  add_boundary(*layer);
  return layer;
}

TypedLayer<LoopOutputBoundary>* LoopRegion::add_loop_output(Tensor& tensor, LoopOutput kind,
                                                            int64_t axis) {
  auto* const layer = network_.add<LoopOutputBoundary>({{this}, kind, axis}, {&tensor});
  add_boundary(*layer);
  return layer;
}

std::vector<const Layer*> LoopRegion::interior() const {
  return inside_of(*this, boundary_layers<RecurrenceBoundary, IteratorBoundary>(*this),
                   [](const Layer& layer, int input) {
                     if (is_a<RecurrenceBoundary>(layer)) return input == 1;
                     if (is_a<LoopOutputBoundary>(layer)) return input == 0;
                     return is_a<TripLimitBoundary>(layer) &&
                            static_cast<const TripLimitBoundary&>(*layer.op()).params().kind ==
                                TripLimit::kWHILE;
                   });
}

Region* LoopRegion::add_copy_to(Network& network) const {
  return network.add_region(std::make_unique<LoopRegion>(network, name_));
}

TypedLayer<ConditionBoundary>* ConditionalRegion::set_condition(Tensor& condition) {
  require(boundary_layers<ConditionBoundary>(*this).empty(), name_,
          ": has a condition already; expected one");
  auto* const layer = network_.add<ConditionBoundary>({this}, {&condition});
  add_boundary(*layer);
  return layer;
}

TypedLayer<ConditionalInputBoundary>* ConditionalRegion::add_input(Tensor& tensor) {
  auto* const layer = network_.add<ConditionalInputBoundary>({this}, {&tensor});
  add_boundary(*layer);
  return layer;
}

TypedLayer<ConditionalOutputBoundary>* ConditionalRegion::add_output(Tensor& where_true,
                                                                     Tensor& where_false) {
  auto* const layer = network_.add<ConditionalOutputBoundary>({this}, {&where_true, &where_false});
  add_boundary(*layer);
  return layer;
}

std::vector<const Layer*> ConditionalRegion::interior() const {
  return inside_of(*this, boundary_layers<ConditionalInputBoundary>(*this),
                   [](const Layer& layer, int) { return is_a<ConditionalOutputBoundary>(layer); });
}

Region* ConditionalRegion::add_copy_to(Network& network) const {
  return network.add_region(std::make_unique<ConditionalRegion>(network, name_));
}

LoopRegion* add_loop(Network& network) {
  return network.add_region(std::make_unique<LoopRegion>(network, unused_name(network, "Loop")));
}

ConditionalRegion* add_conditional(Network& network) {
  return network.add_region(
      std::make_unique<ConditionalRegion>(network, unused_name(network, "Conditional")));
}

}  // namespace opwright
