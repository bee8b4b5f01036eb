#include "plugin/quick.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "network/no_kernel.h"
#include "network/operator_registry.h"
#include "plugin/compiled_kernels.h"
#include "plugin/registration.h"
#include "plugin/stored_ports.h"

namespace opwright {

namespace {

struct Definitions {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const QuickDefinition>> by_id;
};
Definitions& definitions() {
  static auto* instance = new Definitions;  // never destroyed: plugins may be used until the end
  return *instance;
}

std::string make_id(const std::string& plugin_namespace, const std::string& name) {
  return plugin_namespace + "::" + name;
}

DeviceType device_type(const Device* device) {
  return device != nullptr ? device->type() : DeviceType::kCPU;
}

const char* name_of(const Device* device) {
  return device_type(device) == DeviceType::kCPU ? "CPU" : "GPU";
}

/// Passes on what is asked and notes the size tensors that are declared.
struct SizeRecorder final : InferContext {
  explicit SizeRecorder(InferContext& context) : context_(context) {
    inputs = context.inputs;
    layer = context.layer;
  }
  Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) override {
    Expr size = context_.declare_size_tensor(output, opt, upper_bound);
    if (size.op() == ExprOp::kSymbol) {
      const auto id = static_cast<size_t>(size.symbol_id());
      sizes.resize(std::max(sizes.size(), id + 1));
      sizes[id] = true;
    }
    return size;
  }
  bool is_non_negative(int symbol) const override { return context_.is_non_negative(symbol); }

  std::vector<bool> sizes;  ///< by symbol

 private:
  InferContext& context_;
};

class QuickPlugin final : public Operator {
 public:
  QuickPlugin(std::shared_ptr<const QuickDefinition> definition, FieldValues attributes,
              QuickMode mode, QuickOutputs outputs, bool is_stored = false)
      : definition_(std::move(definition)),
        attributes_(std::move(attributes)),
        mode_(mode),
        is_stored_(is_stored),
        outputs_(std::move(outputs)) {}

  std::string_view kind() const override { return "QuickPlugin"; }
  bool is_pure() const override { return false; }

  bool is_shape_input(int input) const override {
    const QuickParameter* parameter =
        parameter_of_input(definition_->parameters(), static_cast<size_t>(input));
    return parameter != nullptr && parameter->kind == ParameterKind::kShapeInput;
  }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    std::vector<bool> present;
    for (const TensorInfo* input : context.inputs) present.push_back(input != nullptr);
    check_inputs(definition_->parameters(), present,
                 str("layer '", context.layer, "': plugin '", id_of(*definition_), "'"));
    SizeRecorder recorder(context);
    std::vector<OutputInfo> infos = definition_->infer(recorder, attributes_);
    require(std::cmp_equal(infos.size(), definition_->num_outputs()), "layer '", context.layer,
            "': plugin '", id_of(*definition_), "' described ", infos.size(), " outputs, expected ",
            definition_->num_outputs());
    QuickOutputs outputs;
    for (const OutputInfo& info : infos) {
      outputs.aliased_inputs.push_back(info.aliased_input);
      outputs.data_dependent.push_back(
          std::any_of(info.dims.begin(), info.dims.end(),
                      [&](const Expr& extent) { return extent.depends_on(recorder.sizes); }));
    }
    check_aliases(context.layer, outputs.aliased_inputs);
    const std::lock_guard lock(mutex_);
    types_.clear();
    for (const OutputInfo& info : infos) types_.push_back(info.dtype);
    if (is_stored_) {
      require(outputs_.aliased_inputs.empty() || outputs_.aliased_inputs == outputs.aliased_inputs,
              "layer '", context.layer, "': plugin '", id_of(*definition_),
              "': the engine stores other inputs that outputs are aliased to than its register "
              "function says; build the engine again");
    } else {
      outputs_ = std::move(outputs);
    }
    return infos;
  }

