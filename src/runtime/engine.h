#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "base/error_report.h"
#include "base/setting.h"
#include "opwright/resource_limits.h"
#include "opwright/runtime.h"
#include "plan/plan.h"
#include "runtime/device_weights.h"
#include "runtime/scratch.h"
#include "runtime/trace.h"

namespace opwright {

class EnclosingEngine;
class EnginePlugins;
class IPluginRegistry;

/// For messages: "the engine 'x'", or "the engine" where the plan has no name.
std::string engine_name(const Plan& plan);

/// Maps the file and deserializes it. Throws Error naming the file.
Plan read_plan(const std::string& path, WeightCheck weights = WeightCheck::kVerify);

/// All flags of TempfileControlFlag.
inline constexpr TempfileControlFlags kAllTempfiles = (1U << EnumMax<TempfileControlFlag>()) - 1;

/// Throws the Error for a library with another runtime: there is no such library to load.
[[noreturn]] void fail_other_runtime(std::string_view path);

/// Environment variables that permit a kind of code where they are 1. They set the defaults of
/// runtimes of the public API, for programs that were written for TensorRT and know no permission.
inline constexpr const char* kAllowHostCode = "OPWRIGHT_ALLOW_HOST_CODE";
inline constexpr const char* kAllowDeviceCode = "OPWRIGHT_ALLOW_DEVICE_CODE";
/// False in a process that has more rights than its starter.
bool is_permitted_by_environment(const char* variable);

struct LoadOptions {
  /// Whether host code (compiled CPU kernels, plugin libraries, Python source) in the file may be
  /// executed. Host code in plans that this process made is always permitted.
  bool allow_host_code = false;
  /// Whether code for a GPU in the file may be executed. allow_host_code implies it, and code in
  /// plans that this process made is always permitted.
  bool allow_device_code = false;
  Limits limits;
  TempfileControlFlags tempfile_flags = kAllTempfiles;  ///< files that host code may be loaded from
  WeightCheck weights = WeightCheck::kVerify;
  int device_ordinal = -1;  ///< of several devices of the plan's backend; -1: get_device()'s choice
  IPluginRegistry* plugins = nullptr;  ///< null: the global registry
  Log log;
  IErrorRecorder* recorder = nullptr;  ///< the engine's; null: none
  /// Allocates memory for plugins, and on a GPU for weights and contexts; null: the device does.
  /// The engine keeps the allocator alive.
  std::shared_ptr<IGpuAllocator> allocator;
  std::optional<bool> debug_plugins;     ///< overrides Plan::debug_plugins
  int max_threads = 0;                   ///< see Engine::max_threads()
  EnclosingEngine* enclosing = nullptr;  ///< counts a body against its limits; null: none
  bool is_body = false;                  ///< see Engine::is_body()

  /// The options as properties of Python's Runtime.
  template <class V>
  static void visit(V&& v) {
    using Self = LoadOptions;
    v(Setting<Self, bool>{
        .name = "engine_host_code_allowed",
        .member = &Self::allow_host_code,
        .doc = "Whether code in the engine that would run on the host may be executed. At first "
               "False, unless the environment variable OPWRIGHT_ALLOW_HOST_CODE is 1."});
    v(Setting<Self, bool>{
        .name = "engine_device_code_allowed",
        .member = &Self::allow_device_code,
        .doc = "Whether code for a GPU in the engine, which another process built, may be "
               "executed, which can read and change whatever the GPU reaches of the process's "
               "memory. At first False, unless the environment variable "
               "OPWRIGHT_ALLOW_DEVICE_CODE is 1. Where host code is allowed, this is, too."});
    v(Setting<Self, TempfileControlFlags>{
        .name = "tempfile_control_flags",
        .member = &Self::tempfile_flags,
        .doc = "Bits 1 << int(TempfileControlFlag), all at first. Without ALLOW_IN_MEMORY_FILES "
               "an engine that contains libraries is refused."});
  }
};

/// A network input or output of an engine.
struct Port {
  bool is_input;
  int index;  ///< the index among the inputs or the outputs
  const PlanPort* plan;
  std::string format_desc;  ///< type and layout in words
};

/// A plan made ready to run on a device: operators restored, permissions checked, missing plugins
/// reported. Contexts share an engine; all but its weights is immutable.
class Engine {
 public:
  /// Throws Error listing every missing plugin (name, version, namespace, how to provide it) or
  /// code without permission, or for a device that the plan was not built for. `plan` has passed
  /// validate(). Only this engine sees the plugins in the plan.
  static std::shared_ptr<Engine> load(Plan plan, const LoadOptions& options);
  static std::shared_ptr<Engine> load_file(const std::string& path, const LoadOptions& options);
  /// Makes the engine of a plan that is being built, with the operators of its steps. The plan is
  /// not verified. Profiles without operators cannot be run.
  static std::shared_ptr<Engine> from_build(Plan plan,
                                            std::vector<std::vector<PlannedOperatorPtr>> operators,
                                            const LoadOptions& options);

