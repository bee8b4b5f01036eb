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

/// All of TempfileControlFlag.
inline constexpr TempfileControlFlags kAllTempfiles = (1U << EnumMax<TempfileControlFlag>()) - 1;

/// Throws the Error for a library with another runtime: there is none to load.
[[noreturn]] void fail_other_runtime(std::string_view path);

/// Environment variables that permit a kind of code where they are 1, for programs that were
/// written for TensorRT and know of no permission: what runtimes of the public API begin with.
inline constexpr const char* kAllowHostCode = "OPWRIGHT_ALLOW_HOST_CODE";
inline constexpr const char* kAllowDeviceCode = "OPWRIGHT_ALLOW_DEVICE_CODE";
/// False in a process that has more rights than whoever started it.
bool is_permitted_by_environment(const char* variable);

struct LoadOptions {
  /// Whether host code (compiled CPU kernels, plugin libraries, Python source) in the file may be
  /// executed. That of plans which this very process made is always permitted.
  bool allow_host_code = false;
  /// Whether code for a GPU in the file may be executed, which allow_host_code implies. The same
  /// holds for plans that this process made.
  bool allow_device_code = false;
  Limits limits;
  TempfileControlFlags tempfile_flags = kAllTempfiles;  ///< what host code may be loaded from
  WeightCheck weights = WeightCheck::kVerify;
  int device_ordinal = -1;  ///< of several devices of the plan's backend; -1: get_device()'s choice
  IPluginRegistry* plugins = nullptr;  ///< null: the global registry
  Log log;
  IErrorRecorder* recorder = nullptr;  ///< of the engine; null: none
  /// For its plugins, and on a GPU for its weights and its contexts' memory; null: the device's
  /// memory. It outlives the engine.
  std::shared_ptr<IGpuAllocator> allocator;
  std::optional<bool> debug_plugins;     ///< overrides Plan::debug_plugins
  int max_threads = 0;                   ///< see Engine::max_threads()
  EnclosingEngine* enclosing = nullptr;  ///< of a body, which counts in its limits; null: none
  bool is_body = false;                  ///< see Engine::is_body()

  /// The properties of Python's Runtime that say what its engines may do.
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
  int index;  ///< among the inputs, or among the outputs
  const PlanPort* plan;
  std::string format_desc;  ///< type and layout in words
};

/// A plan made ready to run on a device: operators restored, permissions checked, missing plugins
/// reported. Shared by its contexts; but for its weights, immutable.
class Engine {
 public:
  /// Throws Error listing every missing plugin (name, version, namespace, how to provide it), code
  /// without permission, or a device that the plan was not built for. `plan` has passed validate().
  /// Plugins that the plan itself brings along are the engine's own.
  static std::shared_ptr<Engine> load(Plan plan, const LoadOptions& options);
  static std::shared_ptr<Engine> load_file(const std::string& path, const LoadOptions& options);
  /// Of a plan that is being built, with the operators that its steps were made of: nothing is
  /// asked of it. Profiles without operators cannot be run.
  static std::shared_ptr<Engine> from_build(Plan plan,
                                            std::vector<std::vector<PlannedOperatorPtr>> operators,
                                            const LoadOptions& options);

  ~Engine();

  const Plan& plan() const { return plan_; }
  /// For messages: "the engine 'x'", or "the engine" where it has no name.
  std::string name() const { return engine_name(plan_); }
  const Device& device() const { return *device_; }
  const Log& log() const { return errors_->log(); }
  /// For those who call from outside; the methods here throw.
  ErrorReport& errors() const { return *errors_; }
  const std::shared_ptr<IGpuAllocator>& allocator() const { return allocator_; }
  /// Where memory of the engine and its contexts comes from; null: the device. On the CPU it is
  /// none of the user's allocator, which is for device memory.
  std::shared_ptr<IGpuAllocator> memory_allocator() const {
    return device_->is_host() ? nullptr : allocator_;
  }
  /// What its contexts on the CPU share their working memory by.
  ScratchSharing& scratch() const { return scratch_; }
  /// Brings the weights to the device, where that was left for the first context: of an engine that
  /// may stream them. Throws Error where there is no memory.
  void bring_weights() const;
  /// Of the weights that the plan has now, under lock_weights(), once they were brought; whoever
  /// uses them keeps them.
  const std::shared_ptr<const DeviceWeights>& weights() const { return weights_; }
  /// See DeviceWeights::lose_last_use().
  void lose_last_use() const noexcept {
    const auto lock = lock_weights();
    if (weights_ != nullptr) weights_->lose_last_use();
  }
  /// What records its runs; null: nothing.
  std::shared_ptr<Trace> trace() const {
    if (!is_traced_.load(std::memory_order_acquire)) [[likely]]
      return nullptr;
    const std::lock_guard lock(trace_mutex_);
    return trace_;
  }
  /// Records its runs from now on, until `end_trace` is called with what is returned. Throws Error
  /// where that is done already.
  std::shared_ptr<Trace> begin_trace() const;
  /// Does nothing where the trace has ended.
  void end_trace(const std::shared_ptr<Trace>& trace) const;
  /// Whether it is the body of a layer, whose runs are parts of the runs around them.
  bool is_body() const { return is_body_; }
  /// How often weights were exchanged.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// Held while weights of the plan are read, but for runs, which have what they read.
  std::shared_lock<std::shared_mutex> lock_weights() const {
    return std::shared_lock(weights_mutex_);
  }
  /// The weights that the engine was stored without and has not got yet.
  std::vector<int32_t> absent_weights() const;
  /// Throws Error naming them.
  void require_weights() const;
  /// Lets `change` exchange weights' bytes, which it is called for with a copy of the plan first,
  /// and brings them to the device. Contexts use the new ones from their next run on.
  void replace_weights(const std::function<void(Plan&)>& change);
  /// Whether every call of a plugin is checked; see debug_plugin().
  bool debug_plugins() const { return debug_plugins_; }
  /// The most threads that a context uses on the CPU; 0: those of the thread that runs it.
  int max_threads() const { return max_threads_; }
  /// What loading and running it may spend; without defaults.
  const Limits& limits() const { return limits_; }
  /// Whether plugins are asked if they make what the plan says: of a plan that neither this process
  /// made nor the caller trusts with code for the host.
  bool asks_plugins() const { return asks_plugins_; }
  /// The operator of a step.
  const PlannedOperatorPtr& op(int schedule, int step) const { return operators_[schedule][step]; }
  /// "layer 'pad' (FunctionPlugin 'sample::circ_pad')": with the plugin, or the plugin's kernel,
  /// where it is one.
  std::string describe_step(int schedule, int step) const;