  /// An engine stores the attributes that `impl` takes; `register` and `autotune` may want others.
  bool can_infer() const override {
    return std::ranges::all_of(definition_->parameters(), [&](const QuickParameter& parameter) {
      return !parameter.is_attribute() || has_attribute(parameter.name);
    });
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    check_implementation(query.layer, query.device);
    if (!definition_->has_autotune()) {
      Candidate candidate;
      for (const PortDesc& input : query.inputs) candidate.inputs.push_back(input.type);
      for (const PortDesc& output : query.outputs) candidate.outputs.push_back(output.type);
      return {candidate};
    }
    std::vector<Candidate> candidates = definition_->autotune(query, attributes_);
    require(!candidates.empty(), "layer '", query.layer, "': autotune of plugin '",
            id_of(*definition_), "' gave no combination");
    drop_split_aliases(query, candidates);
    return candidates;
  }

  void check(const KernelArgs& args) const override {
    check_implementation(args.layer, args.device);
    const std::string owner = str("layer '", args.layer, "': plugin '", id_of(*definition_), "'");
    std::vector<bool> present;
    for (const PortDesc& input : args.inputs) present.push_back(input.present);
    check_inputs(definition_->parameters(), present, owner);
    const StoredPorts ports(args, owner + ": ");
    ports.require_counts(args.inputs.size(), definition_->num_outputs(),
                         [](size_t) { return true; });
    require_attributes(ports);
    for (size_t i = 0; i < args.inputs.size(); ++i)
      if (args.inputs[i].present && is_shape_input(static_cast<int>(i)))
        ports.require_shape_input(i);
    const std::vector<int> aliased = outputs().aliased_inputs;
    if (!aliased.empty() && aliased.size() != args.outputs.size())
      ports.reject("the engine stores for ", aliased.size(), " outputs whether they are aliased");
    check_aliases(args.layer, aliased);
    for (size_t o = 0; o < aliased.size(); ++o)
      if (aliased[o] >= 0) ports.require_shared(aliased[o], static_cast<int>(o));
    if (!definition_->has_autotune()) {
      require_linear(ports, args);
      require_types(ports, args);
    } else if (can_infer()) {
      const CandidateQuery query{.layer = args.layer,
                                 .inputs = args.inputs,
                                 .outputs = args.outputs,
                                 .device = args.device};
      const auto is_same = [&](const Candidate& each) {
        return each.inputs == args.candidate->inputs && each.outputs == args.candidate->outputs &&
               each.tactic == args.candidate->tactic;
      };
      if (!std::ranges::any_of(candidates(query), is_same))
        ports.reject("the engine stores ", opwright::str(*args.candidate), " with the tactic ",
                     args.candidate->tactic, ", which autotune does not give");
    }
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    check_implementation(args.layer, args.device);
    return mode_ == QuickMode::kCompiled ? compiled(args)->make_kernel(args) : make_callback(args);
  }

  OperatorPtr specialize(const KernelArgs& args) const override {
    return mode_ == QuickMode::kCompiled ? compiled(args) : nullptr;
  }

  Attributes attributes() const override {
    Attributes all{{"plugin", definition_->name()},
                   {"namespace", definition_->plugin_namespace()},
                   {"compiled", int64_t{mode_ == QuickMode::kCompiled}}};
    const QuickOutputs outputs = this->outputs();
    all.push_back(
        {"aliased_inputs", Ints(outputs.aliased_inputs.begin(), outputs.aliased_inputs.end())});
    all.push_back(
        {"data_dependent", Ints(outputs.data_dependent.begin(), outputs.data_dependent.end())});
    FieldValues stored = attributes_;
    if (mode_ == QuickMode::kCallback) {
      const std::vector<std::string> used = definition_->impl_attributes();
      std::erase_if(stored, [&](const FieldValue& field) {
        return std::find(used.begin(), used.end(), field.name) == used.end();
      });
    }
    all.push_back({"fields", std::move(stored)});
    return all;
  }

  std::optional<std::string> timing_key() const override {
    return str("QuickPlugin ", id_of(*definition_),
               mode_ == QuickMode::kCompiled ? " compiled " : " callback ",
               definition_->fingerprint(mode_), ' ', opwright::str({{"fields", attributes_}}));
  }

