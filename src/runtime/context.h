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

class Communicator;

/// A run's request for an output's memory.
struct OutputRequest {
  const std::string& name;
  void* current;  ///< the output's memory so far; null: none
  size_t bytes;   ///< the least size
  size_t alignment;
  Queue queue;  ///< the queue of the run
};

/// Receives memory requests for outputs whose extents are known only once they are computed, as
/// TensorRT's IOutputAllocator does.
class OutputMemory {
 public:
  virtual ~OutputMemory() = default;
  /// Returns null on failure.
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

/// Settings that a context keeps for its user.
struct ContextNotes {
  std::string name;                   ///< without effect
  size_t persistent_cache_limit = 0;  ///< without effect
  /// How much NVTX ranges of its steps say; kNONE: there are no ranges. Without effect unless a
  /// tool of NVIDIA's listens. Runs with ranges replay no graphs.
  ProfilingVerbosity nvtx_verbosity = ProfilingVerbosity::kLAYER_NAMES_ONLY;

  /// The settings as properties of Python's IExecutionContext.
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

/// State for running an engine: shapes, addresses, kernels, and an arena while it runs. Only one
/// thread may use a context at a time. Contexts of one engine are independent, though they share
/// memory.
class Context {
 public:
  using Strategy = ExecutionContextAllocationStrategy;
  /// Memory is allocated and kernels are made on first use.
  explicit Context(std::shared_ptr<const Engine> engine, int profile = 0,
                   Strategy strategy = Strategy::kSTATIC);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::shared_ptr<const Engine>& engine() const { return engine_; }
  /// The last use of memory that only this context's runs use, and of the work given to their
  /// queues before; null on the CPU.
  const std::shared_ptr<const LastUse>& last_use() const { return services_.last_use; }
  /// Reports errors to callers from outside; the methods here throw. At first the recorder is the
  /// engine's. Plugins get it, too.
  const ErrorReport& errors() const { return errors_; }
  void set_error_recorder(IErrorRecorder* recorder);
  /// Gives memory to plugins that ask the context for it: at first the engine's allocator; null:
  /// the device. A new allocator counts for kernels that are made afterwards. Kernels are made on
  /// first use.
  const std::shared_ptr<IGpuAllocator>& allocator() const { return services_.allocator; }
  void set_allocator(std::shared_ptr<IGpuAllocator> allocator) {
    services_.allocator = std::move(allocator);
  }
  int profile() const { return profile_; }
  /// Forgets input shapes, which must be set again; addresses stay.
  void set_profile(int profile);

  /// Throws Error naming input, profile range and the shape when it does not fit; the previous
  /// shape stays.
  void set_input_shape(int input, const Shape& shape);
  /// The engine's shape, with -1 for dynamic extents, until a shape is set.
  const Shape& input_shape(int input) const;
  /// Whether the input's shape is set, and its address if its values determine shapes.
  bool is_set(int input) const;
  /// Whether is_set() is true for all inputs.
  bool all_shapes_set() const;
  /// Returns the inputs whose is_set() is false; if there are none, computes the output shapes.
  /// Throws Error as output_shape() does.
  std::vector<int> infer_shapes();
  /// Shape of an output for the current input shapes. Dynamic extents are -1 until all shapes are
  /// set. Data-dependent extents are -1 before a run; after a run, waits for the run if it has not
  /// computed them yet. Throws Error, as enqueue() does, when two inputs disagree in a dimension
  /// that they share.
  Shape output_shape(int output);
  /// Shape of an output with data-dependent extents at their upper bounds. Throws Error before all
  /// shapes are set.
  Shape max_output_shape(int output);

  /// Addresses stay until they are set anew. Null means not set, which is an error only for tensors
  /// with elements. Addresses of shape inputs are the host's, all others are the device's. Throws
  /// Error for an address that is not aligned to the elements' size, and for a shape input's
  /// address in memory of a GPU. Once the shapes are known, also throws Error for an address that
  /// the device cannot use. An output that is aliased to an input needs no address, or has the
  /// input's. With an address of its own, which must not overlap the input, the run computes the
  /// result in the input's memory and copies it.
  void set_input_address(int input, const void* address);
  void set_output_address(int output, void* address);
  const void* input_address(int input) const;
  void* output_address(int output) const;
  /// Sets the object that provides the output's memory at each run instead of an address; null:
  /// none.
  void set_output_memory(int output, std::shared_ptr<OutputMemory> memory);
  OutputMemory* output_memory(int output) const;

  // The same methods by name, as IExecutionContext has them. Each throws Error where the engine has
  // no input or output of that name.
  void set_input_shape(std::string_view name, const Shape& shape) {
    set_input_shape(engine_->input(name), shape);
  }
  Shape tensor_shape(std::string_view name);
  /// Strides in elements.
  Dims tensor_strides(std::string_view name);
  void set_tensor_address(std::string_view name, void* address);
  void* tensor_address(std::string_view name) const;
  void set_output_allocator(std::string_view name, std::shared_ptr<OutputMemory> memory) {
    set_output_memory(engine_->output(name), std::move(memory));
  }
  OutputMemory* output_allocator(std::string_view name) const {
    return output_memory(engine_->output(name));
  }
  /// The bytes of an output of max_output_shape().
  int64_t max_output_size(std::string_view name);

