#include "runtime/engine.h"

#include <algorithm>
#include <cstdlib>

#include "backend/backend.h"
#include "backend/release.h"
#include "base/error.h"
#include "base/file.h"
#include "base/limits.h"
#include "network/operator_registry.h"
#include "plan/format.h"
#include "plan/trusted.h"
#include "runtime/enclosing_engine.h"
#include "runtime/engine_plugins.h"
#include "runtime/verify.h"

namespace opwright {
namespace {

/// The names of the refused code, for a message; an engine for a GPU may have hundreds of kernels.
struct RefusedCode {
  void add(const CodeObject& object) {
    constexpr int kShown = 20;
    if (count++ < kShown) list += str("\n  '", object.name, "' (", object.target, ")");
    if (count > kShown) more = str("\n  and ", count - kShown, " more");
  }
  std::string text() const { return list + more; }

  int count = 0;
  std::string list, more;
};

/// The plan's code, each object with the permission to run it. Throws Error when the plan has code
/// that is not permitted.
std::vector<LoadedCode> permit_code(const Plan& plan, const LoadOptions& options) {
  // Code on the host can do everything that code on a GPU can.
  const bool device_allowed = options.allow_device_code || options.allow_host_code;
  const auto is_allowed = [&](const CodeObject& object) {
    return object.host ? options.allow_host_code : device_allowed;
  };
  const bool is_own = !std::ranges::all_of(plan.code, is_allowed) && is_trusted(plan);
  const bool may_load = (options.tempfile_flags &
                         1U << static_cast<int>(TempfileControlFlag::kALLOW_IN_MEMORY_FILES)) != 0;
  std::vector<bool> is_source(plan.code.size());
  for (const int32_t index : plan.plugin_sources) is_source[static_cast<size_t>(index)] = true;
  std::vector<LoadedCode> loaded;
  RefusedCode host, device;
  for (size_t i = 0; i < plan.code.size(); ++i) {
    const CodeObject& object = plan.code[i];
    require(!object.host || is_source[i] || may_load, engine_name(plan), " contains the library '",
            object.name,
            "', which would be loaded from a file in memory, and the runtime's "
            "tempfile_control_flags do not have ALLOW_IN_MEMORY_FILES");
    const bool permitted = is_own || is_allowed(object);
    if (!permitted) (object.host ? host : device).add(object);
    loaded.push_back({object, permitted});
  }
  require(host.count == 0, engine_name(plan),
          " contains code that would run on this computer, outside of any protection:", host.text(),
          "\nIf you trust where the engine comes from, permit it: runtime.engine_host_code_allowed "
          "= True, opwright.load(..., allow_host_code=True) in Python, --allow-host-code for the "
          "program; this permits code for GPUs, too");
  require(
      device.count == 0, engine_name(plan),
      " contains code for a GPU, which this process did not build. It could read and change "
      "whatever the GPU reaches of this process's memory:",
      device.text(),
      "\nIf you trust where the engine comes from, permit it: "
      "runtime.engine_device_code_allowed = True, opwright.load(..., allow_device_code=True) in "
      "Python, setEngineDeviceCodeAllowed(true) in C++, --allow-device-code for the program, or "
      "the environment variable ",
      kAllowDeviceCode,
      "=1 for a program that was written for TensorRT. Permission for host code implies it");
  return loaded;
}

[[noreturn]] void fail_code(const Plan& plan, const Device& device, const CodeObject& object) {
  const CodeFormat& format = device.backend().code_format();
  const std::string served = format.served(plan.code), form = format.portable_form();
  fail_with(ErrorCode::kUNSUPPORTED_STATE, engine_name(plan), " was built for ", plan.architecture,
            served.empty() ? "" : ", and its code runs on ", served, "; this device is ",
            device.architecture(), ", which cannot run '", object.name, "' (", object.target,
            "). Build the engine again here", form.empty() ? "" : ", or with kernels as ", form);
}

const Device& find_device(const Plan& plan, int ordinal, const Log& log) {
  const DeviceId id = {plan.backend, ordinal};
  const Device& device = get_device(id);
  require(device.type() == plan.device_type, engine_name(plan), " is for a ",
          name(plan.device_type), ", and the backend '", plan.backend,
          "' has none; build it again");
  if (!device.is_host()) {
    for (const CodeObject& object : plan.code)
      if (!object.host && !device.runs(object.target)) fail_code(plan, device, object);
  } else if (plan.architecture != device.architecture()) {
    fail_with(ErrorCode::kUNSUPPORTED_STATE, engine_name(plan), " was built for ",
              plan.architecture, ", this device is ", device.architecture(),
              "; build it again here");
  }
  if (plan.device_identity != device.identity()) {
    log.warning(engine_name(plan), " was tuned on ", plan.device_identity,
                " and may run slower on ", device.identity());
  }
  return device;
}

/// Aligns the weights, as kernels need it. Weights in a file are aligned; a plan that was compiled
/// in this process may refer to the user's memory.
void align_weights(Plan& plan) {
  for (Schedule& schedule : plan.schedules) {
    for (PlanTensor& tensor : schedule.tensors) {
      const auto address = reinterpret_cast<uintptr_t>(tensor.data.data());
      if (address % PlanHeader::kWeightAlignment != 0) {
        tensor.data = Blob::copy(tensor.data.data(), tensor.data.size());
      }
    }
  }
}

}  // namespace

Plan read_plan(const std::string& path, WeightCheck weights) {
  try {
    return deserialize(map_file(path), weights);
  } catch (const Error& error) {
    const std::string message = error.what();
    // Errors of the system already name the file.
    if (message.find(path) != std::string::npos) throw;
    throw Error(error.code(), "'" + path + "': " + message);
  }
}

Engine::Engine(const Plan& plan, const LoadOptions& options)
    : device_(&find_device(plan, options.device_ordinal, options.log)),
      errors_(std::make_unique<ErrorReport>(options.log, options.recorder)),
      allocator_(options.allocator),
      debug_plugins_(options.debug_plugins.value_or(plan.debug_plugins)),
      is_body_(options.is_body),
      max_threads_(options.max_threads),
      limits_(resolved(options.limits, device_->memory())) {}

void Engine::take(Plan plan) {
  if (device_->is_host()) align_weights(plan);
  plan_ = std::move(plan);
  for (const auto* ports : {&plan_.inputs, &plan_.outputs}) {
    for (size_t i = 0; i < ports->size(); ++i) {
      const PlanPort& port = (*ports)[i];
      ports_.try_emplace(port.name, Port{ports == &plan_.inputs, static_cast<int>(i), &port,
                                         str(opwright::name(port.type.dtype), " in the layout ",
                                             opwright::name(port.type.format))});
    }
  }
  budget_ = DeviceWeights::streamable(plan_);
  // Weights that may be streamed may not fit on the device together, so the first context brings
  // them with the budget of then.
  if (!plan_.weight_streaming) weights_ = make_weights(plan_, budget_);
}

void Engine::bring_weights() const {
  if (!plan_.weight_streaming) return;
  const DeviceScope scope(*device_);
  const std::unique_lock lock(weights_mutex_);
  if (weights_ == nullptr) weights_ = make_weights(plan_, budget_);
}

std::shared_ptr<const DeviceWeights> Engine::make_weights(const Plan& plan, size_t budget) const {
  return std::make_shared<const DeviceWeights>(plan, *device_, memory_allocator(), budget);
}

Engine::~Engine() {
  release_on(*device_, [&] {
    operators_.clear();
    weights_.reset();
  });
}

std::shared_ptr<Engine> Engine::load(Plan plan, const LoadOptions& options) {
  std::shared_ptr<Engine> engine(new Engine(plan, options));
  const DeviceScope scope(*engine->device_);
  EnclosingEngine own(engine->limits_, options.log);
  EnclosingEngine& whole = options.enclosing != nullptr ? *options.enclosing : own;
  try {
    whole.add(plan, *engine->device_);
  } catch (const Error& error) {
    throw Error(error.code(), str(engine_name(plan), " cannot be run: ", error.what()));
  }
  const std::vector<LoadedCode> code = permit_code(plan, options);
  engine->plugins_ = std::make_unique<EnginePlugins>(plan, options.plugins, options.log);

  // Steps of one plugin often lack the same thing. A file may have any number of wrong steps.
  constexpr size_t kShownErrors = 20;
  std::vector<std::string> errors;
  size_t more_errors = 0;
  for (const Schedule& schedule : plan.schedules) {
    auto& operators = engine->operators_.emplace_back();
    for (const PlanStep& step : schedule.steps) {
      std::vector<LoadedCode> own;
      for (const int32_t index : step.code) own.push_back(code[index]);
      try {
        const EnclosingEngine::Scope bodies(whole);
        operators.push_back(load_operator(step.kind, step.attributes,
                                          {.layer = step.name,
                                           .code = own,
                                           .plugins = engine->plugins_->registry(),
                                           .definitions = engine->plugins_->definitions(),
                                           .device = engine->device_,
                                           .log = options.log}));
      } catch (const Error& error) {
        if (std::find(errors.begin(), errors.end(), error.what()) != errors.end()) continue;
        if (errors.size() < kShownErrors)
          errors.push_back(error.what());
        else
          ++more_errors;
      }
    }
  }
  if (!errors.empty()) {
    std::string list;
    for (const std::string& error : errors) list += "\n  " + error;
    if (more_errors > 0) list += str("\n  and ", more_errors, " more");
    fail(engine_name(plan), " cannot be loaded:", list);
  }
  engine->asks_plugins_ = !options.allow_host_code && !is_trusted(plan);
  try {
    verify(plan, engine->operators_, *engine->device_, whole, engine->asks_plugins_);
  } catch (const Error& error) {
    throw Error(error.code(), str(engine_name(plan), " cannot be run: ", error.what()));
  }
  engine->take(std::move(plan));
  return engine;
}

std::shared_ptr<Engine> Engine::from_build(Plan plan,
                                           std::vector<std::vector<PlannedOperatorPtr>> operators,
                                           const LoadOptions& options) {
  std::shared_ptr<Engine> engine(new Engine(plan, options));
  const DeviceScope scope(*engine->device_);
  engine->operators_ = std::move(operators);
  engine->asks_plugins_ = false;
  engine->take(std::move(plan));
  return engine;
}

bool is_permitted_by_environment(const char* variable) {
  const char* value = secure_getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

void fail_other_runtime(std::string_view path) {
  fail("load_runtime: '", path,
       "' is not loaded: this runtime runs every engine that it can read by itself, so use its "
       "deserialize_cuda_engine");
}

std::vector<int32_t> Engine::absent_weights() const {
  return missing_weights(plan_, refit_targets(plan_),
                         std::vector<bool>(plan_.refit.weights.size()));
}

void Engine::require_weights() const {
  const std::vector<int32_t> missing = absent_weights();
  if (missing.empty()) return;
  constexpr size_t kShown = 5;
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kShown); ++i)
    names += (i > 0 ? ", '" : "'") + plan_.refit.weights[missing[i]].name + "'";
  if (missing.size() > kShown) names += str(" and ", missing.size() - kShown, " more");
  fail_with(ErrorCode::kINVALID_STATE, name(), " was stored without its weights (", names,
            "): give them to it with a Refitter, or from the ONNX file with an OnnxParserRefitter");
}

