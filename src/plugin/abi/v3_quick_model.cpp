#include <algorithm>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/quick_launch.h"
#include "plugin/abi/v3_model.h"
#include "plugin/kernel/callback_kernel.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/model/autotune.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/shared_object.h"

namespace opwright {

namespace {

class AttachedV3Quick {
 public:
  /// `plugin` is a clone that belongs to the caller.
  AttachedV3Quick(const std::shared_ptr<KernelCommunicator>&, const KernelArgs& args,
                  V3Plugin plugin, int num_inputs)
      : layer_(args.layer),
        plugin_(std::move(plugin)),
        runtime_(plugin_.quick().runtime),
        device_(args.device),
        inputs_(args.inputs.first(static_cast<size_t>(num_inputs))),
        outputs_(args.outputs) {
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin_.call(layer_, "setTactic", [&] { return runtime_->setTactic(tactic); });
  }

  ExecutionDomain* domain() const {
    return execution_domain(plugin_.object().getAPILanguage(), device_);
  }
  std::string capture_obstacle() const { return capture_obstacle_of(*runtime_); }
  std::string description() const { return {}; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    inputs_.set(inputs);
    outputs_.set(outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) {
    const int32_t status = runtime_->enqueue(
        inputs_.descs.data(), outputs_.descs.data(), inputs, outputs, inputs_.strides.data(),
        outputs_.strides.data(), static_cast<int32_t>(inputs_.descs.size()),
        static_cast<int32_t>(outputs_.descs.size()), static_cast<cudaStream_t>(queue));
    if (status != 0) [[unlikely]]
      plugin_.fail_call(layer_, "enqueue", status);
  }

 private:
  struct Ports {
    explicit Ports(std::span<const PortDesc> ports)
        : descs(describe_for_run(ports)), strides(ports.size()) {}
    void set(std::span<const Shape> shapes) {
      set_extents(descs, shapes);
      for (size_t i = 0; i < descs.size(); ++i) strides[i] = strides_of(shapes[i], descs[i].format);
    }
    std::vector<PluginTensorDesc> descs;
    std::vector<Dims> strides;
  };

  const std::string layer_;
  const V3Plugin plugin_;
  IPluginV3QuickRuntime* const runtime_;
  const Device* const device_;
  Ports inputs_, outputs_;
};

/// The ports of a candidate, as a plugin with a compiled kernel sees them: extents are the symbols
/// of KernelCode.
class LaunchContext final : public InferContext {
 public:
  explicit LaunchContext(const KernelArgs& args) : tensors_(args.inputs.size()) {
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const PortDesc& port = args.inputs[i];
      tensors_[i].dtype = port.type.dtype;
      for (int axis = 0; axis < port.opt.rank(); ++axis, ++num_extents_)
        tensors_[i].dims.push_back(port.min[axis] == port.max[axis] ? Expr(port.opt[axis])
                                                                    : Expr::symbol(num_extents_));
      pointers_.push_back(&tensors_[i]);
    }
    inputs = pointers_;
    layer = args.layer;
  }

  Expr declare_size_tensor(int, const Expr&, const Expr&) override {
    return Expr::symbol(num_extents_ + num_sizes_++);
  }
  /// Throws Error for an expression over sizes that are known only after the kernel has run.
  void check(const Expr& expr, const char* what) const {
    std::vector<bool> sizes(static_cast<size_t>(num_extents_ + num_sizes_), false);
    for (int i = 0; i < num_sizes_; ++i) sizes[static_cast<size_t>(num_extents_ + i)] = true;
    require(!expr.depends_on(sizes), what,
            " depends on a size tensor, which the kernel itself writes");
  }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<const TensorInfo*> pointers_;
  int num_extents_ = 0, num_sizes_ = 0;
};

/// The target that the code of the last getKernel() needs; empty if it is not known.
std::string kernel_target(const IPluginV3QuickAOTBuild* build) {
  // A cast needs type information. Other languages' libraries may be compiled without it.
  if (build->getAPILanguage() != APILanguage::kPYTHON) return {};
  const auto* target = dynamic_cast<const KernelTarget*>(build);
  return target != nullptr ? target->kernel_target() : std::string();
}

/// The model of a plugin of the Quick family. A stored one is configured, because a plugin may
/// serialize what configurePlugin() told it.
class V3QuickModel final : public V3Model {
 public:
  V3QuickModel(V3Plugin plugin, V3Inputs inputs) : V3Model(std::move(plugin), inputs, 0) {}

