#include "plugin/abi/v3_operator.h"

#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/abi/resource_context.h"
#include "plugin/abi/v3_creator.h"
#include "plugin/abi/v3_operator_base.h"
#include "plugin/abi/v3_plugin.h"
#include "plugin/abi/v3_quick_operator.h"
#include "plugin/abi/v3_storage.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/fields.h"

namespace opwright {

namespace {

class PluginV3Kernel final : public Kernel {
 public:
  /// `plugin` is the caller's own clone.
  PluginV3Kernel(V3Plugin plugin, const KernelArgs& args, int num_inputs, size_t workspace)
      : layer_(args.layer),
        context_(args),
        inputs_(describe_for_run(args.inputs.first(static_cast<size_t>(num_inputs)))),
        outputs_(describe_for_run(args.outputs)),
        workspace_(workspace),
        plugin_(attach(std::move(plugin))),
        runtime_(&plugin_.runtime()),
        domain_(execution_domain(plugin_.object().getAPILanguage(), args.device)) {
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin_.call(layer_, "setTactic", [&] { return runtime_->setTactic(tactic); });
  }

  size_t workspace_size() const override { return workspace_; }
  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override {
    return domain_ != nullptr ? capture_obstacle_of(*runtime_) : std::string();
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].dims = inputs[i].dims();
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o].dims = outputs[o].dims();
    plugin_.call(layer_, "onShapeChange", [&] {
      return runtime_->onShapeChange(inputs_.data(), static_cast<int32_t>(inputs_.size()),
                                     outputs_.data(), static_cast<int32_t>(outputs_.size()));
    });
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const int32_t status = runtime_->enqueue(inputs_.data(), outputs_.data(), inputs, outputs,
                                             workspace, static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      plugin_.fail_call(layer_, "enqueue", status);
  }

 private:
  V3Plugin attach(V3Plugin plugin) {
    IPluginV3* const attached =
        plugin.call(layer_, [&] { return plugin.runtime().attachToContext(&context_); });
    if (attached == nullptr) plugin.reject(layer_, "attachToContext() returned null");
    // Some plugins return themselves instead of a clone.
    if (attached == &plugin.object()) return plugin;
    try {
      return V3Plugin(std::unique_ptr<IPluginV3>(attached));
    } catch (const Error& error) {
      plugin.reject(layer_, "what attachToContext() returned cannot be used: ", error.what());
    }
  }

  const std::string layer_;
  ResourceContext context_;  // outlives the plugin
  std::vector<PluginTensorDesc> inputs_, outputs_;
  const size_t workspace_;
  V3Plugin plugin_;
  IPluginV3OneRuntime* const runtime_;
  ExecutionDomain* const domain_;
};

/// Configures the plugin and returns the bytes of workspace that it wants then.
size_t configure(const V3Plugin& plugin, const KernelArgs& args, int num_inputs) {
  const auto inputs = describe(args.inputs.first(static_cast<size_t>(num_inputs)));
  const auto outputs = describe(args.outputs);
  plugin.configure(args.layer, inputs, outputs);
  const size_t size = plugin.call(args.layer, [&] {
    return plugin.build().getWorkspaceSize(inputs.data(), num_inputs, outputs.data(),
                                           static_cast<int32_t>(outputs.size()));
  });
  require_workspace(args.device, size, plugin.prefix(args.layer));
  return size;
}

/// Configured, since a plugin may serialize what configurePlugin() told it.
class PlannedV3 final : public PlannedV3Base {
 public:
  PlannedV3(V3Plugin plugin, V3Inputs inputs, size_t workspace_size)
      : PlannedV3Base(plugin.identity(), inputs),
        plugin_(std::move(plugin)),
        workspace_size_(workspace_size) {}

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<PluginV3Kernel>(plugin_.clone(), args, inputs().tensors,
                                            workspace_size_);
  }
  Attributes attributes() const override {
    return store_v3(plugin_, inputs(), static_cast<int64_t>(workspace_size_));
  }

 private:
  const V3Plugin& plugin() const override { return plugin_; }
  void check_configuration(const StoredPorts& ports, const KernelArgs& args) const override {
    const V3Plugin clone = plugin_.clone();
    const auto num_outputs = static_cast<int32_t>(args.outputs.size());
    ports.require_supported(inputs().tensors, [&](int pos, auto descs) {
      return clone.call(args.layer, [&] {
        return clone.build().supportsFormatCombination(pos, descs.data(), inputs().tensors,
                                                       num_outputs);
      });
    });
    const size_t workspace = configure(clone, args, inputs().tensors);
    ports.require_tactic(clone.tactics(args.layer));
    ports.require_workspace(workspace, static_cast<int64_t>(workspace_size_));
  }

