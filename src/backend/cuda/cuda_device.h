#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/cuda/modules.h"
#include "backend/device.h"

namespace opwright::cuda {

/// The generation of a GPU: 9.0 is sm_90.
struct ComputeCapability {
  int major = 0, minor = 0;
};

/// A GPU, through one CUDA context on it. Queues are streams of that context; null is its legacy
/// default stream.
class CudaDevice final : public Device {
 public:
  /// `context` must be the calling thread's current context.
  CudaDevice(int ordinal, CUcontext context);

  const Backend& backend() const override;
  DeviceType type() const override { return DeviceType::kGPU; }
  int ordinal() const override { return ordinal_; }
  std::string identity() const override { return identity_; }
  std::string architecture() const override;
  bool runs(std::string_view target) const override;
  uint64_t memory() const override { return memory_; }
  uint64_t free_memory() const override;

  void* enter() const override;
  void leave(void* entered) const noexcept override;

  void* allocate(size_t bytes) const override;
  void free(void* memory) const noexcept override;
  void free_after(void* memory, Event& last_use) const noexcept override;
  void* allocate_host(size_t bytes) const override;
  void free_host(void* memory) const noexcept override;
  void copy(void* to, const void* from, size_t bytes, Queue queue) const override;
  void synchronize(Queue queue) const override;
  bool wait_for(Event* event) const noexcept override;
  void record(void* event, Queue queue) const override;
  void check_queue(Queue queue) const override;
  std::unique_ptr<Event> make_event(bool is_timed) const override;
  bool has_queues() const override { return true; }
  std::shared_ptr<void> make_queue() const override;
  void check_address(const void* address, size_t bytes, std::string_view what) const override;
  void check_host_address(const void* address, std::string_view what) const override;

  void make_tensor_map(const TensorMapShape& shape, const void* address, void* to) const override;
  std::shared_ptr<const DeviceFunction> load_function(const CodeObject& code,
                                                      const std::string& name) const override;
  LaunchLimits launch_limits() const override;
  bool is_capturing(Queue queue) const override;
  bool has_graphs() const override { return true; }
  std::unique_ptr<DeviceGraph> capture(const std::function<void(Queue)>& work) const override;
  bool is_capture_broken(Queue queue) const override;

  std::vector<Candidate> candidates(const Operator& op, const CandidateQuery& query) const override;
  void check_operator(const Operator& op, const KernelArgs& args) const override;
  std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const override;
  PlannedOperatorPtr compile(const Operator& op, const KernelArgs& args) const override;
  std::vector<TensorFormat> formats(int rank) const override;
  /// kMemory for more bytes than the L2 cache holds.
  CacheLevel cache_level(uint64_t bytes) const override;
  double time(Kernel& kernel, void const* const* inputs, void* const* outputs, void* workspace,
              int iterations, const CacheScene&) const override;

  ComputeCapability capability() const { return capability_; }
  const std::string& name() const { return name_; }
  /// Bytes per block, of static and dynamic shared memory together.
  int max_shared_memory() const { return max_shared_memory_; }

 private:
  int attribute(CUdevice_attribute which) const;
  void set_up_pool() const;
  void free_unused() const noexcept;

  const int ordinal_;
  const CUcontext context_;
  CUdevice device_ = 0;
  ComputeCapability capability_;
  std::string name_, identity_;
  uint64_t memory_ = 0;
  int max_shared_memory_ = 0;
  uint64_t cache_ = 0;  ///< bytes of the L2 cache
  bool has_pools_ = false;
  CUstream allocating_stream_ = nullptr;  ///< never waits long
  CUstream freeing_stream_ = nullptr;     ///< waits for work of other streams
  CUstream timing_stream_ = nullptr;
  mutable std::mutex timing_mutex_;  ///< timings run one at a time, or they slow each other down
  mutable std::mutex unused_mutex_;
  mutable std::vector<CUdeviceptr> unused_;  ///< memory to free when no capture is in the way
  mutable int captures_ = 0;                 ///< captures of this device's own that are going on
  mutable ModuleCache modules_;
};

}  // namespace opwright::cuda
