#include "plugin/abi/v3_quick_operator.h"

#include <utility>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/quick_launch.h"
#include "plugin/abi/v3_storage.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/shared_object.h"

namespace opwright {

namespace {

class QuickKernel final : public Kernel {
 public:
  /// `plugin` is the caller's own clone.
  QuickKernel(V3QuickPlugin plugin, const KernelArgs& args, int num_inputs)
      : layer_(args.layer),
        plugin_(std::move(plugin)),
        runtime_(&plugin_.runtime()),
        domain_(execution_domain(plugin_.object().getAPILanguage(), args.device)),
        inputs_(args.inputs.first(static_cast<size_t>(num_inputs))),
        outputs_(args.outputs) {
    plugin_.call(layer_, "setTactic",
                 [&] { return runtime_->setTactic(static_cast<int32_t>(args.candidate->tactic)); });
  }

  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override {
    return domain_ != nullptr ? capture_obstacle_of(*runtime_) : std::string();
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    inputs_.set(inputs);
    outputs_.set(outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
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
      for (size_t i = 0; i < descs.size(); ++i) {
        descs[i].dims = shapes[i].dims();
        strides[i] = strides_of(shapes[i], descs[i].format);
      }
    }
    std::vector<PluginTensorDesc> descs;
    std::vector<Dims> strides;
  };

  const std::string layer_;
  const V3QuickPlugin plugin_;
  IPluginV3QuickRuntime* const runtime_;
  ExecutionDomain* const domain_;
  Ports inputs_, outputs_;
};

/// The ports of a candidate as a plugin describes them that brings a compiled kernel: extents are
/// the symbols of KernelCode.
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
  /// Throws Error for an expression over sizes that are known only when the kernel has run.
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

/// A clone that is configured.
V3QuickPlugin configured(const V3QuickPlugin& plugin, const KernelArgs& args, int num_inputs) {
  V3QuickPlugin clone = plugin.clone();
  clone.configure(args.layer, describe(args.inputs.first(static_cast<size_t>(num_inputs))),
                  describe(args.outputs));
  return clone;
}

/// Configured, since a plugin may serialize what configurePlugin() told it.
class PlannedV3Quick final : public PlannedV3Base {
 public:
  PlannedV3Quick(V3QuickPlugin plugin, V3Inputs inputs)
      : PlannedV3Base(plugin.identity(), inputs), plugin_(std::move(plugin)) {}

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<QuickKernel>(plugin_.clone(), args, inputs().tensors);
  }
  Attributes attributes() const override { return store_v3(plugin_, inputs(), 0); }

 private:
  const V3QuickPlugin& plugin() const override { return plugin_; }
  void check_configuration(const StoredPorts& ports, const KernelArgs& args) const override {
    require_listed(ports, args);
    ports.require_tactic(configured(plugin_, args, inputs().tensors).tactics(args.layer));
  }

  /// Throws Error unless the plugin lists the types and formats that are stored.
  void require_listed(const StoredPorts& ports, const KernelArgs& args) const {
    const V3QuickPlugin clone = plugin_.clone();
    std::vector<DynamicPluginTensorDesc> descs =
        describe(args.inputs.first(static_cast<size_t>(inputs().tensors)));
    for (const DynamicPluginTensorDesc& output : describe(args.outputs)) descs.push_back(output);
    const std::vector<PluginTensorDesc> listed =
        list_combinations(clone, args.layer, descs, inputs().tensors);
    for (size_t first = 0; first < listed.size(); first += descs.size()) {
      bool is_same = true;
      for (size_t p = 0; p < descs.size(); ++p)
        is_same &= listed[first + p].type == descs[p].desc.type &&
                   listed[first + p].format == descs[p].desc.format;
      if (is_same) return;
    }
    ports.reject("the engine stores ", opwright::str(*args.candidate),
                 ", which is none of the combinations of types and formats that "
                 "getSupportedFormatCombinations() lists");
  }

  const V3QuickPlugin plugin_;
};

class PluginV3Quick final : public PluginV3Base {
 public:
  PluginV3Quick(V3QuickPlugin plugin, V3Inputs inputs)
      : PluginV3Base(inputs), plugin_(std::move(plugin)) {}

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return quick_candidates(plugin_.clone(), query, inputs().shapes);
  }
  std::optional<std::string> timing_key() const override {
    return timing_key_of(is_compiled() ? "PluginV3Quick compiled" : "PluginV3Quick callback");
  }

