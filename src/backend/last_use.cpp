#include "backend/last_use.h"

#include "backend/release.h"

namespace opwright {

LastUse::LastUse(const Device& device) : device_(device), event_(device.make_event(false)) {}

LastUse::~LastUse() {
  release_on(device_, [&] { event_.reset(); });
}

bool LastUse::finish() noexcept {
  if (!device_.wait_for(event())) return false;
  has_work_ = false;
  is_on_default_ = true;
  return true;
}

Event* LastUse::event() const noexcept {
  if (is_lost_ || !is_on_default_) return nullptr;
  if (!has_work_) return event_.get();
  try {
    const DeviceScope scope(device_);
    event_->record(nullptr);
    return event_.get();
  } catch (const std::exception&) {
    return nullptr;  // the device is lost
  }
}

}  // namespace opwright
