#include "backend/communicator.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "backend/backend.h"
#include "backend/host_communicator.h"
#include "base/library.h"

namespace opwright {
namespace {

struct Communicators {
  LibraryLock lock;
  std::unordered_map<const void*, std::weak_ptr<Communicator>> by_address;
};
Communicators& communicators() { return Library::part<Communicators>(); }

}  // namespace

std::shared_ptr<Communicator> Communicator::join(std::string name, int rank, int ranks,
                                                 double timeout, const DeviceId& id,
                                                 const MeetingPlace* place) {
  const Device& device = get_device(id);
  device.backend().check_collectives();
  std::shared_ptr<Communicator> made(new Communicator(
      device, HostCommunicator::join(std::move(name), rank, ranks, timeout, place)));
  made->on_device_ = device.backend().make_communicator(device, made->host());
  Communicators& all = communicators();
  const std::lock_guard lock(all.lock);
  all.by_address[made.get()] = made;
  return made;
}

std::shared_ptr<Communicator> Communicator::find(const void* address) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.lock);
  const auto found = all.by_address.find(address);
  return found == all.by_address.end() ? nullptr : found->second.lock();
}

Communicator::Communicator(const Device& device, std::shared_ptr<HostCommunicator> host)
    : device_(device), host_(std::move(host)) {}

Communicator::~Communicator() { forget(this); }

void Communicator::also_at(const void* address) {
  Communicators& all = communicators();
  const std::shared_ptr<Communicator> self = find(this);
  const std::lock_guard lock(all.lock);
  all.by_address[address] = self;
}

void Communicator::forget(const void* address) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.lock);
  all.by_address.erase(address);
}

const std::string& Communicator::name() const { return host_->name(); }
int Communicator::rank() const { return host_->rank(); }
int Communicator::ranks() const { return host_->ranks(); }
double Communicator::timeout() const { return host_->timeout(); }

void Communicator::require_well() const {
  host_->require_going_on();
  if (on_device_ != nullptr) on_device_->require_well(str("Communicator '", name(), "'"));
}

}  // namespace opwright