  bool is_compiled() const override { return plugin().is_compiled(); }
  PluginModelPtr configure(const KernelArgs& args) const override {
    return make_v3_quick(configured(args), inputs());
  }
  std::unique_ptr<Kernel> attach(const KernelArgs& args) const override {
    return std::make_unique<CallbackKernel<AttachedV3Quick>>(0, args, communicates(),
                                                             plugin().clone(), inputs().tensors);
  }

  KernelCode compile(const KernelArgs& args) const override {
    const V3Plugin plugin = configured(args);
    LaunchContext context(args);
    ExprBuilder builder(context, static_cast<int>(args.outputs.size()));
    // Decorator layers keep the expressions of getOutputShapes() for getLaunchParams().
    plugin.infer(context, builder, inputs());
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin.call(args.layer, "setTactic", [&] { return plugin.quick().aot->setTactic(tactic); });
    KernelCode code;
    take_launch(plugin, args, context, builder, code);
    take_kernel(plugin, args, code);
    return code;
  }

 private:
  const char* family() const override {
    return is_compiled() ? "PluginV3Quick compiled" : "PluginV3Quick callback";
  }
  size_t wanted_workspace(const V3Plugin&, const KernelArgs&) const override { return 0; }

  std::vector<Candidate> combinations(const V3Plugin& clone,
                                      const CandidateQuery& query) const override;
  bool check_combination(const V3Plugin& clone, const StoredPorts& ports,
                         const KernelArgs& args) const override;
  void take_launch(const V3Plugin& plugin, const KernelArgs& args, const LaunchContext& context,
                   ExprBuilder& builder, KernelCode& code) const;
  void take_kernel(const V3Plugin& plugin, const KernelArgs& args, KernelCode& code) const;
};

std::vector<Candidate> V3QuickModel::combinations(const V3Plugin& clone,
                                                  const CandidateQuery& query) const {
  const auto num_inputs = static_cast<size_t>(inputs().tensors);
  const std::vector<DynamicPluginTensorDesc> ports = describe_all(query.inputs, query.outputs);
  const std::vector<PluginTensorDesc> listed =
      clone.list_combinations(query.layer, ports, inputs().tensors);
  const std::vector<std::pair<int, int>> aliased = aliases(clone, query);
  std::vector<Candidate> combinations;
  for (size_t first = 0; first < listed.size(); first += ports.size()) {
    Candidate candidate;
    for (size_t p = 0; p < ports.size(); ++p)
      (p < num_inputs ? candidate.inputs : candidate.outputs)
          .push_back({listed[first + p].type, listed[first + p].format});
    for (const PortDesc& shape_input : query.inputs.subspan(num_inputs))
      candidate.inputs.push_back({shape_input.type.dtype, TensorFormat::kLINEAR});
    const bool shares_memory = std::ranges::all_of(aliased, [&](const auto& pair) {
      return candidate.inputs[pair.first] == candidate.outputs[pair.second];
    });
    std::string reason =
        shares_memory ? obstacle(candidate, query)
                      : "an output is aliased to an input, so that they must have the same type "
                        "and format";
    if (!reason.empty()) {
      if (query.dropped != nullptr)
        query.dropped->push_back({std::move(candidate), std::move(reason)});
    } else if (std::ranges::find(combinations, candidate) == combinations.end()) {
      combinations.push_back(std::move(candidate));
    }
  }
  if (combinations.empty())
    clone.reject(query.layer,
                 "getSupportedFormatCombinations() lists no combination of types and formats that "
                 "is possible; the network's types are ",
                 describe_types(query),
                 query.strongly_typed
                     ? " and the network is strongly typed"
                     : "; allow lower precision in the builder config, or cast the inputs");
  return combinations;
}

bool V3QuickModel::check_combination(const V3Plugin& clone, const StoredPorts& ports,
                                     const KernelArgs& args) const {
  const std::vector<DynamicPluginTensorDesc> descs = describe_all(args.inputs, args.outputs);
  const std::vector<PluginTensorDesc> listed =
      clone.list_combinations(args.layer, descs, inputs().tensors);
  bool has_types = false, is_linear = true;
  for (size_t first = 0; first < listed.size(); first += descs.size()) {
    bool is_same = true, same_types = true;
    for (size_t p = 0; p < descs.size(); ++p) {
      const PluginTensorDesc& port = listed[first + p];
      same_types &= port.type == descs[p].desc.type;
      is_same &= port.format == descs[p].desc.format;
      is_linear &= port.format == TensorFormat::kLINEAR;
    }
    if (same_types && is_same) return true;
    has_types |= same_types;
  }
  // Combinations look so when no `autotune` lists layouts.
  if (clone.may_lack_autotune() && has_types && is_linear) return false;
  ports.reject("the engine stores ", opwright::str(*args.candidate),
               ", which is none of the combinations of types and formats that "
               "getSupportedFormatCombinations() lists");
}

void V3QuickModel::take_launch(const V3Plugin& plugin, const KernelArgs& args,
                               const LaunchContext& context, ExprBuilder& builder,
                               KernelCode& code) const {
  std::vector<DimsExprs> extents;
  for (const TensorInfo* input : context.inputs) extents.push_back(builder.wrap(input->dims));
  const std::vector<DynamicPluginTensorDesc> ports = describe_all(args.inputs, args.outputs);
  QuickLaunchParams launch(builder);
  QuickArguments arguments(builder);
  plugin.call(args.layer, "getLaunchParams", [&] {
    return plugin.quick().aot->getLaunchParams(extents.data(), ports.data(), inputs().tensors,
                                               static_cast<int32_t>(args.outputs.size()), &launch,
                                               &arguments, builder);
  });
  try {
    builder.check();
    launch.take(code);
    arguments.take(code);
    for (int i = 0; i < 3; ++i) {
      context.check(code.grid[i], "the grid");
      context.check(code.block[i], "the block");
    }
    context.check(code.shared_memory, "sharedMem");
    for (const KernelArgument& argument : code.arguments)
      context.check(argument.value, "an extra argument");
  } catch (const Error& error) {
    plugin.reject(args.layer, "getLaunchParams(): ", error.what());
  }
}

void V3QuickModel::take_kernel(const V3Plugin& plugin, const KernelArgs& args,
                               KernelCode& code) const {
  const std::vector<PluginTensorDesc> ins = describe_for_run(args.inputs);
  const std::vector<PluginTensorDesc> outs = describe_for_run(args.outputs);
  const char* name = nullptr;
  char* bytes = nullptr;
  int32_t size = 0;
  plugin.call(args.layer, "getKernel", [&] {
    return plugin.quick().aot->getKernel(ins.data(), inputs().tensors, outs.data(),
                                         static_cast<int32_t>(outs.size()), &name, &bytes, &size);
  });
  if (name == nullptr || *name == '\0' || bytes == nullptr || size <= 0)
    plugin.reject(args.layer, "getKernel() gave ",
                  name == nullptr || *name == '\0' ? "no kernel name" : "no code");
  code.name = name;
  code.object.name = plugin.identity().name + " " + code.name;
  code.object.bytes = Blob::copy(bytes, static_cast<size_t>(size));
  code.object.host = args.device->type() == DeviceType::kCPU;
  const std::string target = kernel_target(plugin.quick().aot);
  code.object.target = target.empty() ? args.device->architecture() : target;
  const bool on_host = code.object.host;
  const std::string fault = on_host ? shared_object_fault(code.object.bytes)
                                    : args.device->backend().code_format().fault(code.object);
  if (!fault.empty())
    plugin.reject(args.layer, "the code of kernel '", code.name, "' that getKernel() gave is ",
                  on_host ? "no shared object for the CPU: " : "", fault);
}

}  // namespace

PluginModelPtr make_v3_quick(V3Plugin plugin, V3Inputs inputs) {
  return std::make_shared<V3QuickModel>(std::move(plugin), inputs);
}

}  // namespace opwright
