#include "plugin/model/function_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "network/no_kernel.h"
#include "network/operator_registry.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

namespace {

DeviceType device_type(const Device* device) {
  return device != nullptr ? device->type() : DeviceType::kCPU;
}

const char* name_of(const Device* device) {
  return device_type(device) == DeviceType::kCPU ? "CPU" : "GPU";
}

std::string owner_of(const FunctionPlugin& definition, std::string_view layer) {
  return str("layer '", layer, "': plugin '", id_of(definition), "'");
}

/// Throws Error if two outputs share an input's memory: only the last one written would be right.
void check_aliases(const std::string& owner, const std::vector<int>& inputs) {
  for (size_t o = 0; o < inputs.size(); ++o) {
    if (inputs[o] < 0) continue;
    const auto first = std::find(inputs.begin(), inputs.end(), inputs[o]) - inputs.begin();
    require(std::cmp_equal(first, o), owner, ": outputs ", first, " and ", o,
            " are both aliased to input ", inputs[o],
            "; only one output can take an input's memory, so make the other one with like()");
  }
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

/// Removes candidates whose aliased outputs differ from their input in type or format.
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

/// The candidates that `autotune` returns, or one with the network's types.
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

/// A definition with a layer's attributes. A configured model, whose `impl` is called, only has the
/// attributes that `impl` takes, because an engine stores no others.
class FunctionModel final : public PluginModel {
 public:
  FunctionModel(std::shared_ptr<const FunctionPlugin> definition, FieldValues attributes,
                FunctionMode mode, FunctionOutputs outputs = {})
      : definition_(std::move(definition)),
        identity_{definition_->name(), "1", definition_->plugin_namespace()},
        attributes_(std::move(attributes)),
        mode_(mode),
        outputs_(std::move(outputs)) {}

  std::string_view kind() const override { return "FunctionPlugin"; }
  const CreatorIdentity& identity() const override { return identity_; }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    std::vector<bool> present;
    for (const TensorInfo* input : context.inputs) present.push_back(input != nullptr);
    const std::string owner = this->owner(context.layer);
    check_inputs(definition_->parameters(), present, owner);
    std::vector<OutputInfo> outputs = definition_->infer(context, attributes_);
    require(std::cmp_equal(outputs.size(), definition_->num_outputs()), owner, " described ",
            outputs.size(), " outputs, expected ", definition_->num_outputs());
    std::vector<int> aliased;
    for (const OutputInfo& output : outputs) aliased.push_back(output.aliased_input);
    check_aliases(owner, aliased);
    return outputs;
  }
  /// `register` and `autotune` may need attributes that `impl` does not take.
  bool can_infer() const override {
    return std::ranges::all_of(definition_->parameters(), [&](const FunctionParameter& parameter) {
      return !parameter.is_attribute() || has_attribute(parameter.name);
    });
  }
  bool is_shape_input(int input) const override {
    const FunctionParameter* parameter =
        parameter_of_input(definition_->parameters(), static_cast<size_t>(input));
    return parameter != nullptr && parameter->kind == ParameterKind::kShapeInput;
  }

  bool communicates() const override { return !is_compiled() && definition_->communicates(); }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    require_implementation(*definition_, mode_, query.layer, query.device);
    return list_candidates(*definition_, attributes_, query);
  }
  std::optional<std::string> timing_key() const override {
    return str("FunctionPlugin ", id_of(*definition_), is_compiled() ? " compiled " : " callback ",
               definition_->fingerprint(mode_), ' ', str(Attributes{{"fields", attributes_}}));
  }
  bool is_compiled() const override { return mode_ == FunctionMode::kCompiled; }
  Attributes pointwise(std::string_view layer) const override {
    return is_compiled() ? definition_->pointwise(layer, attributes_) : Attributes{};
  }
  KernelCode compile(const KernelArgs& args) const override {
    require_implementation(*definition_, mode_, args.layer, args.device);
    return definition_->compile(args, attributes_);
  }
  std::optional<Reference> reference(DeviceType device) const override {
    const auto as_callback = [&](std::shared_ptr<const FunctionPlugin> definition) {
      return std::make_shared<FunctionModel>(std::move(definition), attributes_,
                                             FunctionMode::kCallback);
    };
    if (std::shared_ptr<const FunctionPlugin> reference = definition_->reference())
      return Reference{as_callback(std::move(reference)), "its reference function", true};
    if (is_compiled() && definition_->has_impl(device))
      return Reference{as_callback(definition_), "its impl function"};
    return std::nullopt;
  }
  bool is_repeatable() const override { return definition_->is_repeatable(); }
  PluginModelPtr configure(const KernelArgs& args) const override {
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
    return std::make_shared<FunctionModel>(definition_, std::move(stored), mode_,
                                           std::move(outputs));
  }

