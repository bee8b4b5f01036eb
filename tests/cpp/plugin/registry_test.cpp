#include "plugin/registry/registry.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "error_recorder.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/callback.h"
#include "plugin/test_plugins.h"

namespace opwright {
namespace {

/// Keeps what is logged.
class Recorder final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity <= Severity::kERROR) errors += std::string(message) + "\n";
  }
  std::string errors;
};

TEST(Registry, FindsByNameVersionAndNamespace) {
  Behavior b;
  TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, "mine"));
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "mine"), &creator);
  EXPECT_EQ(registry.getCreator("test_plugin", "1", ""), nullptr);
  EXPECT_EQ(registry.getCreator("test_plugin", "2", "mine"), nullptr);
  EXPECT_EQ(registry.getCreator("test_plugi", "1", "mine"), nullptr);
  int32_t count = 0;
  IPluginCreatorInterface* const* all = registry.getAllCreators(&count);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(all[0], &creator);
  // It is no creator of V2 plugins.
  EXPECT_EQ(registry.getPluginCreator("test_plugin", "1", "mine"), nullptr);
  registry.getPluginCreatorList(&count);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(registry.deregisterCreator(creator));
  EXPECT_FALSE(registry.deregisterCreator(creator));
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "mine"), nullptr);
}

TEST(Registry, EmptyNamespaceIsAlsoTheCreatorsOwn) {
  Behavior b;
  b.plugin_namespace = "own";
  TestCreator creator(b);
  PluginRegistry registry;
  ASSERT_TRUE(registry.registerCreator(creator, ""));
  EXPECT_EQ(registry.getCreator("test_plugin", "1", ""), &creator);
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "own"), &creator);
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "other"), nullptr);
  // One that is registered there comes first.
  TestCreator exact(b);
  ASSERT_TRUE(registry.registerCreator(exact, "own"));
  EXPECT_EQ(registry.getCreator("test_plugin", "1", "own"), &exact);
  EXPECT_EQ(registry.getCreator("test_plugin", "1", ""), &creator);
}

TEST(Registry, RefusesWhatIsTaken) {
  Behavior b;
  TestCreator first(b), second(b);
  Recorder log;
  KeepingErrorRecorder errors;
  PluginRegistry registry(nullptr, Log(&log));
  registry.setErrorRecorder(&errors);
  EXPECT_EQ(errors.references, 1);
  ASSERT_TRUE(registry.registerCreator(first, "a"));
  EXPECT_FALSE(registry.registerCreator(second, "a"));
  EXPECT_CONTAINS(log.errors, "'test_plugin' (version 1, namespace 'a') is registered already");
  EXPECT_EQ(errors.getNbErrors(), 1);
  EXPECT_TRUE(registry.registerCreator(second, "b"));
  EXPECT_EQ(registry.getCreator(nullptr, "1", ""), nullptr);
  EXPECT_EQ(errors.getNbErrors(), 2);
  registry.setErrorRecorder(nullptr);
  EXPECT_EQ(errors.references, 0);
}

TEST(Registry, SearchesItsParent) {
  Behavior b, c;
  c.name = "child_plugin";
  TestCreator in_parent(b), in_child(c);
  PluginRegistry parent;
  PluginRegistry child(&parent);
  ASSERT_TRUE(parent.registerCreator(in_parent, ""));
  ASSERT_TRUE(child.registerCreator(in_child, ""));
  EXPECT_EQ(child.getCreator("test_plugin", "1", ""), &in_parent);
  EXPECT_EQ(parent.getCreator("child_plugin", "1", ""), nullptr);
  int32_t count = 0;
  child.getAllCreators(&count);
  EXPECT_EQ(count, 1);
  child.getAllCreatorsRecursive(&count);
  EXPECT_EQ(count, 2);
  child.setParentSearchEnabled(false);
  EXPECT_FALSE(child.isParentSearchEnabled());
  EXPECT_EQ(child.getCreator("test_plugin", "1", ""), nullptr);
  child.getAllCreatorsRecursive(&count);
  EXPECT_EQ(count, 1);
}

TEST(Registry, LoadsAndUnloadsLibraries) {
  PluginRegistry& global = PluginRegistry::global();
  PluginRegistry local(&global);
  ASSERT_EQ(global.getCreator("circ_pad_plugin", "1", ""), nullptr);
  void* handle = local.load_library(kCircPad);
  ASSERT_NE(handle, nullptr);
  // REGISTER_TENSORRT_PLUGIN registers with the process.
  EXPECT_NE(global.getCreator("circ_pad_plugin", "1", ""), nullptr);
  EXPECT_EQ(local.loadLibrary(kCircPad.c_str()), handle);
  local.deregisterLibrary(handle);
  EXPECT_NE(global.getCreator("circ_pad_plugin", "1", ""), nullptr);
  local.deregisterLibrary(handle);
  EXPECT_EQ(global.getCreator("circ_pad_plugin", "1", ""), nullptr);
}