  std::vector<PluginRequirement> requirements() const override {
    if (mode_ == QuickMode::kCompiled) return {};
    return {{"QuickPlugin", definition_->name(), "1", definition_->plugin_namespace()}};
  }

 private:
  void check_implementation(std::string_view layer, const Device* device) const {
    const bool is_compiled = mode_ == QuickMode::kCompiled;
    const DeviceType type = device_type(device);
    if (is_compiled ? definition_->has_aot_impl(type) : definition_->has_impl(type)) return;
    throw NoKernelError(
        ErrorCode::kINVALID_ARGUMENT,
        str("layer '", layer, "': plugin '", id_of(*definition_), "' has no ",
            is_compiled ? "aot_impl" : "impl", " function for the ", name_of(device)));
  }

  bool has_attribute(const std::string& name) const {
    return std::ranges::any_of(attributes_, [&](const auto& field) { return field.name == name; });
  }

  /// Without one of them nobody could be asked for the outputs.
  void require_attributes(const StoredPorts& ports) const {
    for (const std::string& name : definition_->impl_attributes())
      if (!has_attribute(name))
        ports.reject("the engine does not store its attribute '", name, "', which impl takes");
  }

  /// What is not tuned runs as the network has it.
  static void require_linear(const StoredPorts& ports, const KernelArgs& args) {
    for (const auto& list : {args.inputs, args.outputs})
      for (const PortDesc& port : list)
        if (port.present && port.type.format != TensorFormat::kLINEAR)
          ports.reject("the engine stores ", opwright::str(*args.candidate),
                       ", and without an autotune function all is in LINEAR");
    if (args.candidate->tactic != 0)
      ports.reject("the engine stores the tactic ", args.candidate->tactic,
                   ", and without an autotune function there is none");
  }

  /// Those of the last infer(), where that can be asked.
  void require_types(const StoredPorts& ports, const KernelArgs& args) const {
    const std::lock_guard lock(mutex_);
    for (size_t o = 0; o < std::min(types_.size(), args.outputs.size()); ++o)
      if (args.outputs[o].type.dtype != types_[o])
        ports.reject("output ", o, " is stored as ", name(args.outputs[o].type.dtype),
                     ", and its register function says ", name(types_[o]));
  }

  /// Of two outputs in one memory, only the one that is written last would be right.
  void check_aliases(std::string_view layer, const std::vector<int>& inputs) const {
    for (size_t o = 0; o < inputs.size(); ++o) {
      if (inputs[o] < 0) continue;
      const auto first = std::find(inputs.begin(), inputs.end(), inputs[o]) - inputs.begin();
      require(std::cmp_equal(first, o), "layer '", layer, "': plugin '", id_of(*definition_),
              "': outputs ", first, " and ", o, " are both aliased to input ", inputs[o],
              "; only one output can take an input's memory, so make the other one with like()");
    }
  }

