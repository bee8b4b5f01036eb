#include "plugin/model/function_plugin.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/library.h"
#include "plugin/registry/registration.h"

namespace opwright {

namespace {

struct Definitions {
  LibraryLock mutex;
  std::map<std::string, std::shared_ptr<const FunctionPlugin>> by_id;
};
Definitions& definitions() { return Library::part<Definitions>(); }

std::string make_id(const std::string& plugin_namespace, const std::string& name) {
  return plugin_namespace + "::" + name;
}

/// "x, bias=None, *xs"
std::string list_tensors(const std::vector<FunctionParameter>& parameters) {
  std::string list;
  for (const FunctionParameter& parameter : parameters) {
    if (parameter.is_attribute()) break;
    list += str(list.empty() ? "" : ", ", parameter.kind == ParameterKind::kTensors ? "*" : "",
                parameter.name, parameter.kind == ParameterKind::kOptionalTensor ? "=None" : "");
  }
  return list;
}

}  // namespace

std::string id_of(const FunctionPlugin& definition) {
  return make_id(definition.plugin_namespace(), definition.name());
}

const FunctionParameter* parameter_of_input(const std::vector<FunctionParameter>& parameters,
                                            size_t input) {
  for (const FunctionParameter& parameter : parameters) {
    if (parameter.is_attribute()) return nullptr;
    if (parameter.kind == ParameterKind::kTensors || input == 0) return &parameter;
    --input;
  }
  return nullptr;
}

size_t num_fixed_inputs(const std::vector<FunctionParameter>& parameters) {
  return static_cast<size_t>(
      std::count_if(parameters.begin(), parameters.end(), [](const FunctionParameter& parameter) {
        return !parameter.is_attribute() && parameter.kind != ParameterKind::kTensors;
      }));
}

void check_inputs(const std::vector<FunctionParameter>& parameters,
                  const std::vector<bool>& present, std::string_view owner) {
  const auto reject = [&](const auto&... parts) {
    fail(owner, " takes the tensors (", list_tensors(parameters), "), but ", parts...);
  };
  const size_t fixed = num_fixed_inputs(parameters);
  for (size_t i = 0; i < std::max(fixed, present.size()); ++i) {
    const FunctionParameter* parameter = parameter_of_input(parameters, i);
    if (parameter == nullptr) reject(present.size(), " came");
    const bool may_be_absent = parameter->kind == ParameterKind::kOptionalTensor;
    if (i >= present.size()) reject("'", parameter->name, "' is missing");
    if (!present[i] && !may_be_absent) reject("input ", i, " ('", parameter->name, "') is absent");
  }
}

void register_function_plugin(std::shared_ptr<const FunctionPlugin> definition) {
  if (RegistrationCapture* capture = RegistrationCapture::current()) {
    capture->definitions.push_back(std::move(definition));
    return;
  }
  std::string id = id_of(*definition);
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  // The previous definition is destroyed after the lock is released.
  std::swap(all.by_id[std::move(id)], definition);
}

void deregister_function_plugin(const std::string& plugin_namespace, const std::string& name) {
  std::shared_ptr<const FunctionPlugin> previous;
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_id.find(make_id(plugin_namespace, name));
  if (found == all.by_id.end()) return;
  previous = std::move(found->second);
  all.by_id.erase(found);
}

std::shared_ptr<const FunctionPlugin> find_function_plugin(
    const std::string& plugin_namespace, const std::string& name,
    std::span<const std::shared_ptr<const FunctionPlugin>> first) {
  // The last definition with an id counts, as for the process's definitions.
  for (auto each = first.rbegin(); each != first.rend(); ++each)
    if ((*each)->plugin_namespace() == plugin_namespace && (*each)->name() == name) return *each;
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_id.find(make_id(plugin_namespace, name));
  return found != all.by_id.end() ? found->second : nullptr;
}

std::vector<std::shared_ptr<const FunctionPlugin>> all_function_plugins() {
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  std::vector<std::shared_ptr<const FunctionPlugin>> list;
  list.reserve(all.by_id.size());
  for (const auto& [id, definition] : all.by_id) list.push_back(definition);
  return list;
}

FunctionMode choose_mode(const FunctionPlugin& definition, int aot, bool prefer_aot,
                         bool prefer_jit) {
  const bool has_aot =
      definition.has_aot_impl(DeviceType::kCPU) || definition.has_aot_impl(DeviceType::kGPU);
  const bool has_jit =
      definition.has_impl(DeviceType::kCPU) || definition.has_impl(DeviceType::kGPU);
  const std::string id = id_of(definition);
  require(has_aot || has_jit, "plugin '", id,
          "' has neither an impl nor an aot_impl function; define one of them");
  if (aot >= 0) {
    require(aot != 0 ? has_aot : has_jit, "plugin '", id,
            "' was asked for with aot=", aot != 0 ? "True" : "False", ", but has no ",
            aot != 0 ? "aot_impl" : "impl", " function");
    return aot != 0 ? FunctionMode::kCompiled : FunctionMode::kCallback;
  }
  if (has_aot != has_jit) return has_aot ? FunctionMode::kCompiled : FunctionMode::kCallback;
  require(!(prefer_aot && prefer_jit),
          "the network has both flags PREFER_AOT_PYTHON_PLUGINS and PREFER_JIT_PYTHON_PLUGINS, so "
          "it does not say which implementation of plugin '",
          id, "' to use");
  if (prefer_aot) return FunctionMode::kCompiled;
  if (prefer_jit) return FunctionMode::kCallback;
  fail("plugin '", id,
       "' has both an impl and an aot_impl function: say which one with aot=True or aot=False (in "
       "an ONNX model the node's attribute 'aot'), or make the network with the flag "
       "PREFER_AOT_PYTHON_PLUGINS or PREFER_JIT_PYTHON_PLUGINS");
}

}  // namespace opwright
