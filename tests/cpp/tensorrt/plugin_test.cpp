// Plugins of a program that was compiled for TensorRT. With sanitizers: none is freed twice or left
// behind.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "opwright/builder.h"
#include "plugin/quick_test_plugin.h"
#include "plugin/test_plugins.h"
#include "tensorrt/client.h"
#include "tensorrt/v2_client_plugin.h"

namespace opwright::client {
namespace {

/// How a program makes a kind of plugin, and adds it to a network.
struct OneKind {
  std::unique_ptr<IPluginCreatorInterface> creator;
  std::function<Object*(Object* network, Object* x)> add;
};

OneKind v2_kind(Behavior& b) {
  const auto add = [&b](Object* network, Object* x) {
    V2Plugin plugin(b);
    return call<Object*>(network, "VNetworkDefinition", "addPluginV2", &x, 1, &plugin);
  };
  return {std::make_unique<V2Creator>(b), add};
}

Object* add_v3(Object* network, Object* x, IPluginV3& plugin) {
  Object* const* const no_shapes = nullptr;
  return call<Object*>(network, "VNetworkDefinition", "addPluginV3", &x, 1, no_shapes, 0, &plugin);
}

OneKind v3_kind(Behavior& b) {
  const auto add = [&b](Object* network, Object* x) {
    TestPlugin plugin(b);
    return add_v3(network, x, plugin);
  };
  return {std::make_unique<TestCreator>(b), add};
}

OneKind quick_kind(Behavior& b) {
  const auto add = [&b](Object* network, Object* x) {
    QuickTestPlugin plugin(b);
    return add_v3(network, x, plugin);
  };
  return {std::make_unique<QuickTestCreator>(b), add};
}

/// Calls a method of the registry, a class without inline methods.
template <class R, class... Args>
R call_registry(Object* registry, const char* method, Args... args) {
  return call_slot<R>(registry, slot_of("IPluginRegistry", method), args...);
}

class TensorrtClientPlugin : public testing::Test {
 protected:
  void SetUp() override {
    setenv("OPWRIGHT_DEVICE", "cpu", 1);
    builder_ = exported<Object*(void*, int32_t)>("nvinfer", "createInferBuilder_INTERNAL")(&logger_,
                                                                                           110100);
    registry_ = exported<Object*()>("nvinfer", "getPluginRegistry")();
    behavior_.name = "client_plugin";
    behavior_.enqueue = copy_input;
  }
  void TearDown() override { drop(builder_); }

  static int times() {
    const char* const set = std::getenv("OPWRIGHT_CLIENT_TIMES");
    return set == nullptr ? 20 : std::stoi(set);
  }

  /// The plan of a network with a layer of the plugin, 2 x 3 elements.
  Object* build(const OneKind& kind) {
    auto* const network = call<Object*>(builder_, "VBuilder", "createNetworkV2", 0U);
    const Dims dims{2, {2, 3}};
    auto* const x = call<Object*>(network, "VNetworkDefinition", "addInput", "x", DataType::kFLOAT,
                                  static_cast<const Dims*>(&dims));
    Object* const layer = kind.add(network, x);
    Object* plan = nullptr;
    if (layer != nullptr) {
      auto* const y = call<Object*>(layer, "VLayer", "getOutput", 0);
      call<void>(y, "VTensor", "setName", "y");
      call<void>(network, "VNetworkDefinition", "markOutput", y);
      auto* const config = call<Object*>(builder_, "VBuilder", "createBuilderConfig");
      plan = call<Object*>(builder_, "VBuilder", "buildSerializedNetwork", network, config);
      drop(config);
    }
    drop(network);
    return plan;
  }

