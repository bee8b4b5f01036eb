#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/debug_tensors.h"
#include "runtime/engine.h"
#include "runtime/graph_replay.h"
#include "runtime/host_values.h"
#include "runtime/shape_state.h"

namespace opwright {

class Deadline;
class ProfileValues;
struct SizeGroup;

/// The kernels of one context in one profile with everything that they are called with, prepared
/// so that a run is nothing but calls.
class Runner final : private GraphReplay::Work {
 public:
  /// Makes the kernels. All must outlive the object. `current` is kept at the step whose kernel is
  /// being made, told its shapes or run, at -1 otherwise.
  Runner(const Engine& engine, int profile, ShapeState& shapes, const PluginServices& services,
         std::atomic<int32_t>& current);
  ~Runner();

  /// Of the engine's weights that the kernels were made with.
  uint64_t generation() const { return generation_; }
  /// An address for tensors without elements that have no other.
  void* empty_address() const { return weights_->empty(); }
  /// Bytes of scratch memory that the kernels share.
  size_t workspace_size() const { return workspace_size_; }
  /// Sets where intermediate tensors lie, 64-byte aligned, Schedule::arena_size bytes.
  void set_arena(std::byte* arena);
  /// Addresses are never null.
  void set_input(int input, const void* address) {
    set_address(input_slots_[input], const_cast<void*>(address));
  }
  void set_output(int output, void* address) { set_address(output_slots_[output], address); }

  /// The application's event that runs record once they have read the inputs; null: none.
  void set_input_event(void* event) { input_event_ = event; }

  /// After the shapes were updated: tells kernels whose shapes changed, unless they depend on size
  /// tensors, and computes values tensors.
  void refresh();
  /// Runs all steps and output copies. An Error names its layer; other exceptions pass unchanged.
  /// Returns whether it found that the caller captures the queue's work, for which it only looks
  /// where it has graphs of its own.
  bool run(void* workspace, Queue queue);
  /// What happens between the steps of a run.
  struct Watch {
    const DebugTensors* debug = nullptr;  ///< whose listener sees tensors; null: none are shown
    bool waits = false;                   ///< for each step, so that it is known which one failed
    const Deadline* deadline = nullptr;   ///< after which no step begins; null: there is none
    explicit operator bool() const { return debug != nullptr || waits || deadline != nullptr; }
  };
  /// Runs all steps and output copies, replaying nothing. Returns whether the caller captures the
  /// queue's work.
  bool run_watched(void* workspace, Queue queue, const Watch& watch);
  /// The same, writing each step's time in milliseconds into `times`. Returns when all is done.
  void run_timed(void* workspace, Queue queue, std::span<float> times, const Watch& watch);

  /// Whether size tensors of the last run are still to be read.
  bool has_pending_sizes() const { return next_pending_ < pending_.size(); }
  /// Waits for them. An Error names the layer that wrote what is wrong.
  void settle_sizes() { settle(nullptr); }

  /// After the queue was waited for and all was well.
  void trust_all() { suspects_ = {}; }
  /// The plugins of which nobody knows yet whether their work went well, as a list in words; empty:
  /// none.
  std::string suspects() const;

 private:
  struct Step {
    Kernel* kernel = nullptr;
    const void* const* inputs = nullptr;
    void* const* outputs = nullptr;
    SizeGroup* sizes = nullptr;  ///< the size tensors that the step writes
    SizeGroup* needs = nullptr;  ///< must have been read before; null: none
  };
  /// Consecutive steps within one domain, none of which but the first has `needs`, and the last of
  /// which may be the last that reads inputs.
  struct Run {
    ExecutionDomain* domain = nullptr;
    uint32_t first = 0, last = 0;
  };
  struct StepShapes {
    std::vector<Shape> inputs, outputs;
    bool is_told = false;
    int32_t known = -1;  ///< the step after which all its shapes are known, -1: before the run
    int32_t ready = -1;  ///< the same, for shapes and values
    /// Shape inputs whose elements the kernel is told, and those that it was told.
    std::vector<std::pair<int, std::vector<int64_t>>> values;
  };
  struct ValuesTensor {
    int32_t tensor = 0;
    int32_t known = -1;
    size_t offset = 0;  ///< in `host_values_`
  };
  struct Copy {
    uint32_t from = 0, to = 0;  ///< slots
    int32_t tensor = 0;
    size_t bytes = 0;
  };

  /// A debug tensor of the schedule.
  struct Shown {
    const DebugTensor* debug = nullptr;
    uint32_t slot = 0;
    uint32_t ready = 0;          ///< the number of steps after which it is there
    SizeGroup* needs = nullptr;  ///< what its extents or values depend on; null: nothing
  };

  /// Steps whose work may still fail.
  struct Suspects {
    bool earlier_runs = false;
    uint32_t first = 0, last = 0;  ///< of the last run
  };

