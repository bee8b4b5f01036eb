#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/setting.h"
#include "opwright/runtime.h"
#include "runtime/debug_tensors.h"
#include "runtime/engine.h"

namespace opwright {

/// What a run needs for an output.
struct OutputRequest {
  const std::string& name;
  void* current;  ///< what it had before; null: nothing
  size_t bytes;   ///< at least
  size_t alignment;
  Queue queue;  ///< the run's
};

/// Receives memory requests for outputs whose extent is known only once they are computed. As
/// TensorRT's IOutputAllocator.
class OutputMemory {
 public:
  virtual ~OutputMemory() = default;
  /// Null means failure.
  virtual void* reallocate(const OutputRequest& request) = 0;
  virtual void notify_shape(const std::string& name, const Shape& shape) = 0;
};

/// A layer's time in one run, reported in order after the run.
using LayerTimeCallback = std::function<void(const std::string& name, float milliseconds)>;

/// Bytes of working memory of a context in a profile: intermediate tensors, and scratch memory
/// behind them.
uint64_t context_memory(const Schedule& schedule);
/// The largest over the profiles.
uint64_t context_memory(const Plan& plan);

/// What a context keeps for its user.
struct ContextNotes {
  std::string name;                   ///< without effect
  size_t persistent_cache_limit = 0;  ///< without effect
  /// How much NVTX ranges of its steps say: kNONE for no ranges. Without effect where no tool of
  /// NVIDIA's listens. With ranges nothing is replayed.
  ProfilingVerbosity nvtx_verbosity = ProfilingVerbosity::kLAYER_NAMES_ONLY;

  /// The properties of Python's IExecutionContext that they are.
  template <class V>
  static void visit(V&& v) {
    using Self = ContextNotes;
    v(Setting<Self, std::string>{
        .name = "name", .member = &Self::name, .doc = "Kept for the caller."});
    v(Setting<Self, size_t>{
        .name = "persistent_cache_limit",
        .member = &Self::persistent_cache_limit,
        .doc = "A hint on how much of the L2 cache may hold intermediate tensors from layer to "
               "layer, in bytes; without effect."});
    v(Setting<Self, ProfilingVerbosity>{
        .name = "nvtx_verbosity",
        .member = &Self::nvtx_verbosity,
        .doc = "How much ranges say that mark the layers for NVIDIA's tools (Nsight Systems): "
               "LAYER_NAMES_ONLY at first, DETAILED with kind, types and tactic, NONE for no "
               "ranges. Without effect where no tool listens; where one does, ranges keep CUDA "
               "graphs from being replayed."});
  }
};

/// State for running an engine: shapes, addresses, kernels, and while it runs an arena. One thread
/// at a time per context; contexts of one engine are independent, though they share memory.
class Context {
 public:
  using Strategy = ExecutionContextAllocationStrategy;
  /// Memory is allocated and kernels are made when they are first needed.
  explicit Context(std::shared_ptr<const Engine> engine, int profile = 0,
                   Strategy strategy = Strategy::kSTATIC);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::shared_ptr<const Engine>& engine() const { return engine_; }
  /// Of memory that only this context's runs use, and what was given to their queues before; null
  /// on the CPU.
  const std::shared_ptr<const LastUse>& last_use() const { return services_.last_use; }
  /// For those who call from outside; the methods here throw. The recorder is the engine's at
  /// first, and given to plugins.
  const ErrorReport& errors() const { return errors_; }
  void set_error_recorder(IErrorRecorder* recorder);
  /// Where plugins that ask the context for memory get it: the engine's at first; null: from the
  /// device. It counts for kernels that are made afterwards, which is when they are first needed.
  const std::shared_ptr<IGpuAllocator>& allocator() const { return services_.allocator; }
  void set_allocator(std::shared_ptr<IGpuAllocator> allocator) {
    services_.allocator = std::move(allocator);
  }
  int profile() const { return profile_; }
  /// Input shapes are to be set again afterwards; addresses stay.
  void set_profile(int profile);

