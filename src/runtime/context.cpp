#include "runtime/context.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/release.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/parallel.h"
#include "runtime/context_state.h"
#include "runtime/nvtx.h"
#include "runtime/step_clock.h"
#include "runtime/trace.h"
#include "threads/pool.h"

namespace opwright {
namespace {

/// Clears the mark that the context runs when the scope ends.
class Running {
 public:
  explicit Running(Scratch& scratch) : scratch_(scratch) {}
  ~Running() { scratch_.end(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Scratch& scratch_;
};

/// A stack of objects of the calling thread's nested runs: of a run, of bodies in it, and of
/// engines that plugins call. The constructor pushes an object.
template <class T>
class Innermost {
 public:
  explicit Innermost(const T& value) : before_(top) {
    count.fetch_add(1, std::memory_order_relaxed);
    top = &value;
  }
  ~Innermost() {
    top = before_;
    count.fetch_sub(1, std::memory_order_relaxed);
  }
  Innermost(const Innermost&) = delete;
  Innermost& operator=(const Innermost&) = delete;
  /// The innermost object; null: there is none.
  static const T* current() {
    if (count.load(std::memory_order_relaxed) == 0) [[likely]]
      return nullptr;
    return top;
  }

 private:
  /// Counts the objects of all threads, so that most runs need not read the thread-local `top`:
  /// that read takes a noticeable part of the run of an empty body.
  static std::atomic<int> count;
  static thread_local const T* top;
  const T* const before_;
};

template <class T>
std::atomic<int> Innermost<T>::count = 0;
template <class T>
thread_local const T* Innermost<T>::top = nullptr;

/// The deadline of the calling thread's runs: the earliest of those of a run, of the bodies in it,
/// and of the engines that its plugins call.
class RunEnd {
 public:
  explicit RunEnd(double seconds) : own_(seconds) {
    const Deadline* const around = current();
    if (!own_.is_set()) return;  // without a limit, or with one of some years
    if (around == nullptr || own_.seconds_left() < around->seconds_left()) earliest_.emplace(own_);
  }
  /// Null: there is no deadline.
  static const Deadline* current() { return Innermost<Deadline>::current(); }

 private:
  const Deadline own_;
  std::optional<Innermost<Deadline>> earliest_;
};

}  // namespace

/// Observers of a run and of the bodies in it.
struct Context::Watchers {
  Trace* trace = nullptr;
  DeviceSpans* device_spans = nullptr;
  ProfilingVerbosity nvtx = ProfilingVerbosity::kNONE;
  bool is_there() const { return trace != nullptr || nvtx != ProfilingVerbosity::kNONE; }
};

Context::Context(std::shared_ptr<const Engine> engine, int profile, Strategy strategy)
    : engine_(std::move(engine)),
      counted_(engine_->count_context()),
      errors_(engine_->log(), engine_->errors().recorder()),
      services_{errors_.recorder(), engine_->allocator(), nullptr},
      strategy_(strategy),
      debug_(engine_->plan()),
      has_deadline_(std::isfinite(engine_->limits().run_seconds)),
      has_nvtx_(nvtx::is_there()),
      is_body_(engine_->is_body()),
      state_(std::make_unique<State>(engine_->device().is_host() ? &engine_->scratch() : nullptr)) {
  const Plan& plan = engine_->plan();
  const auto number = static_cast<int32_t>(strategy);
  require(number >= 0 && number < EnumMax<Strategy>(), "there is no allocation strategy ", number);
  engine_->bring_weights();
  if (!engine_->device().is_host()) {
    state_->gpu = &engine_->device();
    services_.last_use = state_->last_use = std::make_shared<LastUse>(*state_->gpu);
  }
  state_->profiles.resize(plan.schedules.size());
  state_->inputs.resize(plan.inputs.size());
  state_->outputs.resize(plan.outputs.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (plan.inputs[i].is_shape_input) state_->shape_inputs.push_back(static_cast<int>(i));
  }
  const ThreadLimit limit(engine_->max_threads());
  state_->threads = thread_count();
  set_profile(profile);
}

/// Waits for the last run. Plugins, which may have memory of their own, and weights are released
/// only when no work uses them any more.
Context::~Context() {
  if (state_->last_use != nullptr && !state_->last_use->finish()) engine_->lose_last_use();
  release_on(engine_->device(), [&] { state_.reset(); });
}

void Context::fail_running(const char* what) const {
  fail_with(ErrorCode::kINVALID_STATE, "this execution context of ", engine_->name(),
            " is running and cannot be ", what,
            " meanwhile; a plugin that runs the engine within its own call, and another thread, "
            "need a context of their own (create_execution_context)");
}

void Context::check_idle(const char* what) const {
  if (state_->scratch.is_running()) [[unlikely]]
    fail_running(what);
}

void Context::set_error_recorder(IErrorRecorder* recorder) {
  services_.recorder = recorder;
  errors_.set_recorder(recorder);
}

int Context::max_threads() const { return state_->threads; }

void Context::set_max_threads(int threads) {
  check_idle("given another number of threads");
  checked_threads(threads, "an execution context");
  State& s = *state_;
  if (s.threads == threads) return;
  s.threads = threads;
  // On a GPU only the makers of kernels use these threads.
  if (s.gpu != nullptr) return;
  for (const auto& profile : s.profiles)
    if (profile != nullptr) profile->runner.reset();
  s.is_ready = false;
}

void Context::set_profile(int profile) {
  check_idle("given another profile");
  State& s = *state_;
  require(profile >= 0 && static_cast<size_t>(profile) < s.profiles.size(), "profile ", profile,
          " does not exist: the engine has ", s.profiles.size());
  auto& state = s.profiles[profile];
  if (state == nullptr) {
    state = std::make_unique<ProfileState>(engine_->plan(), profile);
  } else {
    state->shapes.reset();
  }
  s.current = state.get();
  if (profile != profile_ && strategy_ == ExecutionContextAllocationStrategy::kON_PROFILE_CHANGE)
    release_memory();
  profile_ = profile;
  s.is_ready = false;
}

void Context::set_input_shape(int input, const Shape& shape) {
  check_idle("given another shape");
  if (state_->current->shapes.set_shape(input, shape)) state_->is_ready = false;
}

const Shape& Context::input_shape(int input) const {
  return state_->current->shapes.input_shape(input);
}

bool Context::is_set(int input) const {
  const State& s = *state_;
  return s.current->shapes.is_set(input) &&
         (!engine_->plan().inputs[input].is_shape_input || s.inputs[input].address != nullptr);
}

bool Context::all_shapes_set() const {
  return state_->current->shapes.shapes_set() &&
         std::ranges::all_of(state_->shape_inputs, [&](int input) { return is_set(input); });
}

std::vector<int> Context::infer_shapes() {
  std::vector<int> missing;
  for (size_t i = 0; i < state_->inputs.size(); ++i)
    if (const int input = static_cast<int>(i); !is_set(input)) missing.push_back(input);
  if (missing.empty())
    for (size_t i = 0; i < state_->outputs.size(); ++i) output_shape(static_cast<int>(i));
  return missing;
}

Shape Context::output_shape(int output) {
  ShapeState& shapes = state_->current->shapes;
  if (all_shapes_set()) {
    for (const int input : state_->shape_inputs) {
      shapes.take_values(input, state_->inputs[input].address);
    }
    if (!shapes.is_current()) {
      settle_sizes();
      state_->is_ready = false;
      shapes.update();
    } else if (shapes.depends_on_sizes(output)) {
      settle_sizes();
    }
  }
  return shapes.output_shape(output);
}

/// Tells the shapes the sizes that the last run computed.
void Context::settle_sizes() {
  State& s = *state_;
  Runner* const runner = s.current->runner.get();
  if (runner == nullptr || !runner->shapes().has_pending()) return;
  const DeviceScope scope(*s.gpu);
  try {
    runner->shapes().settle();
  } catch (const DeviceLostError& error) {
    fail_lost(error);
  } catch (...) {
    s.current->shapes.forget_sizes();
    s.is_ready = false;
    throw;
  }
  s.current->shapes.set_sizes_known(true);
}

/// Adds the plugins that may have caused the loss: kernels fail when they run, not when they are
/// given to the queue.
void Context::fail_lost(const DeviceLostError& error) const {
  const std::string message = error.what();
  const Runner* const runner = state_->current->runner.get();
  if (runner == nullptr || message.starts_with("layer '")) throw error;
  const std::string list = runner->suspects();
  if (list.empty()) throw error;
  // Callers on the way may catch the error again; the list is added once.
  if (message.find(list) != std::string::npos) throw error;
  const bool is_one = list.find("), layer '") == std::string::npos;
  throw DeviceLostError(
      is_one ? str(list,
                   ", the only plugin that ran in this context since it was last known to be "
                   "well: ",
                   message)
             : str(message,
                   ". Plugins that ran in this context since it was last known to be "
                   "well: ",
                   list, "; with debug_plugins the error names the one that failed"));
}

Shape Context::tensor_shape(std::string_view name) {
  const Port& port = engine_->port(name);
  return port.is_input ? input_shape(port.index) : output_shape(port.index);
}

Dims Context::tensor_strides(std::string_view name) {
  return strides_of(tensor_shape(name), engine_->port(name).plan->type.format);
}

int64_t Context::max_output_size(std::string_view name) {
  const int output = engine_->output(name);
  const PortType type = engine_->plan().outputs[output].type;
  return tensor_bytes(max_output_shape(output), type.dtype, type.format);
}

Shape Context::max_output_shape(int output) {
  output_shape(output);
  return state_->current->shapes.max_output_shape(output);
}

void Context::set_input_consumed_event(void* event) {
  check_idle("given another event");
  require(event == nullptr || state_->gpu != nullptr, "an event for consumed inputs was set, but ",
          engine_->name(),
          " runs on the CPU, which has no events: inputs are read when enqueue returns");
  state_->input_consumed = event;
  state_->is_ready = false;
}

void* Context::input_consumed_event() const { return state_->input_consumed; }

void Context::set_aux_queues(std::span<const Queue> queues) {
  check_idle("given other auxiliary streams");
  const auto count = std::min<size_t>(queues.size(), engine_->num_aux_streams());
  for (size_t i = 0; i < count; ++i) {
    require(queues[i] != nullptr && std::count(&queues[0], &queues[i], queues[i]) == 0,
            "auxiliary stream ", i, " of ", engine_->name(),
            queues[i] == nullptr ? " is the default stream" : " is there twice",
            ", so that steps could not run beside each other");
    state_->gpu->check_queue(queues[i]);
  }
  state_->aux_queues.assign(queues.begin(), queues.begin() + static_cast<ptrdiff_t>(count));
  state_->is_ready = false;
}

void Context::set_layer_time_callback(LayerTimeCallback callback) {
  check_idle("given another profiler");
  state_->callback = std::move(callback);
}

void Context::report_layer_times() const {
  const State& s = *state_;
  require(s.callback != nullptr, "there is no profiler to report to");
  require(s.are_times_known, "there was no run with the profiler set");
  const auto& steps = engine_->plan().schedules[s.timed_profile].steps;
  for (size_t i = 0; i < steps.size(); ++i) s.callback(steps[i].name, s.times[i]);
}

void Context::set_communicator(void* communicator) {
  check_idle("given another communicator");
  if (communicator == services_.communicator) return;
  std::shared_ptr<Communicator> own;
  if (communicator != nullptr) {
    const Device& device = engine_->device();
    own = Communicator::find(communicator);
    const auto rejects = [&](const auto&... parts) {
      fail_with(ErrorCode::kINVALID_ARGUMENT, "set_communicator: ", engine_->name(), parts...);
    };
    if (device.is_host()) {
      if (own == nullptr)
        rejects(
            " runs on the CPU and takes a Communicator of Opwright's, which this object is not; an "
            "ncclComm_t is for engines on GPUs");
      if (!own->device().is_host())
        rejects(" runs on the CPU, and the communicator '", own->name(),
                "' is one of a GPU; make one of the device 'cpu'");
    } else if (own != nullptr) {
      const std::string wanted =
          str(DeviceId{std::string(device.backend().name()), device.ordinal()});
      if (own->device().is_host())
        rejects(" runs on a GPU, and the communicator '", own->name(),
                "' is one of the CPU; make one of the device '", wanted, "'");
      if (&own->device().backend() != &device.backend() ||
          own->device().ordinal() != device.ordinal())
        rejects(" runs on GPU ", device.ordinal(), ", and the communicator '", own->name(),
                "' is one of GPU ", own->device().ordinal(), "; make one of the device '", wanted,
                "'");
    }
  }
  services_.communicator = communicator;
  communicator_ = nullptr;
  if (own != nullptr && own->on_device() != nullptr) {
    services_.communicator = own.get();
    communicator_ = std::move(own);
  }
  // Graphs have captured what works with the other communicator.
  for (const auto& profile : state_->profiles)
    if (profile != nullptr && profile->runner != nullptr) profile->runner->change_communicator();
}

void Context::set_debug_listener(DebugListener listener) {
  check_idle("given another debug listener");
  debug_.set_listener(std::move(listener));
}

void Context::set_debug_state(const std::string& tensor, bool on) {
  check_idle("given another debug state");
  debug_.set_state(tensor, on);
}

void Context::set_all_debug_states(bool on) {
  check_idle("given another debug state");
  debug_.set_all(on);
}

void Context::set_unfused_debug_state(bool on) {
  check_idle("given another debug state");
  debug_.set_unfused(on);
}

void Context::set_debug_sync(bool sync) {
  check_idle("given another debug state");
  debug_sync_ = sync;
}

int Context::current_step() const { return state_->current_step.load(std::memory_order_relaxed); }

/// Prepares the next run: everything that may be slow, or fail because of what the caller set.
void Context::prepare() {
  State& s = *state_;
  s.is_ready = false;
  settle_sizes();
  ShapeState& shapes = s.current->shapes;
  const Plan& plan = engine_->plan();
  for (const int input : s.shape_inputs) {
    const void* address = s.inputs[input].address;
    if (address == nullptr && has_elements(input_shape(input))) {
      fail("the address of shape input '", plan.inputs[input].name, "' is not set");
    }
    if (address != nullptr) shapes.take_values(input, address);
  }
  shapes.update();
  if (s.current->runner != nullptr &&
      s.current->runner->table().generation() != engine_->generation()) {
    // Work in queues may still use the old kernels and weights.
    if (s.last_use != nullptr) {
      require(s.last_use->finish(), engine_->name(),
              " was refitted since this context's last run, and what the queue is given is being "
              "captured: run the context once before the capture");
      s.last_use->add(s.queue);
    }
    s.current->runner.reset();
  }
  if (s.current->runner == nullptr) {
    engine_->require_weights();
    s.current->runner =
        std::make_unique<Runner>(*engine_, profile_, shapes, services_, s.current_step);
  }
  s.generation = s.current->runner->table().generation();
  place_memory();
  check_addresses();
  s.current->runner->shapes().refresh();
  s.current->runner->set_input_event(s.input_consumed);
  s.current->runner->set_aux_queues(s.aux_queues);
  s.times.resize(plan.schedules[profile_].steps.size());
  s.is_ready = true;
}

void Context::report_run() {
  State& s = *state_;
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    if (s.outputs[i].memory == nullptr) continue;
    const int output = static_cast<int>(i);
    if (s.current->shapes.depends_on_sizes(output)) settle_sizes();
    s.outputs[i].memory->notify_shape(engine_->plan().outputs[i].name,
                                      s.current->shapes.output_shape(output));
  }
  if (s.callback && s.are_times_known && emits_layer_times_) report_layer_times();
}

void Context::enqueue(Queue queue) {
  State& s = *state_;
  const threads::Call call(s.threads);
  {
    if (!s.scratch.begin()) [[unlikely]]
      fail_running("run again");
    const Running running(s.scratch);
    std::shared_ptr<Trace> kept;  // keeps the trace, which another thread may end meanwhile
    Watchers watchers;
    std::optional<Innermost<Watchers>> watched;
    const Watchers* const around = Innermost<Watchers>::current();
    if (is_body_) {
      if (around != nullptr) watchers = *around;
    } else {
      kept = engine_->trace();
      watchers.trace = kept.get();
      if (has_nvtx_) watchers.nvtx = notes_.nvtx_verbosity;
      if (around != nullptr || watchers.is_there()) [[unlikely]]
        watched.emplace(watchers);
    }
    const char* const what = is_body_ ? "body" : "run";
    const TraceSpan span(watchers.trace, what, what);
    const threads::ObservedTasks tasks(watchers.trace);
    if (s.gpu == nullptr) {
      run(queue, watchers);
    } else {
      const DeviceScope scope(*s.gpu);
      if (queue != s.queue) [[unlikely]]
        change_queue(queue);
      std::optional<DeviceSpans> spans;
      if (!is_body_ && watchers.trace != nullptr && !s.gpu->is_capturing(queue)) [[unlikely]]
        watchers.device_spans = &spans.emplace(*watchers.trace, *s.gpu);
      try {
        run(queue, watchers);
        if (spans) spans->read(queue);
      } catch (const DeviceLostError& error) {
        fail_lost(error);
      }
    }
  }
  if (s.has_output_memory || s.callback) report_run();
}

void Context::change_queue(Queue queue) {
  State& s = *state_;
  s.gpu->check_queue(queue);
  if (s.gpu->is_capturing(queue)) note_capture();
  s.last_use->add(queue);
  s.queue = queue;
}

/// The caller may launch the captured graph at any time, so the last use of the context's and the
/// engine's memory is not known any more.
void Context::note_capture() {
  state_->last_use->lose();
  engine_->lose_last_use();
}

void Context::run(Queue queue, const Watchers& watchers) {
  State& s = *state_;
  s.are_times_known = false;
  if (!s.is_ready || s.generation != engine_->generation() ||
      (!s.shape_inputs.empty() && s.shape_values_changed())) [[unlikely]] {
    const TraceSpan span(watchers.trace, "prepare", "prepare for new shapes");
    prepare();
  } else if (!s.scratch.is_placed()) [[unlikely]] {
    place_memory();
  }
  Runner& runner = *s.current->runner;
  if (runner.shapes().has_pending()) [[unlikely]]
    settle_sizes();
  if (s.has_output_memory) request_outputs(queue);
  try {
    if (s.callback) [[unlikely]] {
      // The run cannot wait for times while the caller captures the queue's work.
      s.are_times_known = s.gpu == nullptr || !s.gpu->is_capturing(queue);
    }
    std::optional<RunEnd> end;
    if (has_deadline_) [[unlikely]]
      end.emplace(engine_->limits().run_seconds);
    const Deadline* const deadline = RunEnd::current();
    if (deadline != nullptr && deadline->has_passed()) [[unlikely]]
      fail_run_time(*deadline, "its body was to run");
    const Runner::Watch watch{
        debug_.is_active() ? &debug_ : nullptr,
        (debug_sync_ || deadline != nullptr) && s.gpu != nullptr,
        deadline,
        s.are_times_known ? std::span(s.times) : std::span<float>(),
        watchers.trace,
        watchers.device_spans,
        watchers.nvtx,
    };
    s.timed_profile = profile_;
    if (watch) [[unlikely]] {
      if (runner.run_watched(s.workspace, queue, watch)) note_capture();
    } else if (runner.run(s.workspace, queue)) [[unlikely]] {
      note_capture();
    }
  } catch (...) {
    s.are_times_known = false;
    s.current->shapes.forget_sizes();
    s.is_ready = false;
    throw;
  }
  s.current->shapes.set_sizes_known(!runner.shapes().has_pending());
}

void Context::execute(std::span<void* const> addresses) {
  const size_t inputs = state_->inputs.size(), count = inputs + state_->outputs.size();
  require(addresses.data() != nullptr || count == 0, "the array of addresses is null");
  require(addresses.size() == count, "execute_v2: there are ", addresses.size(),
          " addresses; expected ", count, ", inputs first");
  for (size_t i = 0; i < count; ++i) {
    if (i < inputs)
      set_input_address(static_cast<int>(i), addresses[i]);
    else
      set_output_address(static_cast<int>(i - inputs), addresses[i]);
  }
  enqueue();
  synchronize();
}

void Context::synchronize(Queue queue) {
  const std::shared_ptr<Trace> trace = engine_->trace();
  const TraceSpan span(trace.get(), "wait", "wait for the queue");
  try {
    engine_->device().synchronize(queue);
  } catch (const DeviceLostError& error) {
    fail_lost(error);
  }
  for (const auto& profile : state_->profiles)
    if (profile != nullptr && profile->runner != nullptr) profile->runner->trust_all();
  if (services_.communicator != nullptr && state_->gpu != nullptr)
    state_->gpu->backend().check_communicator(services_.communicator);
}

}  // namespace opwright
