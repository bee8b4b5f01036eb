// C++ V3 plugins in engines: what they are given, and their faults, each of which is one error that
// names layer, plugin, method and rule and leaves other engines running.

#include <cstring>
#include <functional>

#include "add_profile.h"
#include "compile/compile.h"
#include "plugin/abi/v3_model.h"
#include "plugin/lookup.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"
#include "plugin/test_language.h"
#include "plugin/test_plugins.h"
#include "runtime/context.h"

namespace opwright {
namespace {

using DT = DataType;

/// A network of one plugin on inputs of two axes, the first 0 to 8 long; built, written, loaded.
struct OnePlugin {
  Behavior b;
  TestCreator creator{b};
  PluginRegistry registry;
  int num_inputs = 1;
  Plan plan;
  std::shared_ptr<Engine> engine;

  OnePlugin() { registry.registerCreator(creator, ""); }

  void build() {
    Network network;
    std::vector<Tensor*> inputs;
    OptimizationProfile profile;
    for (int i = 0; i < num_inputs; ++i) {
      const std::string name = "x" + std::to_string(i);
      inputs.push_back(network.add_input(name, DT::kFLOAT, {-1, 3}));
      profile.set_shape(name, {0, 3}, {4, 3}, {8, 3});
    }
    TestPlugin plugin(b);
    Layer* layer =
        network.add_layer(make_plugin_v3_operator(plugin, num_inputs, 0), inputs, "the plugin");
    for (Tensor* output : layer->outputs()) network.mark_output(*output);
    BuilderConfig config{DeviceId{"cpu"}};
    add_profile(config, profile);
    plan = compile(network, config);
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
};

int64_t elements(const PluginTensorDesc& desc) {
  int64_t count = 1;
  for (int i = 0; i < desc.dims.nbDims; ++i) count *= desc.dims.d[i];
  return count;
}

/// Each output gets the first input, doubled.
int32_t twice(PluginTensorDesc const* in, PluginTensorDesc const*, void const* const* inputs,
              void* const* outputs, void*, int32_t) {
  for (int64_t i = 0; i < elements(in[0]); ++i)
    static_cast<float*>(outputs[0])[i] = 2 * static_cast<float const*>(inputs[0])[i];
  return 0;
}

TEST(V3Engine, EmptyTensorsHaveAddresses) {
  OnePlugin one;
  int empty_runs = 0;
  one.b.enqueue = [&](PluginTensorDesc const* in, PluginTensorDesc const* out,
                      void const* const* inputs, void* const* outputs, void* workspace,
                      int32_t tactic) {
    EXPECT_NE(inputs[0], nullptr);
    EXPECT_NE(outputs[0], nullptr);
    if (in[0].dims.d[0] == 0) {
      ++empty_runs;
      EXPECT_EQ(out[0].dims.d[0], 0);
      EXPECT_EQ(out[0].dims.d[1], 3);
    }
    return twice(in, out, inputs, outputs, workspace, tactic);
  };
  one.build();
  EXPECT_EQ(one.run(2)[0], std::vector<float>(6, 4.0f));
  EXPECT_EQ(empty_runs, 0);
  EXPECT_TRUE(one.run(0)[0].empty());
  EXPECT_EQ(empty_runs, 1);
}

TEST(V3Engine, AliasedInputIsUpdatedInPlace) {
  OnePlugin one;
  one.b.aliased = [](int32_t) { return 0; };
  one.b.enqueue = [](PluginTensorDesc const* in, auto, void const* const* inputs,
                     void* const* outputs, void*, int32_t) {
    EXPECT_EQ(inputs[0], outputs[0]);
    for (int64_t i = 0; i < elements(in[0]); ++i) static_cast<float*>(outputs[0])[i] += 5;
    return 0;
  };
  one.build();
  Context context(one.engine);
  std::vector<float> memory(6, 1.0f);
  context.set_input_shape(0, {2, 3});
  context.set_input_address(0, memory.data());
  context.set_output_address(0, memory.data());
  context.enqueue();
  EXPECT_EQ(memory, std::vector<float>(6, 6.0f));
}

TEST(V3Engine, SizeTensorsGiveTheExtent) {
  OnePlugin one;
  one.b.num_outputs = 2;
  one.b.types = [](DT* out, int32_t, DT const*, int32_t) {
    out[0] = DT::kFLOAT;
    out[1] = DT::kINT32;
    return 0;
  };
  one.b.shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out,
                    int32_t, IExprBuilder& e) {
    const IDimensionExpr* upper = e.operation(DimensionOperation::kPROD, *in[0].d[0], *in[0].d[1]);
    out[0].nbDims = 1;
    out[0].d[0] = e.declareSizeTensor(1, *upper, *upper);
    out[1].nbDims = 0;
    return 0;
  };
  one.b.supports = [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
    return p[pos].desc.format == TensorFormat::kLINEAR;
  };
  one.b.enqueue = [](PluginTensorDesc const* in, auto, auto, void* const* outputs, void*, int32_t) {
    const auto count = static_cast<int32_t>(in[0].dims.d[0]);
    for (int32_t i = 0; i < count; ++i) static_cast<float*>(outputs[0])[i] = 9;
    *static_cast<int32_t*>(outputs[1]) = count;
    return 0;
  };
  one.build();
  EXPECT_EQ(one.run(4)[0], std::vector<float>(4, 9.0f));
  EXPECT_EQ(one.run(1)[0], std::vector<float>(1, 9.0f));
}

TEST(V3Engine, MetadataIsInThePlan) {
  OnePlugin one;
  one.b.metadata = "made of stars";
  one.b.enqueue = twice;
  one.build();
  EXPECT_EQ(one.plan.schedules[0].steps[0].metadata, "made of stars");
}

struct Fault {
  const char* method;
  std::function<void(Behavior&)> cause;
  const char* rule;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> faults = {
      {"getCapabilityInterface", [](Behavior& b) { b.has_core = false; }, "no core part"},
      {"getCapabilityInterface", [](Behavior& b) { b.has_build = false; }, "no build part"},
      {"getCapabilityInterface", [](Behavior& b) { b.has_runtime = false; }, "no runtime part"},
      {"clone", [](Behavior& b) { b.can_clone = false; }, "returned null"},
      {"getNbOutputs", [](Behavior& b) { b.num_outputs = 0; }, "there must be an output"},
      {"getOutputDataTypes", [](Behavior& b) { b.types = [](auto...) { return 3; }; },
       "returned 3 instead of 0"},
      {"getOutputDataTypes", [](Behavior& b) { b.types = [](auto...) { return 0; }; },
       "set no type for output 0"},
      {"getOutputShapes",
       [](Behavior& b) {
         b.shapes = [](DimsExprs const*, int32_t, DimsExprs const*, int32_t, DimsExprs*, int32_t,
                       IExprBuilder&) { return 4; };
       },
       "returned 4 instead of 0"},
      {"getOutputShapes",
       [](Behavior& b) {
         b.shapes = [](DimsExprs const*, int32_t, DimsExprs const*, int32_t, DimsExprs* out,
                       int32_t, IExprBuilder& e) {
           out[0].nbDims = 1;
           out[0].d[0] = e.operation(DimensionOperation::kPROD, *e.constant(int64_t{1} << 62),
                                     *e.constant(4));
           return 0;
         };
       },
       "not fit 64 bits"},
      {"supportsFormatCombination", [](Behavior& b) { b.supports = [](auto...) { return false; }; },
       "accepts no combination"},
      {"configurePlugin", [](Behavior& b) { b.configure = [](auto...) { return 5; }; },
       "returned 5 instead of 0"},
      {"getValidTactics",
       [](Behavior& b) {
         b.tactics = [](DT) { return std::vector<int32_t>{1}; };
         b.tactics_status = 6;
       },
       "returned 6 instead of 0"},
      {"getValidTactics",
       [](Behavior& b) { b.tactics = [](DT) { return std::vector<int32_t>{0}; }; },
       "must be positive"},
      {"getValidTactics",
       [](Behavior& b) { b.tactics = [](DT) {
                           return std::vector<int32_t>{2, 2};
                         }; },
       "tactic 2 twice"},
      {"getWorkspaceSize", [](Behavior& b) { b.workspace = size_t{1} << 60; },
       "which the device cannot provide"},
      {"getAliasedInput", [](Behavior& b) { b.aliased = [](int32_t) { return 7; }; },
       "there are 1 inputs"},
      {"getFieldsToSerialize", [](Behavior& b) { b.fields_are_null = true; }, "returned null"},
      {"attachToContext", [](Behavior& b) { b.attach_returns_null = true; }, "returned null"},
      {"setTactic", [](Behavior& b) { b.set_tactic_status = 8; }, "returned 8 instead of 0"},
      {"onShapeChange", [](Behavior& b) { b.shape_change = [](auto...) { return 9; }; },
       "returned 9 instead of 0"},
      {"enqueue", [](Behavior& b) { b.enqueue = [](auto...) { return 10; }; },
       "returned 10 instead of 0"},
  };
  return faults;
}

TEST(V3Engine, FaultsAreOneErrorEach) {
  OnePlugin healthy;
  healthy.b.enqueue = twice;
  healthy.build();
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(std::string(fault.method) + ": " + fault.rule);
    OnePlugin one;
    one.b.enqueue = twice;
    fault.cause(one.b);
    const std::string message = thrown_error([&] { one.build(); });
    EXPECT_CONTAINS(message, fault.method);
    EXPECT_CONTAINS(message, fault.rule);
    if (one.b.has_core) {
      EXPECT_CONTAINS(message, "plugin 'test_plugin'");
    }
    EXPECT_EQ(healthy.run(2)[0], std::vector<float>(6, 4.0f));
    EXPECT_EQ(one.b.live, 0) << "a plugin leaked";
  }
}

TEST(V3Engine, OtherContextsOfTheEngineGoOn) {
  OnePlugin one;
  bool fails = false;
  one.b.enqueue = [&](auto... args) { return fails ? 3 : twice(args...); };
  one.build();
  fails = true;
  EXPECT_CONTAINS(thrown_error([&] { one.run(2); }), "enqueue() returned 3");
  fails = false;
  EXPECT_EQ(one.run(2)[0], std::vector<float>(6, 4.0f));
}

TEST(V3Engine, ManyCyclesLeaveNothing) {
  OnePlugin one;
  one.b.enqueue = twice;
  PluginNode node;
  node.layer = "node";
  node.name = one.b.name;
  node.version = one.b.version;
  node.plugin_namespace = one.b.plugin_namespace;
  node.num_inputs = 1;
  for (int i = 0; i < 10000; ++i) {
    const OperatorPtr op = make_plugin_for_node(node, &one.registry, {});
    ASSERT_NE(op, nullptr);
    const OperatorPtr copy = make_plugin_v3_operator(*plugin_of(*op), 1, 0);
  }
  EXPECT_EQ(one.b.live, 0);
  for (int i = 0; i < 20; ++i) {
    one.build();
    one.run(2);
  }
  one.engine.reset();
  EXPECT_EQ(one.b.live, 0);
}

TEST(LeftException, GetsItsPlaceInFront) {
  const auto fails = [] {
    leave_exception(std::make_exception_ptr(Error(ErrorCode::kINVALID_STATE, "expected a bool")),
                    "ask");
    return -1;
  };
  try {
    call_plugin("plugin 'p': ", fails);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plugin 'p': ask(): expected a bool");
    EXPECT_EQ(error.code(), ErrorCode::kINVALID_STATE);
  }
  EXPECT_EQ(call_plugin("plugin 'p': ", [] { return 7; }), 7) << "it was thrown once";
}

TEST(LeftException, IsDroppedWhereNobodyCouldBeTold) {
  call_plugin_quietly(
      [] { leave_exception(std::make_exception_ptr(std::out_of_range("too late"))); });
  EXPECT_NO_THROW(call_plugin("plugin 'p': ", [] {}));
}

TEST(LeftException, OthersGetANote) {
  TestLanguage python;
  try {
    call_plugin(
        [] { return std::string("plugin 'p': "); },
        [] { leave_exception(std::make_exception_ptr(std::out_of_range("as it was")), "ask"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "as it was");
  }
  EXPECT_EQ(python.noted, "plugin 'p': ask()");
}

}  // namespace
}  // namespace opwright
