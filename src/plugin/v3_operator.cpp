#include "plugin/v3_operator.h"

#include <set>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/callback.h"
#include "plugin/expr_builder.h"
#include "plugin/fields.h"
#include "plugin/plugin_layers.h"
#include "plugin/v3_plugin.h"

namespace opwright {

namespace {

/// Memory of the device that a kernel runs on, for plugins that want their own.
class DeviceAllocator final : public IGpuAllocator {
 public:
  explicit DeviceAllocator(const Device* device) : device_(device) {}
  void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags) noexcept override {
    if (device_ == nullptr || size == 0 || alignment > kAlignment) return nullptr;
    try {
      return device_->allocate(size);
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  bool deallocate(void* memory) noexcept override {
    if (memory != nullptr) device_->free(memory);
    return true;
  }

 private:
  static constexpr uint64_t kAlignment = 64;  // what Device::allocate() promises
  const Device* device_;
};

class ResourceContext final : public IPluginResourceContext {
 public:
  explicit ResourceContext(const Device* device) : allocator_(device) {}
  IGpuAllocator* getGpuAllocator() const noexcept override { return &allocator_; }
  IErrorRecorder* getErrorRecorder() const noexcept override { return nullptr; }

 private:
  mutable DeviceAllocator allocator_;
};

std::vector<PluginTensorDesc> describe_for_run(std::span<const PortDesc> ports) {
  std::vector<PluginTensorDesc> descs;
  descs.reserve(ports.size());
  for (const PortDesc& port : ports) descs.push_back(describe(port, port.type).desc);
  return descs;
}

class PluginV3Kernel final : public Kernel {
 public:
  /// `plugin` is the caller's own clone.
  PluginV3Kernel(V3Plugin plugin, const KernelArgs& args, int num_inputs, size_t workspace)
      : layer_(args.layer),
        context_(args.device),
        inputs_(describe_for_run(args.inputs.first(static_cast<size_t>(num_inputs)))),
        outputs_(describe_for_run(args.outputs)),
        workspace_(workspace),
        plugin_(attach(std::move(plugin))),
        runtime_(&plugin_.runtime()),
        domain_(execution_domain(plugin_.object().getAPILanguage())) {
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin_.check(layer_, "setTactic", runtime_->setTactic(tactic));
  }

  size_t workspace_size() const override { return workspace_; }
  ExecutionDomain* domain() const override { return domain_; }

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
    plugin.check();
    if (attached == nullptr) plugin.reject(layer_, "attachToContext() returned null");
    // Some plugins return themselves instead of a clone.
    if (attached == &plugin.object()) return plugin;
    return V3Plugin(std::unique_ptr<IPluginV3>(attached));
  }

  const std::string layer_;
  ResourceContext context_;  // outlives the plugin
  std::vector<PluginTensorDesc> inputs_, outputs_;
  const size_t workspace_;
  V3Plugin plugin_;
  IPluginV3OneRuntime* const runtime_;
  ExecutionDomain* const domain_;
};

/// What a plan stores besides the fields.
struct Stored {
  std::string plugin, version, plugin_namespace;
  int num_inputs = 0;
  int num_shape_inputs = 0;
  /// Known once a candidate was chosen, else -1.
  int64_t workspace_size = -1;

  template <class V>
  void visit(V& v) {
    v("plugin", plugin);
    v("version", version);
    v("namespace", plugin_namespace);
    v("num_inputs", num_inputs);
    v("num_shape_inputs", num_shape_inputs);
    v("workspace_size", workspace_size);
  }
  static constexpr size_t kCount = 6;
};

constexpr size_t kMaxWorkspace = size_t{1} << 47;

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
  std::string metadata() const override {
    const char* text = plugin_.build().getMetadataString();
    plugin_.check();
    return text != nullptr ? text : "";
  }
  std::unique_ptr<Layer> make_layer() const override { return std::make_unique<PluginV3Layer>(); }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    check_inputs(context);
    const int num_outputs = plugin_.num_outputs(context.layer);
    const std::vector<DataType> types = infer_types(context, num_outputs);
    std::vector<OutputInfo> outputs = infer_shapes(context, num_outputs);
    std::set<int> aliased;
    for (int o = 0; o < num_outputs; ++o) {
      OutputInfo& output = outputs[o];
      output.dtype = types[o];
      output.aliased_input = plugin_.aliased_input(context.layer, o, num_inputs_);
      if (output.aliased_input < 0) continue;
      if (!aliased.insert(output.aliased_input).second)
        plugin_.reject(context.layer, "input ", output.aliased_input, " is aliased to two outputs");
      const TensorInfo& input = *context.inputs[output.aliased_input];
      if (input.dtype != output.dtype)
        plugin_.reject(context.layer, "output ", o, " is aliased to input ", output.aliased_input,
                       " of type ", name(input.dtype), " but has type ", name(output.dtype));
    }
    return outputs;
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return v3_candidates(plugin_.clone(), query, num_shape_inputs_);
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
    const CreatorIdentity& id = plugin_.identity();
    AttributeWriter writer;
    Stored{id.name,     id.version,        id.plugin_namespace,
           num_inputs_, num_shape_inputs_, workspace_size_}
        .visit(writer);
    for (Attribute& field : encode_fields(fields())) writer.attributes.push_back(std::move(field));
    return std::move(writer.attributes);
  }

