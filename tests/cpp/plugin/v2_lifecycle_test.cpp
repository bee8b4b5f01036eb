// The calls that a V2 plugin gets from its creation to its end, in their order.

#include <algorithm>

#include "plugin/abi/v2_model.h"
#include "plugin/engine_for_test.h"
#include "plugin/lookup.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"
#include "plugin/v2_test_plugin.h"

namespace opwright {
namespace {

using Calls = std::vector<std::string>;

/// The calls since the last time; runs of the same call, as timing makes them, count once.
Calls take(Behavior& b) {
  Calls calls = std::move(b.calls);
  b.calls.clear();
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

TEST(V2LifeCycle, IsInTensorRTsOrder) {
  Behavior b;
  b.enqueue = copy_input;
  V2TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, "ns"));
  PluginNode node;
  node.layer = "node";
  node.name = b.name;
  node.plugin_namespace = "ns";
  node.num_inputs = 1;
  OperatorPtr op = make_plugin_for_node(node, &registry, {});
  EXPECT_EQ(take(b), (Calls{"createPlugin", "1 setPluginNamespace ns"}));

  const Plan plan = build(std::move(op), {2});  // batch 1 to 8, tuned for 4
  const Calls calls = take(b);
  EXPECT_EQ(calls, (Calls{
                       // the network
                       "1 getNbOutputs",
                       "1 getOutputDimensions",
                       "1 getOutputDataType",
                       // the combinations of types and formats
                       "1 clone is 2",
                       "2 supportsFormatCombination",
                       "2 destroy",
                       // the only one is timed
                       "1 clone is 3",
                       "3 configurePlugin batch -1",
                       "3 getWorkspaceSize",
                       "3 initialize",
                       // its run
                       "3 clone is 4",
                       "4 attachToContext",
                       "4 configurePlugin batch 4",
                       "4 enqueue",
                       "4 detachFromContext",
                       "4 destroy",
                       // the plan's step
                       "3 clone is 5",
                       "5 attachToContext",
                       "3 getSerializationSize",
                       "3 serialize",
                       "5 detachFromContext",
                       "5 destroy",
                       "3 terminate",
                       "3 destroy",
                       // the network's end
                       "1 destroy",
                   }));
  EXPECT_EQ(b.live, 0);

  LoadOptions options;
  options.plugins = &registry;
  std::shared_ptr<Engine> engine = Engine::load(plan, options);
  EXPECT_EQ(take(b),
            (Calls{"deserializePlugin the plugin", "6 setPluginNamespace ns", "6 initialize"}));
  {
    // A context takes its clone when its profile is known, for the first shape at the latest.
    Context first(engine), second(engine);
    EXPECT_EQ(run(first, {2, 2}, {1, 2, 3, 4}), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(run(first, {2, 2}, {5, 6, 7, 8}), (std::vector<float>{5, 6, 7, 8}));
    EXPECT_EQ(run(first, {1, 2}, {1, 2}), (std::vector<float>{1, 2}));
    EXPECT_EQ(take(b), (Calls{"6 clone is 7", "7 attachToContext", "7 configurePlugin batch 2",
                              "7 enqueue", "7 configurePlugin batch 1", "7 enqueue"}));
    EXPECT_EQ(run(second, {1, 2}, {1, 2}), (std::vector<float>{1, 2}));
    EXPECT_EQ(take(b), (Calls{"6 clone is 8", "8 attachToContext", "8 configurePlugin batch 1",
                              "8 enqueue"}));
    engine.reset();
  }
  EXPECT_EQ(take(b), (Calls{"8 detachFromContext", "8 destroy", "7 detachFromContext", "7 destroy",
                            "6 terminate", "6 destroy"}));
  EXPECT_EQ(b.live, 0);
}

TEST(V2LifeCycle, CandidateThatCannotBeInitializedIsLeftOut) {
  Behavior b;
  b.enqueue = copy_input;
  b.configure = [&](DynamicPluginTensorDesc const* in, auto...) {
    b.initialize_status = in[0].desc.type == DataType::kHALF ? -2 : 0;
    return 0;
  };
  BuilderConfig config{DeviceId{"cpu"}};
  config.flags.set(BuilderFlag::kFP16);
  const auto op = [&] { return adopt_plugin_v2(V2Plugin(new V2TestPlugin(b, 0)), 1); };
  const Plan plan = build(op(), {2}, config);
  EXPECT_EQ(b.live, 0);
  b.configure = [&](auto...) { return b.initialize_status = -2; };
  EXPECT_CONTAINS(thrown_error([&] { build(op(), {2}, config); }), "initialize() returned -2");
  EXPECT_EQ(b.live, 0);
}

}  // namespace
}  // namespace opwright
