#pragma once

#include "backend/cpu/processor.h"
#include "backend/device.h"

namespace opwright {

/// The host. Built-in operators run synchronously on oneDNN's and our own kernels, with
/// thread_count() threads.
class CpuDevice final : public Device {
 public:
  CpuDevice();
  const Backend& backend() const override;
  DeviceType type() const override { return DeviceType::kCPU; }
  std::string identity() const override;
  std::string architecture() const override;
  void* allocate(size_t bytes) const override;
  void free(void* memory) const noexcept override;
  void copy(void* to, const void* from, size_t bytes, Queue queue) const override;
  void synchronize(Queue queue) const override;
  std::unique_ptr<Event> make_event(bool is_timed) const override;
  std::vector<Candidate> candidates(const Operator& op, const CandidateQuery& query) const override;
  void check_operator(const Operator& op, const KernelArgs& args) const override;
  std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const override;
  std::vector<TensorFormat> formats(int rank) const override;
  CacheLevel cache_level(uint64_t bytes) const override;
  double scene_milliseconds(const CacheScene::Levels& levels) const override;
  double time(Kernel& kernel, void const* const* inputs, void* const* outputs, void* workspace,
              int iterations, const CacheScene& scene) const override;

  const CpuFeatures& features() const { return features_; }

 private:
  CpuFeatures features_;
  std::string processor_;  ///< model and instruction set
};

const CpuDevice& cpu_device();

/// Throws Error where the processor has no instructions that multiply bytes, which the step needs.
void require_byte_instructions(const KernelArgs& args);

}  // namespace opwright
