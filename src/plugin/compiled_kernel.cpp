#include "plugin/compiled_kernel.h"

#include <algorithm>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "network/operator_registry.h"
#include "plugin/device_code.h"
#include "plugin/device_kernel.h"
#include "plugin/host_code.h"
#include "plugin/host_kernel.h"
#include "plugin/launch_values.h"
#include "plugin/stored_ports.h"

namespace opwright {

namespace {

/// The expression with each symbol replaced.
Expr substitute(const Expr& expr, std::span<const Expr> symbols, std::string_view layer) {
  switch (expr.op()) {
    case ExprOp::kConstant:
      return expr;
    case ExprOp::kSymbol: {
      const int id = expr.symbol_id();
      require(std::cmp_less(id, symbols.size()), "layer '", layer,
              "': an output of a compiled kernel depends on symbol ", id, ", but the inputs have ",
              symbols.size(), " extents and values");
      return symbols[static_cast<size_t>(id)];
    }
    case ExprOp::kSelect:
      return Expr::select(substitute(expr.operand(0), symbols, layer),
                          substitute(expr.operand(1), symbols, layer),
                          substitute(expr.operand(2), symbols, layer));
    default: {
      Expr result = substitute(expr.operand(0), symbols, layer);
      for (int i = 1; i < expr.arity(); ++i)
        result = Expr::make(expr.op(), result, substitute(expr.operand(i), symbols, layer));
      return result;
    }
  }
}

/// What a plan stores.
struct StoredKernel {
  KernelLaunch launch;
  template <class V>
  void visit(V& v) {
    v("launch", launch);
  }
};

class CompiledKernel final : public Operator {
 public:
  CompiledKernel(KernelLaunch launch, CodeObject object, std::vector<Candidate> candidate,
                 std::vector<OutputInfo> outputs, std::string timing_key, bool permitted)
      : launch_(std::move(launch)),
        object_(std::move(object)),
        candidate_(std::move(candidate)),
        outputs_(std::move(outputs)),
        timing_key_(std::move(timing_key)),
        permitted_(permitted) {}

  std::string_view kind() const override { return "CompiledKernel"; }
  bool is_pure() const override { return false; }
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

  std::vector<OutputInfo> infer(InferContext& context) const override {
    require(!outputs_.empty(), "layer '", context.layer, "': compiled kernel '", launch_.symbol,
            "' cannot be added to a network by itself; add the plugin that it was compiled from");
    std::vector<Expr> symbols;
    for (const TensorInfo* input : context.inputs)
      if (input != nullptr) symbols.insert(symbols.end(), input->dims.begin(), input->dims.end());
    for (const int32_t index : launch_.shape_inputs) {
      const TensorInfo* input = std::cmp_less(index, context.inputs.size())
                                    ? context.inputs[static_cast<size_t>(index)]
                                    : nullptr;
      require(input != nullptr && input->values != nullptr, "layer '", context.layer, "': input ",
              index, " of a compiled kernel must be a shape tensor, whose values are known");
      symbols.insert(symbols.end(), input->values->begin(), input->values->end());
    }
    std::vector<OutputInfo> outputs = outputs_;
    for (OutputInfo& output : outputs)
      for (Expr& extent : output.dims) extent = substitute(extent, symbols, context.layer);
    return outputs;
  }

  bool can_infer() const override { return !outputs_.empty(); }

  /// What the kernel does with its ports is the code's business, which needs permission.
  void check(const KernelArgs& args) const override {
    const bool on_host = args.device == nullptr || args.device->is_host();
    const LaunchValues values(launch_, object_.name, args);
    const StoredPorts ports(args, values.who());
    ports.require_counts(args.inputs.size(), -1, [](size_t) { return true; });
    require(object_.host == on_host && permitted_, values.who(), "it may not run on ",
            on_host ? "the host" : "the GPU", ": it is code for ",
            object_.host ? "the host" : "a GPU", permitted_ ? "" : ", which was not permitted");
    require(!on_host || launch_.scratch.empty(), values.who(),
            "it wants scratch memory, which only kernels for GPUs get");
    require(args.packed.empty(), values.who(),
            "it has weights that were rearranged for another kernel");
  }

  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    require(!candidate_.empty(), "layer '", query.layer, "': compiled kernel '", launch_.symbol,
            "' comes from an engine, where its types and formats are chosen already");
    return candidate_;
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    if (args.device != nullptr && !args.device->is_host()) {
      require(!object_.host, "layer '", args.layer, "': compiled kernel '", object_.name,
              "' is code for the host (", object_.target, "), but the layer runs on ",
              args.device->architecture());
      require(permitted_, "layer '", args.layer, "': compiled kernel '", object_.name,
              "' may not run on the GPU: loading it was not permitted");
      return make_device_kernel(launch_, object_, args);
    }
    // What a plan says about its code does not decide whether that code may run here.
    require(permitted_ && object_.host, "layer '", args.layer, "': compiled kernel '", object_.name,
            "' may not run on the host: it is not host code, or loading it was not permitted");
    try {
      return make_host_kernel(launch_, object_.name, HostCode::load(object_), args);
    } catch (const Error& error) {
      throw Error(error.code(), str("layer '", args.layer, "': ", error.what()));
    }
  }

  std::optional<std::string> timing_key() const override {
    if (timing_key_.empty()) return std::nullopt;
    return timing_key_;
  }

 private:
  const KernelLaunch launch_;
  const CodeObject object_;
  const std::vector<Candidate> candidate_;  // empty when it comes from a plan
  const std::vector<OutputInfo> outputs_;
  const std::string timing_key_;
  const bool permitted_;
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
  for (const KernelArgument& argument : code.arguments)
    launch.arguments.push_back({argument.type, builder.add(argument.value), argument.constant});
  for (const Expr& bytes : code.scratch) launch.scratch.push_back(builder.add(bytes));
  launch.shape_inputs.assign(code.shape_inputs.begin(), code.shape_inputs.end());
  for (const KernelCheck& check : code.checks)
    launch.checks.push_back({builder.add(check.condition), check.message});
  launch.program.assign(builder.instructions().begin(), builder.instructions().end());
  return launch;
}

OperatorPtr make_compiled_kernel(KernelCode code, Candidate candidate,
                                 std::vector<OutputInfo> outputs, std::string timing_key) {
  require(!code.name.empty(), "a compiled kernel has no name");
  require(!code.object.bytes.empty(), "compiled kernel '", code.name, "' has no code");
  if (code.object.name.empty()) code.object.name = code.name;
  code.object.target = device_target(code.object);
  KernelLaunch launch = make_launch(code);
  return std::make_shared<CompiledKernel>(std::move(launch), std::move(code.object),
                                          std::vector<Candidate>{std::move(candidate)},
                                          std::move(outputs), std::move(timing_key), true);
}

OperatorPtr load_compiled_kernel(const Attributes& attributes, const OperatorLoadContext& context) {
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
  return std::make_shared<CompiledKernel>(std::move(stored.launch), code.object,
                                          std::vector<Candidate>{}, std::vector<OutputInfo>{},
                                          std::string(), code.permitted);
}

}  // namespace opwright
