#include "plugin/abi/v2_model.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "backend/library_handles.h"
#include "base/cast.h"
#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/fixed_shape_plugin.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/abi/resource_context.h"
#include "plugin/kernel/callback_kernel.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/format_search.h"
#include "plugin/model/plugin_operator.h"
#include "plugin/registry/callback.h"

namespace opwright {

namespace {

/// The stored form of a V2 plugin in a plan.
struct StoredV2 {
  CreatorIdentity id;
  int num_inputs = 0;
  int64_t workspace_size = 0;
  Blob serialized;

  template <class V>
  void visit(V& v) {
    v("plugin", id.name);
    v("version", id.version);
    v("namespace", id.plugin_namespace);
    v("num_inputs", num_inputs);
    v("workspace_size", workspace_size);
    v("serialized", serialized);
  }
};

/// Types, formats and ranges of shapes for configuring a plugin.
struct Configuration {
  explicit Configuration(const KernelArgs& args)
      : inputs(describe(args.inputs)), outputs(describe(args.outputs)) {}
  std::vector<DynamicPluginTensorDesc> inputs, outputs;
};

/// Whether the plugin uses library handles. Loading the libraries takes a while. A language's
/// binding knows which methods its plugins define.
bool wants_library_handles(const V2Plugin& plugin) {
  if (!plugin.is_python()) return true;
  const auto* face = cast_to<const AttachmentLimits>(&plugin.object());
  return face == nullptr || face->wants_library_handles();
}

class AttachedV2 {
 public:
  /// `plugin` is a clone of an initialized one.
  AttachedV2(std::shared_ptr<KernelCommunicator> communicator, const KernelArgs& args,
             V2Plugin plugin)
      : layer_(args.layer),
        context_(args, std::move(communicator)),
        configuration_(args),
        inputs_(describe_for_run(args.inputs)),
        outputs_(describe_for_run(args.outputs)),
        plugin_(std::move(plugin)),
        object_(&plugin_.object()),
        device_(args.device) {
    if (wants_library_handles(plugin_)) handles_ = library_handles(args.device, args.services);
    plugin_.call(layer_, [&] {
      object_->attachToContext(handles_ != nullptr ? handles_->cudnn : nullptr,
                               handles_ != nullptr ? handles_->cublas : nullptr,
                               context_.getGpuAllocator());
    });
  }
  ~AttachedV2() {
    call_plugin_quietly([&] { object_->detachFromContext(); });
  }
  AttachedV2(const AttachedV2&) = delete;
  AttachedV2& operator=(const AttachedV2&) = delete;