  Attributes store(std::string_view) const override {
    const std::vector<int>& aliased = outputs_.aliased_inputs;
    const std::vector<bool>& dependent = outputs_.data_dependent;
    return {{"plugin", definition_->name()},
            {"namespace", definition_->plugin_namespace()},
            {"aliased_inputs", Ints(aliased.begin(), aliased.end())},
            {"data_dependent", Ints(dependent.begin(), dependent.end())},
            {"fields", attributes_}};
  }

  void check(const StoredPorts& ports, const KernelArgs& args) const override {
    require_implementation(*definition_, mode_, args.layer, args.device);
    std::vector<bool> present;
    for (const PortDesc& input : args.inputs) present.push_back(input.present);
    check_inputs(definition_->parameters(), present, owner(args.layer));
    ports.require_counts(args.inputs.size(), definition_->num_outputs(),
                         [](size_t) { return true; });
    // The outputs can only be inferred with all of these attributes.
    for (const std::string& name : definition_->impl_attributes())
      if (!has_attribute(name))
        ports.reject("the engine does not store its attribute '", name, "', which impl takes");
    for (size_t i = 0; i < args.inputs.size(); ++i)
      if (args.inputs[i].present && is_shape_input(static_cast<int>(i)))
        ports.require_shape_input(i);
    check_outputs(ports, args);
    check_candidate(ports, args);
  }

  std::unique_ptr<Kernel> attach(const KernelArgs& args) const override {
    require_implementation(*definition_, mode_, args.layer, args.device);
    require(outputs_.aliased_inputs.size() == args.outputs.size(), owner(args.layer),
            ": its stored aliases are of ", outputs_.aliased_inputs.size(),
            " outputs, the layer has ", args.outputs.size());
    for (const int input : outputs_.aliased_inputs)
      require(std::cmp_less(input, args.inputs.size()), owner(args.layer),
              ": an output is stored as aliased to input ", input, " of ", args.inputs.size());
    return definition_->attach(args, attributes_, outputs_);
  }

 private:
  std::string owner(std::string_view layer) const { return owner_of(*definition_, layer); }
  bool has_attribute(const std::string& name) const {
    return std::ranges::any_of(attributes_, [&](const auto& field) { return field.name == name; });
  }

  void check_outputs(const StoredPorts& ports, const KernelArgs& args) const {
    const std::vector<int>& aliased = outputs_.aliased_inputs;
    if (aliased.size() != args.outputs.size())
      ports.reject("the engine stores for ", aliased.size(), " outputs whether they are aliased");
    check_aliases(owner(args.layer), aliased);
    for (size_t o = 0; o < aliased.size(); ++o) {
      if (o < args.inferred.size() && args.inferred[o].aliased_input != aliased[o])
        ports.reject(
            "the engine stores other inputs that outputs are aliased to than its register "
            "function says");
      if (aliased[o] >= 0) ports.require_shared(aliased[o], static_cast<int>(o));
    }
  }

