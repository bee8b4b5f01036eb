// Plugin libraries that an engine carries.

#include <dlfcn.h>

#include "base/file.h"
#include "plugin/compile_for_test.h"
#include "plugin/engine_for_test.h"
#include "plugin/kernel/host_code.h"
#include "plugin/lookup.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"
#include "runtime/inspect.h"

namespace opwright {
namespace {

const std::vector<float> kPadded = {3, 1, 2, 3, 1, 2};

/// An engine with a circular padding by 1 and 2 that carries these libraries. The plugin is
/// registered while it is built only.
Plan build_with(const std::vector<std::string>& libraries) {
  PluginRegistry registry(&PluginRegistry::global());
  registry.load_library(kCircPad);
  const int64_t pads[] = {1, 2};
  PluginNode node;
  node.layer = "pad";
  node.name = "circ_pad_plugin";
  node.num_inputs = 1;
  node.attributes = {{"pads", PluginFieldType::kINT64, 2, Blob::copy(pads, sizeof(pads))}};
  BuilderConfig config{DeviceId{"cpu"}};
  config.plugins_to_serialize = libraries;
  return build(make_plugin_for_node(node, &registry, {}), {3}, config);
}

/// As if another process had built the plan: a byte at the library's end makes it another one.
void make_foreign(Plan& plan) {
  Blob& bytes = plan.code[plan.plugin_libraries[0]].bytes;
  bytes = Blob::make(bytes.size() + 1, [&](void* to) {
    std::memcpy(to, bytes.data(), bytes.size());
    static_cast<char*>(to)[bytes.size()] = 1;
  });
}

bool is_registered(const char* name) {
  return PluginRegistry::global().getCreator(name, "1", "") != nullptr;
}

TEST(EmbeddedLibrary, RunsWithoutBeingRegistered) {
  const Plan plan = build_with({kCircPad});
  ASSERT_FALSE(is_registered("circ_pad_plugin"));
  const auto engine = Engine::load(plan, {});
  EXPECT_EQ(run(engine, {1, 3}, {1, 2, 3}), kPadded);
  EXPECT_FALSE(is_registered("circ_pad_plugin"));
  EXPECT_CONTAINS(thrown_error([] { Engine::load(build_with({}), {}); }),
                  "plugin 'circ_pad_plugin' (version 1, namespace '')");
}

TEST(EmbeddedLibrary, NeedsPermission) {
  Plan plan = build_with({kCircPad});
  make_foreign(plan);
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(plan, {}); }), "'circ_pad_plugin.so'");
  LoadOptions options;
  options.allow_host_code = true;
  EXPECT_EQ(run(Engine::load(plan, options), {1, 3}, {1, 2, 3}), kPadded);
}

TEST(EmbeddedLibrary, IsLoadedOnceForAllEnginesAndStaysForContexts) {
  const Plan plan = build_with({kCircPad});
  auto first = Engine::load(plan, {});
  const auto second = Engine::load(build_with({kCircPad}), {});
  const CodeObject& object = plan.code[plan.plugin_libraries[0]];
  const std::weak_ptr<const HostCode> code = HostCode::load(object);
  auto context = std::make_unique<Context>(first);
  first.reset();
  EXPECT_EQ(run(second, {1, 3}, {1, 2, 3}), kPadded);
  EXPECT_FALSE(code.expired());
  const std::vector<float> x = {1, 2, 3};
  std::vector<float> y(6);
  context->set_input_shape(0, {1, 3});
  context->set_input_address(0, x.data());
  context->set_output_address(0, y.data());
  context->enqueue();
  EXPECT_EQ(y, kPadded);
}

TEST(EmbeddedLibrary, IsUnloadedWithTheLastEngine) {
  std::weak_ptr<const HostCode> code;
  {
    const auto engine = Engine::load(build_with({kCircPad}), {});
    const auto& plan = engine->plan();
    code = HostCode::load(plan.code[plan.plugin_libraries[0]]);
    EXPECT_FALSE(code.expired());
  }
  EXPECT_TRUE(code.expired());
}