  /// Throws Error naming input, profile range and the shape when it does not fit; the previous
  /// shape stays.
  void set_input_shape(int input, const Shape& shape);
  /// The engine's, with -1 for dynamic extents, while it is not set.
  const Shape& input_shape(int input) const;
  /// Whether the input's shape, and its address if its values determine shapes, is set.
  bool is_set(int input) const;
  /// Whether all inputs are.
  bool all_shapes_set() const;
  /// The inputs that is_set() is false for, and else computes the output shapes. Throws Error as
  /// output_shape() does.
  std::vector<int> infer_shapes();
  /// Shape of an output for the current input shapes; extents that depend on data are -1 before a
  /// run, which is waited for where they are still to be computed, dynamic ones until all shapes
  /// are set. Throws Error, as enqueue() does, when two inputs disagree in a dimension that they
  /// share.
  Shape output_shape(int output);
  /// The shape with the upper bounds of data-dependent extents. Throws Error before all shapes are
  /// set.
  Shape max_output_shape(int output);

  /// Addresses stay until they are set anew; null: not set, which is an error only for tensors with
  /// elements. They are the device's, but for those of shape inputs, which are the host's. Throws
  /// Error for an address that is not aligned to the elements' size, for a shape input's in memory
  /// of a GPU, or, once the shapes are known, one that the device cannot use. An output that is
  /// aliased to an input needs no address, or has the input's; with another one, which must not
  /// overlap the input, the result is computed in the input's memory and copied there by the run.
  void set_input_address(int input, const void* address);
  void set_output_address(int output, void* address);
  const void* input_address(int input) const;
  void* output_address(int output) const;
  /// What provides the output's memory at each run instead of an address; null: none.
  void set_output_memory(int output, std::shared_ptr<OutputMemory> memory);
  OutputMemory* output_memory(int output) const;

  // The same by names, as IExecutionContext has it. Each throws Error where the engine has no input
  // or output, or no such one, of that name.
  void set_input_shape(std::string_view name, const Shape& shape) {
    set_input_shape(engine_->input(name), shape);
  }
  Shape tensor_shape(std::string_view name);
  /// In elements.
  Dims tensor_strides(std::string_view name);
  void set_tensor_address(std::string_view name, void* address);
  void* tensor_address(std::string_view name) const;
  void set_output_allocator(std::string_view name, std::shared_ptr<OutputMemory> memory) {
    set_output_memory(engine_->output(name), std::move(memory));
  }
  OutputMemory* output_allocator(std::string_view name) const {
    return output_memory(engine_->output(name));
  }
  /// Bytes of max_output_shape().
  int64_t max_output_size(std::string_view name);

  /// The device's event that runs record on their queue once they have read the
  /// inputs; null: none. Throws Error on the CPU.
  void set_input_consumed_event(void* event);
  void* input_consumed_event() const;

  /// The application's queues that runs may use beside their own (Engine::num_aux_streams()): of
  /// fewer, or none, the others are the context's. Throws Error for one that is null, twice there,
  /// or not of the device.
  void set_aux_queues(std::span<const Queue> queues);

  /// Threads that runs on the CPU use, of those that the process may use. At first those of the
  /// engine, or else of the thread that made the context. Kernels are made anew for another number.
  /// Throws Error for less than 1.
  int max_threads() const;
  void set_max_threads(int threads);

  /// Runs once: on the CPU now, on a GPU in the order of the queue. Throws Error naming what is not
  /// set. After an exception from a kernel the context stays usable. While it runs, another run and
  /// all that sets something throw Error.
  void enqueue(Queue queue = nullptr);
  /// Runs on these addresses, inputs first, in the order of the null queue, and waits.
  void execute(std::span<void* const> addresses);
  /// Returns when the queue has done all that it was given. Throws Error for work that failed.
  void synchronize(Queue queue = nullptr);

