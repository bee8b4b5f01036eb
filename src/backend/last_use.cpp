#include "backend/last_use.h"

#include "backend/release.h"

namespace opwright {

LastUse::LastUse(const Device& device) : device_(device), event_(device.make_event(false)) {}

LastUse::~LastUse() {
  release_on(device_, [&] { event_.reset(); });
}

void LastUse::move_to(Queue queue, bool is_captured) {
  if (is_captured) {
    lose();  // nor can it wait for what is not captured, and it runs later
  } else if (has_work_ && !is_lost_) {
    if (Event* const last = event())
      last->make_wait(queue);
    else
      device_.wait_for(nullptr);
  }
  queue_ = queue;
  queue_id_ = device_.queue_id(queue);
  has_work_ = true;
}

void LastUse::finish() noexcept {
  Event* const last = event();
  device_.wait_for(last);
  has_work_ &= last == nullptr;
}

Event* LastUse::event() const noexcept {
  if (is_lost_) return nullptr;
  if (!has_work_) return event_.get();
  try {
    const DeviceScope scope(device_);
    // The caller may have destroyed the queue, and its handle may be another's by now.
    if (queue_id_ == 0 || device_.queue_id(queue_) != queue_id_) return nullptr;
    if (device_.is_capturing(queue_)) return nullptr;
    event_->record(queue_);
    return event_.get();
  } catch (const std::exception&) {
    return nullptr;  // the device is lost
  }
}

}  // namespace opwright
