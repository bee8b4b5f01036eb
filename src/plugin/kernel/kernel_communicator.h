#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/communicator.h"
#include "network/operator.h"

namespace opwright {

class KernelCommunicator;

/// The communicator of a run, as a plugin sees it.
struct RunCommunicator {
  CommunicatorUse use;                  ///< on the CPU without a handle
  std::shared_ptr<Communicator> given;  ///< null: an `ncclComm_t` of the program's own
  std::weak_ptr<KernelCommunicator> asked;
  const char* name() const { return given == nullptr ? "" : given->name().c_str(); }
};

/// What a plugin's kernel asks for the communicator of the context that runs it.
class KernelCommunicator : public std::enable_shared_from_this<KernelCommunicator> {
 public:
  /// `is_declared`: whether the plugin says that it exchanges data with other ranks.
  KernelCommunicator(const KernelArgs& args, bool is_declared);
  bool is_declared() const { return is_declared_; }

  /// A call of the plugin's. What find() and peer_buffers() gave lasts until its end.
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
  /// A call that gives work to the queue.
  class Run {
   public:
    Run(KernelCommunicator& communicator, Queue queue)
        : call_(communicator), communicator_(communicator) {
      communicator_.is_run_ = true, communicator_.queue_ = queue;
    }
    ~Run() {
      communicator_.is_run_ = false;
      if (!communicator_.used_.empty()) [[unlikely]]
        communicator_.end_uses();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    const Call call_;
    KernelCommunicator& communicator_;
  };

  /// The communicator that the context has now. Throws Error, naming the layer and what to call,
  /// where it has none, and where the communicator has ended. Outside of a call the result is not
  /// held.
  RunCommunicator find();
  /// DeviceCommunicator::peer_buffers() of that communicator, for work that the call gives to its
  /// queue afterwards. Null on the CPU, too, and for an `ncclComm_t` of the program's own. Throws
  /// Error outside of a Run.
  PeerBuffers* peer_buffers(const std::string& name, size_t bytes);

 private:
  void end_uses() noexcept;

  const std::string layer_;
  const PluginServices* const services_;
  const Device* const device_;
  const bool is_declared_;
  bool in_call_ = false, is_run_ = false;
  std::optional<RunCommunicator> found_;  ///< of the call
  Queue queue_ = nullptr;                 ///< of the run
  std::vector<PeerBuffers*> used_;        ///< by the run
};

}  // namespace opwright
