#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_device.h"
#include "backend/device.h"
#include "backend/host_communicator.h"

namespace opwright::cuda {

/// A word of the host's memory, at which kernels look that wait for other ranks. The object does
/// nothing at its end.
class StopWord {
 public:
  explicit StopWord(const CudaDevice& device);
  StopWord(const StopWord&) = delete;
  StopWord& operator=(const StopWord&) = delete;

  /// Ends the kernels. What they compute is then missing.
  void set();
  /// Null where there is no such memory.
  void* address() const { return word_; }
  /// No kernel looks at it any more.
  void free();

 private:
  void* word_ = nullptr;
};

/// Memory of each rank's GPU that the GPUs of all ranks read and write: a table, which
/// device/peers.cuh describes, and a buffer. It is ordinary memory, which the processes map through
/// the driver (CUDA IPC). A rank's object does nothing at its end. First all ranks call close(),
/// then they call free().
class PeerMemory final : public PeerBuffers {
 public:
  /// All ranks call it, with the same number of bytes for each buffer. Null on all of them where
  /// one GPU cannot reach another's memory, or where NCCL must not use such memory either
  /// (NCCL_P2P_DISABLE). Kernels that wait look at `stop`, which outlives the object.
  static std::unique_ptr<PeerMemory> make(const CudaDevice& device, HostCommunicator& host,
                                          size_t bytes, const StopWord& stop);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  size_t bytes() const override { return bytes_; }
  std::span<void* const> buffers() const override { return buffers_; }
  Table table() const override;

  /// Makes the next kernel on the stream wait for the last one, which may be on another stream.
  void begin(Queue queue) override;
  /// The kernel has been launched.
  void end(Queue queue) override;

  /// Unmaps the memory of the other ranks. No kernel of this rank runs.
  void close();
  /// Gives this rank's memory back. The other ranks have called close(), or have ended.
  void free();

 private:
  PeerMemory(const CudaDevice& device, int rank, int ranks, size_t bytes, const StopWord& stop);
  // The steps of make(). Each throws Error where the driver refuses it.
  void allocate(CUipcMemHandle& handle);
  void map(const std::vector<std::byte>& handles);
  void send_greetings();
  void expect_greetings();
  CUdeviceptr greeting_in(CUdeviceptr memory, int rank) const;
  void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) const;
  void clear(CUdeviceptr memory, size_t bytes) const;

  const CudaDevice& device_;
  const int rank_, ranks_;
  const size_t bytes_;  ///< of a buffer
  const StopWord& stop_;
  std::shared_ptr<void> setting_up_;  ///< a queue, until make() has ended
  CUdeviceptr own_ = 0;
  std::vector<CUdeviceptr> all_;  ///< the ranks' memory as this process sees it; 0: not mapped
  std::vector<void*> buffers_;    ///< the same of their buffers
  Queue last_queue_ = nullptr;    ///< of the last kernel, unless it was captured
  bool has_run_ = false;
  std::unique_ptr<Event> last_use_;  ///< after the last kernel, once there are several streams
};

}  // namespace opwright::cuda