  std::optional<std::string> timing_key() const override {
    const char* id = plugin_.build().getTimingCacheID();
    plugin_.check();
    if (id == nullptr) return std::nullopt;
    return str("PluginV3 ", str(plugin_.identity()), ' ', id);
  }

  std::vector<PluginRequirement> requirements() const override {
    const CreatorIdentity& id = plugin_.identity();
    return {{"PluginV3", id.name, id.version, id.plugin_namespace}};
  }

 private:
  void check_inputs(const InferContext& context) const {
    const auto expected = static_cast<size_t>(num_inputs_ + num_shape_inputs_);
    if (context.inputs.size() != expected)
      plugin_.reject(context.layer, "was added with ", expected, " inputs but now has ",
                     context.inputs.size());
    for (size_t i = 0; i < expected; ++i)
      if (context.inputs[i] == nullptr)
        plugin_.reject(context.layer, "input ", i, " is absent; V3 plugins need all inputs");
  }

  std::vector<DataType> infer_types(const InferContext& context, int num_outputs) const {
    std::vector<DataType> inputs;
    for (int i = 0; i < num_inputs_; ++i) inputs.push_back(context.inputs[i]->dtype);
    constexpr auto kUnset = static_cast<DataType>(-1);
    std::vector<DataType> outputs(static_cast<size_t>(num_outputs), kUnset);
    plugin_.check(context.layer, "getOutputDataTypes",
                  plugin_.build().getOutputDataTypes(outputs.data(), num_outputs, inputs.data(),
                                                     num_inputs_));
    for (int o = 0; o < num_outputs; ++o) {
      const auto type = static_cast<int32_t>(outputs[o]);
      if (outputs[o] == kUnset)
        plugin_.reject(context.layer, "getOutputDataTypes() set no type for output ", o);
      if (type < 0 || type >= EnumMax<DataType>())
        plugin_.reject(context.layer, "getOutputDataTypes() set the unknown type ", type,
                       " for output ", o);
    }
    return outputs;
  }

  std::vector<OutputInfo> infer_shapes(InferContext& context, int num_outputs) const {
    ExprBuilder builder(context, num_outputs);
    std::vector<DimsExprs> inputs, shape_inputs;
    for (int i = 0; i < num_inputs_; ++i) inputs.push_back(builder.wrap(context.inputs[i]->dims));
    for (int s = 0; s < num_shape_inputs_; ++s) {
      const TensorInfo& input = *context.inputs[num_inputs_ + s];
      if (input.values == nullptr)
        plugin_.reject(context.layer, "shape input ", s,
                       " must be a shape tensor, whose values are known from shapes, constants or "
                       "shape inputs of the network");
      if (input.values->size() > static_cast<size_t>(Dims::MAX_DIMS))
        plugin_.reject(context.layer, "shape input ", s, " has ", input.values->size(),
                       " elements, more than ", Dims::MAX_DIMS);
      shape_inputs.push_back(builder.wrap(*input.values));
    }
    DimsExprs unset{};
    unset.nbDims = -1;
    std::vector<DimsExprs> outputs(static_cast<size_t>(num_outputs), unset);
    const int status =
        plugin_.build().getOutputShapes(inputs.data(), num_inputs_, shape_inputs.data(),
                                        num_shape_inputs_, outputs.data(), num_outputs, builder);
    plugin_.check();
    try {
      builder.check();
    } catch (const Error& error) {
      plugin_.reject(context.layer, "getOutputShapes(): ", error.what());
    }
    plugin_.check(context.layer, "getOutputShapes", status);

    std::vector<OutputInfo> infos(static_cast<size_t>(num_outputs));
    for (int o = 0; o < num_outputs; ++o) {
      const DimsExprs& dims = outputs[o];
      if (dims.nbDims == -1)
        plugin_.reject(context.layer, "getOutputShapes() set no shape for output ", o);
      if (dims.nbDims < 0 || dims.nbDims > Dims::MAX_DIMS)
        plugin_.reject(context.layer, "getOutputShapes() gave output ", o, " a rank of ",
                       dims.nbDims, "; it must be 0 to ", Dims::MAX_DIMS);
      if (builder.is_size_tensor(o) && dims.nbDims != 0)
        plugin_.reject(context.layer, "output ", o,
                       " is a size tensor, so its rank must be 0, but it is ", dims.nbDims);
      for (int i = 0; i < dims.nbDims; ++i) {
        const Expr* extent = builder.unwrap(dims.d[i]);
        if (extent == nullptr)
          plugin_.reject(context.layer, "getOutputShapes() gave extent ", i, " of output ", o,
                         " no expression of this call's expression builder");
        if (extent->is_constant() && extent->constant() < 0)
          plugin_.reject(context.layer, "getOutputShapes() gave extent ", i, " of output ", o,
                         " the negative value ", extent->constant());
        infos[o].dims.push_back(*extent);
      }
    }
    return infos;
  }