  /// Takes away the candidates whose aliased outputs have another type or format than their input.
  void drop_split_aliases(const CandidateQuery& query, std::vector<Candidate>& candidates) const {
    const std::vector<int> inputs = outputs().aliased_inputs;
    std::string reason;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      for (size_t o = 0; o < inputs.size(); ++o) {
        if (inputs[o] < 0) continue;
        const PortType &input = candidate.inputs[static_cast<size_t>(inputs[o])],
                       &output = candidate.outputs[o];
        if (input == output) continue;
        reason =
            opwright::str("output ", o, " is ", opwright::str(output), " but aliased to input ",
                          inputs[o], ", which is ", opwright::str(input));
        if (query.dropped != nullptr) query.dropped->push_back({candidate, reason});
        return true;
      }
      return false;
    });
    require(!candidates.empty(), "layer '", query.layer,
            "': no combination that autotune of plugin '", id_of(*definition_),
            "' gave can be used: ", reason,
            "; an output that takes an input's memory needs its type and format, so let both "
            "entries move together, as in AutoTuneCombination(\"FP32|FP16, FP32|FP16\")");
  }

  QuickOutputs outputs() const {
    const std::lock_guard lock(mutex_);
    return outputs_;
  }

  std::unique_ptr<Kernel> make_callback(const KernelArgs& args) const {
    QuickOutputs outputs = this->outputs();
    if (outputs.aliased_inputs.empty()) {  // of an operator that nobody asked for its outputs
      outputs.aliased_inputs.assign(args.outputs.size(), -1);
      outputs.data_dependent.assign(args.outputs.size(), false);
    }
    require(outputs.aliased_inputs.size() == args.outputs.size(), "layer '", args.layer,
            "': plugin '", id_of(*definition_), "': its stored aliases are of ",
            outputs.aliased_inputs.size(), " outputs, the layer has ", args.outputs.size());
    for (const int input : outputs.aliased_inputs)
      require(std::cmp_less(input, args.inputs.size()), "layer '", args.layer, "': plugin '",
              id_of(*definition_), "': an output is stored as aliased to input ", input, " of ",
              args.inputs.size());
    return definition_->make_callback(args, attributes_, outputs);
  }

  OperatorPtr compiled(const KernelArgs& args) const {
    return compiled_.get(args, *timing_key(),
                         [&] { return definition_->compile(args, attributes_); });
  }

  const std::shared_ptr<const QuickDefinition> definition_;
  const FieldValues attributes_;
  const QuickMode mode_;
  const bool is_stored_;      // outputs_ and the attributes are what an engine stores
  mutable std::mutex mutex_;  // of outputs_ and types_, which the last infer() found
  mutable QuickOutputs outputs_;
  mutable std::vector<DataType> types_;
  mutable CompiledKernels compiled_;
};

/// "x, bias=None, *xs"
std::string list_tensors(const std::vector<QuickParameter>& parameters) {
  std::string list;
  for (const QuickParameter& parameter : parameters) {
    if (parameter.is_attribute()) break;
    list += str(list.empty() ? "" : ", ", parameter.kind == ParameterKind::kTensors ? "*" : "",
                parameter.name, parameter.kind == ParameterKind::kOptionalTensor ? "=None" : "");
  }
  return list;
}

}  // namespace

std::string id_of(const QuickDefinition& definition) {
  return make_id(definition.plugin_namespace(), definition.name());
}

const QuickParameter* parameter_of_input(const std::vector<QuickParameter>& parameters,
                                         size_t input) {
  for (const QuickParameter& parameter : parameters) {
    if (parameter.is_attribute()) return nullptr;
    if (parameter.kind == ParameterKind::kTensors || input == 0) return &parameter;
    --input;
  }
  return nullptr;
}

size_t num_fixed_inputs(const std::vector<QuickParameter>& parameters) {
  return static_cast<size_t>(
      std::count_if(parameters.begin(), parameters.end(), [](const QuickParameter& parameter) {
        return !parameter.is_attribute() && parameter.kind != ParameterKind::kTensors;
      }));
}

void check_inputs(const std::vector<QuickParameter>& parameters, const std::vector<bool>& present,
                  std::string_view owner) {
  const auto reject = [&](const auto&... parts) {
    fail(owner, " takes the tensors (", list_tensors(parameters), "), but ", parts...);
  };
  const size_t fixed = num_fixed_inputs(parameters);
  for (size_t i = 0; i < std::max(fixed, present.size()); ++i) {
    const QuickParameter* parameter = parameter_of_input(parameters, i);
    if (parameter == nullptr) reject(present.size(), " came");
    const bool may_be_absent = parameter->kind == ParameterKind::kOptionalTensor;
    if (i >= present.size()) reject("'", parameter->name, "' is missing");
    if (!present[i] && !may_be_absent) reject("input ", i, " ('", parameter->name, "') is absent");
  }
}

