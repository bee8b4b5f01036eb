// Plugins of each kind from a network through an engine file to a run, on the CPU.

#include <numeric>

#include "plugin/abi/v3_model.h"
#include "plugin/compile_for_test.h"
#include "plugin/compiled_operator.h"
#include "plugin/engine_for_test.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/lookup.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"

namespace opwright {
namespace {

using DT = DataType;

TEST(PluginEngine, NativeLibrary) {
  PluginRegistry registry(&PluginRegistry::global());
  void* handle =
      registry.load_library(std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/circ_pad_plugin.so");
  const int64_t pads[] = {1, 2};
  PluginNode node;
  node.layer = "pad";
  node.name = "circ_pad_plugin";
  node.num_inputs = 1;
  node.attributes = {{"pads", PluginFieldType::kINT64, 2, Blob::copy(pads, sizeof(pads))}};
  const Plan plan = build(make_plugin_for_node(node, &registry, {}), {3});
  ASSERT_EQ(plan.requirements.size(), 1u);
  LoadOptions options;
  options.plugins = &registry;
  {
    const auto engine = Engine::load(plan, options);
    EXPECT_EQ(run(engine, {2, 3}, {1, 2, 3, 4, 5, 6}),
              (std::vector<float>{3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5}));
    EXPECT_EQ(run(engine, {1, 3}, {1, 2, 3}), (std::vector<float>{3, 1, 2, 3, 1, 2}));
  }
  registry.deregisterLibrary(handle);
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(plan, options); }),
                  "plugin 'circ_pad_plugin' (version 1, namespace '')");
}

TEST(PluginEngine, RunsTheFastestTactic) {
  Behavior b;
  b.tactics = [](DT) { return std::vector<int32_t>{1, 2, 3}; };
  b.timing_cache_id = nullptr;
  int32_t used = 0;
  b.enqueue = [&](PluginTensorDesc const* in, auto, void const* const* inputs, void* const* outputs,
                  void*, int32_t tactic) {
    used = tactic;
    // Tactic 2 does the work once, the others many times.
    int64_t count = 1;
    for (int i = 0; i < in[0].dims.nbDims; ++i) count *= in[0].dims.d[i];
    for (int repeat = 0; repeat < (tactic == 2 ? 1 : 2000); ++repeat)
      for (int64_t i = 0; i < count; ++i)
        static_cast<volatile float*>(outputs[0])[i] = static_cast<float const*>(inputs[0])[i] + 2;
    return 0;
  };
  TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  const Plan plan = build(adopt_plugin_v3(std::make_unique<TestPlugin>(b), 1, 0), {64});
  LoadOptions options;
  options.plugins = &registry;
  const auto engine = Engine::load(plan, options);
  used = 0;
  EXPECT_EQ(run(engine, {1, 64}, std::vector<float>(64, 0.0f)), std::vector<float>(64, 2.0f));
  EXPECT_EQ(used, 2);
}

TEST(PluginEngine, CompiledKernelTravelsInTheFile) {
  KernelCode code;
  code.name = "row_sums";
  code.object = compile_for_test(
      "extern \"C\" void row_sums(void** args, int64_t x, int64_t, int64_t) {"
      "const float* row = *(const float**)args[0] + x * *(int32_t*)args[1];"
      "float sum = 0; for (int i = 0; i < *(int32_t*)args[1]; ++i) sum += row[i];"
      "(*(float**)args[2])[x] = sum; }");
  code.grid[0] = Expr::symbol(0);
  code.arguments = {{ArgumentType::kINT32, Expr::symbol(1), 0}};
  Plan plan = build(std::make_shared<CompiledOperator>(code, 1), {3});
  EXPECT_TRUE(plan.requirements.empty());
  // This process compiled it.
  EXPECT_EQ(run(Engine::load(plan, {}), {2, 3}, {1, 2, 3, 4, 5, 6}), (std::vector<float>{6, 15}));

  // The same file from somewhere else: one byte of padding makes it foreign code.
  ASSERT_EQ(plan.code.size(), 1u);
  const Blob& old = plan.code[0].bytes;
  plan.code[0].bytes = Blob::make(old.size() + 1, [&](void* to) {
    std::memcpy(to, old.data(), old.size());
    static_cast<char*>(to)[old.size()] = 0;
  });
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(plan, {}); }), "permit");
  LoadOptions options;
  options.allow_host_code = true;
  EXPECT_EQ(run(Engine::load(plan, options), {2, 3}, {1, 2, 3, 4, 5, 6}),
            (std::vector<float>{6, 15}));
}

}  // namespace
}  // namespace opwright