  /// Returns the bytes of workspace.
  int64_t configure(const V3Plugin& plugin, const KernelArgs& args) const {
    const auto inputs = describe(args.inputs.first(static_cast<size_t>(num_inputs_)));
    const auto outputs = describe(args.outputs);
    plugin.configure(args.layer, inputs, outputs);
    const size_t size = plugin.build().getWorkspaceSize(inputs.data(), num_inputs_, outputs.data(),
                                                        static_cast<int32_t>(outputs.size()));
    plugin.check();
    if (size > kMaxWorkspace)
      plugin.reject(args.layer, "getWorkspaceSize() returned ", size,
                    " bytes, more than a process can address");
    return static_cast<int64_t>(size);
  }

  FieldValues fields() const {
    const PluginFieldCollection* collection = plugin_.runtime().getFieldsToSerialize();
    plugin_.check();
    require(collection != nullptr, "plugin ", str(plugin_.identity()),
            ": getFieldsToSerialize() returned null");
    return copy_fields(*collection);
  }

  const V3Plugin plugin_;
  const int num_inputs_;
  const int num_shape_inputs_;
  const int64_t workspace_size_;
};

}  // namespace

OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs) {
  V3Plugin clone = V3Plugin::clone(plugin);
  clone.build();
  return std::make_shared<PluginV3>(std::move(clone), num_inputs, num_shape_inputs, -1);
}

OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs) {
  V3Plugin owned(std::move(plugin));
  owned.build();
  return std::make_shared<PluginV3>(std::move(owned), num_inputs, num_shape_inputs, -1);
}

IPluginV3* plugin_of(const Operator& op) {
  const auto* v3 = dynamic_cast<const PluginV3*>(&op);
  return v3 != nullptr ? &v3->plugin() : nullptr;
}

OperatorPtr load_plugin_v3(const Attributes& attributes, const OperatorLoadContext& context) {
  Stored stored;
  AttributeReader reader("PluginV3", attributes);
  stored.visit(reader);
  require(stored.num_inputs >= 0 && stored.num_shape_inputs >= 0 && stored.workspace_size >= -1,
          "layer '", context.layer,
          "': a stored V3 plugin has a negative number of inputs or bytes");
  const CreatorIdentity id{stored.plugin, stored.version, stored.plugin_namespace};
  IPluginRegistry& registry = context.plugins ? *context.plugins : *getPluginRegistry();
  IPluginCreatorInterface* creator =
      registry.getCreator(id.name.c_str(), id.version.c_str(), id.plugin_namespace.c_str());
  require(creator != nullptr, "layer '", context.layer, "': no creator is registered for plugin ",
          str(id));
  require(is_kind(*creator, "PLUGIN CREATOR_V3ONE"), "layer '", context.layer,
          "': the creator of plugin ", str(id), " does not implement IPluginCreatorV3One");
  const FieldValues values =
      decode_fields(Attributes(attributes.begin() + Stored::kCount, attributes.end()));
  const std::vector<PluginField> fields = point_to(values);
  const PluginFieldCollection collection{static_cast<int32_t>(fields.size()), fields.data()};
  std::unique_ptr<IPluginV3> plugin(static_cast<IPluginCreatorV3One*>(creator)->createPlugin(
      std::string(context.layer).c_str(), &collection, TensorRTPhase::kRUNTIME));
  rethrow_pending_exception();
  require(plugin != nullptr, "layer '", context.layer, "': the creator of plugin ", str(id),
          " could not make it from the ", fields.size(), " fields that the engine stores");
  return std::make_shared<PluginV3>(V3Plugin(std::move(plugin)), stored.num_inputs,
                                    stored.num_shape_inputs, stored.workspace_size);
}

}  // namespace opwright