  ExecutionDomain* domain() const {
    return plugin_.is_python() ? execution_domain(APILanguage::kPYTHON, device_) : nullptr;
  }
  std::string capture_obstacle() const { return capture_obstacle_of(*object_); }
  std::string description() const { return {}; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    resolve(inputs, configuration_.inputs, inputs_);
    resolve(outputs, configuration_.outputs, outputs_);
    plugin_.configure(layer_, configuration_.inputs, configuration_.outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue queue) {
    if (handles_ != nullptr) handles_->use_queue(queue);
    const int32_t status = object_->enqueue(inputs_.data(), outputs_.data(), inputs, outputs,
                                            workspace, static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      plugin_.fail_call(layer_, "enqueue", status);
  }

 private:
  /// Sets the extents for a run.
  static void resolve(std::span<const Shape> shapes, std::span<DynamicPluginTensorDesc> configured,
                      std::span<PluginTensorDesc> run) {
    set_extents(run, shapes);
    for (size_t i = 0; i < run.size(); ++i) configured[i].desc.dims = run[i].dims;
  }

  const std::string layer_;
  const ResourceContext context_;  // outlives the plugin, as the handles do
  std::shared_ptr<const LibraryHandles> handles_;
  Configuration configuration_;
  std::vector<PluginTensorDesc> inputs_, outputs_;
  const V2Plugin plugin_;
  IPluginV2DynamicExt* const object_;
  const Device* const device_;
};

/// The model of a V2 plugin. When it is configured, it is initialized, too, and contexts get
/// clones.
class V2Model final : public PluginModel {
 public:
  V2Model(V2Plugin plugin, int num_inputs, size_t workspace_size = 0)
      : plugin_(std::move(plugin)), num_inputs_(num_inputs), workspace_size_(workspace_size) {}
  IPluginV2& plugin() const { return plugin_as_given(plugin_.object()); }

  std::string_view kind() const override { return "PluginV2"; }
  const CreatorIdentity& identity() const override { return plugin_.identity(); }
  std::unique_ptr<Layer> make_layer() const override { return std::make_unique<PluginV2Layer>(); }
  bool is_of_library() const override { return plugin_.is_of_library(); }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    plugin_.require_inputs(context, static_cast<size_t>(num_inputs_), "V2");
    const int num_outputs = plugin_.num_outputs(context.layer);
    std::vector<OutputInfo> outputs;
    ExprBuilder builder(context, num_outputs, false);
    std::vector<DimsExprs> dims;
    std::vector<DataType> types;
    for (const TensorInfo* input : context.inputs) {
      dims.push_back(builder.wrap(input->dims));
      types.push_back(input->dtype);
    }
    for (int o = 0; o < num_outputs; ++o) {
      OutputInfo& output = outputs.emplace_back();
      output.dims = infer_shape(context.layer, builder, dims, o);
      output.dtype = plugin_.call(context.layer, [&] {
        return plugin_.object().getOutputDataType(o, types.data(), num_inputs_);
      });
      const auto type = static_cast<int32_t>(output.dtype);
      if (type < 0 || type >= EnumMax<DataType>())
        plugin_.reject(context.layer, "getOutputDataType(", o, ") returned the unknown type ",
                       type);
    }
    return outputs;
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    const V2Plugin clone = plugin_.clone(query.layer);
    const FormatSearch search{
        query,
        num_inputs_,
        IPluginV2DynamicExt::kFORMAT_COMBINATION_LIMIT,
        {},
        [&](int pos, auto ports) { return supports(clone, query.layer, pos, ports); }};
    return search_formats(search, plugin_.prefix(query.layer));
  }

  /// TensorRT times every instance of a V2 plugin. Its serialized form would tell instances apart,
  /// but may only be asked for once a plugin is configured and initialized.
  std::optional<std::string> timing_key() const override { return std::nullopt; }

  PluginModelPtr configure(const KernelArgs& args) const override {
    V2Plugin clone = plugin_.clone(args.layer);
    const size_t workspace = configure(clone, args);
    require_workspace(args.device, workspace, clone.prefix(args.layer));
    clone.initialize(args.layer);
    return std::make_shared<V2Model>(std::move(clone), num_inputs_, workspace);
  }

  Attributes store(std::string_view layer) const override {
    AttributeWriter writer;
    StoredV2{identity(), num_inputs_, static_cast<int64_t>(workspace_size_),
             plugin_.serialize(layer)}
        .visit(writer);
    return std::move(writer.attributes);
  }

  void check(const StoredPorts& ports, const KernelArgs& args) const override {
    ports.require_counts(static_cast<size_t>(num_inputs_), plugin_.num_outputs(args.layer));
    const V2Plugin clone = plugin_.clone(args.layer);
    ports.require_supported(
        num_inputs_, [&](int pos, auto descs) { return supports(clone, args.layer, pos, descs); });
    ports.require_tactic(std::array<int32_t, 1>{0});
    ports.require_workspace(configure(clone, args), static_cast<int64_t>(workspace_size_));
  }

  std::unique_ptr<Kernel> attach(const KernelArgs& args) const override {
    return std::make_unique<CallbackKernel<AttachedV2>>(workspace_size_, args, communicates(),
                                                        plugin_.clone(args.layer));
  }

 private:
  SymShape infer_shape(std::string_view layer, ExprBuilder& builder,
                       const std::vector<DimsExprs>& inputs, int output) const {
    const DimsExprs extents = plugin_.call(layer, [&] {
      return plugin_.object().getOutputDimensions(output, inputs.data(), num_inputs_, builder);
    });
    try {
      builder.check();
    } catch (const Error& error) {
      plugin_.reject(layer, "getOutputDimensions(", output, "): ", error.what());
    }
    return builder.unwrap(extents,
                          str(plugin_.prefix(layer), "getOutputDimensions(", output, ") returned"));
  }

  bool supports(const V2Plugin& plugin, std::string_view layer, int pos,
                std::span<const DynamicPluginTensorDesc> ports) const {
    std::vector<PluginTensorDesc> asked;
    for (const DynamicPluginTensorDesc& port : ports) asked.push_back(port.desc);
    return plugin.call(layer, [&] {
      return plugin.object().supportsFormatCombination(
          pos, asked.data(), num_inputs_, static_cast<int>(ports.size()) - num_inputs_);
    });
  }

  /// Configures the plugin and returns the bytes of workspace that it then needs.
  static size_t configure(const V2Plugin& plugin, const KernelArgs& args) {
    const Configuration configuration(args);
    plugin.configure(args.layer, configuration.inputs, configuration.outputs);
    return plugin.workspace_size(args.layer, configuration.inputs, configuration.outputs);
  }

  const V2Plugin plugin_;
  const int num_inputs_;
  const size_t workspace_size_;
};

}  // namespace

OperatorPtr make_plugin_v2_operator(const IPluginV2& plugin, int num_inputs) {
  return adopt_plugin_v2(V2Plugin::clone(plugin), num_inputs);
}

OperatorPtr adopt_plugin_v2(V2Plugin plugin, int num_inputs) {
  return std::make_shared<PluginOperator>(std::make_shared<V2Model>(std::move(plugin), num_inputs));
}

IPluginV2* plugin_v2_of(const Operator& op) {
  const auto* v2 = model_of<V2Model>(op);
  return v2 != nullptr ? &v2->plugin() : nullptr;
}

PluginModelPtr load_plugin_v2(const Attributes& attributes, const OperatorLoadContext& context) {
  StoredV2 stored;
  AttributeReader reader("PluginV2", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.workspace_size >= 0, "layer '", context.layer,
          "': a stored V2 plugin has a negative number of inputs or bytes");
  const CreatorIdentity& id = stored.id;
  const std::string owner = str("layer '", context.layer, "': plugin ", str(id), ": ");
  IPluginCreatorInterface* const creator = find_creator(context.plugins, id);
  require(creator != nullptr, owner, "no creator is registered");
  require(is_v2_creator(*creator), owner, "its creator does not implement IPluginCreator");
  IPluginV2* const made = call_plugin(owner, [&] {
    return static_cast<IPluginCreator*>(creator)->deserializePlugin(
        std::string(context.layer).c_str(), stored.serialized.data(), stored.serialized.size());
  });
  require(made != nullptr, owner, "deserializePlugin() of its creator could not make it from the ",
          stored.serialized.size(), " bytes that the engine stores");
  V2Plugin plugin(made, context.layer);
  plugin.set_namespace(id.plugin_namespace);
  plugin.initialize(context.layer);
  return std::make_shared<V2Model>(std::move(plugin), stored.num_inputs,
                                   static_cast<size_t>(stored.workspace_size));
}

}  // namespace opwright
