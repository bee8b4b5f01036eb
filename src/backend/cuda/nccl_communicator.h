#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "backend/communicator.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/peer_memory.h"
#include "backend/host_communicator.h"

namespace opwright::cuda {

/// A communicator of NCCL's. The ranks get its name through the host's communicator, which also
/// tells whose process has ended. A thread aborts the communicator then, since NCCL's kernels would
/// wait for ever. Runs on all ranks then fail, with the reason. Where the ranks' GPUs reach each
/// other's memory, kernels of Opwright's own exchange small tensors in its place.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// Waits until all ranks have called it.
  NcclCommunicator(const CudaDevice& device, HostCommunicator& host);
  ~NcclCommunicator() override;

  PeerBuffers* peer_buffers(const std::string& name, size_t bytes) override;
  void require_well(const std::string& what) const override;

 private:
  friend class NcclUse;
  friend PeerMemory* peers_of(void* given);
  using Clock = std::chrono::steady_clock;
  Nccl::Communicator start(const Nccl::UniqueId& id) const;
  void watch();
  void stop_watching();
  void abort(const std::string& reason);
  void close_memory();
  void free_memory();

  const CudaDevice& device_;
  HostCommunicator& host_;
  const Nccl& library_;
  Nccl::Communicator communicator_ = nullptr;
  StopWord stop_word_;                 ///< of all memory
  std::unique_ptr<PeerMemory> peers_;  ///< null: NCCL exchanges everything
  std::map<std::string, std::unique_ptr<PeerMemory>> of_plugins_;
  std::mutex making_;  ///< guards the map
  /// Held while functions of NCCL's use the communicator. An abort makes it invalid.
  mutable std::timed_mutex using_;
  std::atomic<bool> has_failed_{false};
  std::string failure_;  ///< constant once has_failed_ is set
  std::mutex stopping_;
  std::condition_variable stop_;  ///< when one of the two below changes
  bool is_watching_ = false, is_stopped_ = false;
  std::thread watcher_;
};

/// The memory that the ranks of a context's communicator share; null: they share none.
PeerMemory* peers_of(void* given);

/// NCCL's communicator of what a context was given: an ncclComm_t, or a Communicator of Opwright's,
/// which is not aborted during the object's life.
class NcclUse {
 public:
  /// Throws Error that begins with `what` where the communicator has failed.
  NcclUse(const Nccl& library, void* given, const std::string& what);
  Nccl::Communicator get() const { return communicator_; }
  /// The memory that the ranks share; null: they share none.
  PeerMemory* peers() const { return peers_; }

 private:
  std::shared_ptr<Communicator> own_;
  std::unique_lock<std::timed_mutex> lock_;
  Nccl::Communicator communicator_ = nullptr;
  PeerMemory* peers_ = nullptr;
};

}  // namespace opwright::cuda
