#include "runtime/context.h"

#include <algorithm>
#include <atomic>

#include "backend/last_use.h"
#include "backend/memory.h"
#include "backend/release.h"
#include "base/error.h"
#include "runtime/api_border.h"
#include "runtime/runner.h"
#include "runtime/shape_state.h"

namespace opwright {
namespace {

using Strategy = ExecutionContextAllocationStrategy;

constexpr uint64_t kAlignment = 64;
/// No stream has this handle.
const Queue kNoQueue = reinterpret_cast<Queue>(~uintptr_t{0});

struct ProfileState {
  ProfileState(const Plan& plan, int profile) : shapes(plan, profile) {}
  ShapeState shapes;
  std::unique_ptr<Runner> runner;
};

struct InputState {
  const void* address = nullptr;
};

struct OutputState {
  void* address = nullptr;
  OutputMemory* memory = nullptr;
  size_t bytes = 0;  ///< at the largest shape that it may have
};

void check_alignment(const PlanPort& port, const void* address) {
  const auto size = static_cast<uintptr_t>(bytes_of(port.type.dtype, 1));
  require(reinterpret_cast<uintptr_t>(address) % size == 0, "the address ", address, " of '",
          port.name, "' is not aligned to its elements, which have ", size, " bytes");
}

bool has_elements(const Shape& shape) {
  return std::find(shape.begin(), shape.end(), 0) == shape.end();
}

/// Marks a context as running.
class Running {
 public:
  explicit Running(std::atomic<bool>& flag) : flag_(flag) {}
  ~Running() { flag_.store(false, std::memory_order_release); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

uint64_t context_memory(const Schedule& schedule) {
  return (schedule.arena_size + kAlignment - 1) / kAlignment * kAlignment + schedule.workspace_size;
}

uint64_t context_memory(const Plan& plan) {
  uint64_t largest = 0;
  for (const Schedule& schedule : plan.schedules)
    largest = std::max(largest, context_memory(schedule));
  return largest;
}

struct Context::State {
  const Device* gpu = nullptr;  ///< null: the host itself
  /// Of what the context's kernels use, by its runs; null on the host.
  std::shared_ptr<LastUse> last_use;
  std::vector<std::unique_ptr<ProfileState>> profiles;
  ProfileState* current = nullptr;
  std::atomic<int32_t> current_step = -1;
  std::vector<InputState> inputs;
  std::vector<OutputState> outputs;
  std::vector<int> shape_inputs;
  DeviceMemory arena, own_workspace;
  std::byte* users_memory = nullptr;
  size_t users_bytes = 0;
  void* workspace = nullptr;
  Queue queue = kNoQueue;  ///< the last one that was checked
  void* input_consumed = nullptr;
  LayerTimeCallback callback;
  std::vector<float> times;
  bool are_times_known = false;
  bool has_output_memory = false;
  /// Shapes, kernels, memory and addresses are as the next run needs them.
  bool is_ready = false;
  std::atomic<bool> is_running = false;

  bool shape_values_changed() const {
    for (const int input : shape_inputs) {
      if (current->shapes.differs(input, inputs[input].address)) return true;
    }
    return false;
  }
};

Context::Context(std::shared_ptr<const Engine> engine, int profile)
    : engine_(std::move(engine)),
      errors_(engine_->log(), engine_->errors().recorder()),
      services_{errors_.recorder(), engine_->allocator(), nullptr},
      state_(std::make_unique<State>()) {
  const Plan& plan = engine_->plan();
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
  set_profile(profile);
}

/// Waits for the last run, so that plugins, which may have memory of their own, and weights go
/// when nothing uses them any more.
Context::~Context() {
  if (state_->last_use != nullptr) state_->last_use->finish();
  release_on(engine_->device(), [&] { state_.reset(); });
}

void Context::fail_running(const char* what) const {
  fail_with(ErrorCode::kINVALID_STATE, "this execution context of ", engine_->name(),
            " is running and cannot be ", what,
            " meanwhile; a plugin that runs the engine within its own call, and another thread, "
            "need a context of their own (create_execution_context)");
}

void Context::check_idle(const char* what) const {
  if (state_->is_running.load(std::memory_order_relaxed)) [[unlikely]]
    fail_running(what);
}

void Context::set_error_recorder(IErrorRecorder* recorder) {
  services_.recorder = recorder;
  errors_.set_recorder(recorder);
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
  if (profile != profile_ && strategy_ == Strategy::kON_PROFILE_CHANGE) release_memory();
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
  for (size_t i = 0; i < state_->inputs.size(); ++i) {
    if (!is_set(static_cast<int>(i))) return false;
  }
  return true;
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

/// Lets shapes know the sizes that the last run computed.
void Context::settle_sizes() {
  State& s = *state_;
  Runner* const runner = s.current->runner.get();
  if (runner == nullptr || !runner->has_pending_sizes()) return;
  const DeviceScope scope(*s.gpu);
  try {
    runner->settle_sizes();
  } catch (const DeviceLostError& error) {
    fail_lost(error);
  } catch (...) {
    s.current->shapes.forget_sizes();
    s.is_ready = false;
    throw;
  }
  s.current->shapes.set_sizes_known(true);
}

/// Adds who may have done it: kernels fail when they run, not when they are given to the queue.
void Context::fail_lost(const DeviceLostError& error) const {
  const std::string message = error.what();
  const Runner* const runner = state_->current->runner.get();
  if (runner == nullptr || message.starts_with("layer '")) throw error;
  const std::string list = runner->suspects();
  if (list.empty()) throw error;
  // Once is enough, whoever catches it on the way.
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

size_t Context::input_bytes(int input) const {
  const PortType type = engine_->plan().inputs[input].type;
  return static_cast<size_t>(tensor_bytes(input_shape(input), type.dtype, type.format));
}

/// Throws Error for an address that is not the device's.
void Context::check_address(const PlanPort& port, const char* kind, const void* address,
                            size_t bytes) const {
  if (state_->gpu == nullptr || port.is_shape_input || address == nullptr || bytes == 0) return;
  state_->gpu->check_address(address, bytes, str(kind, " '", port.name, "'"));
}

Shape Context::max_output_shape(int output) {
  output_shape(output);
  return state_->current->shapes.max_output_shape(output);
}

void Context::set_input_address(int input, const void* address) {
  check_idle("given another address");
  State& s = *state_;
  const auto& outputs = engine_->plan().outputs;
  const PlanPort& port = engine_->plan().inputs[input];
  check_alignment(port, address);
  const bool is_new = address != s.inputs[input].address;
  if (port.is_shape_input && s.gpu != nullptr && is_new && address != nullptr)
    s.gpu->check_host_address(address, str("input '", port.name, "', whose values decide shapes,"));
  if (s.is_ready && is_new) check_address(port, "input", address, input_bytes(input));
  s.inputs[input].address = address;
  const bool is_aliased = std::any_of(outputs.begin(), outputs.end(), [&](const PlanPort& port) {
    return port.aliased_input == input;
  });
  if (address == nullptr || is_aliased) {
    s.is_ready = false;
  } else if (s.is_ready) {
    s.current->runner->set_input(input, address);
  }
}

void Context::set_output_address(int output, void* address) {
  check_idle("given another address");
  State& s = *state_;
  const PlanPort& port = engine_->plan().outputs[output];
  check_alignment(port, address);
  if (s.is_ready && address != s.outputs[output].address)
    check_address(port, "output", address, s.outputs[output].bytes);
  s.outputs[output].address = address;
  if (address == nullptr || port.aliased_input >= 0) {
    s.is_ready = false;
  } else if (s.is_ready) {
    s.current->runner->set_output(output, address);
  }
}

const void* Context::input_address(int input) const { return state_->inputs[input].address; }
void* Context::output_address(int output) const { return state_->outputs[output].address; }

void Context::set_output_memory(int output, OutputMemory* memory) {
  check_idle("given another output allocator");
  State& s = *state_;
  s.outputs[output].memory = memory;
  s.has_output_memory =
      std::any_of(s.outputs.begin(), s.outputs.end(),
                  [](const OutputState& state) { return state.memory != nullptr; });
  s.is_ready = false;
}

void Context::set_input_consumed_event(void* event) {
  check_idle("given another event");
  require(event == nullptr || state_->gpu != nullptr, "an event for consumed inputs was set, but ",
          engine_->name(),
          " runs on the CPU, which has no CUDA events: inputs are read when enqueue returns");
  state_->input_consumed = event;
  state_->is_ready = false;
}

void* Context::input_consumed_event() const { return state_->input_consumed; }

void Context::set_layer_time_callback(LayerTimeCallback callback) {
  check_idle("given another profiler");
  state_->callback = std::move(callback);
}

size_t Context::memory_size() const { return state_->arena.size() + state_->own_workspace.size(); }

/// The context's own, which the next run takes anew.
void Context::release_memory() {
  release_on(engine_->device(), [&] {
    state_->arena.reset();
    state_->own_workspace.reset();
  });
  state_->is_ready = false;
}

void Context::set_memory_strategy(Strategy strategy) {
  check_idle("given another allocation strategy");
  strategy_ = strategy;
  release_memory();
}

/// The bytes that memory of the user must have.
uint64_t Context::needed_of_user() const {
  const Schedule& schedule = engine_->plan().schedules[profile_];
  return strategy_ == Strategy::kUSER_MANAGED ? context_memory(schedule) : schedule.arena_size;
}

void* Context::users_memory() const { return state_->users_memory; }

void Context::set_memory(void* memory, size_t bytes) {
  check_idle("given other memory");
  State& s = *state_;
  if (memory != nullptr) {
    const uint64_t needed = needed_of_user();
    require(bytes >= needed, "the memory given to the context has ", bytes, " bytes, profile ",
            profile_, " needs ", needed);
    require(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0,
            "the memory given to the context, ", memory, ", is not aligned to ", kAlignment,
            " bytes");
    if (s.gpu != nullptr && needed > 0)
      s.gpu->check_address(memory, needed, "the memory given to the context");
    release_on(engine_->device(), [&] { s.arena.reset(); });
  }
  s.users_memory = static_cast<std::byte*>(memory);
  s.users_bytes = memory == nullptr ? 0 : bytes;
  s.is_ready = false;
}

void Context::place_memory() {
  State& s = *state_;
  const Plan& plan = engine_->plan();
  const uint64_t arena_size = plan.schedules[profile_].arena_size;
  const size_t workspace_size = s.current->runner->workspace_size();
  std::byte* arena = s.users_memory;
  if (arena == nullptr) {
    if (strategy_ == Strategy::kUSER_MANAGED && context_memory(plan.schedules[profile_]) > 0) {
      fail_with(ErrorCode::kINVALID_STATE,
                "the context was made with the strategy USER_MANAGED, so it needs memory of ",
                context_memory(plan.schedules[profile_]),
                " bytes before it can run: setDeviceMemoryV2(), in Python set_device_memory()");
    }
    // Once, for the largest profile; tensors without elements may begin at its very end.
    uint64_t largest = arena_size;
    if (strategy_ != Strategy::kON_PROFILE_CHANGE) {
      for (const Schedule& schedule : plan.schedules)
        largest = std::max(largest, schedule.arena_size);
    }
    s.arena.grow(engine_->device(), largest + kAlignment, engine_->memory_allocator(), s.last_use);
    arena = s.arena.data();
  } else {
    require(s.users_bytes >= needed_of_user(), "the memory given to the context has ",
            s.users_bytes, " bytes, profile ", profile_, " needs ", needed_of_user());
  }
  const uint64_t behind = (arena_size + kAlignment - 1) / kAlignment * kAlignment;
  if (s.users_bytes >= behind && s.users_bytes - behind >= workspace_size && s.users_memory) {
    s.workspace = s.users_memory + behind;
  } else {
    s.own_workspace.grow(engine_->device(), workspace_size + kAlignment,
                         engine_->memory_allocator(), s.last_use);
    s.workspace = s.own_workspace.data();
  }
  s.current->runner->set_arena(arena);
}

void Context::check_addresses() {
  State& s = *state_;
  const Plan& plan = engine_->plan();
  Runner& runner = *s.current->runner;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const int input = static_cast<int>(i);
    const void* address = s.inputs[i].address;
    if (address == nullptr) {
      require(!has_elements(input_shape(input)), "the address of input '", plan.inputs[i].name,
              "' is not set");
      address = engine_->weights().empty();
    }
    check_address(plan.inputs[i], "input", s.inputs[i].address, input_bytes(input));
    runner.set_input(input, address);
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanPort& port = plan.outputs[i];
    OutputState& output = s.outputs[i];
    const Shape shape = s.current->shapes.max_output_shape(static_cast<int>(i));
    output.bytes = static_cast<size_t>(tensor_bytes(shape, port.type.dtype, port.type.format));
    if (output.memory != nullptr) continue;  // the address comes with the run
    void* address = output.address;
    if (port.aliased_input >= 0) {
      void* const shared = const_cast<void*>(s.inputs[port.aliased_input].address);
      require(address == nullptr || address == shared, "output '", port.name,
              "' is computed in the memory of input '", plan.inputs[port.aliased_input].name,
              "', but its address is another one; set the same address or none");
      address = shared;
    }
    if (address == nullptr) {
      require(!has_elements(shape), "the address of output '", port.name, "' is not set");
      address = engine_->weights().empty();
    } else if (port.aliased_input < 0) {
      check_address(port, "output", address, output.bytes);
    }
    runner.set_output(static_cast<int>(i), address);
  }
}

int Context::current_step() const { return state_->current_step.load(std::memory_order_relaxed); }

/// Everything that may be slow or fail because of what the caller set.
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
  if (s.current->runner == nullptr) {
    s.current->runner =
        std::make_unique<Runner>(*engine_, profile_, shapes, services_, s.current_step);
  }
  place_memory();
  check_addresses();
  s.current->runner->refresh();
  s.current->runner->set_input_event(s.input_consumed);
  s.times.resize(plan.schedules[profile_].steps.size());
  s.is_ready = true;
}

void Context::request_outputs() {
  State& s = *state_;
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    OutputState& output = s.outputs[i];
    if (output.memory == nullptr) continue;
    const int number = static_cast<int>(i);
    void* address =
        output.memory->reallocate(number, output.address, std::max<size_t>(1, output.bytes));
    const PlanPort& port = engine_->plan().outputs[i];
    if (address == nullptr) {
      fail_with(ErrorCode::kFAILED_ALLOCATION, "the output allocator gave no memory for output '",
                port.name, "', which takes up to ", output.bytes, " bytes");
    }
    check_alignment(port, address);
    if (address != output.address) check_address(port, "output", address, output.bytes);
    output.address = address;
    s.current->runner->set_output(number, address);
  }
}

void Context::report_run() {
  State& s = *state_;
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    if (s.outputs[i].memory == nullptr) continue;
    const int output = static_cast<int>(i);
    if (s.current->shapes.depends_on_sizes(output)) settle_sizes();
    s.outputs[i].memory->notify_shape(output, s.current->shapes.output_shape(output));
  }
  if (!s.callback || !s.are_times_known) return;
  const auto& steps = engine_->plan().schedules[profile_].steps;
  for (size_t i = 0; i < steps.size(); ++i) s.callback(steps[i].name, s.times[i]);
}

void Context::enqueue(Queue queue) {
  State& s = *state_;
  const ThreadLimit limit(engine_->max_threads());
  {
    if (s.is_running.exchange(true, std::memory_order_acquire)) [[unlikely]]
      fail_running("run again");
    const Running running(s.is_running);
    if (s.gpu == nullptr) {
      run(queue);
    } else {
      const DeviceScope scope(*s.gpu);
      if (queue != s.queue) [[unlikely]]
        change_queue(queue);
      try {
        run(queue);
      } catch (const DeviceLostError& error) {
        fail_lost(error);
      }
    }
  }
  if (s.has_output_memory || s.callback) report_run();
}

/// Runs use the same memory, so that one on another queue comes after those before it.
void Context::change_queue(Queue queue) {
  State& s = *state_;
  s.gpu->check_queue(queue);
  const bool is_captured = s.gpu->is_capturing(queue);
  s.last_use->move_to(queue, is_captured);
  if (is_captured) engine_->weights().lose_last_use();
  s.queue = queue;
}

void Context::run(Queue queue) {
  State& s = *state_;
  if (!s.is_ready || (!s.shape_inputs.empty() && s.shape_values_changed())) [[unlikely]]
    prepare();
  Runner& runner = *s.current->runner;
  if (runner.has_pending_sizes()) [[unlikely]]
    settle_sizes();
  if (s.has_output_memory) request_outputs();
  try {
    s.are_times_known = false;
    if (s.callback) [[unlikely]] {
      // Nothing may be waited for while the caller captures what the queue is given.
      s.are_times_known = s.gpu == nullptr || !s.gpu->is_capturing(queue);
    }
    if (s.are_times_known) [[unlikely]] {
      runner.run_timed(s.workspace, queue, s.times);
    } else if (runner.run(s.workspace, queue)) [[unlikely]] {
      s.last_use->lose();
      engine_->weights().lose_last_use();
    }
  } catch (...) {
    s.current->shapes.forget_sizes();
    s.is_ready = false;
    throw;
  }
  s.current->shapes.set_sizes_known(!runner.has_pending_sizes());
}

void Context::synchronize(Queue queue) {
  try {
    engine_->device().synchronize(queue);
  } catch (const DeviceLostError& error) {
    fail_lost(error);
  }
  for (const auto& profile : state_->profiles)
    if (profile != nullptr && profile->runner != nullptr) profile->runner->trust_all();
}

}  // namespace opwright
