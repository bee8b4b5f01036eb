// Where a context's tensors lie: in memory that the caller gives, and in memory of its own.

#include "backend/release.h"
#include "base/error.h"
#include "base/limits.h"
#include "runtime/context_state.h"

namespace opwright {
namespace {

using Strategy = ExecutionContextAllocationStrategy;

constexpr uint64_t kAlignment = 64;

void check_alignment(const PlanPort& port, const void* address) {
  const auto size = static_cast<uintptr_t>(bytes_of(port.type.dtype, 1));
  require(reinterpret_cast<uintptr_t>(address) % size == 0, "the address ", address, " of '",
          port.name, "' is not aligned to its elements, which have ", size, " bytes");
}

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

/// Throws Error for an address that is not the device's. False where the memory there is too small
/// for the current shape: another shape may follow, and the run checks again.
bool Context::fits(const PlanPort& port, const char* kind, const void* address,
                   size_t bytes) const {
  try {
    check_address(port, kind, address, bytes);
    return true;
  } catch (const Error&) {
    check_address(port, kind, address, 1);
    return false;
  }
}

/// Throws Error for an aliased output's address if the copy to it would overwrite the copy's
/// source.
void Context::check_apart(int output, const void* address) const {
  const PlanPort& port = engine_->plan().outputs[output];
  if (port.aliased_input < 0) return;
  const void* const shared = state_->inputs[port.aliased_input].address;
  const auto to = reinterpret_cast<uintptr_t>(address), from = reinterpret_cast<uintptr_t>(shared);
  if (to == from || to + state_->outputs[output].bytes <= from ||
      from + input_bytes(port.aliased_input) <= to)
    return;
  fail("output '", port.name, "' at ", address, " overlaps input '",
       engine_->plan().inputs[port.aliased_input].name, "' at ", shared,
       ", in whose memory it is computed; give it the same address, or memory of its own");
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
  if (s.is_ready && is_new) s.is_ready = fits(port, "input", address, input_bytes(input));
  s.inputs[input].address = address;
  const bool is_aliased = std::any_of(outputs.begin(), outputs.end(), [&](const PlanPort& port) {
    return port.aliased_input == input;
  });
  if (address == nullptr || (is_aliased && is_new)) {
    s.is_ready = false;
  } else if (s.is_ready) {
    s.current->runner->table().set_input(input, address);
  }
}

void Context::set_output_address(int output, void* address) {
  check_idle("given another address");
  State& s = *state_;
  const PlanPort& port = engine_->plan().outputs[output];
  check_alignment(port, address);
  const bool is_new = address != s.outputs[output].address;
  if (s.is_ready && is_new) s.is_ready = fits(port, "output", address, s.outputs[output].bytes);
  s.outputs[output].address = address;
  if (address == nullptr || (port.aliased_input >= 0 && is_new)) {
    s.is_ready = false;
  } else if (s.is_ready) {
    s.current->runner->table().set_output(output, address);
  }
}

void Context::set_tensor_address(std::string_view name, void* address) {
  const Port& port = engine_->port(name);
  port.is_input ? set_input_address(port.index, address) : set_output_address(port.index, address);
}

void* Context::tensor_address(std::string_view name) const {
  const Port& port = engine_->port(name);
  return port.is_input ? const_cast<void*>(input_address(port.index)) : output_address(port.index);
}

const void* Context::input_address(int input) const { return state_->inputs[input].address; }
void* Context::output_address(int output) const { return state_->outputs[output].address; }

void Context::set_output_memory(int output, std::shared_ptr<OutputMemory> memory) {
  check_idle("given another output allocator");
  State& s = *state_;
  s.outputs[output].memory = std::move(memory);
  s.has_output_memory =
      std::any_of(s.outputs.begin(), s.outputs.end(),
                  [](const OutputState& state) { return state.memory != nullptr; });
  s.is_ready = false;
}

OutputMemory* Context::output_memory(int output) const {
  return state_->outputs[output].memory.get();
}

size_t Context::memory_size() const { return state_->scratch.memory_size(); }

/// Releases the context's own memory, which the next run allocates anew. The memory is freed after
/// the last run (LastUse).
void Context::release_memory() {
  release_on(engine_->device(), [&] { state_->scratch.release(); });
  state_->is_ready = false;
}

void Context::set_memory_strategy(Strategy strategy) {
  check_idle("given another allocation strategy");
  strategy_ = strategy;
  release_memory();
}

/// The least bytes of memory that the user gives.
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
    release_on(engine_->device(), [&] { s.scratch.release_arena(); });
  }
  s.users_memory = static_cast<std::byte*>(memory);
  s.users_bytes = memory == nullptr ? 0 : bytes;
  s.is_ready = false;
}

uint64_t Context::memory_size_for_shapes() const {
  require(all_shapes_set(), "the shapes of all inputs must be set first");
  return engine_->memory_size(profile_);
}

