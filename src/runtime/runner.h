#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "backend/memory.h"
#include "runtime/engine.h"
#include "runtime/shape_state.h"

namespace opwright {

class ProfileValues;
struct SizeGroup;

/// The kernels of one context in one profile with everything that they are called with, prepared
/// so that a run is nothing but calls.
class Runner {
 public:
  /// Makes the kernels. All must outlive the object. `current` is kept at the step whose kernel is
  /// being made, told its shapes or run, at -1 otherwise.
  Runner(const Engine& engine, int profile, ShapeState& shapes, const PluginServices& services,
         std::atomic<int32_t>& current);
  ~Runner();

  /// Bytes of scratch memory that the kernels share.
  size_t workspace_size() const { return workspace_size_; }
  /// Sets where intermediate tensors lie, 64-byte aligned, Schedule::arena_size bytes.
  void set_arena(std::byte* arena);
  /// Addresses are never null.
  void set_input(int input, const void* address) {
    for (const uint32_t slot : input_slots_[input]) pointers_[slot] = const_cast<void*>(address);
  }
  void set_output(int output, void* address) {
    for (const uint32_t slot : output_slots_[output]) pointers_[slot] = address;
  }

  /// After the shapes were updated: tells kernels whose shapes changed, unless they depend on size
  /// tensors, and computes values tensors.
  void refresh();
  /// Runs all steps and output copies. An Error names its layer; other exceptions pass unchanged.
  void run(void* workspace, Queue queue);
  /// The same, writing each step's time in milliseconds into `times`.
  void run_timed(void* workspace, Queue queue, std::span<float> times);

 private:
  struct Step {
    Kernel* kernel = nullptr;
    const void* const* inputs = nullptr;
    void* const* outputs = nullptr;
    SizeGroup* sizes = nullptr;  ///< the size tensors that the step writes
  };
  /// Consecutive steps within one domain.
  struct Run {
    ExecutionDomain* domain = nullptr;
    uint32_t first = 0, last = 0;
  };
  struct StepShapes {
    std::vector<Shape> inputs, outputs;
    bool is_told = false;
    int32_t known = -1;  ///< the step after which all its shapes are known, -1: before the run
  };
  struct ValuesTensor {
    int32_t tensor = 0;
    int32_t known = -1;
    void* data = nullptr;
  };
  struct Copy {
    uint32_t from = 0, to = 0;  ///< slots
    int32_t tensor = 0;
    size_t bytes = 0;
  };

  void enter(int step) { current_.store(step, std::memory_order_relaxed); }
  void leave() { enter(-1); }
  void make_kernel(int step, const ProfileValues& profile, const PluginServices& services);
  void connect();
  void group_sizes();
  void group_domains();
  Shape tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const;
  void check_fits(const PlanTensor& tensor, const Shape& shape) const;
  void tell(int step);
  void check(int step) const;
  void check_outputs(const SizeGroup& group) const;
  void compute(ValuesTensor& values);
  void resolve(SizeGroup& group);
  template <bool kTimed>
  void run_steps(void* workspace, Queue queue, float* times);

  const Engine& engine_;
  const Plan& plan_;
  const Schedule& schedule_;
  const int profile_;
  ShapeState& shapes_;
  std::atomic<int32_t>& current_;
  size_t workspace_size_ = 0;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Step> steps_;
  std::vector<Run> runs_;
  std::vector<void*> pointers_;
  std::vector<std::vector<uint32_t>> input_slots_, output_slots_;
  std::vector<std::pair<uint32_t, uint64_t>> arena_slots_;  // slot, offset
  std::vector<StepShapes> step_shapes_;
  DeviceMemory values_memory_;
  std::vector<ValuesTensor> values_;
  std::vector<std::unique_ptr<SizeGroup>> groups_;
  std::vector<Copy> copies_;
};

/// An address for tensors without elements that have no other.
void* empty_tensor();

}  // namespace opwright
