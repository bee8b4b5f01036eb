#include "plugin/abi/v2_operator.h"

#include <array>
#include <optional>
#include <utility>

#include "backend/library_handles.h"
#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/fixed_shape_plugin.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/abi/resource_context.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/format_search.h"
#include "plugin/model/plugin_operator.h"
#include "plugin/registry/callback.h"

namespace opwright {

namespace {

/// What a plan stores.
struct Stored {
  std::string plugin, version, plugin_namespace;
  int num_inputs = 0;
  int64_t workspace_size = 0;
  Blob serialized;

  template <class V>
  void visit(V& v) {
    v("plugin", plugin);
    v("version", version);
    v("namespace", plugin_namespace);
    v("num_inputs", num_inputs);
    v("workspace_size", workspace_size);
    v("serialized", serialized);
  }
};

/// The types, the formats and the ranges of shapes that a plugin is configured for.
struct Configuration {
  explicit Configuration(const KernelArgs& args)
      : inputs(describe(args.inputs)), outputs(describe(args.outputs)) {}
  std::vector<DynamicPluginTensorDesc> inputs, outputs;
};

/// Sets the extents of a run.
void resolve(std::span<const Shape> shapes, std::span<DynamicPluginTensorDesc> configured,
             std::span<PluginTensorDesc> run) {
  for (size_t i = 0; i < shapes.size(); ++i)
    run[i].dims = configured[i].desc.dims = shapes[i].dims();
}

/// A language's binding knows what its plugins define; loading the libraries takes a while.
bool wants_library_handles(const V2Plugin& plugin) {
  if (!plugin.is_python()) return true;
  const auto* face = dynamic_cast<const AttachmentLimits*>(&plugin.object());
  return face == nullptr || face->wants_library_handles();
}

class PluginV2Kernel final : public Kernel {
 public:
  /// `plugin` is a clone of an initialized one.
  PluginV2Kernel(V2Plugin plugin, const KernelArgs& args, size_t workspace)
      : layer_(args.layer),
        context_(args),
        configuration_(args),
        inputs_(describe_for_run(args.inputs)),
        outputs_(describe_for_run(args.outputs)),
        workspace_(workspace),
        plugin_(std::move(plugin)),
        object_(&plugin_.object()),
        domain_(plugin_.is_python() ? execution_domain(APILanguage::kPYTHON, args.device)
                                    : nullptr) {
    if (wants_library_handles(plugin_)) handles_ = library_handles(args.device, args.services);
    plugin_.call(layer_, [&] {
      object_->attachToContext(handles_ != nullptr ? handles_->cudnn : nullptr,
                               handles_ != nullptr ? handles_->cublas : nullptr,
                               context_.getGpuAllocator());
    });
  }
  ~PluginV2Kernel() override {
    call_plugin_quietly([&] { object_->detachFromContext(); });
  }