TEST(Registry, AcceptsALibraryThatIsOpenAlready) {
  void* opened = dlopen(kIdentity.c_str(), RTLD_NOW);
  ASSERT_NE(opened, nullptr);
  PluginRegistry& global = PluginRegistry::global();
  EXPECT_NE(global.getCreator("identity_plugin", "1", ""), nullptr);
  void* handle = global.loadLibrary(kIdentity.c_str());
  EXPECT_NE(handle, nullptr);
  global.deregisterLibrary(handle);
  IPluginCreatorInterface* creator = global.getCreator("identity_plugin", "1", "");
  ASSERT_NE(creator, nullptr);
  EXPECT_TRUE(global.deregisterCreator(*creator));
  dlclose(opened);
}

TEST(Registry, LibrariesMayLoadOthersAndThemselves) {
  const std::string folder = OPWRIGHT_TEST_PLUGIN_DIR;
  PluginRegistry& global = PluginRegistry::global();
  void* const handle = global.load_library(folder + "/bundle_plugin.so");
  EXPECT_NE(global.getCreator("bundle_plugin", "1", ""), nullptr);
  EXPECT_NE(global.getCreator("shared_counter_plugin", "1", ""), nullptr);
  void* const other = global.load_library(folder + "/shared_counter_plugin.so");
  EXPECT_NE(other, handle);
  for (int i = 0; i < 2; ++i) {  // once by the library itself
    EXPECT_NE(global.getCreator("bundle_plugin", "1", ""), nullptr);
    global.deregister_library(handle);
    global.deregister_library(other);
  }
  EXPECT_EQ(global.getCreator("bundle_plugin", "1", ""), nullptr);
  EXPECT_EQ(global.getCreator("shared_counter_plugin", "1", ""), nullptr);
  EXPECT_CONTAINS(thrown_error([&] { global.deregister_library(handle); }), "did not return");
}

/// Whether the library registers its creator itself or exports it.
TEST(Registry, ThreadsLoadOneLibrary) {
  const std::string counter = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/shared_counter_plugin.so";
  PluginRegistry& global = PluginRegistry::global();
  for (const auto& [path, name] :
       {std::pair(kIdentity, "identity_plugin"), std::pair(counter, "shared_counter_plugin")}) {
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> ready{0}, wrong{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, &path = path, &name = name, t] {
          // Two use the process's registry, the others one of their own.
          PluginRegistry own(&global);
          PluginRegistry& registry = t < 2 ? global : own;
          for (++ready; ready < 4;) std::this_thread::yield();
          void* const handle = registry.loadLibrary(path.c_str());
          wrong += handle == nullptr || registry.getCreator(name, "1", "") == nullptr;
          registry.deregisterLibrary(handle);
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(global.getCreator(name, "1", ""), nullptr);
    }
  }
}

TEST(Registry, SaysWhyALibraryIsNone) {
  Recorder log;
  PluginRegistry registry(nullptr, Log(&log));
  EXPECT_EQ(registry.loadLibrary("/nowhere/missing.so"), nullptr);
  EXPECT_CONTAINS(log.errors, "/nowhere/missing.so");
  EXPECT_EQ(registry.loadLibrary(nullptr), nullptr);

  const std::string text =
      testing::TempDir() + "/not_a_library_" + std::to_string(getpid()) + ".so";
  std::ofstream(text) << "this is text";
  EXPECT_CONTAINS(thrown_error([&] { registry.load_library(text); }), "cannot be opened");
  unlink(text.c_str());
  // A library, but without plugins.
  EXPECT_CONTAINS(thrown_error([&] { registry.load_library("libm.so.6"); }),
                  "'libm.so.6' is not a plugin library: it exports neither getCreators()");
  log.errors.clear();
  registry.deregisterLibrary(&log);
  EXPECT_CONTAINS(log.errors, "deregisterLibrary()");
}

class CountedResource final : public IPluginResource {
 public:
  CountedResource(int& live, int& released) : live_(live), released_(released) { ++live_; }
  ~CountedResource() noexcept override { --live_; }
  int32_t release() noexcept override {
    ++released_;
    return 0;
  }
  IPluginResource* clone() noexcept override { return new CountedResource(live_, released_); }

 private:
  int& live_;
  int& released_;
};

TEST(Registry, SharesResources) {
  int live = 0, released = 0;
  PluginRegistry registry;
  CountedResource original(live, released);
  IPluginResource* first = registry.acquirePluginResource("key", &original);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(first, &original);
  EXPECT_EQ(registry.acquirePluginResource("key", nullptr), first);
  EXPECT_EQ(registry.acquirePluginResource("unknown", nullptr), nullptr);
  EXPECT_EQ(registry.releasePluginResource("key"), 0);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(registry.releasePluginResource("key"), 0);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(live, 1);
  EXPECT_NE(registry.releasePluginResource("key"), 0);
}