  ~Engine();

  const Plan& plan() const { return plan_; }
  /// For messages: "the engine 'x'", or "the engine" where it has no name.
  std::string name() const { return engine_name(plan_); }
  const Device& device() const { return *device_; }
  const Log& log() const { return errors_->log(); }
  /// Reports errors to callers from outside; the methods here throw.
  ErrorReport& errors() const { return *errors_; }
  const std::shared_ptr<IGpuAllocator>& allocator() const { return allocator_; }
  /// Allocator of memory for the engine and its contexts; null: the device. It is null on the CPU:
  /// the user's allocator is for device memory.
  std::shared_ptr<IGpuAllocator> memory_allocator() const {
    return device_->is_host() ? nullptr : allocator_;
  }
  /// Lets the contexts on the CPU share their working memory.
  ScratchSharing& scratch() const { return scratch_; }
  /// Brings the weights to the device if loading left that to the first context, as for an engine
  /// that may stream them. Throws Error where there is no memory.
  void bring_weights() const;
  /// The plan's current weights on the device, once they were brought. The caller holds
  /// lock_weights(), and keeps the pointer while it uses the weights.
  const std::shared_ptr<const DeviceWeights>& weights() const { return weights_; }
  /// See DeviceWeights::lose_last_use().
  void lose_last_use() const noexcept {
    const auto lock = lock_weights();
    if (weights_ != nullptr) weights_->lose_last_use();
  }
  /// The trace that records the engine's runs; null: none.
  std::shared_ptr<Trace> trace() const {
    if (!is_traced_.load(std::memory_order_acquire)) [[likely]]
      return nullptr;
    const std::lock_guard lock(trace_mutex_);
    return trace_;
  }
  /// Records the engine's runs from now on, until `end_trace` gets the returned trace. Throws Error
  /// if a trace is recorded already.
  std::shared_ptr<Trace> begin_trace() const;
  /// Does nothing if the trace has ended already.
  void end_trace(const std::shared_ptr<Trace>& trace) const;
  /// Whether the engine is the body of a layer. Its runs are parts of the runs around them.
  bool is_body() const { return is_body_; }
  /// How often weights were replaced.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// Lock for reading the plan's weights. Runs do not need it: they keep the weights that they
  /// read.
  std::shared_lock<std::shared_mutex> lock_weights() const {
    return std::shared_lock(weights_mutex_);
  }
  /// The weights that the stored engine lacked and that were not given to it yet.
  std::vector<int32_t> absent_weights() const;
  /// Throws Error naming the absent weights.
  void require_weights() const;
  /// Calls `change` with a copy of the plan to replace weights, and brings them to the device.
  /// Contexts use the new weights from their next run on.
  void replace_weights(const std::function<void(Plan&)>& change);
  /// Whether every call of a plugin is checked; see debug_plugin().
  bool debug_plugins() const { return debug_plugins_; }
  /// The most threads that a context uses on the CPU; 0: as many as the thread that makes it may
  /// use.
  int max_threads() const { return max_threads_; }
  /// What loading and running the engine may spend; all limits are set.
  const Limits& limits() const { return limits_; }
  /// Whether plugins are asked if they make what the plan says. True for a plan that this process
  /// did not make, unless the caller trusts it with code for the host.
  bool asks_plugins() const { return asks_plugins_; }
  /// The operator of a step.
  const PlannedOperatorPtr& op(int schedule, int step) const { return operators_[schedule][step]; }
  /// "layer 'pad' (FunctionPlugin 'sample::circ_pad')"; plugins and their kernels are named in
  /// parentheses.
  std::string describe_step(int schedule, int step) const;

  // The queries of ICudaEngine. Each throws Error for the name of no input or output, and for a
  // profile that does not exist. (engine_tensors.cpp)