void Context::set_memory(void* memory) {
  set_memory(memory, context_memory(engine_->plan().schedules[profile_]));
}

void Context::place_memory() {
  State& s = *state_;
  const Plan& plan = engine_->plan();
  const uint64_t arena_size = plan.schedules[profile_].arena_size;
  const size_t workspace_size = s.current->runner->table().workspace_size;
  // The kernels' actual demand counts, not the plan's claim about it.
  const uint64_t limit = engine_->limits().memory;
  require_bytes(workspace_size, limit, "memory", "scratch memory of profile ", profile_, " needs");
  require_bytes(arena_size + workspace_size, limit, "memory", "profile ", profile_, " needs");
  uint64_t own_arena = 0;
  if (s.users_memory == nullptr) {
    if (strategy_ == Strategy::kUSER_MANAGED && context_memory(plan.schedules[profile_]) > 0) {
      fail_with(ErrorCode::kINVALID_STATE,
                "the context was made with the strategy USER_MANAGED, so it needs memory of ",
                context_memory(plan.schedules[profile_]),
                " bytes before it can run: setDeviceMemoryV2(), in Python set_device_memory()");
    }
    // Allocated once, for the largest profile. Tensors without elements may begin at the arena's
    // very end.
    own_arena = arena_size;
    if (strategy_ != Strategy::kON_PROFILE_CHANGE) {
      for (const Schedule& schedule : plan.schedules)
        own_arena = std::max(own_arena, schedule.arena_size);
    }
    own_arena += kAlignment;
  } else {
    require(s.users_bytes >= needed_of_user(), "the memory given to the context has ",
            s.users_bytes, " bytes, profile ", profile_, " needs ", needed_of_user());
  }
  const uint64_t behind = (arena_size + kAlignment - 1) / kAlignment * kAlignment;
  const bool is_workspace_behind = s.users_memory != nullptr && s.users_bytes >= behind &&
                                   s.users_bytes - behind >= workspace_size;
  s.scratch.place(engine_->device(), own_arena,
                  is_workspace_behind ? 0 : workspace_size + kAlignment,
                  engine_->memory_allocator(), s.last_use);
  s.workspace = is_workspace_behind ? s.users_memory + behind : s.scratch.workspace();
  s.current->runner->set_arena(s.users_memory != nullptr ? s.users_memory : s.scratch.arena());
}

void Context::check_addresses() {
  State& s = *state_;
  const Plan& plan = engine_->plan();
  RunTable& table = s.current->runner->table();
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const int input = static_cast<int>(i);
    const void* address = s.inputs[i].address;
    if (address == nullptr) {
      require(!has_elements(input_shape(input)), "the address of input '", plan.inputs[i].name,
              "' is not set");
      address = table.empty_address();
    }
    check_address(plan.inputs[i], "input", s.inputs[i].address, input_bytes(input));
    table.set_input(input, address);
  }
  uint64_t memory = context_memory(plan.schedules[profile_]);
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanPort& port = plan.outputs[i];
    OutputState& output = s.outputs[i];
    const Shape shape = s.current->shapes.max_output_shape(static_cast<int>(i));
    output.bytes = static_cast<size_t>(tensor_bytes(shape, port.type.dtype, port.type.format));
    memory += output.bytes;
    require_bytes(memory, engine_->limits().memory, "memory", "with output '", port.name, "' of ",
                  shape, " the run needs");
    if (output.memory != nullptr) continue;  // the run asks for the address
    void* address = output.address;
    if (port.aliased_input >= 0 && address == nullptr)
      address = const_cast<void*>(s.inputs[port.aliased_input].address);
    if (address == nullptr) {
      require(!has_elements(shape), "the address of output '", port.name, "' is not set");
      address = table.empty_address();
    } else {
      check_apart(static_cast<int>(i), address);
      check_address(port, "output", address, output.bytes);
    }
    table.set_output(static_cast<int>(i), address);
  }
}

void Context::request_outputs(Queue queue) {
  State& s = *state_;
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    OutputState& output = s.outputs[i];
    if (output.memory == nullptr) continue;
    const int number = static_cast<int>(i);
    const PlanPort& port = engine_->plan().outputs[i];
    void* address = output.memory->reallocate(
        {port.name, output.address, std::max<size_t>(1, output.bytes), kAlignment, queue});
    if (address == nullptr) {
      fail_with(ErrorCode::kFAILED_ALLOCATION, "the output allocator gave no memory for output '",
                port.name, "', which takes up to ", output.bytes, " bytes");
    }
    check_alignment(port, address);
    check_apart(number, address);
    if (address != output.address) check_address(port, "output", address, output.bytes);
    output.address = address;
    s.current->runner->table().set_output(number, address);
  }
}

}  // namespace opwright
