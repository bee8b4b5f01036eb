#include "plugin/kernel/kernel_communicator.h"

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

}  // namespace opwright
