#include "run/run_plan.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/types.h"
#include "run/layout.h"
#include "run/pages.h"
#include "run/seed_plugins.h"
#include "runtime/context.h"
#include "runtime/inspect.h"
#include "runtime/refitter.h"

namespace opwright::fuzz {

Counts counts;

namespace {

constexpr uint64_t kMaxMemory = uint64_t{64} << 20;
constexpr int64_t kMaxTensor = int64_t{4} << 20;

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "fuzz: %s\n", text.c_str());
  std::abort();
}

class Silent final : public ILogger {
  void log(Severity, char const*) noexcept override {}
};

/// What is larger than a harness wants to run.
class TooLarge {};

GuardedPool& weights_pool() {
  static auto* const pool = new GuardedPool();
  return *pool;
}
GuardedPool& ports_pool() {
  static auto* const pool = new GuardedPool();
  return *pool;
}
GuardedArena& arena() {
  static auto* const made = new GuardedArena();
  return *made;
}

Blob guarded(const Blob& data) {
  if (data.size() == 0 || data.size() > static_cast<size_t>(kMaxTensor)) return data;
  std::byte* const copy = weights_pool().allocate(data.size(), 64);
  std::memcpy(copy, data.data(), data.size());
  return Blob(nullptr, copy, data.size());
}

/// Every weight of its own.
void guard_weights(Plan& plan) {
  for (Schedule& schedule : plan.schedules) {
    for (PlanTensor& tensor : schedule.tensors) tensor.data = guarded(tensor.data);
    for (PlanStep& step : schedule.steps)
      for (PackedInput& packed : step.packed) packed.data = guarded(packed.data);
  }
  for (RefitWeight& weight : plan.refit.weights) weight.data = guarded(weight.data);
  for (RefitValue& value : plan.refit.values) value.data = guarded(value.data);
}

Plan stored_and_read(const Plan& plan) {
  const std::vector<Blob> pieces = serialize(plan);
  size_t size = 0;
  for (const Blob& piece : pieces) size += piece.size();
  if (size > static_cast<size_t>(kMaxTensor)) throw TooLarge();
  std::byte* const file = weights_pool().allocate(size, 64);
  size_t at = 0;
  for (const Blob& piece : pieces) {
    if (piece.size() > 0) std::memcpy(file + at, piece.data(), piece.size());
    at += piece.size();
  }
  return deserialize(Blob(nullptr, file, size));
}

/// Elements as the script says: small numbers, special ones, any bytes.
void fill(void* memory, size_t bytes, DataType type, Script& script) {
  auto* const to = static_cast<uint8_t*>(memory);
  const size_t how = script.below(4);
  Random random(script.byte());
  const auto width = static_cast<size_t>(std::max(bits(type) / 8, 1));
  const size_t count = bytes / width;
  for (size_t i = 0; i < count; ++i) {
    int64_t number = static_cast<int64_t>(random.below(7)) - (how == 0 ? 0 : 3);
    double fraction = static_cast<double>(random.below(400)) / 100 - 2;
    if (how == 2 && random.below(8) == 0) {
      number = script.number(static_cast<int64_t>(i));
      fraction = script.fraction(1);
    }
    uint64_t element = 0;
    const auto single = static_cast<float>(fraction);
    if (how == 3) {
      element = random();
    } else if (type == DataType::kFLOAT) {
      std::memcpy(&element, &single, 4);
    } else if (type == DataType::kHALF) {
      element = how == 2 ? random() : 0x3800 + random.below(0x800);
    } else if (type == DataType::kBF16) {
      uint32_t wide = 0;
      std::memcpy(&wide, &single, 4);
      element = wide >> 16;
    } else if (type == DataType::kBOOL) {
      element = static_cast<uint64_t>(number) & 1;
    } else {
      element = static_cast<uint64_t>(number);
    }
    std::memcpy(to + i * width, &element, width);
  }
}

/// Gives a run exactly the bytes that it asks for.
class Provider final : public OutputMemory {
 public:
  void* reallocate(const OutputRequest& request) override {
    data = ports_pool().allocate(request.bytes, 64);
    size = request.bytes;
    return data;
  }
  void notify_shape(const std::string&, const Shape&) override {}
  std::byte* data = nullptr;
  size_t size = 0;
};