  /// Null if no input or output has that name.
  const Port* find_port(std::string_view name) const;
  const Port& port(std::string_view name) const;
  /// The index of an input. Throws Error for an output; output() does the reverse.
  int input(std::string_view name) const;
  int output(std::string_view name) const;
  int num_io_tensors() const;
  /// Name of an input or output; inputs come first.
  const std::string& tensor_name(int index) const;
  TensorIOMode tensor_mode(std::string_view name) const;
  Shape tensor_shape(std::string_view name) const;
  DataType tensor_dtype(std::string_view name) const { return port(name).plan->type.dtype; }
  TensorLocation tensor_location(std::string_view name) const;
  /// Whether shapes depend on the tensor's values, or only shapes determine the tensor.
  bool is_shape_inference_io(std::string_view name) const;
  /// The input whose memory an output is computed in; null for none.
  const std::string* aliased_input_tensor(std::string_view name) const;
  TensorFormat tensor_format(std::string_view name, int profile) const;
  const std::string& tensor_format_desc(std::string_view name, int profile) const;
  /// For a format whose channels lie in vectors; -1 for other formats.
  int tensor_bytes_per_component(std::string_view name, int profile) const;
  int tensor_components_per_element(std::string_view name, int profile) const;
  int tensor_vectorized_dim(std::string_view name, int profile) const;

  int num_profiles() const { return static_cast<int>(plan_.schedules.size()); }
  const Schedule& schedule(int profile) const;
  /// The shape of an input. A shape input with a range of values has the same shape everywhere.
  Shape profile_shape(std::string_view name, int profile, OptProfileSelector select) const;
  /// Throws Error also for an input for which the profile has no values.
  const Shape& profile_values(std::string_view name, int profile, OptProfileSelector select) const;

  /// Bytes of a context's working memory: intermediate tensors, and scratch memory behind them.
  uint64_t memory_size(int profile) const;
  /// The largest size over the profiles.
  uint64_t memory_size() const;
  int num_layers() const { return static_cast<int>(plan_.schedules[0].steps.size()); }
  bool is_refittable() const { return plan_.refit.is_possible(); }
  ProfilingVerbosity profiling_verbosity() const;
  HardwareCompatibilityLevel hardware_compatibility_level() const;
  /// Bits 1 << TacticSource: external libraries that the engine needs.
  uint32_t tactic_sources() const;
  /// The number of streams, beside that of the run, on which steps run concurrently.
  int num_aux_streams() const;
  int64_t stat(EngineStat stat) const;
  bool is_debug_tensor(std::string_view name) const;
  /// The bytes of weights that may stay on the host; 0 for an engine that was not built for
  /// streaming.
  int64_t streamable_weights_size() const;
  /// The most bytes of these weights on the device; at first all.
  int64_t weight_streaming_budget() const { return static_cast<int64_t>(budget_); }
  /// Throws Error for a negative budget, and while contexts exist. An engine that was not built for
  /// streaming only accepts 0. A budget above streamable_weights_size() is reduced to it. Without
  /// effect on the host.
  void set_weight_streaming_budget(int64_t bytes);
  /// A budget that fits into the device's free memory, with some left for contexts and other uses.
  int64_t automatic_weight_streaming_budget() const;
  /// The bytes of device memory that each context needs for streamed weights.
  int64_t weight_streaming_scratch_size() const;
  /// A token that each context holds, by which the engine counts its contexts.
  std::shared_ptr<void> count_context() const { return contexts_; }

 private:
  /// The port. Throws Error for a profile that does not exist.
  const Port& port_in(std::string_view name, int profile) const;
  const ProfileInput& profile_input(std::string_view name, int profile) const;
  Engine(const Plan& plan, const LoadOptions& options);
  /// Takes the plan, after the operators were made.
  void take(Plan plan);
  std::shared_ptr<const DeviceWeights> make_weights(const Plan& plan, size_t budget) const;
  Plan plan_;
  std::unordered_map<std::string_view, Port> ports_;  ///< by name; the names lie in the plan
  const Device* device_ = nullptr;
  std::unique_ptr<ErrorReport> errors_;
  std::shared_ptr<IGpuAllocator> allocator_;
  std::unique_ptr<const EnginePlugins> plugins_;  ///< outlives the operators, whose code it has
  std::vector<std::vector<PlannedOperatorPtr>> operators_;
  mutable std::shared_ptr<const DeviceWeights> weights_;  ///< null: not on the device yet
  size_t budget_ = 0;  ///< bytes on the device for weights that may be streamed
  const std::shared_ptr<void> contexts_ = std::make_shared<char>();  ///< each context holds a copy
  mutable ScratchSharing scratch_;
  mutable std::shared_mutex weights_mutex_;
  std::atomic<uint64_t> generation_ = 0;
  mutable std::atomic<bool> is_traced_ = false;
  mutable std::mutex trace_mutex_;
  mutable std::shared_ptr<Trace> trace_;
  bool debug_plugins_ = false;
  bool is_body_ = false;
  int max_threads_ = 0;
  Limits limits_;
  bool asks_plugins_ = true;
};

}  // namespace opwright
