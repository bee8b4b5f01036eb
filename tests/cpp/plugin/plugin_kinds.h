// Plugins of every kind with one Behavior.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "add_profile.h"
#include "base/types.h"
#include "compile/compile.h"
#include "network/network.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/model/autotune.h"
#include "plugin/model/function_model.h"
#include "plugin/plugin_test.h"
#include "plugin/quick_test_plugin.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"
#include "plugin/v2_test_plugin.h"
#include "runtime/context.h"

namespace opwright {

enum class PluginKind { kFunction = 1, kV3 = 2, kQuick = 4, kV2 = 8 };

inline std::string name_of(PluginKind kind) {
  switch (kind) {
    case PluginKind::kFunction:
      return "Function";
    case PluginKind::kV3:
      return "V3";
    case PluginKind::kQuick:
      return "Quick";
    case PluginKind::kV2:
      return "V2";
  }
  return {};
}
/// The name of a test of that kind.
inline std::string kind_of(const testing::TestParamInfo<PluginKind>& info) {
  return name_of(info.param);
}

inline void PrintTo(PluginKind kind, std::ostream* out) { *out << name_of(kind); }

/// A function plugin whose functions answer as the Behavior says.
class FunctionTestPlugin final : public FunctionPlugin {
 public:
  FunctionTestPlugin(Behavior& b, int inputs, int shape_inputs) : b_(b) {
    for (int i = 0; i < inputs + shape_inputs; ++i)
      parameters_.push_back(
          {.name = "x" + std::to_string(i),
           .kind = i < inputs ? ParameterKind::kTensor : ParameterKind::kShapeInput});
  }
  const std::string& name() const override { return b_.name; }
  const std::string& plugin_namespace() const override { return b_.plugin_namespace; }
  const std::vector<FunctionParameter>& parameters() const override { return parameters_; }
  int num_outputs() const override { return b_.num_outputs; }
  bool has_impl(DeviceType) const override { return true; }
  bool has_aot_impl(DeviceType) const override { return false; }
  bool has_autotune() const override { return true; }
  std::vector<std::string> impl_attributes() const override { return {}; }

  std::vector<OutputInfo> infer(InferContext& context, const FieldValues&) const override {
    ExprBuilder builder(context, b_.num_outputs);
    std::vector<DimsExprs> in, shape_in, out(outputs(), DimsExprs{-1, {}});
    std::vector<DataType> in_types, out_types(outputs());
    for (size_t i = 0; i < context.inputs.size(); ++i) {
      const TensorInfo& input = *context.inputs[i];
      if (parameters_[i].kind == ParameterKind::kShapeInput) {
        shape_in.push_back(builder.wrap(*input.values));
        continue;
      }
      in.push_back(builder.wrap(input.dims));
      in_types.push_back(input.dtype);
    }
    const auto n = static_cast<int32_t>(in.size());
    succeed("types", b_.types(out_types.data(), b_.num_outputs, in_types.data(), n));
    succeed("shapes", b_.shapes(in.data(), n, shape_in.data(), int32_t(shape_in.size()), out.data(),
                                b_.num_outputs, builder));
    builder.check();
    std::vector<OutputInfo> infos(outputs());
    for (size_t o = 0; o < infos.size(); ++o) {
      infos[o].dtype = out_types[o];
      infos[o].dims = builder.unwrap(out[o], "an output");
      infos[o].aliased_input = b_.aliased(static_cast<int32_t>(o));
    }
    return infos;
  }
  std::vector<Candidate> autotune(const CandidateQuery& query, const FieldValues&) const override {
    std::vector<DynamicPluginTensorDesc> ports = describe(query.inputs);
    for (const DynamicPluginTensorDesc& output : describe(query.outputs)) ports.push_back(output);
    std::vector<AutoTuneCombination> combinations;
    for (const auto& combination :
         supported_combinations(b_, ports.data(), int32_t(query.inputs.size()), b_.num_outputs)) {
      std::string types, formats;
      for (const auto& [type, format] : combination) {
        types += str(types.empty() ? "" : ", ", opwright::name(type));
        formats += str(formats.empty() ? "" : ", ", opwright::name(format));
      }
      const std::vector<int32_t> tactics = b_.tactics(combination[0].first);
      combinations.emplace_back(types, formats,
                                std::vector<int64_t>(tactics.begin(), tactics.end()));
    }
    return expand(combinations, query, "plugin '" + id_of(*this) + "'");
  }
  std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues&,
                                 const FunctionOutputs&) const override {
    return std::make_unique<Callback>(b_, args);
  }
  KernelCode compile(const KernelArgs&, const FieldValues&) const override { return {}; }

 private:
  class Callback final : public Kernel {
   public:
    Callback(Behavior& b, const KernelArgs& args)
        : b_(b),
          tactic_(static_cast<int32_t>(args.candidate->tactic)),
          inputs_(describe_for_run(args.inputs)),
          outputs_(describe_for_run(args.outputs)) {
      ++b_.live;
    }
    ~Callback() override { --b_.live; }
    void on_shape_change(std::span<const Shape> in, std::span<const Shape> out) override {
      set_extents(inputs_, in);
      set_extents(outputs_, out);
    }
    void enqueue(void const* const* in, void* const* out, void* workspace, Queue) override {
      succeed("enqueue", b_.enqueue(inputs_.data(), outputs_.data(), in, out, workspace, tactic_));
    }

