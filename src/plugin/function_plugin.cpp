#include "plugin/function_plugin.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/library.h"
#include "base/types.h"
#include "network/no_kernel.h"
#include "network/operator_registry.h"
#include "plugin/plugin_operator.h"
#include "plugin/registration.h"
#include "plugin/stored_ports.h"

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

DeviceType device_type(const Device* device) {
  return device != nullptr ? device->type() : DeviceType::kCPU;
}

const char* name_of(const Device* device) {
  return device_type(device) == DeviceType::kCPU ? "CPU" : "GPU";
}

std::string owner_of(const FunctionPlugin& definition, std::string_view layer) {
  return str("layer '", layer, "': plugin '", id_of(definition), "'");
}

/// Of two outputs in one memory, only the one that is written last would be right.
void check_aliases(const std::string& owner, const std::vector<int>& inputs) {
  for (size_t o = 0; o < inputs.size(); ++o) {
    if (inputs[o] < 0) continue;
    const auto first = std::find(inputs.begin(), inputs.end(), inputs[o]) - inputs.begin();
    require(std::cmp_equal(first, o), owner, ": outputs ", first, " and ", o,
            " are both aliased to input ", inputs[o],
            "; only one output can take an input's memory, so make the other one with like()");
  }
}

std::vector<OutputInfo> infer_outputs(const FunctionPlugin& definition,
                                      const FieldValues& attributes, InferContext& context) {
  std::vector<bool> present;
  for (const TensorInfo* input : context.inputs) present.push_back(input != nullptr);
  const std::string owner = owner_of(definition, context.layer);
  check_inputs(definition.parameters(), present, owner);
  std::vector<OutputInfo> outputs = definition.infer(context, attributes);
  require(std::cmp_equal(outputs.size(), definition.num_outputs()), owner, " described ",
          outputs.size(), " outputs, expected ", definition.num_outputs());
  std::vector<int> aliased;
  for (const OutputInfo& output : outputs) aliased.push_back(output.aliased_input);
  check_aliases(owner, aliased);
  return outputs;
}

bool reads_shape(const FunctionPlugin& definition, int input) {
  const FunctionParameter* parameter =
      parameter_of_input(definition.parameters(), static_cast<size_t>(input));
  return parameter != nullptr && parameter->kind == ParameterKind::kShapeInput;
}

void require_implementation(const FunctionPlugin& definition, FunctionMode mode,
                            std::string_view layer, const Device* device) {
  const bool is_compiled = mode == FunctionMode::kCompiled;
  const DeviceType type = device_type(device);
  if (is_compiled ? definition.has_aot_impl(type) : definition.has_impl(type)) return;
  throw NoKernelError(ErrorCode::kINVALID_ARGUMENT, str(owner_of(definition, layer), " has no ",
                                                        is_compiled ? "aot_impl" : "impl",
                                                        " function for the ", name_of(device)));
}

/// Takes away the candidates whose aliased outputs have another type or format than their input.
void drop_split_aliases(const std::string& owner, const CandidateQuery& query,
                        std::vector<Candidate>& candidates) {
  std::string reason;
  std::erase_if(candidates, [&](const Candidate& candidate) {
    for (size_t o = 0; o < query.outputs.size(); ++o) {
      const int aliased = query.outputs[o].aliased_input;
      if (aliased < 0) continue;
      const PortType &input = candidate.inputs[static_cast<size_t>(aliased)],
                     &output = candidate.outputs[o];
      if (input == output) continue;
      reason = str("output ", o, " is ", str(output), " but aliased to input ", aliased,
                   ", which is ", str(input));
      if (query.dropped != nullptr) query.dropped->push_back({candidate, reason});
      return true;
    }
    return false;
  });
  require(!candidates.empty(), owner, ": no combination that autotune gave can be used: ", reason,
          "; an output that takes an input's memory needs its type and format, so let both entries "
          "move together, as in AutoTuneCombination(\"FP32|FP16, FP32|FP16\")");
}

/// What `autotune` gives, or the types of the network.
std::vector<Candidate> list_candidates(const FunctionPlugin& definition,
                                       const FieldValues& attributes, const CandidateQuery& query) {
  if (!definition.has_autotune()) {
    Candidate candidate;
    for (const PortDesc& input : query.inputs) candidate.inputs.push_back(input.type);
    for (const PortDesc& output : query.outputs) candidate.outputs.push_back(output.type);
    return {candidate};
  }
  const std::string owner = owner_of(definition, query.layer);
  std::vector<Candidate> candidates = definition.autotune(query, attributes);
  require(!candidates.empty(), owner, ": autotune gave no combination");
  drop_split_aliases(owner, query, candidates);
  return candidates;
}