  size_t workspace_size() const override { return workspace_; }
  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override {
    return domain_ != nullptr ? capture_obstacle_of(*object_) : std::string();
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    resolve(inputs, configuration_.inputs, inputs_);
    resolve(outputs, configuration_.outputs, outputs_);
    plugin_.configure(layer_, configuration_.inputs, configuration_.outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const int32_t status = object_->enqueue(inputs_.data(), outputs_.data(), inputs, outputs,
                                            workspace, static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      plugin_.fail_call(layer_, "enqueue", status);
  }

 private:
  const std::string layer_;
  const ResourceContext context_;  // outlives the plugin, as do its handles
  std::shared_ptr<const LibraryHandles> handles_;
  Configuration configuration_;
  std::vector<PluginTensorDesc> inputs_, outputs_;
  const size_t workspace_;
  const V2Plugin plugin_;
  IPluginV2DynamicExt* const object_;
  ExecutionDomain* const domain_;
};

SymShape unwrap(const V2Plugin& plugin, std::string_view layer, const ExprBuilder& builder,
                const DimsExprs& extents, int output) {
  try {
    builder.check();
  } catch (const Error& error) {
    plugin.reject(layer, "getOutputDimensions(", output, "): ", error.what());
  }
  const auto reject = [&](const auto&... parts) {
    plugin.reject(layer, "getOutputDimensions(", output, ") returned ", parts...);
  };
  if (extents.nbDims < 0 || extents.nbDims > Dims::MAX_DIMS)
    reject("a rank of ", extents.nbDims, "; it must be 0 to ", Dims::MAX_DIMS);
  SymShape dims;
  for (int i = 0; i < extents.nbDims; ++i) {
    const Expr* extent = builder.unwrap(extents.d[i]);
    if (extent == nullptr)
      reject("for extent ", i, " no expression of this call's expression builder");
    if (extent->is_constant() && extent->constant() < 0)
      reject("for extent ", i, " the negative value ", extent->constant());
    dims.push_back(*extent);
  }
  return dims;
}

std::vector<OutputInfo> infer_v2(const V2Plugin& plugin, InferContext& context, int num_inputs) {
  if (std::cmp_not_equal(context.inputs.size(), num_inputs))
    plugin.reject(context.layer, "was added with ", num_inputs, " inputs but now has ",
                  context.inputs.size());
  for (size_t i = 0; i < context.inputs.size(); ++i)
    if (context.inputs[i] == nullptr)
      plugin.reject(context.layer, "input ", i, " is absent; V2 plugins need all inputs");
  const int num_outputs = plugin.num_outputs(context.layer);
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
    const DimsExprs extents = plugin.call(context.layer, [&] {
      return plugin.object().getOutputDimensions(o, dims.data(), num_inputs, builder);
    });
    output.dims = unwrap(plugin, context.layer, builder, extents, o);
    output.dtype = plugin.call(context.layer, [&] {
      return plugin.object().getOutputDataType(o, types.data(), num_inputs);
    });
    const auto type = static_cast<int32_t>(output.dtype);
    if (type < 0 || type >= EnumMax<DataType>())
      plugin.reject(context.layer, "getOutputDataType(", o, ") returned the unknown type ", type);
  }
  return outputs;
}

bool supports(const V2Plugin& plugin, std::string_view layer, int num_inputs, int pos,
              std::span<const DynamicPluginTensorDesc> ports) {
  std::vector<PluginTensorDesc> asked;
  for (const DynamicPluginTensorDesc& port : ports) asked.push_back(port.desc);
  return plugin.call(layer, [&] {
    return plugin.object().supportsFormatCombination(pos, asked.data(), num_inputs,
                                                     static_cast<int>(ports.size()) - num_inputs);
  });
}

/// As a plan has it: configured and initialized. Contexts get clones.
class PlannedV2 final : public PlannedPlugin {
 public:
  PlannedV2(V2Plugin plugin, std::string_view layer, int num_inputs, size_t workspace_size)
      : PlannedPlugin("PluginV2", plugin.identity()),
        layer_(layer),
        initialized_(std::move(plugin), layer),
        num_inputs_(num_inputs),
        workspace_size_(workspace_size) {}

  std::vector<OutputInfo> infer(InferContext& context) const override {
    return infer_v2(*initialized_, context, num_inputs_);
  }

  void check_ports(const StoredPorts& ports, const KernelArgs& args) const override {
    ports.require_counts(static_cast<size_t>(num_inputs_), initialized_->num_outputs(args.layer));
    const V2Plugin clone = initialized_->clone(args.layer);
    ports.require_supported(num_inputs_, [&](int pos, auto descs) {
      return supports(clone, args.layer, num_inputs_, pos, descs);
    });
    ports.require_tactic(std::array<int32_t, 1>{0});
    const Configuration configuration(args);
    clone.configure(args.layer, configuration.inputs, configuration.outputs);
    ports.require_workspace(
        clone.workspace_size(args.layer, configuration.inputs, configuration.outputs),
        static_cast<int64_t>(workspace_size_));
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<PluginV2Kernel>(initialized_->clone(args.layer), args, workspace_size_);
  }

