#include "plugin/v3_operator.h"

#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/callback.h"
#include "plugin/descriptors.h"
#include "plugin/expr_builder.h"
#include "plugin/fields.h"
#include "plugin/plugin_layers.h"
#include "plugin/resource_context.h"
#include "plugin/stored_ports.h"
#include "plugin/v3_creator.h"
#include "plugin/v3_plugin.h"
#include "plugin/v3_quick_operator.h"
#include "plugin/v3_storage.h"

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
    plugin_.check(layer_, "setTactic", runtime_->setTactic(tactic));
  }

  size_t workspace_size() const override { return workspace_; }
  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override {
    return domain_ != nullptr ? capture_obstacle_of(*runtime_) : std::string();
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].dims = inputs[i].dims();
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o].dims = outputs[o].dims();
    plugin_.check(layer_, "onShapeChange",
                  runtime_->onShapeChange(inputs_.data(), static_cast<int32_t>(inputs_.size()),
                                          outputs_.data(), static_cast<int32_t>(outputs_.size())));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const int32_t status = runtime_->enqueue(inputs_.data(), outputs_.data(), inputs, outputs,
                                             workspace, static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      plugin_.check(layer_, "enqueue", status);
  }

 private:
  V3Plugin attach(V3Plugin plugin) {
    IPluginV3* attached = plugin.runtime().attachToContext(&context_);
    plugin.check(layer_);
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

class PluginV3 final : public Operator {
 public:
  PluginV3(V3Plugin plugin, int num_inputs, int num_shape_inputs, int64_t workspace_size)
      : plugin_(std::move(plugin)),
        num_inputs_(num_inputs),
        num_shape_inputs_(num_shape_inputs),
        workspace_size_(workspace_size) {}

  IPluginV3& plugin() const { return plugin_.object(); }
  std::string_view kind() const override { return "PluginV3"; }
  bool is_pure() const override { return false; }
  bool is_shape_input(int input) const override { return input >= num_inputs_; }
  std::string metadata() const override { return plugin_.metadata(); }
  std::unique_ptr<Layer> make_layer() const override { return std::make_unique<PluginV3Layer>(); }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    ExprBuilder builder(context, plugin_.num_outputs(context.layer));
    return plugin_.infer(context, builder, num_inputs_, num_shape_inputs_);
  }

  bool can_infer() const override { return plugin_.has_build(); }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return v3_candidates(plugin_.clone(), query, num_shape_inputs_);
  }

  /// Of a plugin whose object for the runtime has no build part only the ports are known.
  void check(const KernelArgs& args) const override {
    const StoredPorts ports(args, plugin_.prefix(args.layer));
    plugin_.check_ports(ports, args, num_inputs_, num_shape_inputs_);
    if (!plugin_.has_build()) return;
    const auto num_outputs = static_cast<int32_t>(args.outputs.size());
    const V3Plugin clone = plugin_.clone();
    ports.require_supported(
        num_inputs_, [&](int pos, std::span<const DynamicPluginTensorDesc> descs) {
          const bool supported =
              clone.build().supportsFormatCombination(pos, descs.data(), num_inputs_, num_outputs);
          clone.check(args.layer);
          return supported;
        });
    const int64_t workspace = configure(clone, args);
    ports.require_tactic(clone.tactics(args.layer));
    if (workspace_size_ >= 0)
      ports.require_workspace(static_cast<size_t>(workspace), workspace_size_);
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    V3Plugin clone = plugin_.clone();
    const int64_t workspace = workspace_size_ >= 0 ? workspace_size_ : configure(clone, args);
    return std::make_unique<PluginV3Kernel>(std::move(clone), args, num_inputs_,
                                            static_cast<size_t>(workspace));
  }

  /// A plugin may serialize what configurePlugin() told it, so what is stored is configured for the
  /// chosen candidate.
  OperatorPtr specialize(const KernelArgs& args) const override {
    V3Plugin clone = plugin_.clone();
    const int64_t workspace = configure(clone, args);
    return std::make_shared<PluginV3>(std::move(clone), num_inputs_, num_shape_inputs_, workspace);
  }

  Attributes attributes() const override {
    return store_v3(plugin_, num_inputs_, num_shape_inputs_, workspace_size_);
  }

  std::optional<std::string> timing_key() const override {
    const char* id = plugin_.timing_cache_id();
    if (id == nullptr) return std::nullopt;
    return str("PluginV3 ", str(plugin_.identity()), ' ', id);
  }

  std::vector<PluginRequirement> requirements() const override {
    const CreatorIdentity& id = plugin_.identity();
    return {{"PluginV3", id.name, id.version, id.plugin_namespace}};
  }

 private:
  /// Returns the bytes of workspace.
  int64_t configure(const V3Plugin& plugin, const KernelArgs& args) const {
    const auto inputs = describe(args.inputs.first(static_cast<size_t>(num_inputs_)));
    const auto outputs = describe(args.outputs);
    plugin.configure(args.layer, inputs, outputs);
    const size_t size = plugin.build().getWorkspaceSize(inputs.data(), num_inputs_, outputs.data(),
                                                        static_cast<int32_t>(outputs.size()));
    plugin.check(args.layer);
    require_workspace(args.device, size, plugin.prefix(args.layer));
    return static_cast<int64_t>(size);
  }

  const V3Plugin plugin_;
  const int num_inputs_;
  const int num_shape_inputs_;
  const int64_t workspace_size_;
};

}  // namespace

OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs) {
  return adopt_plugin_v3(clone_of(plugin), num_inputs, num_shape_inputs);
}

OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs) {
  if (is_quick(*plugin)) {
    V3QuickPlugin quick(std::move(plugin));
    quick.build();
    return make_v3_quick_operator(std::move(quick), num_inputs, num_shape_inputs);
  }
  V3Plugin owned(std::move(plugin));
  owned.build();
  return std::make_shared<PluginV3>(std::move(owned), num_inputs, num_shape_inputs, -1);
}

IPluginV3* plugin_of(const Operator& op) {
  const auto* one = dynamic_cast<const PluginV3*>(&op);
  return one != nullptr ? &one->plugin() : quick_plugin_of(op);
}

OperatorPtr load_plugin_v3(const Attributes& attributes, const OperatorLoadContext& context) {
  StoredV3 stored;
  AttributeReader reader("PluginV3", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.num_shape_inputs >= 0 && stored.workspace_size >= -1,
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
  try {
    if (is_quick(*plugin)) {
      V3QuickPlugin quick(std::move(plugin));
      require(quick.aot() == nullptr,
              "it brings a compiled kernel, and an engine has those in itself: nothing is compiled "
              "while it is loaded. For this request, kSTRICT_JIT in phase kRUNTIME, make one whose "
              "enqueue() is called");
      return make_v3_quick_operator(std::move(quick), stored.num_inputs, stored.num_shape_inputs,
                                    true);
    }
    return std::make_shared<PluginV3>(V3Plugin(std::move(plugin)), stored.num_inputs,
                                      stored.num_shape_inputs, stored.workspace_size);
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", context.layer, "': plugin ", str(id),
              ": what its creator made cannot be used: ", error.what());
  }
}

}  // namespace opwright
