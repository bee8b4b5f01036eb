#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/device.h"
#include "backend/host_communicator.h"

namespace opwright::cuda {

/// Memory of each rank's GPU that the GPUs of all ranks write, for kernels that exchange small
/// tensors. device/peer_all_reduce.cuh says how. It is ordinary memory, which the processes map
/// through the driver (CUDA IPC). A rank's object does nothing at its end. First all ranks call
/// close(), then they call free().
class PeerMemory {
 public:
  /// More GPUs do not reach each other. The kernel keeps an address and a packet of each rank in
  /// registers.
  static constexpr int kMostRanks = 16;

  /// All ranks call it. Null on all of them where one GPU cannot reach another's memory, or where
  /// NCCL must not use such memory either (NCCL_P2P_DISABLE).
  static std::unique_ptr<PeerMemory> make(const CudaDevice& device, HostCommunicator& host);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Bytes of the largest tensor that the ranks exchange so.
  static size_t most_bytes(int ranks);
  size_t most_bytes() const { return most_bytes(ranks_); }
  /// The table that kernels need, in the GPU's memory: `Peers` of peer_all_reduce.cuh.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the addresses of the driver are integers
  const void* table() const { return reinterpret_cast<const void*>(own_); }

  /// Makes the next kernel on the stream wait for the last one, which may be on another stream.
  void begin(Queue queue);
  /// The kernel has been launched.
  void end(Queue queue);

  /// Ends kernels that wait for other ranks. What they compute is then missing.
  void stop() { *static_cast<volatile unsigned*>(stop_) = 1; }
  /// Unmaps the memory of the other ranks. No kernel of this rank runs.
  void close();
  /// Gives this rank's memory back. The other ranks have called close(), or have ended.
  void free();

 private:
  PeerMemory(const CudaDevice& device, int rank, int ranks);
  // The steps of make(). Each throws Error where the driver refuses it.
  void allocate(CUipcMemHandle& handle);
  void map(const std::vector<std::byte>& handles);
  void send_greetings();
  void expect_greetings();
  size_t first_packet_of(int rank) const;
  void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) const;
  void clear(CUdeviceptr memory, size_t bytes) const;

  const CudaDevice& device_;
  const int rank_, ranks_;
  std::shared_ptr<void> setting_up_;  ///< a queue, until make() has ended
  CUdeviceptr own_ = 0;
  void* stop_ = nullptr;          ///< a word of the host's memory
  std::vector<CUdeviceptr> all_;  ///< the ranks' memory as this process sees it; 0: not mapped
  Queue last_queue_ = nullptr;    ///< of the last kernel, unless it was captured
  bool has_run_ = false;
  std::unique_ptr<Event> last_use_;  ///< after the last kernel, once there are several streams
};

}  // namespace opwright::cuda