  const V3Plugin plugin_;
  const size_t workspace_size_;
};

class PluginV3 final : public PluginV3Base {
 public:
  PluginV3(V3Plugin plugin, V3Inputs inputs) : PluginV3Base(inputs), plugin_(std::move(plugin)) {}

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return v3_candidates(plugin_.clone(), query, inputs().shapes);
  }
  std::optional<std::string> timing_key() const override { return timing_key_of("PluginV3"); }

 private:
  const V3Plugin& plugin() const override { return plugin_; }
  PlannedOperatorPtr configure(const KernelArgs& args) const override {
    V3Plugin clone = plugin_.clone();
    const size_t workspace = opwright::configure(clone, args, inputs().tensors);
    return std::make_shared<PlannedV3>(std::move(clone), inputs(), workspace);
  }

  const V3Plugin plugin_;
};

}  // namespace

OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs) {
  return adopt_plugin_v3(clone_of(plugin), num_inputs, num_shape_inputs);
}

OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs) {
  const V3Inputs inputs{num_inputs, num_shape_inputs};
  if (is_quick(*plugin)) {
    V3QuickPlugin quick(std::move(plugin));
    quick.build();
    return make_v3_quick_operator(std::move(quick), inputs);
  }
  V3Plugin owned(std::move(plugin));
  owned.build();
  return std::make_shared<PluginV3>(std::move(owned), inputs);
}

IPluginV3* plugin_of(const Operator& op) {
  const auto* v3 = dynamic_cast<const PluginV3Base*>(&op);
  return v3 != nullptr ? &v3->object() : nullptr;
}

PlannedOperatorPtr load_plugin_v3(const Attributes& attributes,
                                  const OperatorLoadContext& context) {
  StoredV3 stored;
  AttributeReader reader("PluginV3", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.num_shape_inputs >= 0 && stored.workspace_size >= 0,
          "layer '", context.layer,
          "': a stored V3 plugin has a negative number of inputs or bytes");
  constexpr int kMostInputs = 1 << 20;  // their sum is a number, too
  require(stored.num_inputs <= kMostInputs && stored.num_shape_inputs <= kMostInputs, "layer '",
          context.layer, "': a stored V3 plugin has ", stored.num_inputs, " inputs and ",
          stored.num_shape_inputs, " shape inputs; at most ", kMostInputs, " can be");
  const CreatorIdentity id{stored.plugin, stored.version, stored.plugin_namespace};
  IPluginRegistry& registry = context.plugins ? *context.plugins : *getPluginRegistry();
  IPluginCreatorInterface* creator =
      registry.getCreator(id.name.c_str(), id.version.c_str(), id.plugin_namespace.c_str());
  require(creator != nullptr, "layer '", context.layer, "': no creator is registered for plugin ",
          str(id));
  require(is_v3_creator(*creator), "layer '", context.layer, "': the creator of plugin ", str(id),
          " implements neither IPluginCreatorV3One nor IPluginCreatorV3Quick");
  // An engine stores a plugin itself only where it is called; a compiled kernel stands alone.
  std::unique_ptr<IPluginV3> plugin =
      create_v3(*creator, id, context.layer, stored.fields, TensorRTPhase::kRUNTIME,
                QuickPluginCreationRequest::kSTRICT_JIT);
  require(plugin != nullptr, "layer '", context.layer, "': the creator of plugin ", str(id),
          " could not make it from the ", stored.fields.size(), " fields that the engine stores");
  const V3Inputs inputs{stored.num_inputs, stored.num_shape_inputs};
  try {
    if (is_quick(*plugin)) {
      V3QuickPlugin quick(std::move(plugin));
      require(quick.aot() == nullptr,
              "it brings a compiled kernel, and an engine has those in itself: nothing is compiled "
              "while it is loaded. For this request, kSTRICT_JIT in phase kRUNTIME, make one whose "
              "enqueue() is called");
      return load_v3_quick(std::move(quick), inputs);
    }
    return std::make_shared<PlannedV3>(V3Plugin(std::move(plugin)), inputs,
                                       static_cast<size_t>(stored.workspace_size));
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", context.layer, "': plugin ", str(id),
              ": what its creator made cannot be used: ", error.what());
  }
}

}  // namespace opwright
