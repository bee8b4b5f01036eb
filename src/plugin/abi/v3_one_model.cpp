#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "plugin/abi/resource_context.h"
#include "plugin/abi/v3_model.h"
#include "plugin/kernel/callback_kernel.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/format_search.h"
#include "plugin/registry/callback.h"

namespace opwright {

namespace {

class AttachedV3One {
 public:
  /// `plugin` is a clone that belongs to the caller.
  AttachedV3One(std::shared_ptr<KernelCommunicator> communicator, const KernelArgs& args,
                V3Plugin plugin, int num_inputs)
      : layer_(args.layer),
        context_(args, std::move(communicator)),
        inputs_(describe_for_run(args.inputs.first(static_cast<size_t>(num_inputs)))),
        outputs_(describe_for_run(args.outputs)),
        plugin_(attach(std::move(plugin))),
        runtime_(plugin_.one().runtime),
        device_(args.device) {
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin_.call(layer_, "setTactic", [&] { return runtime_->setTactic(tactic); });
  }

  ExecutionDomain* domain() const {
    return execution_domain(plugin_.object().getAPILanguage(), device_);
  }
  std::string capture_obstacle() const { return capture_obstacle_of(*runtime_); }
  std::string description() const { return {}; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    set_extents(inputs_, inputs);
    set_extents(outputs_, outputs);
    plugin_.call(layer_, "onShapeChange", [&] {
      return runtime_->onShapeChange(inputs_.data(), static_cast<int32_t>(inputs_.size()),
                                     outputs_.data(), static_cast<int32_t>(outputs_.size()));
    });
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue queue) {
    const int32_t status = runtime_->enqueue(inputs_.data(), outputs_.data(), inputs, outputs,
                                             workspace, static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      reject_run(status);
  }

 private:
  [[noreturn]] void reject_run(int32_t status) const {
    const std::string refusal = context_.take_refusal();
    if (refusal.empty()) plugin_.fail_call(layer_, "enqueue", status);
    fail_with(ErrorCode::kINVALID_STATE, plugin_.prefix(layer_), "enqueue() returned ", status,
              ". ", refusal);
  }

  V3Plugin attach(V3Plugin plugin) {
    const KernelCommunicator::Call call(*context_.communicator());
    IPluginV3* const attached =
        plugin.call(layer_, [&] { return plugin.one().runtime->attachToContext(&context_); });
    if (attached == nullptr) plugin.reject(layer_, "attachToContext() returned null");
    // Some plugins return themselves, not a clone.
    if (attached == &plugin.object()) return plugin;
    std::string refused = "it is of the Quick family";
    try {
      V3Plugin owned{std::unique_ptr<IPluginV3>(attached)};
      if (!owned.is_quick()) return owned;
    } catch (const Error& error) {
      refused = error.what();
    }
    plugin.reject(layer_, "what attachToContext() returned cannot be used: ", refused);
  }

  const std::string layer_;
  ResourceContext context_;  // outlives the plugin
  std::vector<PluginTensorDesc> inputs_, outputs_;
  const V3Plugin plugin_;
  IPluginV3OneRuntime* const runtime_;
  const Device* const device_;
};

/// The model of a plugin of the One family. A stored one is configured, because a plugin may
/// serialize what configurePlugin() told it.
class V3OneModel final : public V3Model {
 public:
  using V3Model::V3Model;

  PluginModelPtr configure(const KernelArgs& args) const override {
    V3Plugin clone = configured(args);
    const size_t workspace = wanted_workspace(clone, args);
    return make_v3_one(std::move(clone), inputs(), workspace);
  }
  std::unique_ptr<Kernel> attach(const KernelArgs& args) const override {
    return std::make_unique<CallbackKernel<AttachedV3One>>(workspace_size(), args, communicates(),
                                                           plugin().clone(), inputs().tensors);
  }

 private:
  const char* family() const override { return "PluginV3"; }

  std::vector<Candidate> combinations(const V3Plugin& clone,
                                      const CandidateQuery& query) const override {
    IPluginV3OneBuild& build = *clone.one().build;
    const int limit = clone.call(query.layer, [&] { return build.getFormatCombinationLimit(); });
    const FormatSearch search{
        query, inputs().tensors, static_cast<size_t>(std::max(limit, 0)), aliases(clone, query),
        [&](int pos, auto ports) { return supports(clone, query.layer, pos, ports); }};
    return search_formats(search, clone.prefix(query.layer));
  }

  bool check_combination(const V3Plugin& clone, const StoredPorts& ports,
                         const KernelArgs& args) const override {
    ports.require_supported(inputs().tensors, [&](int pos, auto descs) {
      return supports(clone, args.layer, pos, descs);
    });
    return true;
  }

  bool supports(const V3Plugin& clone, std::string_view layer, int pos,
                std::span<const DynamicPluginTensorDesc> ports) const {
    return clone.call(layer, [&] {
      return clone.one().build->supportsFormatCombination(
          pos, ports.data(), inputs().tensors,
          static_cast<int32_t>(ports.size()) - inputs().tensors);
    });
  }

  size_t wanted_workspace(const V3Plugin& configured, const KernelArgs& args) const override {
    const auto in = describe(args.inputs.first(static_cast<size_t>(inputs().tensors)));
    const auto out = describe(args.outputs);
    const size_t size = configured.call(args.layer, [&] {
      return configured.one().build->getWorkspaceSize(in.data(), inputs().tensors, out.data(),
                                                      static_cast<int32_t>(out.size()));
    });
    require_workspace(args.device, size, configured.prefix(args.layer));
    return size;
  }
};

}  // namespace

PluginModelPtr make_v3_one(V3Plugin plugin, V3Inputs inputs, size_t workspace_size) {
  return std::make_shared<V3OneModel>(std::move(plugin), inputs, workspace_size);
}

}  // namespace opwright
