#pragma once

#include <memory>
#include <string>
#include <vector>

#include "network/operator.h"

namespace opwright {

struct FusedActivation;

/// What a backend provides: memory, kernels of the built-in operators, and a clock for the tuner.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceType type() const = 0;
  /// Identifies what timings and packed weights are valid for: processor model, instruction set,
  /// threads, library versions.
  virtual std::string identity() const = 0;
  /// The instruction set or architecture that plans record: "x86-64", "aarch64", "sm_90".
  virtual std::string architecture() const = 0;

  /// 64-byte aligned (CPU) memory. Throws Error with kFAILED_ALLOCATION naming the size.
  virtual void* allocate(size_t bytes) const = 0;
  virtual void free(void* memory) const noexcept = 0;

  /// Ways to run a built-in operator; empty when the device has no kernel for it.
  virtual std::vector<Candidate> candidates(const Operator& op,
                                            const CandidateQuery& query) const = 0;
  virtual std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const = 0;
  /// Whether convolutions and matrix products of floating types can apply it to their result.
  virtual bool can_fuse(const FusedActivation& activation) const {
    (void)activation;
    return false;
  }
  /// Formats other than LINEAR that make sense on this device for a floating-point tensor of this
  /// rank.
  virtual std::vector<TensorFormat> formats(int rank) const = 0;

  /// Runs the kernel `iterations` times after one warm-up and returns the median time of a run in
  /// milliseconds.
  virtual double time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                      void* workspace, int iterations) const = 0;
};

/// The device of that type. Throws Error naming what is missing when it cannot be used. Owned by
/// the library.
const Device& get_device(DeviceType type);
/// OPWRIGHT_DEVICE=cpu|cuda where set, else the GPU where one is usable, else the CPU.
DeviceType default_device_type();

}  // namespace opwright