  /// The device's event that runs record on their queue once they have read the inputs; null: none.
  /// Throws Error on the CPU.
  void set_input_consumed_event(void* event);
  void* input_consumed_event() const;

  /// Sets the application's queues that runs may use beside their own (Engine::num_aux_streams()).
  /// If there are too few, or none, the context adds its own. Throws Error for a queue that is
  /// null, appears twice, or is not the device's.
  void set_aux_queues(std::span<const Queue> queues);

  /// The most threads that runs on the CPU use, of those that the process may use. The default is
  /// the engine's number, or else that of the thread that made the context. For another number
  /// kernels are made anew. Throws Error for less than 1.
  int max_threads() const;
  void set_max_threads(int threads);

  /// Runs once: on the CPU at once, on a GPU in the order of the queue. Throws Error naming what is
  /// not set. After an exception from a kernel the context stays usable. While it runs, another run
  /// throws Error, and so does every method that sets something.
  void enqueue(Queue queue = nullptr);
  /// Runs with these addresses, inputs first, in the order of the null queue, and waits.
  void execute(std::span<void* const> addresses);
  /// Returns when the queue has done all its work. Throws Error for work that failed.
  void synchronize(Queue queue = nullptr);

  /// Sets the function that runs call with each debug tensor as soon as it is written; an empty
  /// function: none. While debug tensors are shown, runs replay no graphs.
  void set_debug_listener(DebugListener listener);
  /// Throws Error unless a tensor of that name was marked in the network.
  void set_debug_state(const std::string& tensor, bool on);
  void set_all_debug_states(bool on);
  void set_unfused_debug_state(bool on);
  const DebugTensors& debug() const { return debug_; }
  /// Whether runs wait for each step, so that an Error of the device names the step that failed.
  /// The CPU always does so.
  void set_debug_sync(bool sync);
  bool debug_sync() const { return debug_sync_; }

  /// The step of the profile's schedule whose kernel is being made, is told its shapes, or runs;
  /// -1: none. For reports of crashes: any thread and signal handlers may call it.
  int current_step() const;

  /// Null: layers are not timed.
  void set_layer_time_callback(LayerTimeCallback callback);
  /// Whether runs pass their times to the callback, the default; otherwise report_layer_times()
  /// does.
  void set_emits_layer_times(bool emits) { emits_layer_times_ = emits; }
  bool emits_layer_times() const { return emits_layer_times_; }
  /// Passes the last run's times to the callback. Throws Error where there is no callback, or the
  /// run has no times.
  void report_layer_times() const;
  /// Bytes of arena and workspace that this context has. On the CPU another context may take them
  /// between this one's runs.
  size_t memory_size() const;
  /// Where the next runs get their memory; at first kSTATIC.
  void set_memory_strategy(Strategy strategy);
  Strategy memory_strategy() const { return strategy_; }
  /// Bytes that a run needs for the shapes that are set. Throws Error where one is not.
  uint64_t memory_size_for_shapes() const;
  /// Uses the caller's memory for intermediate tensors until the next call; null: the context's
  /// own. The memory is 64-byte aligned and has at least the arena_size of the profile's schedule.
  /// Scratch memory lies behind the tensors if it fits, which it must with kUSER_MANAGED. Throws
  /// Error when the memory is too small.
  void set_memory(void* memory, size_t bytes);
  /// The same for memory whose size the caller does not give; it must have what the profile needs.
  void set_memory(void* memory);
  void* users_memory() const;

  /// The communicator of collective layers in the next runs: a Communicator or, where the engine
  /// runs on a GPU, also what its library of collectives calls one. It outlives the runs. Null:
  /// none.
  void set_communicator(void* communicator);
  /// Makes the kernels of a layer's body use the communicator of the context that runs the layer.
  void run_within(const PluginServices* services) { services_.enclosing = services; }
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
  std::shared_ptr<void> counted_;  ///< the engine counts its contexts by it
  ErrorReport errors_;
  PluginServices services_;
  std::shared_ptr<Communicator> communicator_;  ///< of Opwright's on a GPU; null: none
  int profile_ = 0;
  Strategy strategy_ = Strategy::kSTATIC;
  DebugTensors debug_;
  const bool has_deadline_;  ///< whether the engine limits the time of runs
  const bool has_nvtx_;      ///< whether a tool of NVIDIA's listens
  const bool is_body_;       ///< whether the engine is the body of a layer
  bool debug_sync_ = false;
  bool emits_layer_times_ = true;
  ContextNotes notes_;
  std::unique_ptr<State> state_;
};

}  // namespace opwright