  void set_address(const std::vector<uint32_t>& slots, void* address) {
    for (const uint32_t slot : slots) {
      are_addresses_new_ |= pointers_[slot] != address;
      pointers_[slot] = address;
    }
  }
  uint32_t steps() const { return static_cast<uint32_t>(steps_.size()); }
  void enter(int step) { current_.store(step, std::memory_order_relaxed); }
  void leave() { enter(-1); }
  void make_kernel(int step, const ProfileValues& profile, const PluginServices& services);
  /// Adds the tensors that the host computes; their address by tensor, null for all others.
  std::vector<void*> place_values();
  void connect();
  void group_sizes();
  void group_domains();
  SizeGroup* group_of(int32_t step) const;
  [[noreturn]] void rethrow(const Error& error, int step) const;
  Shape tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const;
  void check_fits(const PlanTensor& tensor, const Shape& shape) const;
  void tell(int step);
  std::vector<int32_t> writing_steps() const;
  std::vector<int64_t> elements(int32_t tensor) const;
  bool update_values(int step);
  void check(int step) const;
  void check_outputs(const SizeGroup& group) const;
  void compute(const ValuesTensor& values);
  void clear(const SizeGroup& group, Queue queue);
  void fetch(SizeGroup& group, Queue queue);
  void settle(const SizeGroup* last);
  void settle(const SizeGroup* last, Queue queue);
  void abandon_sizes() noexcept;
  void resolve(SizeGroup& group);
  template <class Clock>
  void enqueue_steps(uint32_t first, uint32_t last, Queue queue, Clock& clock, uint32_t& current);
  template <class Enqueue>
  void run_steps(void* workspace, Queue queue, const Enqueue& enqueue);
  void enqueue_part(const GraphReplay::Part& part, Queue queue, uint32_t& current) override;
  void find_last_reader();
  void find_shown();
  /// After steps [first, last) were given to the queue; the end of the run counts as one more.
  void note_inputs_read(uint32_t first, uint32_t last, Queue queue) {
    if (input_event_ != nullptr && first < last_reader_ && last_reader_ <= last) [[unlikely]]
      device_.record(input_event_, queue);
  }
  void prepare_replay();
  void move_graphs();
  void run_replayed(void* workspace, Queue queue);
  template <class Clock>
  void run_plainly(void* workspace, Queue queue, Clock&& clock, const Watch& watch);
  template <class Clock>
  void enqueue_watched(Queue queue, Clock& clock, const Watch& watch, uint32_t& current);
  void wait_for(uint32_t step, Queue queue) const;
  void show(const Shown& shown, const DebugTensors& debug, Queue queue);
  void copy_outputs(Queue queue);

  const Engine& engine_;
  const Device& device_;
  const bool is_host_;
  const Plan& plan_;
  const Schedule& schedule_;
  uint64_t generation_ = 0;
  std::shared_ptr<const DeviceWeights> weights_;
  std::vector<Blob> pinned_;  ///< what runs read of the plan, though the engine may be refitted
  const int profile_;
  const std::unordered_map<int32_t, int32_t> sizes_;  ///< as size_tensors() gives them
  ShapeState& shapes_;
  std::atomic<int32_t>& current_;
  size_t workspace_size_ = 0;
  uint64_t guarded_bytes_ = 0;  ///< of plugins whose calls are checked
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<Step> steps_;
  std::vector<Run> runs_;
  std::vector<void*> pointers_;
  std::vector<std::vector<uint32_t>> input_slots_, output_slots_;
  std::vector<std::pair<uint32_t, uint64_t>> arena_slots_;  // slot, offset
  std::byte* arena_ = nullptr;
  std::vector<StepShapes> step_shapes_;
  HostValues host_values_;
  std::vector<ValuesTensor> values_;
  /// Inputs of which kernels read a copy, because theirs are host addresses, and its offset.
  std::vector<std::pair<int, size_t>> mirrored_inputs_;
  std::vector<std::unique_ptr<SizeGroup>> groups_;  ///< in the order of their steps
  std::vector<SizeGroup*> pending_;  ///< those of the run, of which the first ones have been read
  size_t next_pending_ = 0;
  std::vector<Copy> copies_;
  SizeGroup* copies_need_ = nullptr;
  std::vector<Shown> shown_;             ///< in the order of the steps that write them
  void* workspace_ = nullptr;            ///< of the last run
  void* replayed_workspace_ = nullptr;   ///< of the last replayed one, which graphs have
  std::unique_ptr<GraphReplay> replay_;  ///< null: nothing is captured
  /// What graphs know of the network's inputs and outputs, in this order.
  struct Bound {
    uint32_t slot = 0;
    void* address = nullptr;
    int32_t port = 0;
    bool is_input = false;
  };
  std::vector<Bound> bound_;
  std::vector<bool> left_out_;  ///< of the copies: those onto themselves
  bool are_addresses_new_ = false;
  std::vector<std::unique_ptr<Event>> events_;  ///< of timed runs
  void* input_event_ = nullptr;
  /// The number of steps after which inputs have been read; more than there are: after the run.
  uint32_t last_reader_ = 0;
  Suspects suspects_;
};

}  // namespace opwright