/// One engine and its context.
class Session {
 public:
  Session(std::shared_ptr<Engine> engine, bool is_guarded, std::string* log)
      : engine_(std::move(engine)),
        plan_(engine_->plan()),
        is_guarded_(is_guarded),
        log_(log),
        context_(engine_) {
    if (is_guarded_)
      context_.set_memory_strategy(ExecutionContextAllocationStrategy::kUSER_MANAGED);
  }

  Context& context() { return context_; }

  /// Sets everything and runs. `place`: 0 to 2 stand for the profile's minimum, optimum and
  /// maximum, others for something between. Gives the outputs' bytes.
  std::vector<std::vector<uint8_t>> run(Script& script, int profile, int place) {
    ports_pool().reset();
    const Schedule& schedule = plan_.schedules[profile];
    const uint8_t pattern = static_cast<uint8_t>(script.byte() | 1);
    context_.set_profile(profile);
    if (is_guarded_) {
      const uint64_t bytes = context_memory(schedule);
      if (bytes > kMaxMemory) throw TooLarge();
      for (const auto& [first, last] : used_ranges(schedule))
        if (last < first || last > bytes) die("a tensor beyond the arena was accepted");
      std::byte* const memory = arena().place(used_ranges(schedule), bytes, pattern);
      context_.set_memory(memory, bytes);
    }
    note("profile ", profile, ", place ", place);
    set_inputs(script, schedule, place);
    std::vector<std::pair<std::byte*, size_t>> outputs = set_outputs(script, pattern);
    context_.enqueue();
    ++counts.runs;
    check_inputs();
    for (const auto& [output, provider] : providers_)
      outputs[static_cast<size_t>(output)] = {provider->data, provider->size};
    std::vector<std::vector<uint8_t>> bytes;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto* from = reinterpret_cast<const uint8_t*>(outputs[i].first);
      bytes.emplace_back(from, from + outputs[i].second);
      // What is known afterwards has to be within.
      const Shape shape = context_.output_shape(static_cast<int>(i));
      const PortType type = plan_.outputs[i].type;
      if (tensor_bytes(shape, type.dtype, type.format) > static_cast<int64_t>(outputs[i].second))
        die("an output is larger than its largest shape");
    }
    return bytes;
  }

  /// Those of the last run(), which may have ended before they were looked at.
  void check_inputs() {
    for (const Input& input : inputs_)
      if (!input.is_aliased && !input.copy.empty() &&
          std::memcmp(input.copy.data(), input.data, input.copy.size()) != 0)
        die("an input has other contents after the run");
    inputs_.clear();
  }

 private:
  struct Input {
    const std::byte* data;
    std::vector<std::byte> copy;
    bool is_aliased;
  };

  template <class... Parts>
  void note(const Parts&... parts) {
    if (log_ != nullptr) *log_ += str("run: ", parts..., "\n");
  }

  std::byte* allocate(size_t bytes, DataType type, Script& script) {
    const auto element = static_cast<size_t>(std::max(bits(type) / 8, 1));
    return ports_pool().allocate(bytes, script.chance(3) ? 64 : element);
  }

  static int64_t between(int64_t low, int64_t middle, int64_t high, int place) {
    if (place == 0) return low;
    if (place == 1) return middle;
    if (place == 2) return high;
    const auto range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    const uint64_t part = range < 4096 ? range * static_cast<uint64_t>(place) / 256
                                       : range / 256 * static_cast<uint64_t>(place);
    return static_cast<int64_t>(static_cast<uint64_t>(low) + part);
  }

  void set_inputs(Script& script, const Schedule& schedule, int place) {
    inputs_.clear();
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      const PlanPort& port = plan_.inputs[i];
      const ProfileInput& range = schedule.inputs[i];
      // Mostly the same place for all, so that dimensions with one name agree.
      const int own = script.chance(24) ? script.byte() : place;
      Shape extents;
      for (int d = 0; d < range.min.rank(); ++d)
        extents.push_back(between(range.min[d], range.opt[d], range.max[d], own));
      Shape shape = range.values ? context_.input_shape(input) : extents;
      if (!range.values) context_.set_input_shape(input, shape);
      const int64_t bytes = tensor_bytes(shape, port.type.dtype, port.type.format);
      if (bytes > kMaxTensor) throw TooLarge();
      const auto size = static_cast<size_t>(bytes);
      std::byte* const data = allocate(size, port.type.dtype, script);
      if (range.values) {
        const size_t width = port.type.dtype == DataType::kINT32 ? 4 : 8;
        for (int d = 0; d < extents.rank(); ++d) {
          const int64_t value = script.chance(30) ? script.number(extents[d]) : extents[d];
          std::memcpy(data + static_cast<size_t>(d) * width, &value, width);
        }
      } else {
        fill(data, size, port.type.dtype, script);
      }
      note("input ", i, " ", shape);
      context_.set_input_address(input, data);
      inputs_.push_back(
          {data, std::vector<std::byte>(data, data + size),
           std::any_of(plan_.outputs.begin(), plan_.outputs.end(),
                       [&](const PlanPort& output) { return output.aliased_input == input; })});
    }
  }

  std::vector<std::pair<std::byte*, size_t>> set_outputs(Script& script, uint8_t pattern) {
    std::vector<std::pair<std::byte*, size_t>> outputs;
    for (const auto& [output, provider] : providers_) context_.set_output_memory(output, nullptr);
    providers_.clear();
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const int output = static_cast<int>(i);
      const PlanPort& port = plan_.outputs[i];
      const Shape shape = context_.max_output_shape(output);
      const int64_t bytes = tensor_bytes(shape, port.type.dtype, port.type.format);
      if (bytes > kMaxTensor) throw TooLarge();
      const auto size = static_cast<size_t>(bytes);
      if (script.chance(16)) {
        note("output ", i, " ", shape, " in memory that is asked for");
        providers_[output] = std::make_shared<Provider>();
        context_.set_output_memory(output, providers_[output]);
        outputs.emplace_back(nullptr, 0);
        continue;
      }
      if (port.aliased_input >= 0 && script.chance(2)) {
        // It is computed in the input's memory.
        context_.set_output_address(output, nullptr);
        const Input& input = inputs_[static_cast<size_t>(port.aliased_input)];
        if (size > input.copy.size()) die("an aliased output is larger than its input");
        outputs.emplace_back(const_cast<std::byte*>(input.data), size);
        continue;
      }
      std::byte* const data = allocate(size, port.type.dtype, script);
      std::memset(data, pattern, size);
      note("output ", i, " ", shape);
      context_.set_output_address(output, data);
      outputs.emplace_back(data, size);
    }
    return outputs;
  }

  std::shared_ptr<Engine> engine_;
  const Plan& plan_;
  bool is_guarded_;
  std::string* log_;
  std::map<int, std::shared_ptr<Provider>> providers_;
  Context context_;
  std::vector<Input> inputs_;
};