TEST(EmbeddedLibrary, GoesTogetherWithTheSameLibraryFromItsFile) {
  const Plan plan = build_with({kCircPad});
  void* handle = PluginRegistry::global().load_library(kCircPad);
  IPluginCreatorInterface* const registered =
      PluginRegistry::global().getCreator("circ_pad_plugin", "1", "");
  const auto engine = Engine::load(plan, {});
  PluginRegistry::global().deregisterLibrary(handle);
  EXPECT_NE(registered, nullptr);
  EXPECT_FALSE(is_registered("circ_pad_plugin"));
  EXPECT_EQ(run(engine, {1, 3}, {1, 2, 3}), kPadded);
}

TEST(EmbeddedLibrary, ComesBeforeWhatIsRegistered) {
  Behavior behavior;
  behavior.name = "circ_pad_plugin";
  TestCreator creator(behavior);
  behavior.can_make = false;
  const Plan plan = build_with({kCircPad});
  const Plan bare = build_with({});
  PluginRegistry registry(&PluginRegistry::global());
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  LoadOptions options;
  options.plugins = &registry;
  EXPECT_EQ(run(Engine::load(plan, options), {1, 3}, {1, 2, 3}), kPadded);
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(bare, options); }), "could not make it");
}

TEST(EmbeddedLibrary, IsStoredOnceAndShown) {
  const Plan plan = build_with({kCircPad, kCircPad});
  ASSERT_EQ(plan.plugin_libraries.size(), 1u);
  EXPECT_CONTAINS(inspect_text(plan), "circ_pad_plugin.so, plugin library for ");
  EXPECT_CONTAINS(inspect_json(plan), "\"Role\": \"plugin library\"");
}

TEST(EmbeddedLibrary, MayHandOutItsCreatorsAndNeedNotHaveAny) {
  Plan plan = build_with({kCircPad});
  plan.code.push_back(compile_for_test(R"(
    static int asked;
    extern "C" void* const* getCreators(int32_t& count) { ++asked; count = 0; return nullptr; }
    extern "C" void setLoggerFinder(void* finder) { asked += finder != nullptr ? 10 : 100; }
    extern "C" int times_asked() { return asked; })"));
  plan.plugin_libraries.push_back(static_cast<int32_t>(plan.code.size()) - 1);
  LoadOptions options;
  options.allow_host_code = true;
  const auto engine = Engine::load(plan, options);
  EXPECT_EQ(run(engine, {1, 3}, {1, 2, 3}), kPadded);
  const auto code = HostCode::load(plan.code.back());
  EXPECT_EQ(reinterpret_cast<int (*)()>(code->symbol("times_asked"))(), 11);
}

TEST(EmbeddedLibrary, FilesThatAreNoLibrariesAreRefused) {
  EXPECT_CONTAINS(thrown_error([] { build_with({"/nowhere/lib.so"}); }), "/nowhere/lib.so");
  EXPECT_CONTAINS(thrown_error([] { build_with({"/proc/self/cmdline"}); }),
                  "plugin library 'cmdline' (");
}

TEST(EmbeddedLibrary, DamagedBytesAreRefused) {
  Plan plan = build_with({kCircPad});
  CodeObject& object = plan.code[plan.plugin_libraries[0]];
  object.bytes = Blob::copy(object.bytes.data(), object.bytes.size() / 10);
  LoadOptions options;
  options.allow_host_code = true;
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(plan, options); }),
                  "plugin library 'circ_pad_plugin.so' (");
}

TEST(RegistrationCapture, KeepsWhatCodeOfThisThreadRegisters) {
  Behavior behavior;
  TestCreator creator(behavior);
  PluginRegistry registry;
  {
    RegistrationCapture capture;
    EXPECT_TRUE(registry.registerCreator(creator, "mine"));
    ASSERT_EQ(capture.creators.size(), 1u);
    EXPECT_EQ(capture.creators[0].creator, &creator);
    EXPECT_EQ(capture.creators[0].plugin_namespace, "mine");
    EXPECT_EQ(registry.getCreator("test_plugin", "1", "mine"), nullptr);
    {
      const RegistrationPassage passage;
      EXPECT_TRUE(registry.registerCreator(creator, "mine"));
    }
    EXPECT_EQ(registry.getCreator("test_plugin", "1", "mine"), &creator);
  }
  EXPECT_TRUE(registry.registerCreator(creator, "other"));
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "other"), &creator);
}

}  // namespace
}  // namespace opwright