   private:
    Behavior& b_;
    const int32_t tactic_;
    std::vector<PluginTensorDesc> inputs_, outputs_;
  };

  static void succeed(const char* function, int32_t status) {
    require(status == 0, function, "() returned ", status);
  }
  size_t outputs() const { return static_cast<size_t>(b_.num_outputs); }

  Behavior& b_;
  std::vector<FunctionParameter> parameters_;
};

inline OperatorPtr make_plugin(PluginKind kind, Behavior& b, int inputs = 1, int shape_inputs = 0) {
  switch (kind) {
    case PluginKind::kFunction:
      return make_function_operator(std::make_shared<FunctionTestPlugin>(b, inputs, shape_inputs),
                                    {}, FunctionMode::kCallback);
    case PluginKind::kV3: {
      TestPlugin plugin(b);
      return make_plugin_v3_operator(plugin, inputs, shape_inputs);
    }
    case PluginKind::kQuick: {
      QuickTestPlugin plugin(b);
      return make_plugin_v3_operator(plugin, inputs, shape_inputs);
    }
    case PluginKind::kV2: {
      auto* plugin = new V2TestPlugin(b, 7);
      plugin->setPluginNamespace(b.plugin_namespace.c_str());
      return adopt_plugin_v2(V2Plugin(plugin), inputs);
    }
  }
  return nullptr;
}

/// Registers the creator of a plugin, or its functions, while the object lives.
class RegisteredPlugin {
 public:
  RegisteredPlugin(PluginKind kind, Behavior& b, PluginRegistry& registry, int inputs = 1)
      : name_(b.name), namespace_(b.plugin_namespace), v3(b), quick(b), v2(b) {
    switch (kind) {
      case PluginKind::kFunction:
        is_function_ = true;
        register_function_plugin(std::make_shared<FunctionTestPlugin>(b, inputs, 0));
        break;
      case PluginKind::kV3:
        registry.registerCreator(v3, b.plugin_namespace.c_str());
        break;
      case PluginKind::kQuick:
        registry.registerCreator(quick, b.plugin_namespace.c_str());
        break;
      case PluginKind::kV2:
        registry.registerCreator(v2, b.plugin_namespace.c_str());
        break;
    }
  }
  ~RegisteredPlugin() {
    if (is_function_) deregister_function_plugin(namespace_, name_);
  }
  RegisteredPlugin(const RegisteredPlugin&) = delete;
  RegisteredPlugin& operator=(const RegisteredPlugin&) = delete;

 private:
  const std::string name_, namespace_;
  bool is_function_ = false;

 public:
  TestCreator v3;
  QuickTestCreator quick;
  V2TestCreator v2;
};

/// A network of one plugin on inputs of two axes, the first 0 to 8 long. build() also writes and
/// loads it.
class OnePlugin {
 public:
  explicit OnePlugin(PluginKind kind) : kind_(kind) { b.plugin_namespace = "test"; }

  void build() {
    if (!registered) registered.emplace(kind_, b, registry, num_inputs);
    Network network;
    std::vector<Tensor*> inputs;
    OptimizationProfile profile;
    for (int i = 0; i < num_inputs; ++i) {
      const std::string name = "x" + std::to_string(i);
      inputs.push_back(network.add_input(name, DataType::kFLOAT, {-1, 3}));
      profile.set_shape(name, {0, 3}, {4, 3}, {8, 3});
    }
    Layer* layer = network.add_layer(make_plugin(kind_, b, num_inputs), inputs, "the plugin");
    for (Tensor* output : layer->outputs()) network.mark_output(*output);
    BuilderConfig config{DeviceId{"cpu"}};
    add_profile(config, profile);
    plan = compile(network, config);
    load();
  }
  void load() {
    LoadOptions options;
    options.plugins = &registry;
    engine = Engine::load(plan, options);
  }
  /// Runs on {rows, 3} elements of value 2 and gives the outputs' elements.
  std::vector<std::vector<float>> run(int64_t rows) {
    Context context(engine);
    const std::vector<float> input(static_cast<size_t>(rows) * 3 + 1, 2.0f);
    std::vector<std::vector<float>> outputs;
    for (int i = 0; i < num_inputs; ++i) {
      context.set_input_shape(i, {rows, 3});
      context.set_input_address(i, input.data());
    }
    for (int o = 0; o < b.num_outputs; ++o) {
      outputs.emplace_back(static_cast<size_t>(context.max_output_shape(o).numel()) + 1);
      context.set_output_address(o, outputs.back().data());
    }
    context.enqueue();
    for (int o = 0; o < b.num_outputs; ++o)
      outputs[static_cast<size_t>(o)].resize(static_cast<size_t>(context.output_shape(o).numel()));
    return outputs;
  }

  Behavior b;
  std::optional<RegisteredPlugin> registered;
  PluginRegistry registry;
  int num_inputs = 1;
  Plan plan;
  std::shared_ptr<Engine> engine;

 private:
  const PluginKind kind_;
};

}  // namespace opwright