/// A plugin whose `impl` is called, with the attributes that it takes: an engine stores no others.
class PlannedFunctionPlugin final : public PlannedPlugin {
 public:
  PlannedFunctionPlugin(std::shared_ptr<const FunctionPlugin> definition, FieldValues attributes,
                        FunctionOutputs outputs)
      : PlannedPlugin("FunctionPlugin", {definition->name(), "1", definition->plugin_namespace()}),
        definition_(std::move(definition)),
        attributes_(std::move(attributes)),
        outputs_(std::move(outputs)) {}

  bool is_shape_input(int input) const override { return reads_shape(*definition_, input); }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return infer_outputs(*definition_, attributes_, context);
  }
  /// `register` and `autotune` may want attributes that `impl` does not take.
  bool can_infer() const override {
    return std::ranges::all_of(definition_->parameters(), [&](const FunctionParameter& parameter) {
      return !parameter.is_attribute() || has_attribute(parameter.name);
    });
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    require_implementation(*definition_, FunctionMode::kCallback, args.layer, args.device);
    require(outputs_.aliased_inputs.size() == args.outputs.size(), owner(args),
            ": its stored aliases are of ", outputs_.aliased_inputs.size(),
            " outputs, the layer has ", args.outputs.size());
    for (const int input : outputs_.aliased_inputs)
      require(std::cmp_less(input, args.inputs.size()), owner(args),
              ": an output is stored as aliased to input ", input, " of ", args.inputs.size());
    return definition_->make_callback(args, attributes_, outputs_);
  }

  Attributes attributes() const override {
    const std::vector<int>& aliased = outputs_.aliased_inputs;
    const std::vector<bool>& dependent = outputs_.data_dependent;
    return {{"plugin", definition_->name()},
            {"namespace", definition_->plugin_namespace()},
            {"aliased_inputs", Ints(aliased.begin(), aliased.end())},
            {"data_dependent", Ints(dependent.begin(), dependent.end())},
            {"fields", attributes_}};
  }

 private:
  std::string owner(const KernelArgs& args) const { return owner_of(*definition_, args.layer); }
  bool has_attribute(const std::string& name) const {
    return std::ranges::any_of(attributes_, [&](const auto& field) { return field.name == name; });
  }

  void check_ports(const StoredPorts& ports, const KernelArgs& args) const override {
    require_implementation(*definition_, FunctionMode::kCallback, args.layer, args.device);
    std::vector<bool> present;
    for (const PortDesc& input : args.inputs) present.push_back(input.present);
    check_inputs(definition_->parameters(), present, owner(args));
    ports.require_counts(args.inputs.size(), definition_->num_outputs(),
                         [](size_t) { return true; });
    // Without one of them nobody could be asked for the outputs.
    for (const std::string& name : definition_->impl_attributes())
      if (!has_attribute(name))
        ports.reject("the engine does not store its attribute '", name, "', which impl takes");
    for (size_t i = 0; i < args.inputs.size(); ++i)
      if (args.inputs[i].present && is_shape_input(static_cast<int>(i)))
        ports.require_shape_input(i);
    check_outputs(ports, args);
    check_candidate(ports, args);
  }

  void check_outputs(const StoredPorts& ports, const KernelArgs& args) const {
    const std::vector<int>& aliased = outputs_.aliased_inputs;
    if (aliased.size() != args.outputs.size())
      ports.reject("the engine stores for ", aliased.size(), " outputs whether they are aliased");
    check_aliases(owner(args), aliased);
    for (size_t o = 0; o < aliased.size(); ++o) {
      if (o < args.inferred.size() && args.inferred[o].aliased_input != aliased[o])
        ports.reject(
            "the engine stores other inputs that outputs are aliased to than its register "
            "function says");
      if (aliased[o] >= 0) ports.require_shared(aliased[o], static_cast<int>(o));
    }
  }

  void check_candidate(const StoredPorts& ports, const KernelArgs& args) const {
    const Candidate& stored = *args.candidate;
    if (!definition_->has_autotune()) {
      require_linear(ports, args);
      for (size_t o = 0; o < args.inferred.size(); ++o)
        if (args.outputs[o].type.dtype != args.inferred[o].dtype)
          ports.reject("output ", o, " is stored as ", opwright::name(args.outputs[o].type.dtype),
                       ", and its register function says ", opwright::name(args.inferred[o].dtype));
      return;
    }
    if (!can_infer()) return;
    std::vector<PortDesc> outputs(args.outputs.begin(), args.outputs.end());
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o].aliased_input = outputs_.aliased_inputs[o];
    const CandidateQuery query{
        .layer = args.layer, .inputs = args.inputs, .outputs = outputs, .device = args.device};
    const auto is_same = [&](const Candidate& each) {
      return each.inputs == stored.inputs && each.outputs == stored.outputs &&
             each.tactic == stored.tactic;
    };
    if (!std::ranges::any_of(list_candidates(*definition_, attributes_, query), is_same))
      ports.reject("the engine stores ", str(stored), " with the tactic ", stored.tactic,
                   ", which autotune does not give");
  }

  /// What is not tuned runs as the network has it.
  static void require_linear(const StoredPorts& ports, const KernelArgs& args) {
    for (const auto& list : {args.inputs, args.outputs})
      for (const PortDesc& port : list)
        if (port.present && port.type.format != TensorFormat::kLINEAR)
          ports.reject("the engine stores ", str(*args.candidate),
                       ", and without an autotune function all is in LINEAR");
    if (args.candidate->tactic != 0)
      ports.reject("the engine stores the tactic ", args.candidate->tactic,
                   ", and without an autotune function there is none");
  }

  const std::shared_ptr<const FunctionPlugin> definition_;
  const FieldValues attributes_;
  const FunctionOutputs outputs_;
};