void Engine::replace_weights(const std::function<void(Plan&)>& change) {
  const DeviceScope scope(*device_);
  Plan changed = plan_;
  change(changed);
  if (device_->is_host()) align_weights(changed);
  // Throws if the device has no memory; nothing has changed then.
  auto weights = weights_ == nullptr ? nullptr : make_weights(changed, budget_);
  trust_as(plan_, changed);
  {
    const std::unique_lock lock(weights_mutex_);
    for (size_t s = 0; s < plan_.schedules.size(); ++s) {
      Schedule &to = plan_.schedules[s], &from = changed.schedules[s];
      for (size_t i = 0; i < to.tensors.size(); ++i)
        std::swap(to.tensors[i].data, from.tensors[i].data);
      for (size_t i = 0; i < to.steps.size(); ++i)
        std::swap(to.steps[i].packed, from.steps[i].packed);
    }
    for (size_t i = 0; i < plan_.refit.weights.size(); ++i)
      std::swap(plan_.refit.weights[i].data, changed.refit.weights[i].data);
    std::swap(weights_, weights);
    generation_.fetch_add(1, std::memory_order_release);
  }
  release_on(*device_, [&] { weights.reset(); });
}

std::shared_ptr<Trace> Engine::begin_trace() const {
  const std::lock_guard lock(trace_mutex_);
  require(trace_ == nullptr, "a trace of ", name(),
          " is recorded already; stop it before another one begins");
  trace_ = std::make_shared<Trace>(
      plan_.name,
      device_->is_host() ? "" : str(device_->backend().name(), ':', device_->ordinal()));
  is_traced_.store(true, std::memory_order_release);
  return trace_;
}

void Engine::end_trace(const std::shared_ptr<Trace>& trace) const {
  const std::lock_guard lock(trace_mutex_);
  if (trace_ != trace) return;
  is_traced_.store(false, std::memory_order_release);
  trace_.reset();
}

std::string engine_name(const Plan& plan) {
  return plan.name.empty() ? "the engine" : "the engine '" + plan.name + "'";
}

std::shared_ptr<Engine> Engine::load_file(const std::string& path, const LoadOptions& options) {
  return load(read_plan(path, options.weights), options);
}

std::string Engine::describe_step(int schedule, int number) const {
  const PlanStep& step = plan_.schedules[schedule].steps[number];
  const PlannedOperator& op = *operators_[schedule][number];
  std::string text = "layer '" + step.name + "' (" + step.kind;
  for (const PluginRequirement& plugin : op.requirements()) {
    text += " '" + (plugin.plugin_namespace.empty() ? "" : plugin.plugin_namespace + "::") +
            plugin.name + "'";
  }
  for (const CodeObject& code : op.code()) text += " '" + code.name + "'";
  return text + ")";
}

}  // namespace opwright