 private:
  const V3QuickPlugin& plugin() const override { return plugin_; }
  bool is_compiled() const override { return plugin_.aot() != nullptr; }
  PlannedOperatorPtr configure(const KernelArgs& args) const override {
    return std::make_shared<PlannedV3Quick>(configured(plugin_, args, inputs().tensors), inputs());
  }

  KernelCode compile(const KernelArgs& args) const override {
    const V3QuickPlugin plugin = configured(plugin_, args, inputs().tensors);
    LaunchContext context(args);
    ExprBuilder builder(context, static_cast<int>(args.outputs.size()));
    // Decorator layers keep the expressions of getOutputShapes() for getLaunchParams().
    plugin.infer(context, builder, inputs().tensors, 0);
    const auto tactic = static_cast<int32_t>(args.candidate->tactic);
    plugin.call(args.layer, "setTactic", [&] { return plugin.aot()->setTactic(tactic); });
    KernelCode code;
    take_launch(plugin, args, context, builder, code);
    take_kernel(plugin, args, code);
    return code;
  }

  void take_launch(const V3QuickPlugin& plugin, const KernelArgs& args,
                   const LaunchContext& context, ExprBuilder& builder, KernelCode& code) const {
    std::vector<DimsExprs> extents;
    for (const TensorInfo* input : context.inputs) extents.push_back(builder.wrap(input->dims));
    std::vector<DynamicPluginTensorDesc> ports = describe(args.inputs);
    for (const DynamicPluginTensorDesc& output : describe(args.outputs)) ports.push_back(output);
    QuickLaunchParams launch(builder);
    QuickArguments arguments(builder);
    plugin.call(args.layer, "getLaunchParams", [&] {
      return plugin.aot()->getLaunchParams(extents.data(), ports.data(), inputs().tensors,
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

  void take_kernel(const V3QuickPlugin& plugin, const KernelArgs& args, KernelCode& code) const {
    const std::vector<PluginTensorDesc> ins = describe_for_run(args.inputs);
    const std::vector<PluginTensorDesc> outs = describe_for_run(args.outputs);
    const char* name = nullptr;
    char* bytes = nullptr;
    int32_t size = 0;
    plugin.call(args.layer, "getKernel", [&] {
      return plugin.aot()->getKernel(ins.data(), inputs().tensors, outs.data(),
                                     static_cast<int32_t>(outs.size()), &name, &bytes, &size);
    });
    if (name == nullptr || *name == '\0' || bytes == nullptr || size <= 0)
      plugin.reject(args.layer, "getKernel() gave ",
                    name == nullptr || *name == '\0' ? "no kernel name" : "no code");
    code.name = name;
    code.object.name = plugin.identity().name + " " + code.name;
    code.object.bytes = Blob::copy(bytes, static_cast<size_t>(size));
    code.object.host = args.device->type() == DeviceType::kCPU;
    const std::string target = plugin.kernel_target();
    code.object.target = target.empty() ? args.device->architecture() : target;
    const bool on_host = code.object.host;
    const std::string fault = on_host ? shared_object_fault(code.object.bytes)
                                      : args.device->backend().code_format().fault(code.object);
    if (!fault.empty())
      plugin.reject(args.layer, "the code of kernel '", code.name, "' that getKernel() gave is ",
                    on_host ? "no shared object for the CPU: " : "", fault);
  }

  const V3QuickPlugin plugin_;
};

}  // namespace

OperatorPtr make_v3_quick_operator(V3QuickPlugin plugin, V3Inputs inputs) {
  require(plugin.aot() == nullptr || inputs.shapes == 0, "plugin ", str(plugin.identity()),
          " brings a compiled kernel, so it cannot have shape inputs, but was given ",
          inputs.shapes, "; make it a plugin that is called, or pass shapes as tensors");
  return std::make_shared<PluginV3Quick>(std::move(plugin), inputs);
}

PlannedOperatorPtr load_v3_quick(V3QuickPlugin plugin, V3Inputs inputs) {
  return std::make_shared<PlannedV3Quick>(std::move(plugin), inputs);
}

}  // namespace opwright