  // What ICudaEngine tells, under its names. Each throws Error for a name that no input or output
  // has, and for a profile that there is not. (engine_tensors.cpp)

  /// Null where there is none of that name.
  const Port* find_port(std::string_view name) const;
  const Port& port(std::string_view name) const;
  /// The index of an input; an output is an error, and the reverse.
  int input(std::string_view name) const;
  int output(std::string_view name) const;
  int num_io_tensors() const;
  /// Inputs first.
  const std::string& tensor_name(int index) const;
  TensorIOMode tensor_mode(std::string_view name) const;
  Shape tensor_shape(std::string_view name) const;
  DataType tensor_dtype(std::string_view name) const { return port(name).plan->type.dtype; }
  TensorLocation tensor_location(std::string_view name) const;
  /// Whether shapes depend on the tensor's values, or it is computed from shapes alone.
  bool is_shape_inference_io(std::string_view name) const;
  /// The input in whose memory an output is computed; null for none.
  const std::string* aliased_input_tensor(std::string_view name) const;
  TensorFormat tensor_format(std::string_view name, int profile) const;
  const std::string& tensor_format_desc(std::string_view name, int profile) const;
  /// Of a format whose channels lie in vectors; -1 for others.
  int tensor_bytes_per_component(std::string_view name, int profile) const;
  int tensor_components_per_element(std::string_view name, int profile) const;
  int tensor_vectorized_dim(std::string_view name, int profile) const;

  int num_profiles() const { return static_cast<int>(plan_.schedules.size()); }
  const Schedule& schedule(int profile) const;
  /// Of an input; that of one with a range of values is the same everywhere.
  Shape profile_shape(std::string_view name, int profile, OptProfileSelector select) const;
  /// Throws Error for an input whose values the profile says nothing of, too.
  const Shape& profile_values(std::string_view name, int profile, OptProfileSelector select) const;

  /// Bytes of working memory of a context: intermediate tensors, and scratch memory behind them.
  uint64_t memory_size(int profile) const;
  /// The largest over the profiles.
  uint64_t memory_size() const;
  int num_layers() const { return static_cast<int>(plan_.schedules[0].steps.size()); }
  bool is_refittable() const { return !plan_.refit.weights.empty(); }
  ProfilingVerbosity profiling_verbosity() const;
  HardwareCompatibilityLevel hardware_compatibility_level() const;
  /// Bits 1 << TacticSource: libraries of others that it needs.
  uint32_t tactic_sources() const;
  /// On so many streams beside that of the run steps run beside each other.
  int num_aux_streams() const;
  int64_t stat(EngineStat stat) const;
  bool is_debug_tensor(std::string_view name) const;
  /// What the weights take that may stay on the host: 0 of an engine that was not built for it.
  int64_t streamable_weights_size() const;
  /// How much of that the device's memory may hold; at first all.
  int64_t weight_streaming_budget() const { return static_cast<int64_t>(budget_); }
  /// Throws Error for a negative one, of an engine that was not built for it, and while there are
  /// contexts. More than streamable_weights_size() is that. On the host it has no effect.
  void set_weight_streaming_budget(int64_t bytes);
  /// What there is memory for now, with some left for contexts and others.
  int64_t automatic_weight_streaming_budget() const;
  /// What each context takes of the device's memory for weights that are streamed.
  int64_t weight_streaming_scratch_size() const;
  /// Held by each context.
  std::shared_ptr<void> count_context() const { return contexts_; }

 private:
  /// The port, for a profile that there is.
  const Port& port_in(std::string_view name, int profile) const;
  const ProfileInput& profile_input(std::string_view name, int profile) const;
  Engine(const Plan& plan, const LoadOptions& options);
  /// Once the operators are there.
  void take(Plan plan);
  std::shared_ptr<const DeviceWeights> make_weights(const Plan& plan, size_t budget) const;
  Plan plan_;
  std::unordered_map<std::string_view, Port> ports_;  ///< by names in the plan
  const Device* device_ = nullptr;
  std::unique_ptr<ErrorReport> errors_;
  std::shared_ptr<IGpuAllocator> allocator_;
  std::unique_ptr<const EnginePlugins> plugins_;  ///< outlives the operators, which are its code
  std::vector<std::vector<PlannedOperatorPtr>> operators_;
  mutable std::shared_ptr<const DeviceWeights> weights_;  ///< null: not brought yet
  size_t budget_ = 0;  ///< of bytes, for weights that may be streamed
  const std::shared_ptr<void> contexts_ = std::make_shared<char>();  ///< which hold it
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
