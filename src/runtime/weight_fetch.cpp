#include "runtime/weight_fetch.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {

std::vector<WeightFetch::Load> WeightFetch::loads_of(const Schedule& schedule,
                                                     const DeviceWeights& weights) {
  std::vector<Load> loads;
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    Load load{.step = static_cast<uint32_t>(step)};
    for (const int32_t input : schedule.steps[step].inputs) {
      if (input < 0) continue;
      const PlanTensor& tensor = schedule.tensors[input];
      const std::byte* const from = weights.streamed(tensor);
      if (from == nullptr || load.offsets.contains(tensor.data.data())) continue;
      load.copies.push_back({from, load.size, tensor.data.size()});
      load.offsets.emplace(tensor.data.data(), load.size);
      load.size += DeviceWeights::aligned(tensor.data.size());
    }
    if (!load.copies.empty()) loads.push_back(std::move(load));
  }
  return loads;
}

std::array<size_t, 2> WeightFetch::half_sizes(const std::vector<Load>& loads) {
  std::array<size_t, 2> sizes{};
  for (size_t i = 0; i < loads.size(); ++i) sizes[i % 2] = std::max(sizes[i % 2], loads[i].size);
  return sizes;
}

size_t WeightFetch::size(const Schedule& schedule, const DeviceWeights& weights) {
  const std::array<size_t, 2> sizes = half_sizes(loads_of(schedule, weights));
  return sizes[0] + sizes[1];
}

WeightFetch::WeightFetch(const Device& device, const Schedule& schedule,
                         const DeviceWeights& weights,
                         const std::shared_ptr<IGpuAllocator>& allocator,
                         const std::shared_ptr<const LastUse>& last_use)
    : device_(device), loads_(loads_of(schedule, weights)) {
  if (loads_.empty()) return;
  const std::array<size_t, 2> sizes = half_sizes(loads_);
  memory_.grow(device, sizes[0] + sizes[1], allocator, last_use);
  halves_[0].memory = memory_.data();
  halves_[1].memory = memory_.data() + sizes[0];
  for (Half& half : halves_) {
    half.ready = device.make_event(false);
    half.free = device.make_event(false);
  }
  queue_ = device.make_queue();
  begun_ = device.make_event(false);
  ended_ = device.make_event(false);
}

const WeightFetch::Load* WeightFetch::find(uint32_t step) const {
  const auto found = std::ranges::lower_bound(loads_, step, {}, &Load::step);
  return found != loads_.end() && found->step == step ? &*found : nullptr;
}

void* WeightFetch::address(int step, const PlanTensor& tensor) const {
  const Load* const load = find(static_cast<uint32_t>(step));
  if (load == nullptr) return nullptr;
  const auto offset = load->offsets.find(tensor.data.data());
  if (offset == load->offsets.end()) return nullptr;
  return halves_[static_cast<size_t>(load - loads_.data()) % 2].memory + offset->second;
}

WeightFetch::Run::Run(WeightFetch& fetch, Queue queue, uint32_t first, uint32_t last)
    : fetch_(fetch), queue_(queue) {
  const auto place = [&](uint32_t step) {
    const auto& loads = fetch_.loads_;
    return static_cast<size_t>(std::ranges::lower_bound(loads, step, {}, &Load::step) -
                               loads.begin());
  };
  next_ = place(first), end_ = place(last);
  if (next_ == end_) return;
  // Earlier work in the queue may still read the memory that is overwritten.
  fetch_.begun_->record(queue_);
  fetch_.begun_->make_wait(fetch_.queue_.get());
  start(next_);
  if (next_ + 1 < end_) start(next_ + 1);
}

WeightFetch::Run::~Run() {
  if (next_ == end_) return;  // a step has waited for each copy
  try {
    fetch_.ended_->record(fetch_.queue_.get());
    fetch_.ended_->make_wait(queue_);
  } catch (const Error&) {
    // The error appears to the caller that waits for the queue.
  }
}

void WeightFetch::Run::start(size_t load) {
  const Half& half = fetch_.halves_[load % 2];
  for (const Load::Copy& copy : fetch_.loads_[load].copies)
    fetch_.device_.copy(half.memory + copy.offset, copy.from, copy.bytes, fetch_.queue_.get());
  half.ready->record(fetch_.queue_.get());
}

void WeightFetch::Run::enter(uint32_t step, Queue queue) {
  if (next_ == end_ || fetch_.loads_[next_].step != step) return;
  fetch_.halves_[next_ % 2].ready->make_wait(queue);
}

void WeightFetch::Run::leave(uint32_t step, Queue queue) {
  if (next_ == end_ || fetch_.loads_[next_].step != step) return;
  if (next_ + 2 < end_) {
    const Half& half = fetch_.halves_[next_ % 2];
    half.free->record(queue);
    half.free->make_wait(fetch_.queue_.get());
    start(next_ + 2);
  }
  ++next_;
}

}  // namespace opwright