  /// Whom runs show debug tensors to, as soon as they are written: an empty function for nobody.
  /// While there is something to see, nothing is replayed.
  void set_debug_listener(DebugListener listener);
  /// Throws Error unless a tensor of that name was marked in the network.
  void set_debug_state(const std::string& tensor, bool on);
  void set_all_debug_states(bool on);
  void set_unfused_debug_state(bool on);
  const DebugTensors& debug() const { return debug_; }
  /// Whether runs wait for each step, so that an Error of the device names the step that failed.
  /// The CPU does so anyway.
  void set_debug_sync(bool sync);
  bool debug_sync() const { return debug_sync_; }

  /// The step of the profile's schedule whose kernel is being made, told its shapes or run; -1:
  /// none. For reports of crashes: any thread and signal handlers may ask.
  int current_step() const;

  /// Null: layers are not timed.
  void set_layer_time_callback(LayerTimeCallback callback);
  /// Whether runs tell the callback of their times, as at first, or report_layer_times() does.
  void set_emits_layer_times(bool emits) { emits_layer_times_ = emits; }
  bool emits_layer_times() const { return emits_layer_times_; }
  /// Tells the callback of the last run's times. Throws Error where there is none, or were none.
  void report_layer_times() const;
  /// Bytes of arena and workspace that this context has. On the CPU another one may take them when
  /// it does not run.
  size_t memory_size() const;
  /// Where the memory of the next runs comes from; at first kSTATIC.
  void set_memory_strategy(Strategy strategy);
  Strategy memory_strategy() const { return strategy_; }
  /// Bytes of it, for the shapes as they are set. Throws Error where one is not.
  uint64_t memory_size_for_shapes() const;
  /// Uses the caller's memory for intermediate tensors (64-byte aligned, at least the arena_size of
  /// the profile's schedule; scratch memory too where it fits behind them, which it must with
  /// kUSER_MANAGED) until the next call; null: the context's own. Throws Error when it is too
  /// small.
  void set_memory(void* memory, size_t bytes);
  /// The same for memory that is said to be as large as the profile needs.
  void set_memory(void* memory);
  void* users_memory() const;

  /// Throws Error for another than null: an engine runs on one device.
  static void set_communicator(const void* communicator);
  ContextNotes& notes() { return notes_; }
  const ContextNotes& notes() const { return notes_; }

 private:
  struct State;
  struct Watchers;
  void run(Queue queue, const Watchers& watchers);
  void change_queue(Queue queue);
  void note_capture();
  void prepare();
  void place_memory();
  void release_memory();
  uint64_t needed_of_user() const;
  void check_addresses();
  void check_address(const PlanPort& port, const char* kind, const void* address,
                     size_t bytes) const;
  bool fits(const PlanPort& port, const char* kind, const void* address, size_t bytes) const;
  void check_apart(int output, const void* address) const;
  void settle_sizes();
  [[noreturn]] void fail_lost(const DeviceLostError& error) const;
  size_t input_bytes(int input) const;
  void request_outputs(Queue queue);
  void report_run();
  void check_idle(const char* what) const;
  [[noreturn]] void fail_running(const char* what) const;
  std::shared_ptr<const Engine> engine_;
  std::shared_ptr<void> counted_;  ///< by the engine
  ErrorReport errors_;
  PluginServices services_;
  int profile_ = 0;
  Strategy strategy_ = Strategy::kSTATIC;
  DebugTensors debug_;
  const bool has_deadline_;  ///< whether runs may take so long only
  const bool has_nvtx_;      ///< whether a tool of NVIDIA's listens
  const bool is_body_;       ///< of a layer of the engine around it
  bool debug_sync_ = false;
  bool emits_layer_times_ = true;
  ContextNotes notes_;
  std::unique_ptr<State> state_;
};

}  // namespace opwright
