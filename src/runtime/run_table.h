#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/shapes.h"
#include "runtime/debug_tensors.h"
#include "runtime/engine.h"
#include "runtime/host_values.h"
#include "runtime/run_streams.h"
#include "runtime/shape_state.h"
#include "runtime/size_group.h"
#include "runtime/weight_fetch.h"

namespace opwright {

class ProfileValues;

/// The fixed parts of one context's runs in one profile: the kernels, their order and domains, when
/// each kernel's shapes are known, and the slots of the addresses that kernels are called with.
/// Only the addresses change.
class RunTable {
 public:
  struct Step {
    Kernel* kernel = nullptr;
    const void* const* inputs = nullptr;
    void* const* outputs = nullptr;
    SizeGroup* sizes = nullptr;  ///< the size tensors that the step writes
    SizeGroup* needs = nullptr;  ///< sizes that must be read before the step; null: none
    size_t workspace = 0;        ///< where the step's scratch memory begins
  };
  /// Consecutive steps within one domain. Only the first may have `needs`, and only the last may be
  /// the last reader of inputs.
  struct Run {
    ExecutionDomain* domain = nullptr;
    uint32_t first = 0, last = 0;
  };
  /// When a step's kernel can be told its shapes and values.
  struct Knowledge {
    int32_t known = -1;       ///< the step after which all shapes are known; -1: before the run
    int32_t ready = -1;       ///< the same, for shapes and values
    std::vector<int> values;  ///< the shape inputs whose elements the kernel is told
  };
  struct ValuesTensor {
    int32_t tensor = 0;
    int32_t known = -1;
    size_t offset = 0;  ///< in `host_values`
  };
  struct Copy {
    uint32_t from = 0, to = 0;  ///< slots
    int32_t tensor = 0;
  };
  /// A debug tensor of the schedule.
  struct Shown {
    const DebugTensor* debug = nullptr;
    uint32_t slot = 0;
    uint32_t ready = 0;          ///< the number of steps after which the tensor is written
    SizeGroup* needs = nullptr;  ///< the sizes that its extents or values depend on; null: none
  };

  /// Makes the kernels. All arguments must outlive the object. `current` is the step whose kernel
  /// is being made, is told its shapes, or runs; otherwise -1.
  RunTable(const Engine& engine, int profile, const ShapeState& shapes,
           const PluginServices& services, std::atomic<int32_t>& current);
  RunTable(const RunTable&) = delete;
  RunTable& operator=(const RunTable&) = delete;

  uint32_t num_steps() const { return static_cast<uint32_t>(steps.size()); }
  const PlannedOperator& op(int step) const { return *engine.op(profile, step); }
  std::string describe(int step) const { return engine.describe_step(profile, step); }
  void enter(int step) const { current_.store(step, std::memory_order_relaxed); }
  void leave() const { enter(-1); }
  /// Throws `error` anew with the layer's name, unless it names one already.
  [[noreturn]] void rethrow(const Error& error, int step) const;
  /// The group of size tensors that the step writes; null for none.
  SizeGroup* group_of(int32_t step) const {
    return step < 0 || step == kNeverKnown ? nullptr : steps[step].sizes;
  }
  /// An address for tensors without elements that have no other address.
  void* empty_address() const { return weights_->empty(); }
  /// Generation of the engine's weights that the kernels were made with.
  uint64_t generation() const { return generation_; }

  /// Sets addresses, which are never null.
  void set_input(int input, const void* address) {
    set_address(input_slots[input], const_cast<void*>(address));
  }
  void set_output(int output, void* address) { set_address(output_slots[output], address); }

  const Engine& engine;
  const Device& device;
  const bool is_host;
  const Plan& plan;
  const Schedule& schedule;
  const int profile;
  const std::unordered_map<int32_t, int32_t> sizes;  ///< from size_tensors()
  std::vector<std::unique_ptr<Kernel>> kernels;
  size_t workspace_size = 0;  ///< bytes of scratch memory of all kernels
  std::vector<Step> steps;
  std::vector<Knowledge> knowledge;  ///< per step
  std::vector<Run> runs;
  std::optional<WeightFetch> fetch;   ///< empty: all weights lie on the device
  std::optional<RunStreams> streams;  ///< empty: all steps run one after the other
  std::vector<void*> pointers;        ///< by slot
  std::vector<std::vector<uint32_t>> input_slots, output_slots;
  std::vector<std::pair<uint32_t, uint64_t>> arena_slots;  ///< slot, offset
  bool are_addresses_new = false;  ///< an input or output has moved since graphs were last told
  HostValues host_values;
  std::vector<ValuesTensor> values;
  /// Inputs at host addresses, and the offset of the copy that kernels read.
  std::vector<std::pair<int, size_t>> mirrored_inputs;
  std::vector<std::unique_ptr<SizeGroup>> groups;  ///< in the order of their steps
  std::vector<Copy> copies;
  std::vector<int32_t> views;  ///< tensors that are views of network inputs and outputs
  SizeGroup* copies_need = nullptr;
  std::vector<Shown> shown;  ///< in the order of the steps that write them
  /// The number of steps after which all inputs are read; larger than the number of steps: after
  /// the run.
  uint32_t last_reader = 0;

 private:
  void set_address(const std::vector<uint32_t>& slots, void* address) {
    for (const uint32_t slot : slots) {
      are_addresses_new |= pointers[slot] != address;
      pointers[slot] = address;
    }
  }
  void make_kernel(int step, const ShapeState& shapes, const ProfileValues& values,
                   const PluginServices& services);
  /// Adds the tensors that the host computes. Returns their addresses by tensor, null for other
  /// tensors.
  std::vector<void*> place_values(const ShapeState& shapes);
  struct Connection;
  void connect(const ShapeState& shapes);
  void group_sizes(const ShapeState& shapes);
  void group_streams();
  void group_domains();
  std::vector<int32_t> writing_steps() const;
  void find_shown(const ShapeState& shapes);
  void find_last_reader();

  uint64_t generation_ = 0;
  std::shared_ptr<const DeviceWeights> weights_;
  std::vector<Blob> pinned_;    ///< parts of the plan that runs read; a refit keeps them
  uint64_t guarded_bytes_ = 0;  ///< bytes of plugins whose calls are checked
  std::atomic<int32_t>& current_;
};

}  // namespace opwright
