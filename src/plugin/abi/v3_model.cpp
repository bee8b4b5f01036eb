#include "plugin/abi/v3_model.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "network/operator_registry.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/abi/v3_creator.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

namespace {

/// The stored form of a V3 plugin in a plan.
struct StoredV3 {
  CreatorIdentity id;
  int num_inputs = 0;
  int num_shape_inputs = 0;
  int64_t workspace_size = 0;
  FieldValues fields;

  template <class V>
  void visit(V& v) {
    v("plugin", id.name);
    v("version", id.version);
    v("namespace", id.plugin_namespace);
    v("num_inputs", num_inputs);
    v("num_shape_inputs", num_shape_inputs);
    v("workspace_size", workspace_size);
    v("fields", fields);
  }
};

PluginModelPtr make_model(V3Plugin plugin, V3Inputs inputs, size_t workspace_size) {
  return plugin.is_quick() ? make_v3_quick(std::move(plugin), inputs)
                           : make_v3_one(std::move(plugin), inputs, workspace_size);
}

}  // namespace

std::unique_ptr<Layer> V3Model::make_layer() const { return std::make_unique<PluginV3Layer>(); }

std::vector<OutputInfo> V3Model::infer(InferContext& context) const {
  ExprBuilder builder(context, plugin_.num_outputs(context.layer));
  return plugin_.infer(context, builder, inputs_);
}

std::vector<Candidate> V3Model::candidates(const CandidateQuery& query) const {
  const V3Plugin clone = plugin_.clone();  // is configured while it is asked
  std::vector<Candidate> candidates;
  for (Candidate& candidate : combinations(clone, query)) {
    std::vector<DynamicPluginTensorDesc> inputs, outputs;
    for (size_t i = 0; std::cmp_less(i, inputs_.tensors); ++i)
      inputs.push_back(describe(query.inputs[i], candidate.inputs[i]));
    for (size_t o = 0; o < query.outputs.size(); ++o)
      outputs.push_back(describe(query.outputs[o], candidate.outputs[o]));
    clone.configure(query.layer, inputs, outputs);
    for (const int32_t tactic : clone.tactics(query.layer)) {
      candidate.tactic = tactic;
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

std::optional<std::string> V3Model::timing_key() const {
  const char* id = plugin_.timing_cache_id();
  if (id == nullptr) return std::nullopt;
  return str(family(), ' ', str(identity()), ' ', id);
}

Attributes V3Model::store(std::string_view) const {
  AttributeWriter writer;
  StoredV3{identity(), inputs_.tensors, inputs_.shapes, static_cast<int64_t>(workspace_size_),
           plugin_.fields()}
      .visit(writer);
  return std::move(writer.attributes);
}

/// Checks the plugin. If its runtime object has no build part, only the ports can be checked.
void V3Model::check(const StoredPorts& ports, const KernelArgs& args) const {
  plugin_.check_ports(ports, args, inputs_);
  if (!plugin_.has_build()) return;
  const bool is_listed = check_combination(plugin_.clone(), ports, args);
  const V3Plugin clone = configured(args);
  const size_t workspace = wanted_workspace(clone, args);
  const std::vector<int32_t> tactics = is_listed ? clone.tactics(args.layer) : std::vector{0};
  if (clone.may_lack_autotune() && tactics == std::vector{0})
    ports.require_tactic_number(std::numeric_limits<int32_t>::max());
  else
    ports.require_tactic(tactics);
  ports.require_workspace(workspace, static_cast<int64_t>(workspace_size_));
}

std::vector<DynamicPluginTensorDesc> V3Model::describe_all(
    std::span<const PortDesc> inputs, std::span<const PortDesc> outputs) const {
  auto ports = describe(inputs.first(static_cast<size_t>(inputs_.tensors)));
  for (const DynamicPluginTensorDesc& output : describe(outputs)) ports.push_back(output);
  return ports;
}

V3Plugin V3Model::configured(const KernelArgs& args) const {
  V3Plugin clone = plugin_.clone();
  clone.configure(args.layer, describe(args.inputs.first(static_cast<size_t>(inputs_.tensors))),
                  describe(args.outputs));
  return clone;
}

std::vector<std::pair<int, int>> V3Model::aliases(const V3Plugin& clone,
                                                  const CandidateQuery& query) const {
  std::vector<std::pair<int, int>> aliased;
  for (int o = 0; std::cmp_less(o, query.outputs.size()); ++o) {
    const int input = clone.aliased_input(query.layer, o, inputs_.tensors);
    if (input >= 0) aliased.emplace_back(input, o);
  }
  return aliased;
}

OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs) {
  return adopt_plugin_v3(clone_of(plugin), num_inputs, num_shape_inputs);
}

OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs) {
  V3Plugin owned(std::move(plugin));
  owned.require_build();
  require(!owned.is_compiled() || num_shape_inputs == 0, "plugin ", str(owned.identity()),
          " brings a compiled kernel, so it cannot have shape inputs, but was given ",
          num_shape_inputs, "; make it a plugin that is called, or pass shapes as tensors");
  return std::make_shared<PluginOperator>(
      make_model(std::move(owned), {num_inputs, num_shape_inputs}, 0));
}

IPluginV3* plugin_of(const Operator& op) {
  const auto* v3 = model_of<V3Model>(op);
  return v3 != nullptr ? &v3->object() : nullptr;
}

PluginModelPtr load_plugin_v3(const Attributes& attributes, const OperatorLoadContext& context) {
  StoredV3 stored;
  AttributeReader reader("PluginV3", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.num_shape_inputs >= 0 && stored.workspace_size >= 0,
          "layer '", context.layer,
          "': a stored V3 plugin has a negative number of inputs or bytes");
  constexpr int kMostInputs = 1 << 20;  // limits their sum, too
  require(stored.num_inputs <= kMostInputs && stored.num_shape_inputs <= kMostInputs, "layer '",
          context.layer, "': a stored V3 plugin has ", stored.num_inputs, " inputs and ",
          stored.num_shape_inputs, " shape inputs; at most ", kMostInputs, " can be");
  const CreatorIdentity& id = stored.id;
  IPluginCreatorInterface* const creator = find_creator(context.plugins, id);
  require(creator != nullptr, "layer '", context.layer, "': no creator is registered for plugin ",
          str(id));
  require(is_v3_creator(*creator), "layer '", context.layer, "': the creator of plugin ", str(id),
          " implements neither IPluginCreatorV3One nor IPluginCreatorV3Quick");
  // An engine only stores a plugin itself if it is called. A compiled kernel does not need its
  // plugin.
  std::unique_ptr<IPluginV3> plugin =
      create_v3(*creator, id, context.layer, stored.fields, TensorRTPhase::kRUNTIME,
                QuickPluginCreationRequest::kSTRICT_JIT);
  require(plugin != nullptr, "layer '", context.layer, "': the creator of plugin ", str(id),
          " could not make it from the ", stored.fields.size(), " fields that the engine stores");
  try {
    V3Plugin owned(std::move(plugin));
    require(!owned.is_compiled(),
            "it brings a compiled kernel, and an engine has those in itself: nothing is compiled "
            "while it is loaded. For this request, kSTRICT_JIT in phase kRUNTIME, make one whose "
            "enqueue() is called");
    return make_model(std::move(owned), {stored.num_inputs, stored.num_shape_inputs},
                      static_cast<size_t>(stored.workspace_size));
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", context.layer, "': plugin ", str(id),
              ": what its creator made cannot be used: ", error.what());
  }
}

}  // namespace opwright