  /// Checks the candidate with `autotune`, if there is one. A running engine does not need it.
  void check_candidate(const StoredPorts& ports, const KernelArgs& args) const {
    if (!definition_->has_autotune() || !can_infer()) {
      check_untuned(ports, args);
      return;
    }
    const Candidate& stored = *args.candidate;
    std::vector<PortDesc> inputs(args.inputs.begin(), args.inputs.end());
    std::vector<PortDesc> outputs(args.outputs.begin(), args.outputs.end());
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o].aliased_input = outputs_.aliased_inputs[o];
    CandidateQuery query{
        .layer = args.layer, .inputs = inputs, .outputs = outputs, .device = args.device};
    const auto is_same = [&](const Candidate& each) {
      return each.inputs == stored.inputs && each.outputs == stored.outputs &&
             each.tactic == stored.tactic;
    };
    const auto is_given = [&] {
      return std::ranges::any_of(definition_->autotune(query, attributes_), is_same);
    };
    try {
      if (is_given()) return;
    } catch (const Error&) {  // none of its results is possible in a network with these types
    }
    // The engine does not store the network's types. Tuned types were mostly FP32 there.
    for (auto* side : {&inputs, &outputs})
      for (PortDesc& port : *side)
        if (is_floating(port.type.dtype) || is_quantized(port)) port.type.dtype = DataType::kFLOAT;
    query.fp16 = query.bf16 = query.fp8 = query.int8 = true;
    if (!is_given())
      ports.reject("the engine stores ", str(stored), " with the tactic ", stored.tactic,
                   ", which autotune does not give");
  }

  /// Rejects candidates that no `autotune` can return. Layouts are not checked: a tensor tells
  /// `impl` its layout, and each layout can hold the shape.
  static void check_untuned(const StoredPorts& ports, const KernelArgs& args) {
    ports.require_tactic_number(std::numeric_limits<int64_t>::max());
    const bool takes_quantized = std::ranges::any_of(args.inputs, is_quantized);
    for (size_t o = 0; o < args.inferred.size(); ++o) {
      const PortDesc& output = args.outputs[o];
      const DataType stored = output.type.dtype, described = args.inferred[o].dtype;
      // Each port is tuned separately, and `register` gets the inputs' tuned types.
      const bool is_tuned =
          (is_floating(stored) || is_quantized(output)) &&
          (is_floating(described) || (described == DataType::kINT8 && takes_quantized));
      if (stored != described && !is_tuned)
        ports.reject("output ", o, " is stored as ", opwright::name(stored),
                     ", and its register function says ", opwright::name(described));
    }
  }

  static bool is_quantized(const PortDesc& port) {
    return port.present && port.type.dtype == DataType::kINT8 && port.scale > 0;
  }

  const std::shared_ptr<const FunctionPlugin> definition_;
  const CreatorIdentity identity_;
  const FieldValues attributes_;
  const FunctionMode mode_;
  const FunctionOutputs outputs_;  ///< of a configured model
};

}  // namespace

OperatorPtr make_function_operator(std::shared_ptr<const FunctionPlugin> definition,
                                   FieldValues attributes, FunctionMode mode) {
  return std::make_shared<PluginOperator>(
      std::make_shared<FunctionModel>(std::move(definition), std::move(attributes), mode));
}

PluginModelPtr load_function_plugin(const Attributes& attributes,
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
      str("layer '", context.layer, "': plugin '", plugin_namespace, "::", name, "'");
  auto definition = find_function_plugin(plugin_namespace, name, context.definitions);
  require(definition != nullptr, owner, " is not registered");
  require(aliased_inputs.size() == data_dependent.size(), owner,
          ": the stored properties of its outputs do not fit together");
  FunctionOutputs outputs;
  for (const int64_t input : aliased_inputs)
    outputs.aliased_inputs.push_back(
        static_cast<int>(std::clamp<int64_t>(input, -1, std::numeric_limits<int>::max())));
  outputs.data_dependent.assign(data_dependent.begin(), data_dependent.end());
  return std::make_shared<FunctionModel>(std::move(definition), std::move(fields),
                                         FunctionMode::kCallback, std::move(outputs));
}

}  // namespace opwright
