#include "api/regions.h"

#include "api/tensor.h"

namespace opwright {
namespace {

/// Runs `add`, which returns a layer, and returns its public object.
template <class Interface, class Add>
Interface* added(const NetworkApi& network, Add&& add) noexcept {
  return network.errors().guard<Interface*>(
      nullptr, [&] { return static_cast<Interface*>(network.layer(*add())); });
}

}  // namespace

IRecurrenceLayer* LoopApi::addRecurrence(ITensor& initialValue) noexcept {
  return added<IRecurrenceLayer>(network_,
                                 [&] { return loop_.add_recurrence(TensorApi::of(initialValue)); });
}

ITripLimitLayer* LoopApi::addTripLimit(ITensor& tensor, TripLimit limit) noexcept {
  return added<ITripLimitLayer>(network_,
                                [&] { return loop_.add_trip_limit(TensorApi::of(tensor), limit); });
}

IIteratorLayer* LoopApi::addIterator(ITensor& tensor, int32_t axis, bool reverse) noexcept {
  return added<IIteratorLayer>(
      network_, [&] { return loop_.add_iterator(TensorApi::of(tensor), axis, reverse); });
}

ILoopOutputLayer* LoopApi::addLoopOutput(ITensor& tensor, LoopOutput outputKind,
                                         int32_t axis) noexcept {
  return added<ILoopOutputLayer>(
      network_, [&] { return loop_.add_loop_output(TensorApi::of(tensor), outputKind, axis); });
}

IConditionLayer* ConditionalApi::setCondition(ITensor& condition) noexcept {
  return added<IConditionLayer>(
      network_, [&] { return conditional_.set_condition(TensorApi::of(condition)); });
}

IIfConditionalOutputLayer* ConditionalApi::addOutput(ITensor& trueSubgraphOutput,
                                                     ITensor& falseSubgraphOutput) noexcept {
  return added<IIfConditionalOutputLayer>(network_, [&] {
    return conditional_.add_output(TensorApi::of(trueSubgraphOutput),
                                   TensorApi::of(falseSubgraphOutput));
  });
}

IIfConditionalInputLayer* ConditionalApi::addInput(ITensor& input) noexcept {
  return added<IIfConditionalInputLayer>(
      network_, [&] { return conditional_.add_input(TensorApi::of(input)); });
}

ILoop* NetworkApi::addLoop() noexcept {
  return errors_.guard<ILoop*>(nullptr, [&] { return loop(*add_loop(network_)); });
}

IIfConditional* NetworkApi::addIfConditional() noexcept {
  return errors_.guard<IIfConditional*>(nullptr,
                                        [&] { return conditional(*add_conditional(network_)); });
}

ILoop* NetworkApi::loop(Region& region) const {
  std::unique_ptr<ILoop, RegionDeleter>& api = loops_[&region];
  if (api == nullptr) api.reset(new LoopApi(*this, static_cast<LoopRegion&>(region)));
  return api.get();
}

IIfConditional* NetworkApi::conditional(Region& region) const {
  std::unique_ptr<IIfConditional, RegionDeleter>& api = conditionals_[&region];
  if (api == nullptr) api.reset(new ConditionalApi(*this, static_cast<ConditionalRegion&>(region)));
  return api.get();
}

void NetworkApi::RegionDeleter::operator()(ILoop* loop) const {
  delete static_cast<LoopApi*>(loop);
}
void NetworkApi::RegionDeleter::operator()(IIfConditional* conditional) const {
  delete static_cast<ConditionalApi*>(conditional);
}

}  // namespace opwright
