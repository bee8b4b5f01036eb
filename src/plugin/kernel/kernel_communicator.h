#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/communicator.h"
#include "network/operator.h"

namespace opwright {

/// The communicator of a run, as a plugin sees it.
struct RunCommunicator {
  CommunicatorUse use;                  ///< on the CPU without a handle
  std::shared_ptr<Communicator> given;  ///< null: an `ncclComm_t` of the program's own
  const char* name() const { return given == nullptr ? "" : given->name().c_str(); }
};

/// What a plugin's kernel asks for the communicator of the context that runs it.
class KernelCommunicator {
 public:
  /// `is_declared`: whether the plugin says that it exchanges data with other ranks.
  KernelCommunicator(const KernelArgs& args, bool is_declared);

  /// A call of the plugin's. What find() gave lasts until its end.
  class Call {
   public:
    explicit Call(KernelCommunicator& communicator) : communicator_(communicator) {
      communicator_.in_call_ = true;
    }
    ~Call() {
      communicator_.in_call_ = false;
      communicator_.found_.reset();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    KernelCommunicator& communicator_;
  };

  /// The communicator that the context has now. Throws Error, naming the layer and what to call,
  /// where it has none, and where the communicator has ended. Outside of a call the result is not
  /// held.
  RunCommunicator find();

 private:
  const std::string layer_;
  const PluginServices* const services_;
  const Device* const device_;
  const bool is_declared_;
  bool in_call_ = false;
  std::optional<RunCommunicator> found_;  ///< of the call
};

}  // namespace opwright
