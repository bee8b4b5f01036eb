// Plugins that an engine carries as source, in a language that the test invents.

#include "plugin/registry/source_language.h"

#include "plugin/abi/v3_model.h"
#include "plugin/engine_for_test.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"
#include "plugin/test_plugins.h"

namespace opwright {
namespace {

/// Its sources say "plugin"; running them makes the creator.
class TestLanguage final : public SourceLanguage {
 public:
  explicit TestLanguage(IPluginCreatorInterface& creator) : creator_(creator) {
    set_source_language("test", this);
  }
  ~TestLanguage() { set_source_language("test", nullptr); }

  std::vector<CodeObject> collect(std::span<const PluginRequirement> plugins) override {
    collected.assign(plugins.begin(), plugins.end());
    return {{"a.test", "test", Blob::copy("plugin", 6), true},
            {"b.test", "test", Blob::copy("more", 4), true}};
  }
  Plugins load(std::span<const CodeObject> sources,
               std::span<const PluginRequirement> plugins) override {
    ++loads;
    loaded.assign(plugins.begin(), plugins.end());
    EXPECT_EQ(sources.size(), 2u);
    EXPECT_EQ(sources[1].name, "b.test");
    Plugins found;
    if (finds) found.creators.push_back({&creator_, ""});
    return found;
  }

  int loads = 0;
  bool finds = true;
  std::vector<PluginRequirement> collected, loaded;

 private:
  IPluginCreatorInterface& creator_;
};

class EmbeddedSource : public testing::Test {
 protected:
  EmbeddedSource() : creator_(behavior_), language_(creator_) {
    behavior_.enqueue = copy_input;
    BuilderConfig config{DeviceId{"cpu"}};
    config.embed_plugin_sources = true;
    plan_ = build(adopt_plugin_v3(std::make_unique<TestPlugin>(behavior_), 1, 0), {2}, config);
  }

  const std::vector<float> x_ = {1, 2};
  Behavior behavior_;
  TestCreator creator_;
  TestLanguage language_;
  Plan plan_;
};

TEST_F(EmbeddedSource, DefinesWhatIsMissing) {
  const PluginRequirement plugin{"PluginV3", "test_plugin", "1", ""};
  EXPECT_EQ(language_.collected, std::vector{plugin});
  EXPECT_EQ(run(Engine::load(plan_, {}), {1, 2}, x_), x_);
  EXPECT_EQ(language_.loads, 1);
  EXPECT_EQ(language_.loaded, std::vector{plugin});
  // Only that engine has it.
  EXPECT_EQ(PluginRegistry::global().getCreator("test_plugin", "1", ""), nullptr);
}

TEST_F(EmbeddedSource, IsNotRunWhereThePluginIsRegistered) {
  TestCreator registered(behavior_);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(registered, ""));
  LoadOptions options;
  options.plugins = &registry;
  EXPECT_EQ(run(Engine::load(plan_, options), {1, 2}, x_), x_);
  EXPECT_EQ(language_.loads, 0);
  EXPECT_EQ(registered.layer, "the plugin");
}

TEST_F(EmbeddedSource, NeedsPermissionWhenAnythingIsChanged) {
  LoadOptions allowed;
  allowed.allow_host_code = true;
  Plan renamed = plan_, changed = plan_, fewer = plan_;
  renamed.code[renamed.plugin_sources[0]].name = "c.test";
  changed.code[changed.plugin_sources[0]].bytes = Blob::copy("other", 5);
  fewer.plugin_sources = {plan_.plugin_sources[0]};
  for (const Plan* plan : {&renamed, &changed, &fewer}) {
    EXPECT_CONTAINS(thrown_error([&] { Engine::load(*plan, {}); }), "allow_host_code=True");
  }
  EXPECT_EQ(language_.loads, 0);
  EXPECT_EQ(run(Engine::load(changed, allowed), {1, 2}, x_), x_);
}

TEST_F(EmbeddedSource, SaysWhatIsStillMissing) {
  language_.finds = false;
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(plan_, {}); }),
                  "plugin 'test_plugin' (version 1, namespace '')");
}

TEST_F(EmbeddedSource, NeedsItsLanguage) {
  set_source_language("test", nullptr);
  const std::string message = thrown_error([&] { Engine::load(plan_, {}); });
  EXPECT_CONTAINS(message, "as source in test, which this process cannot run");
  EXPECT_CONTAINS(message, "plugin 'test_plugin' (version 1, namespace '')");
  Plan mixed = plan_;
  mixed.code[mixed.plugin_sources[1]].target = "another";
  LoadOptions allowed;
  allowed.allow_host_code = true;
  EXPECT_CONTAINS(thrown_error([&] { Engine::load(mixed, allowed); }), "in one language");
}

}  // namespace
}  // namespace opwright