LoadOptions load_options() {
  static Silent logger;
  LoadOptions options;
  options.log = Log(&logger);
  options.plugins = &seed_registry();
  options.max_threads = 1;
  options.limits.memory = kMaxMemory;
  options.limits.steps = 1000;
  options.limits.expressions = 10000;
  return options;
}

/// Gives the engine all its weights anew.
void refit(const std::shared_ptr<Engine>& engine, Script& script) {
  Refitter refitter(engine);
  for (size_t i = 0; i < refitter.weights().size(); ++i) {
    const RefitWeight& weight = refitter.weights()[i];
    const int64_t count = weight.shape.numel(), bytes = bytes_of(weight.dtype, count);
    if (bytes > kMaxTensor) throw TooLarge();
    std::byte* const data = weights_pool().allocate(static_cast<size_t>(bytes), 64);
    fill(data, static_cast<size_t>(bytes), weight.dtype, script);
    refitter.set(static_cast<int>(i), weight.dtype, count,
                 Blob(nullptr, data, static_cast<size_t>(bytes)));
  }
  refitter.refit();
}

/// Looks at all that the listener is told of.
bool listen(const DebugView& view) {
  const auto* from = static_cast<const volatile uint8_t*>(view.address);
  const int64_t bytes = bytes_of(view.type, view.shape.numel());
  uint8_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum = static_cast<uint8_t>(sum + from[i]);
  if (view.name.empty() && sum == 1) throw Error(ErrorCode::kINVALID_ARGUMENT, "refused");
  return true;
}