class FunctionOperator final : public PluginOperator {
 public:
  FunctionOperator(std::shared_ptr<const FunctionPlugin> definition, FieldValues attributes,
                   FunctionMode mode)
      : definition_(std::move(definition)), attributes_(std::move(attributes)), mode_(mode) {}

  const std::string& plugin_name() const override { return definition_->name(); }
  std::string_view kind() const override { return "FunctionPlugin"; }
  bool is_shape_input(int input) const override { return reads_shape(*definition_, input); }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return infer_outputs(*definition_, attributes_, context);
  }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    require_implementation(*definition_, mode_, query.layer, query.device);
    return list_candidates(*definition_, attributes_, query);
  }
  std::optional<std::string> timing_key() const override {
    return str("FunctionPlugin ", id_of(*definition_), is_compiled() ? " compiled " : " callback ",
               definition_->fingerprint(mode_), ' ', str(Attributes{{"fields", attributes_}}));
  }

 private:
  bool is_compiled() const override { return mode_ == FunctionMode::kCompiled; }
  KernelCode compile(const KernelArgs& args) const override {
    require_implementation(*definition_, mode_, args.layer, args.device);
    return definition_->compile(args, attributes_);
  }
  PlannedOperatorPtr configure(const KernelArgs& args) const override {
    const std::vector<std::string> used = definition_->impl_attributes();
    FieldValues stored = attributes_;
    std::erase_if(stored, [&](const FieldValue& field) {
      return std::find(used.begin(), used.end(), field.name) == used.end();
    });
    FunctionOutputs outputs;
    for (const PortDesc& output : args.outputs) {
      outputs.aliased_inputs.push_back(output.aliased_input);
      outputs.data_dependent.push_back(output.is_data_dependent);
    }
    return std::make_shared<PlannedFunctionPlugin>(definition_, std::move(stored),
                                                   std::move(outputs));
  }

  const std::shared_ptr<const FunctionPlugin> definition_;
  const FieldValues attributes_;
  const FunctionMode mode_;
};

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
  // What was there before is destroyed after the lock is given back.
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
  // Of several with an id the last one counts, as for those of the process.
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

OperatorPtr make_function_operator(std::shared_ptr<const FunctionPlugin> definition,
                                   FieldValues attributes, FunctionMode mode) {
  return std::make_shared<FunctionOperator>(std::move(definition), std::move(attributes), mode);
}

PlannedOperatorPtr load_function_plugin(const Attributes& attributes,
                                        const OperatorLoadContext& context) {
  std::string name, plugin_namespace;
  Ints aliased_inputs, data_dependent;
  FieldValues fields;
  AttributeReader reader("FunctionPlugin", attributes);
  reader("plugin", name);
  reader("namespace", plugin_namespace);
  reader("aliased_inputs", aliased_inputs);
  reader("data_dependent", data_dependent);
  reader("fields", fields);
  const std::string owner =
      str("layer '", context.layer, "': plugin '", make_id(plugin_namespace, name), "'");
  auto definition = find_function_plugin(plugin_namespace, name, context.definitions);
  require(definition != nullptr, owner, " is not registered");
  require(aliased_inputs.size() == data_dependent.size(), owner,
          ": the stored properties of its outputs do not fit together");
  FunctionOutputs outputs;
  for (const int64_t input : aliased_inputs)
    outputs.aliased_inputs.push_back(
        static_cast<int>(std::clamp<int64_t>(input, -1, std::numeric_limits<int>::max())));
  outputs.data_dependent.assign(data_dependent.begin(), data_dependent.end());
  return std::make_shared<PlannedFunctionPlugin>(std::move(definition), std::move(fields),
                                                 std::move(outputs));
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
