#include "plugin/quick.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "plugin/compiled_kernels.h"
#include "plugin/registration.h"

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

std::string id_of(const QuickDefinition& definition) {
  return make_id(definition.plugin_namespace(), definition.name());
}

DeviceType device_type(const Device* device) {
  return device != nullptr ? device->type() : DeviceType::kCPU;
}

class QuickPlugin final : public Operator {
 public:
  QuickPlugin(std::shared_ptr<const QuickDefinition> definition, FieldValues attributes,
              QuickMode mode)
      : definition_(std::move(definition)), attributes_(std::move(attributes)), mode_(mode) {}

  std::string_view kind() const override { return "QuickPlugin"; }
  bool is_pure() const override { return false; }

  std::vector<OutputInfo> infer(InferContext& context) const override {
    std::vector<OutputInfo> outputs = definition_->infer(context, attributes_);
    require(std::cmp_equal(outputs.size(), definition_->num_outputs()), "layer '", context.layer,
            "': plugin '", id_of(*definition_), "' described ", outputs.size(),
            " outputs, expected ", definition_->num_outputs());
    return outputs;
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
    return candidates;
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    check_implementation(args.layer, args.device);
    return mode_ == QuickMode::kCompiled ? compiled(args)->make_kernel(args)
                                         : definition_->make_callback(args, attributes_);
  }

  OperatorPtr specialize(const KernelArgs& args) const override {
    return mode_ == QuickMode::kCompiled ? compiled(args) : nullptr;
  }

  Attributes attributes() const override {
    Attributes all{{"plugin", definition_->name()},
                   {"namespace", definition_->plugin_namespace()},
                   {"compiled", int64_t{mode_ == QuickMode::kCompiled}}};
    FieldValues stored = attributes_;
    if (mode_ == QuickMode::kCallback) {
      const std::vector<std::string> used = definition_->impl_attributes();
      std::erase_if(stored, [&](const FieldValue& field) {
        return std::find(used.begin(), used.end(), field.name) == used.end();
      });
    }
    for (Attribute& field : encode_fields(stored)) all.push_back(std::move(field));
    return all;
  }

  std::optional<std::string> timing_key() const override {
    return str("QuickPlugin ", id_of(*definition_),
               mode_ == QuickMode::kCompiled ? " compiled " : " callback ",
               opwright::str(encode_fields(attributes_)));
  }

  std::vector<PluginRequirement> requirements() const override {
    if (mode_ == QuickMode::kCompiled) return {};
    return {{"QuickPlugin", definition_->name(), "1", definition_->plugin_namespace()}};
  }

 private:
  void check_implementation(std::string_view layer, const Device* device) const {
    if (mode_ == QuickMode::kCompiled) {
      require(definition_->has_aot_impl(), "layer '", layer, "': plugin '", id_of(*definition_),
              "' has no aot_impl function");
    } else {
      require(definition_->has_impl(device_type(device)), "layer '", layer, "': plugin '",
              id_of(*definition_), "' has no impl function for the ",
              device_type(device) == DeviceType::kCPU ? "CPU" : "GPU");
    }
  }

  OperatorPtr compiled(const KernelArgs& args) const {
    return compiled_.get(args, *timing_key(),
                         [&] { return definition_->compile(args, attributes_); });
  }

  const std::shared_ptr<const QuickDefinition> definition_;
  const FieldValues attributes_;
  const QuickMode mode_;
  mutable CompiledKernels compiled_;
};

}  // namespace

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
                                FieldValues attributes, QuickMode mode) {
  return std::make_shared<QuickPlugin>(std::move(definition), std::move(attributes), mode);
}

OperatorPtr load_quick_plugin(const Attributes& attributes, const OperatorLoadContext& context) {
  struct Stored {
    std::string plugin, plugin_namespace;
    bool compiled = false;
  } stored;
  AttributeReader reader("QuickPlugin", attributes);
  reader("plugin", stored.plugin);
  reader("namespace", stored.plugin_namespace);
  reader("compiled", stored.compiled);
  auto definition = find_quick(stored.plugin_namespace, stored.plugin, context.definitions);
  require(definition != nullptr, "layer '", context.layer, "': plugin '",
          make_id(stored.plugin_namespace, stored.plugin), "' is not registered");
  return make_quick_operator(std::move(definition),
                             decode_fields(Attributes(attributes.begin() + 3, attributes.end())),
                             stored.compiled ? QuickMode::kCompiled : QuickMode::kCallback);
}

QuickMode choose_mode(const QuickDefinition& definition, int aot, bool prefer_aot,
                      bool prefer_jit) {
  const bool has_aot = definition.has_aot_impl();
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