  void run(Object* plan) {
    auto* const runtime = exported<Object*(void*, int32_t)>(
        "nvinfer", "createInferRuntime_INTERNAL")(&logger_, 110100);
    auto* const engine = call<Object*>(runtime, "VRuntime", "deserializeCudaEngine",
                                       call<void*>(plan, "VHostMemory", "data"),
                                       call<size_t>(plan, "VHostMemory", "size"));
    ASSERT_NE(engine, nullptr);
    auto* const context = call<Object*>(engine, "VCudaEngine", "createExecutionContext",
                                        ExecutionContextAllocationStrategy::kSTATIC);
    std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(6);
    for (auto& [name, values] : {std::pair("x", &x), std::pair("y", &y)})
      call<bool>(context, "VExecutionContext", "setTensorAddress", name, values->data());
    void* const stream = nullptr;
    EXPECT_TRUE(call<bool>(context, "VExecutionContext", "enqueueV3", stream));
    EXPECT_EQ(x, y);
    for (Object* const object : {context, engine, runtime}) drop(object);
  }

  void make_and_drop(const OneKind& kind) {
    for (int i = 0; i < times(); ++i) {
      ASSERT_TRUE(call_registry<bool>(registry_, "registerCreator", kind.creator.get(), ""));
      EXPECT_EQ(call_registry<void*>(registry_, "getCreator", "client_plugin", "1", ""),
                kind.creator.get());
      Object* const plan = build(kind);
      ASSERT_NE(plan, nullptr);
      run(plan);
      drop(plan);
      EXPECT_EQ(behavior_.live, 0);
      EXPECT_TRUE(call_registry<bool>(registry_, "deregisterCreator", kind.creator.get()));
    }
  }

  Logger logger_;
  Object* builder_ = nullptr;
  Object* registry_ = nullptr;
  Behavior behavior_;
};

TEST_F(TensorrtClientPlugin, V2PluginsAreMadeAndDropped) { make_and_drop(v2_kind(behavior_)); }

TEST_F(TensorrtClientPlugin, V2PluginsOfPythonAreTheSame) {
  behavior_.generation = PluginVersion::kV2_DYNAMICEXT_PYTHON;
  make_and_drop(v2_kind(behavior_));
}

TEST_F(TensorrtClientPlugin, V3PluginsAreMadeAndDropped) { make_and_drop(v3_kind(behavior_)); }

TEST_F(TensorrtClientPlugin, QuickPluginsAreMadeAndDropped) {
  behavior_.combinations = {
      {{DataType::kFLOAT, TensorFormat::kLINEAR}, {DataType::kFLOAT, TensorFormat::kLINEAR}}};
  make_and_drop(quick_kind(behavior_));
}

TEST_F(TensorrtClientPlugin, RefusedPluginsAreDropped) {
  behavior_.has_build = false;
  EXPECT_EQ(build(v3_kind(behavior_)), nullptr);
  EXPECT_EQ(build(quick_kind(behavior_)), nullptr);
  EXPECT_EQ(behavior_.live, 0);
}

/// As the plugins of NVIDIA's Python binding whose class has no get_capability_interface().
class PartlessPlugin final : public IPluginV3 {
 public:
  explicit PartlessPlugin(std::vector<std::unique_ptr<PartlessPlugin>>& clones) : clones_(clones) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }
  IPluginCapability* getCapabilityInterface(PluginCapabilityType) noexcept override {
    return nullptr;
  }
  PartlessPlugin* clone() noexcept override {
    clones_.push_back(std::make_unique<PartlessPlugin>(clones_));
    return clones_.back().get();
  }

 private:
  std::vector<std::unique_ptr<PartlessPlugin>>& clones_;
};

TEST_F(TensorrtClientPlugin, PythonsPluginsWithoutPartsAreLeftToPython) {
  std::vector<std::unique_ptr<PartlessPlugin>> clones;
  PartlessPlugin plugin(clones);
  const OneKind kind{nullptr,
                     [&](Object* network, Object* x) { return add_v3(network, x, plugin); }};
  EXPECT_EQ(build(kind), nullptr);
  EXPECT_EQ(clones.size(), 1U);  // freed by the vector, once
}

}  // namespace
}  // namespace opwright::client