TEST(Registry, RefusesResourcesThatCannotBeKept) {
  class Strange final : public IPluginResource {
   public:
    explicit Strange(IPluginResource* copy) : copy_(copy) {}
    int32_t release() noexcept override { return 7; }
    IPluginResource* clone() noexcept override { return copy_ != nullptr ? copy_ : this; }

   private:
    IPluginResource* const copy_;
  };
  Recorder log;
  KeepingErrorRecorder errors;
  PluginRegistry registry(nullptr, Log(&log));
  registry.setErrorRecorder(&errors);
  Strange itself(nullptr);
  EXPECT_EQ(registry.acquirePluginResource("key", &itself), nullptr);
  EXPECT_CONTAINS(log.errors, "clone() of the plugin resource for the key 'key' returned the ");
  EXPECT_EQ(registry.acquirePluginResource("key", nullptr), nullptr);
  EXPECT_CONTAINS(log.errors, "there is no plugin resource under the key 'key' yet");
  EXPECT_EQ(registry.acquirePluginResource(nullptr, &itself), nullptr);
  EXPECT_NE(registry.releasePluginResource("key"), 0);
  EXPECT_NE(registry.releasePluginResource(nullptr), 0);
  EXPECT_EQ(errors.getNbErrors(), 5);
  // What release() returns is passed on.
  Strange original(new Strange(nullptr));
  ASSERT_NE(registry.acquirePluginResource("key", &original), nullptr);
  EXPECT_EQ(registry.releasePluginResource("key"), 7);
  EXPECT_EQ(errors.getNbErrors(), 5);
  registry.setErrorRecorder(nullptr);
}

TEST(Registry, ReleasesResourcesThatAreLeft) {
  int live = 0, released = 0;
  CountedResource original(live, released);
  {
    PluginRegistry registry;
    registry.acquirePluginResource("key", &original);
    EXPECT_EQ(live, 2);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(live, 1);
}

TEST(Registry, KeepsCreatorsThatItIsGiven) {
  Behavior b;
  auto creator = std::make_shared<TestCreator>(b);
  const std::weak_ptr<TestCreator> watched = creator;
  PluginRegistry first, second;
  ASSERT_TRUE(first.register_creator(creator, ""));
  ASSERT_TRUE(second.register_creator(creator, "there"));
  EXPECT_FALSE(first.register_creator(creator, ""));
  creator = nullptr;
  EXPECT_TRUE(first.deregisterCreator(*watched.lock()));
  const CreatorPtr found = second.find({"test_plugin", "1", "there"});
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(second.deregisterCreator(*found));
  EXPECT_EQ(watched.use_count(), 1);
}

TEST(Registry, ACreatorThatRefusesItsNamespaceIsNotRegistered) {
  class Refusing final : public IPluginCreator {
   public:
    char const* getPluginName() const noexcept override { return "refusing"; }
    char const* getPluginVersion() const noexcept override { return "1"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const*) noexcept override {
      return nullptr;
    }
    IPluginV2* deserializePlugin(char const*, void const*, size_t) noexcept override {
      return nullptr;
    }
    void setPluginNamespace(char const*) noexcept override {
      leave_exception(
          std::make_exception_ptr(Error(ErrorCode::kUNSPECIFIED_ERROR, "no namespaces here")),
          "plugin_namespace");
    }
    char const* getPluginNamespace() const noexcept override { return ""; }
  } creator;
  PluginRegistry registry;
  EXPECT_CONTAINS(
      thrown_error([&] { registry.add(creator, "ns"); }),
      "plugin 'refusing' (version 1, namespace 'ns'): plugin_namespace(): no namespaces");
  EXPECT_FALSE(detail::is_exception_left());
  EXPECT_EQ(registry.getCreator("refusing", "1", "ns"), nullptr);
  EXPECT_NO_THROW(registry.add(creator, ""));  // which it is not told
}

TEST(Registry, ManyThreads) {
  PluginRegistry registry;
  Behavior behaviors[4];
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    behaviors[t].name = "plugin_" + std::to_string(t);
    threads.emplace_back([&registry, &wrong, &b = behaviors[t]] {
      TestCreator creator(b);
      for (int i = 0; i < 200; ++i) {
        wrong += !registry.registerCreator(creator, "");
        wrong += registry.getCreator(b.name.c_str(), "1", "") != &creator;
        wrong += !registry.deregisterCreator(creator);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Registry, ProcessWideEntryPoints) {
  EXPECT_EQ(getPluginRegistry(), &PluginRegistry::global());
  EXPECT_EQ(getBuilderPluginRegistry(EngineCapability::kSTANDARD), getPluginRegistry());
  EXPECT_EQ(getBuilderPluginRegistry(EngineCapability::kSAFETY), nullptr);
  EXPECT_TRUE(initLibNvInferPlugins(nullptr, ""));
  EXPECT_NE(getLogger(), nullptr);
}

}  // namespace
}  // namespace opwright
