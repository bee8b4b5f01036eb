#include "plugin/kernel/compiled_kernel.h"

#include <algorithm>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "network/operator_registry.h"
#include "plugin/kernel/device_kernel.h"
#include "plugin/kernel/host_code.h"
#include "plugin/kernel/host_kernel.h"
#include "plugin/kernel/launch_values.h"
#include "plugin/kernel/stored_ports.h"

namespace opwright {

namespace {

/// The stored form of a compiled kernel in a plan.
struct StoredKernel {
  KernelLaunch launch;
  template <class V>
  void visit(V& v) {
    v("launch", launch);
  }
};

class CompiledKernel final : public PlannedOperator {
 public:
  /// `object` is permitted to run.
  CompiledKernel(KernelLaunch launch, CodeObject object)
      : launch_(std::move(launch)), object_(std::move(object)) {}

  std::string_view kind() const override { return "CompiledKernel"; }
  Attributes attributes() const override {
    AttributeWriter writer;
    StoredKernel{launch_}.visit(writer);
    return std::move(writer.attributes);
  }
  std::vector<CodeObject> code() const override { return {object_}; }
  bool is_shape_input(int input) const override {
    const std::vector<int32_t>& inputs = launch_.shape_inputs;
    return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  }

  /// The code has no inference of its outputs.
  bool can_infer() const override { return false; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }

  /// Checks what can be checked. How the code uses its ports is unknown, which is why it needs
  /// permission.
  void check(const KernelArgs& args) const override {
    const bool on_host = args.device == nullptr || args.device->is_host();
    const LaunchValues values(launch_, object_.name, args);
    const StoredPorts ports(args, values.who());
    ports.require_counts(args.inputs.size(), -1, [](size_t) { return true; });
    require(object_.host == on_host, values.who(), "it may not run on ",
            on_host ? "the host" : "the GPU", ": it is code for ",
            object_.host ? "the host" : "a GPU");
    require(!on_host || launch_.scratch.empty(), values.who(),
            "it wants scratch memory, which only kernels for GPUs get");
    require(!on_host || launch_.maps.empty(), values.who(),
            "it wants tensor maps, which only kernels for GPUs get");
    require(args.packed.empty(), values.who(),
            "it has weights that were rearranged for another kernel");
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    if (args.device != nullptr && !args.device->is_host()) {
      require(!object_.host, "layer '", args.layer, "': compiled kernel '", object_.name,
              "' is code for the host (", object_.target, "), but the layer runs on ",
              args.device->architecture());
      return make_device_kernel(launch_, object_, args);
    }
    require(object_.host, "layer '", args.layer, "': compiled kernel '", object_.name,
            "' may not run on the host: it is code for a GPU (", object_.target, ")");
    try {
      return make_host_kernel(launch_, object_.name, HostCode::load(object_), args);
    } catch (const Error& error) {
      throw Error(error.code(), str("layer '", args.layer, "': ", error.what()));
    }
  }

 private:
  const KernelLaunch launch_;
  const CodeObject object_;
};

}  // namespace

KernelLaunch make_launch(const KernelCode& code) {
  KernelLaunch launch;
  launch.symbol = code.name;
  launch.layer_kind = code.layer_kind;
  ExprProgramBuilder builder;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = builder.add(code.grid[i]);
    launch.block[i] = builder.add(code.block[i]);
  }
  launch.shared_memory = builder.add(code.shared_memory);
  launch.begins_early = code.begins_early;
  for (const KernelArgument& argument : code.arguments)
    launch.arguments.push_back({argument.type, builder.add(argument.value), argument.constant});
  for (const Expr& bytes : code.scratch) launch.scratch.push_back(builder.add(bytes));
  const auto add_all = [&](const std::vector<Expr>& numbers) {
    std::vector<int32_t> instructions;
    for (const Expr& number : numbers) instructions.push_back(builder.add(number));
    return instructions;
  };
  for (const KernelTensorMap& map : code.maps)
    launch.maps.push_back({map.input, map.type, add_all(map.extents), add_all(map.strides), map.box,
                           map.steps, add_all(map.lower), add_all(map.upper)});
  launch.shape_inputs.assign(code.shape_inputs.begin(), code.shape_inputs.end());
  launch.order.assign(code.order.begin(), code.order.end());
  for (const KernelCheck& check : code.checks)
    launch.checks.push_back({builder.add(check.condition), check.message});
  launch.program.assign(builder.instructions().begin(), builder.instructions().end());
  return launch;
}

PlannedOperatorPtr make_compiled_kernel(KernelCode code) {
  require(!code.name.empty(), "a compiled kernel has no name");
  require(!code.object.bytes.empty(), "compiled kernel '", code.name, "' has no code");
  if (code.object.name.empty()) code.object.name = code.name;
  KernelLaunch launch = make_launch(code);
  return std::make_shared<CompiledKernel>(std::move(launch), std::move(code.object));
}

PlannedOperatorPtr load_compiled_kernel(const Attributes& attributes,
                                        const OperatorLoadContext& context) {
  require(context.code.size() == 1, "layer '", context.layer, "': a compiled kernel has ",
          context.code.size(), " code objects, expected 1");
  const LoadedCode& code = context.code[0];
  require(code.permitted, "layer '", context.layer, "': compiled kernel '", code.object.name,
          "' is code for ", code.object.host ? "the host" : "a GPU",
          ", which the engine may not run without permission; allow ",
          code.object.host ? "host" : "device", " code when loading if you trust the file");
  StoredKernel stored;
  AttributeReader reader("CompiledKernel", attributes);
  stored.visit(reader);
  return std::make_shared<CompiledKernel>(std::move(stored.launch), code.object);
}

}  // namespace opwright