void load_and_run(Plan plan, Script& script, std::string* log) {
  const uint8_t mode = script.byte();
  const auto note = [&](const auto&... parts) {
    if (log != nullptr) *log += str(parts..., "\n");
  };
  std::shared_ptr<Engine> engine;
  try {
    if (mode % 4 == 3) {
      note("stored and read");
      plan = stored_and_read(plan);
    } else {
      guard_weights(plan);
      validate(plan);
    }
    if (mode % 8 >= 6) {
      note("inspected");
      inspect_text(plan);
      inspect_json(plan);
    }
    for (const Schedule& schedule : plan.schedules)
      if (schedule.arena_size > kMaxMemory || schedule.workspace_size > kMaxMemory) {
        // Only what is refused may be that large.
        engine = Engine::load(std::move(plan), load_options());
        throw TooLarge();
      }
    engine = Engine::load(std::move(plan), load_options());
    if (!engine->absent_weights().empty() ||
        (mode / 8 % 4 == 3 && !engine->plan().refit.weights.empty())) {
      note("refitted");
      refit(engine, script);
    }
  } catch (const Error& error) {
    note("refused: ", error.what());
    ++counts.refused;
    return;
  }
  const bool is_guarded = mode / 32 % 8 != 7;
  std::unique_ptr<Session> session;
  try {
    session = std::make_unique<Session>(engine, is_guarded, log);
    if (mode / 64 == 2)
      session->context().set_layer_time_callback([](const std::string&, float) {});
    if (mode / 64 == 1) {
      session->context().set_debug_listener(listen);
      session->context().set_all_debug_states(true);
      if (script.chance(2)) session->context().set_unfused_debug_state(true);
    }
  } catch (const Error& error) {
    note("refused: ", error.what());
    ++counts.errors;
    if (session == nullptr) return;
  }
  const auto profiles = static_cast<int>(engine->plan().schedules.size());
  const int rounds = 1 + static_cast<int>(script.below(3));
  for (int round = 0; round < rounds; ++round) {
    const int profile = static_cast<int>(script.below(profiles));
    static constexpr int kPlaces[] = {1, 2, 0, 2, 100, 37, 200};
    const int place = kPlaces[script.below(std::size(kPlaces))];
    try {
      session->run(script, profile, place);
    } catch (const Error& error) {
      note("error: ", error.what());
      ++counts.errors;
      session->check_inputs();
    } catch (const std::bad_alloc&) {
      note("no memory");
      ++counts.errors;
    } catch (const TooLarge&) {
      note("too large for the harness");
      ++counts.too_large;
    }
  }
}

}  // namespace

void run_plan(Plan plan, Script& script, std::string* log) {
  ++counts.plans;
  seed_registry();
  weights_pool().reset();
  ports_pool().reset();
  arena().reset();
  try {
    load_and_run(std::move(plan), script, log);
  } catch (const std::bad_alloc&) {
    ++counts.refused;
  } catch (const TooLarge&) {
    ++counts.too_large;
  }
  weights_pool().reset();
  ports_pool().reset();
  arena().reset();
}

void check_plan(const Plan& original) {
  std::vector<std::vector<std::vector<uint8_t>>> results[2];
  for (const bool is_guarded : {false, true}) {
    weights_pool().reset();
    Plan plan = original;
    guard_weights(plan);
    const std::shared_ptr<Engine> engine = Engine::load(std::move(plan), load_options());
    const std::vector<uint8_t> bytes(4096, 0);
    if (!engine->absent_weights().empty()) {
      Script script(bytes.data(), bytes.size());
      refit(engine, script);
    }
    Session session(engine, is_guarded, nullptr);
    for (size_t profile = 0; profile < original.schedules.size(); ++profile)
      for (const int place : {0, 1, 2, 100}) {
        Script script(bytes.data(), bytes.size());
        try {
          results[is_guarded].push_back(session.run(script, static_cast<int>(profile), place));
        } catch (const Error& error) {
          fail("profile ", profile, ", place ", place, is_guarded ? ", guarded: " : ": ",
               error.what());
        }
      }
  }
  require(results[0] == results[1], "other results in guarded memory");
  weights_pool().reset();
  ports_pool().reset();
  arena().reset();
}

void use_one_thread() {
  set_thread_count(1);
  // oneDNN's, where the build has another OpenMP or none.
  using Set = void (*)(int);
  if (const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(1);
}

}  // namespace opwright::fuzz