void register_quick(std::shared_ptr<const QuickDefinition> definition) {
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

void deregister_quick(const std::string& plugin_namespace, const std::string& name) {
  std::shared_ptr<const QuickDefinition> previous;
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_id.find(make_id(plugin_namespace, name));
  if (found == all.by_id.end()) return;
  previous = std::move(found->second);
  all.by_id.erase(found);
}

std::shared_ptr<const QuickDefinition> find_quick(
    const std::string& plugin_namespace, const std::string& name,
    std::span<const std::shared_ptr<const QuickDefinition>> first) {
  // Of several with an id the last one counts, as for those of the process.
  for (auto each = first.rbegin(); each != first.rend(); ++each)
    if ((*each)->plugin_namespace() == plugin_namespace && (*each)->name() == name) return *each;
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_id.find(make_id(plugin_namespace, name));
  return found != all.by_id.end() ? found->second : nullptr;
}

std::vector<std::shared_ptr<const QuickDefinition>> all_quick() {
  Definitions& all = definitions();
  const std::lock_guard lock(all.mutex);
  std::vector<std::shared_ptr<const QuickDefinition>> list;
  list.reserve(all.by_id.size());
  for (const auto& [id, definition] : all.by_id) list.push_back(definition);
  return list;
}

OperatorPtr make_quick_operator(std::shared_ptr<const QuickDefinition> definition,
                                FieldValues attributes, QuickMode mode, QuickOutputs outputs) {
  return std::make_shared<QuickPlugin>(std::move(definition), std::move(attributes), mode,
                                       std::move(outputs));
}

OperatorPtr load_quick_plugin(const Attributes& attributes, const OperatorLoadContext& context) {
  struct Stored {
    std::string plugin, plugin_namespace;
    bool compiled = false;
    Ints aliased_inputs, data_dependent;
    FieldValues fields;
  } stored;
  AttributeReader reader("QuickPlugin", attributes);
  reader("plugin", stored.plugin);
  reader("namespace", stored.plugin_namespace);
  reader("compiled", stored.compiled);
  reader("aliased_inputs", stored.aliased_inputs);
  reader("data_dependent", stored.data_dependent);
  reader("fields", stored.fields);
  auto definition = find_quick(stored.plugin_namespace, stored.plugin, context.definitions);
  require(definition != nullptr, "layer '", context.layer, "': plugin '",
          make_id(stored.plugin_namespace, stored.plugin), "' is not registered");
  require(stored.aliased_inputs.size() == stored.data_dependent.size(), "layer '", context.layer,
          "': plugin '", make_id(stored.plugin_namespace, stored.plugin),
          "': the stored properties of its outputs do not fit together");
  require(!stored.compiled, "layer '", context.layer, "': plugin '",
          make_id(stored.plugin_namespace, stored.plugin),
          "' is stored as one that aot_impl is to compile; an engine has its compiled kernels in "
          "itself, and nothing is compiled while it is loaded: build it again");
  QuickOutputs outputs;
  for (const int64_t input : stored.aliased_inputs)
    outputs.aliased_inputs.push_back(
        static_cast<int>(std::clamp<int64_t>(input, -1, std::numeric_limits<int>::max())));
  outputs.data_dependent.assign(stored.data_dependent.begin(), stored.data_dependent.end());
  return std::make_shared<QuickPlugin>(std::move(definition), std::move(stored.fields),
                                       QuickMode::kCallback, std::move(outputs), true);
}

QuickMode choose_mode(const QuickDefinition& definition, int aot, bool prefer_aot,
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
    return aot != 0 ? QuickMode::kCompiled : QuickMode::kCallback;
  }
  if (has_aot != has_jit) return has_aot ? QuickMode::kCompiled : QuickMode::kCallback;
  require(!(prefer_aot && prefer_jit),
          "the network has both flags PREFER_AOT_PYTHON_PLUGINS and PREFER_JIT_PYTHON_PLUGINS, so "
          "it does not say which implementation of plugin '",
          id, "' to use");
  if (prefer_aot) return QuickMode::kCompiled;
  if (prefer_jit) return QuickMode::kCallback;
  fail("plugin '", id,
       "' has both an impl and an aot_impl function: say which one with aot=True or aot=False (in "
       "an ONNX model the node's attribute 'aot'), or make the network with the flag "
       "PREFER_AOT_PYTHON_PLUGINS or PREFER_JIT_PYTHON_PLUGINS");
}

}  // namespace opwright