  Attributes attributes() const override {
    AttributeWriter writer;
    Stored{identity().name,
           identity().version,
           identity().plugin_namespace,
           num_inputs_,
           static_cast<int64_t>(workspace_size_),
           initialized_->serialize(layer_)}
        .visit(writer);
    return std::move(writer.attributes);
  }

 private:
  const std::string layer_;
  const InitializedV2Plugin initialized_;
  const int num_inputs_;
  const size_t workspace_size_;
};

class PluginV2 final : public PluginOperator {
 public:
  PluginV2(V2Plugin plugin, int num_inputs) : plugin_(std::move(plugin)), num_inputs_(num_inputs) {}

  const std::string& plugin_name() const override { return plugin_.identity().name; }
  IPluginV2& plugin() const { return plugin_as_given(plugin_.object()); }
  std::string_view kind() const override { return "PluginV2"; }
  std::unique_ptr<Layer> make_layer() const override { return std::make_unique<PluginV2Layer>(); }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    return infer_v2(plugin_, context, num_inputs_);
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    const V2Plugin clone = plugin_.clone(query.layer);
    const FormatSearch search{
        query,
        num_inputs_,
        IPluginV2DynamicExt::kFORMAT_COMBINATION_LIMIT,
        {},
        [&](int pos, auto ports) { return supports(clone, query.layer, num_inputs_, pos, ports); }};
    return search_formats(search, plugin_.prefix(query.layer));
  }

  /// TensorRT times every instance of a V2 plugin. What it serializes would tell instances apart,
  /// but may be asked for only once a plugin is configured and initialized.
  std::optional<std::string> timing_key() const override { return std::nullopt; }

 private:
  PlannedOperatorPtr configure(const KernelArgs& args) const override {
    const Configuration configuration(args);
    V2Plugin clone = plugin_.clone(args.layer);
    clone.configure(args.layer, configuration.inputs, configuration.outputs);
    const size_t workspace =
        clone.workspace_size(args.layer, configuration.inputs, configuration.outputs);
    require_workspace(args.device, workspace, clone.prefix(args.layer));
    return std::make_shared<PlannedV2>(std::move(clone), args.layer, num_inputs_, workspace);
  }

  const V2Plugin plugin_;
  const int num_inputs_;
};

}  // namespace

OperatorPtr make_plugin_v2_operator(const IPluginV2& plugin, int num_inputs) {
  return adopt_plugin_v2(V2Plugin::clone(plugin), num_inputs);
}

OperatorPtr adopt_plugin_v2(V2Plugin plugin, int num_inputs) {
  return std::make_shared<PluginV2>(std::move(plugin), num_inputs);
}

IPluginV2* plugin_v2_of(const Operator& op) {
  const auto* v2 = dynamic_cast<const PluginV2*>(&op);
  return v2 != nullptr ? &v2->plugin() : nullptr;
}

PlannedOperatorPtr load_plugin_v2(const Attributes& attributes,
                                  const OperatorLoadContext& context) {
  Stored stored;
  AttributeReader reader("PluginV2", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.workspace_size >= 0, "layer '", context.layer,
          "': a stored V2 plugin has a negative number of inputs or bytes");
  const CreatorIdentity id{stored.plugin, stored.version, stored.plugin_namespace};
  const std::string owner = str("layer '", context.layer, "': plugin ", str(id), ": ");
  IPluginRegistry& registry = context.plugins ? *context.plugins : *getPluginRegistry();
  IPluginCreatorInterface* creator =
      registry.getCreator(id.name.c_str(), id.version.c_str(), id.plugin_namespace.c_str());
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
  return std::make_shared<PlannedV2>(std::move(plugin), context.layer, stored.num_inputs,
                                     static_cast<size_t>(stored.workspace_size));
}

}  // namespace opwright
