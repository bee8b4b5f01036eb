#include "plugin/kernel/kernel_communicator.h"

#include <algorithm>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/error.h"

namespace opwright {

KernelCommunicator::KernelCommunicator(const KernelArgs& args, bool is_declared)
    : layer_(args.layer),
      services_(args.services),
      device_(args.device),
      is_declared_(is_declared) {}

RunCommunicator KernelCommunicator::find() {
  if (found_) return *found_;
  void* const address = services_ == nullptr ? nullptr : services_->find_communicator();
  if (address == nullptr)
    fail_with(
        ErrorCode::kINVALID_STATE, "Layer '", layer_,
        "': its plugin asks for the communicator, and the execution context has none; give it "
        "one (set_communicator) before it runs",
        is_declared_ ? ""
                     : ". A build has none either, and does not run a plugin that says that "
                       "it communicates (the attribute communicates = True of its class, in "
                       "C++ ICommunicatingPlugin)");
  RunCommunicator found;
  found.asked = weak_from_this();
  const std::shared_ptr<Communicator> given = Communicator::find(address);
  if (given != nullptr) {
    given->require_well();
    found.given = given;
  }
  if (device_ != nullptr && !device_->is_host()) {
    found.use = device_->backend().use_communicator(address);
  } else {
    require(given != nullptr, "Layer '", layer_, "': the execution context's communicator is gone");
    found.use.rank = given->rank();
    found.use.ranks = given->ranks();
  }
  if (in_call_)
    found_ = found;
  else
    found.use.hold.reset();
  return found;
}

PeerBuffers* KernelCommunicator::peer_buffers(const std::string& name, size_t bytes) {
  require(is_run_, "Layer '", layer_, "': its plugin asks for the peer memory '", name,
          "' outside of enqueue; work of a run begins with it");
  const RunCommunicator found = find();
  if (found.given == nullptr || found.given->on_device() == nullptr) return nullptr;
  PeerBuffers* const buffers = found.given->on_device()->peer_buffers(name, bytes);
  if (buffers != nullptr && std::ranges::find(used_, buffers) == used_.end()) {
    buffers->begin(queue_);
    used_.push_back(buffers);
  }
  return buffers;
}

/// A failure of the driver shows in the next call.
void KernelCommunicator::end_uses() noexcept {
  try {
    for (PeerBuffers* const buffers : used_) buffers->end(queue_);
  } catch (const Error&) {
  }
  used_.clear();
}

}  // namespace opwright
