#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "backend/backend.h"

namespace opwright {

/// A device of a backend that exists to prove that one is a folder and a registration: its memory
/// is the host's, and work waits until somebody waits for it. All queues are one order.
class DeferredDevice final : public Device {
 public:
  explicit DeferredDevice(int ordinal) : ordinal_(ordinal) {}

  const Backend& backend() const override { return get_backend("deferred"); }
  DeviceType type() const override { return DeviceType::kGPU; }
  int ordinal() const override { return ordinal_; }
  std::string identity() const override { return "a deferred device"; }
  std::string architecture() const override { return "deferred"; }

  void* allocate(size_t bytes) const override;
  void free(void* memory) const noexcept override;
  void copy(void* to, const void* from, size_t bytes, Queue queue) const override;
  void synchronize(Queue queue) const override;
  bool wait_for(Event* event) const noexcept override;
  std::unique_ptr<Event> make_event(bool is_timed) const override;
  void check_address(const void* address, size_t bytes, std::string_view what) const override;

  LaunchLimits launch_limits() const override {
    return {.grid = {1 << 20, 1, 1}, .block = {1, 1, 1}};
  }
  std::shared_ptr<const DeviceFunction> load_function(const CodeObject& code,
                                                      const std::string& name) const override;

  std::vector<Candidate> candidates(const Operator& op, const CandidateQuery& query) const override;
  void check_operator(const Operator& op, const KernelArgs& args) const override;
  std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const override;
  std::vector<TensorFormat> formats(int) const override { return {}; }
  double time(Kernel& kernel, void const* const* inputs, void* const* outputs, void* workspace,
              int iterations, const CacheScene& scene) const override;

  void give(std::function<void()> work) const;
  /// How much work nobody has waited for.
  size_t waiting() const;
  /// How many pieces of memory there are.
  size_t allocations() const;

 private:
  bool has(const void* address, size_t bytes) const;

  const int ordinal_;
  mutable std::mutex mutex_;
  mutable std::vector<std::function<void()>> work_;
  mutable std::map<const std::byte*, size_t> memory_;
};

/// Null where the kernels of this backend do not compute the operator on such ports.
std::unique_ptr<Kernel> make_deferred_kernel(const Operator& op, const KernelArgs& args);

}  // namespace opwright
