#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opwright/runtime.h"
#include "runtime/debug_tensors.h"
#include "runtime/engine.h"

namespace opwright {

/// Receives memory requests for outputs whose extent is known only once they are computed. As
/// TensorRT's IOutputAllocator.
class OutputMemory {
 public:
  virtual ~OutputMemory() = default;
  /// Memory of at least `bytes` for output `output`; null means failure.
  virtual void* reallocate(int output, void* current, size_t bytes) = 0;
  virtual void notify_shape(int output, const Shape& shape) = 0;
};

/// A layer's time in one run, reported in order after the run.
using LayerTimeCallback = std::function<void(const std::string& name, float milliseconds)>;

/// Bytes of working memory of a context in a profile: intermediate tensors, and scratch memory
/// behind them.
uint64_t context_memory(const Schedule& schedule);
/// The largest over the profiles.
uint64_t context_memory(const Plan& plan);

/// State for running an engine: shapes, addresses, kernels, and while it runs an arena. One thread
/// at a time per context; contexts of one engine are independent, though they share memory.
class Context {
 public:
  /// Memory is allocated and kernels are made when they are first needed.
  explicit Context(std::shared_ptr<const Engine> engine, int profile = 0);
  ~Context();

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
  void set_output_memory(int output, OutputMemory* memory);

  /// The device's event that runs record on their queue once they have read the
  /// inputs; null: none. Throws Error on the CPU.
  void set_input_consumed_event(void* event);
  void* input_consumed_event() const;

  /// Threads that runs on the CPU use, of those that the process may use. At first those of the
  /// engine, or else of the thread that made the context. Kernels are made anew for another number.
  /// Throws Error for less than 1.
  int max_threads() const;
  void set_max_threads(int threads);

  /// Runs once: on the CPU now, on a GPU in the order of the queue. Throws Error naming what is not
  /// set. After an exception from a kernel the context stays usable. While it runs, another run and
  /// all that sets something throw Error.
  void enqueue(Queue queue = nullptr);
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
  /// Bytes of arena and workspace that this context has. On the CPU another one may take them when
  /// it does not run.
  size_t memory_size() const;
  /// Where the memory of the next runs comes from; at first kSTATIC.
  void set_memory_strategy(ExecutionContextAllocationStrategy strategy);
  ExecutionContextAllocationStrategy memory_strategy() const { return strategy_; }
  /// Uses the caller's memory for intermediate tensors (64-byte aligned, at least the arena_size of
  /// the profile's schedule; scratch memory too where it fits behind them, which it must with
  /// kUSER_MANAGED) until the next call; null: the context's own. Throws Error when it is too
  /// small.
  void set_memory(void* memory, size_t bytes);
  /// The same for memory that is said to be as large as the profile needs.
  void set_memory(void* memory);
  void* users_memory() const;

 private:
  struct State;
  void run(Queue queue);
  void change_queue(Queue queue);
  void note_capture();
  void prepare();
  void place_memory();
  void release_memory();
  uint64_t needed_of_user() const;
  void check_addresses();
  void check_address(const PlanPort& port, const char* kind, const void* address,
                     size_t bytes) const;
  void check_apart(int output, const void* address) const;
  void settle_sizes();
  [[noreturn]] void fail_lost(const DeviceLostError& error) const;
  size_t input_bytes(int input) const;
  void request_outputs();
  void report_run();
  void check_idle(const char* what) const;
  [[noreturn]] void fail_running(const char* what) const;
  std::shared_ptr<const Engine> engine_;
  ErrorReport errors_;
  PluginServices services_;
  int profile_ = 0;
  ExecutionContextAllocationStrategy strategy_ = ExecutionContextAllocationStrategy::kSTATIC;
  DebugTensors debug_;
  const bool has_deadline_;  ///< whether runs may take so long only
  bool debug_sync_ = false;
  std::unique_ptr<State> state_;
};

}  // namespace opwright
