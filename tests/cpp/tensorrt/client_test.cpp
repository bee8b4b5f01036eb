// What a program holds that was compiled for TensorRT. With sanitizers: no object is freed twice or
// left behind.

#include "tensorrt/client.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/parallel.h"
#include "opwright/builder.h"
#include "opwright/runtime.h"

namespace opwright::client {
namespace {

/// OPWRIGHT_CLIENT_TIMES, else few: with sanitizers 1,000 take half a minute.
int times() {
  const char* const set = std::getenv("OPWRIGHT_CLIENT_TIMES");
  return set == nullptr ? 50 : std::stoi(set);
}

Object* make_builder(Logger& logger) {
  return exported<Object*(void*, int32_t)>("nvinfer", "createInferBuilder_INTERNAL")(&logger,
                                                                                     110100);
}
Object* make_runtime(Logger& logger) {
  return exported<Object*(void*, int32_t)>("nvinfer", "createInferRuntime_INTERNAL")(&logger,
                                                                                     110100);
}

Object* add_input(Object* network, const char* name) {
  const Dims dims{2, {2, 3}};
  return call<Object*>(network, "VNetworkDefinition", "addInput", name, DataType::kFLOAT, &dims);
}
Object* output_of(Object* layer) { return call<Object*>(layer, "VLayer", "getOutput", 0); }

/// x * 2, with weights that a refitter finds.
Object* make_network(Object* builder) {
  static const float two = 2;
  auto* const network = call<Object*>(builder, "VBuilder", "createNetworkV2", 0U);
  Object* const x = add_input(network, "x");
  const Dims one{2, {1, 1}};
  auto* const constant = call<Object*>(network, "VNetworkDefinition", "addConstant", &one,
                                       Weights{DataType::kFLOAT, &two, 1});
  call<void>(constant, "VLayer", "setName", "factor");
  auto* const product = call<Object*>(network, "VNetworkDefinition", "addElementWise", x,
                                      output_of(constant), ElementWiseOperation::kPROD);
  call<void>(output_of(product), "VTensor", "setName", "y");
  call<void>(network, "VNetworkDefinition", "markOutput", output_of(product));
  return network;
}

/// An engine of make_network(), with what made it.
struct MadeEngine {
  /// `can_refit`: it is built with BuilderFlag::kREFIT.
  MadeEngine(Logger& logger, bool can_refit)
      : builder(make_builder(logger)), network(make_network(builder)) {
    config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
    if (can_refit) call<void>(config, "VBuilderConfig", "setFlag", BuilderFlag::kREFIT);
    plan = call<Object*>(builder, "VBuilder", "buildSerializedNetwork", network, config);
    runtime = make_runtime(logger);
    engine = call<Object*>(runtime, "VRuntime", "deserializeCudaEngine",
                           call<void*>(plan, "VHostMemory", "data"),
                           call<size_t>(plan, "VHostMemory", "size"));
  }
  MadeEngine(const MadeEngine&) = delete;
  MadeEngine& operator=(const MadeEngine&) = delete;
  ~MadeEngine() {
    for (Object* const object : {engine, runtime, plan, config, network, builder}) drop(object);
  }

  Object *builder, *network, *config, *plan, *runtime, *engine;
};

/// What a context of the engine computes from 1 to 6.
std::vector<float> run(Object* context) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(6);
  for (auto& [name, values] : {std::pair("x", &x), std::pair("y", &y)})
    call<bool>(context, "VExecutionContext", "setTensorAddress", name, values->data());
  void* const stream = nullptr;
  EXPECT_TRUE(call<bool>(context, "VExecutionContext", "enqueueV3", stream));
  return y;
}

class TensorrtClient : public testing::Test {
 protected:
  void SetUp() override { setenv("OPWRIGHT_DEVICE", "cpu", 1); }

  Logger logger;
};

TEST_F(TensorrtClient, MakesAndDropsWhatABuilderHas) {
  Object* const builder = make_builder(logger);
  for (int i = 0; i < times(); ++i) {
    Object* const network = make_network(builder);
    Object* const x = call<Object*>(network, "VNetworkDefinition", "getInput", 0);
    EXPECT_EQ(call<Object*>(network, "VNetworkDefinition", "getInput", 0), x);
    for (const UnaryOperation operation : {UnaryOperation::kABS, UnaryOperation::kNEG}) {
      auto* const layer = call<Object*>(network, "VNetworkDefinition", "addUnary", x, operation);
      EXPECT_EQ(call<Object*>(layer, "VLayer", "getInput", 0), x);
    }
    auto* const loop = call<Object*>(network, "VNetworkDefinition", "addLoop");
    auto* const recurrence = call<Object*>(loop, "VLoop", "addRecurrence", x);
    auto* const choice = call<Object*>(network, "VNetworkDefinition", "addIfConditional");
    EXPECT_NE(call<Object*>(choice, "VIfConditional", "addInput", x), nullptr);
    EXPECT_EQ(call<Object*>(recurrence, "VLayer", "getInput", 0), x);
    Object* const unused = add_input(network, "unused");
    call<void>(network, "VNetworkDefinition", "removeTensor", unused);

    auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
    auto* const profile = call<Object*>(builder, "VBuilder", "createOptimizationProfile");
    EXPECT_EQ(call<int32_t>(config, "VBuilderConfig", "addOptimizationProfile", profile), 0);
    const void* const none = nullptr;
    auto* const cache =
        call<Object*>(config, "VBuilderConfig", "createTimingCache", none, size_t{0});
    EXPECT_TRUE(call<bool>(config, "VBuilderConfig", "setTimingCache", cache, false));
    EXPECT_EQ(call<Object*>(config, "VBuilderConfig", "getTimingCache"), cache);
    drop(call<Object*>(cache, "VTimingCache", "serialize"));
    const bool cache_ends_first = i % 2 == 0;
    if (cache_ends_first) drop(cache);
    EXPECT_NE(call<Object*>(config, "VBuilderConfig", "getTimingCache"), nullptr);
    drop(config);
    if (!cache_ends_first) drop(cache);

    auto* const parser = exported<Object*(void*, void*, int)>(
        "nvonnxparser", "createNvOnnxParser_INTERNAL")(network, &logger, 0);
    EXPECT_EQ(call_slot<int32_t>(parser, slot_of("IParser", "getNbErrors")), 0);
    call_slot<void>(parser, slot_of("IParser", "~") + 1);
    drop(network);
  }
  drop(builder);
}

TEST_F(TensorrtClient, MakesAndDropsWhatAnEngineHas) {
  Object* const builder = make_builder(logger);
  Object* const network = make_network(builder);
  auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
  call<void>(config, "VBuilderConfig", "setFlag", BuilderFlag::kREFIT);
  for (int i = 0; i < 10; ++i)
    drop(call<Object*>(builder, "VBuilder", "buildSerializedNetwork", network, config));
  auto* const plan = call<Object*>(builder, "VBuilder", "buildSerializedNetwork", network, config);
  ASSERT_NE(plan, nullptr);
  for (int i = 0; i < times(); ++i) {
    Object* const runtime = make_runtime(logger);
    auto* const engine = call<Object*>(runtime, "VRuntime", "deserializeCudaEngine",
                                       call<void*>(plan, "VHostMemory", "data"),
                                       call<size_t>(plan, "VHostMemory", "size"));
    ASSERT_NE(engine, nullptr);
    auto* const context = call<Object*>(engine, "VCudaEngine", "createExecutionContext",
                                        ExecutionContextAllocationStrategy::kSTATIC);
    EXPECT_EQ(call<Object*>(context, "VExecutionContext", "getEngine"), engine);
    EXPECT_EQ(run(context), (std::vector<float>{2, 4, 6, 8, 10, 12}));
    auto* const runtime_config = call<Object*>(engine, "VCudaEngine", "createRuntimeConfig");
    auto* const other = call<Object*>(engine, "VCudaEngine",
                                      "createExecutionContextWithRuntimeConfig", runtime_config);
    auto* const options = call<Object*>(other, "VExecutionContext", "getRuntimeConfig");
    EXPECT_EQ(call<Object*>(other, "VExecutionContext", "getRuntimeConfig"), options);
    auto* const inspector = call<Object*>(engine, "VCudaEngine", "createEngineInspector");
    call<bool>(inspector, "VEngineInspector", "setExecutionContext", context);
    EXPECT_EQ(call<Object*>(inspector, "VEngineInspector", "getExecutionContext"), context);
    auto* const refitter = exported<Object*(void*, void*, int32_t)>(
        "nvinfer", "createInferRefitter_INTERNAL")(engine, &logger, 110100);
    ASSERT_NE(refitter, nullptr);
    const char* name = nullptr;
    EXPECT_EQ(call<int32_t>(refitter, "VRefitter", "getAllWeights", 1, &name), 1);
    auto* const parser = exported<Object*(void*, void*, int)>(
        "nvonnxparser", "createNvOnnxParserRefitter_INTERNAL")(refitter, &logger, 0);
    call_slot<void>(parser, slot_of("IParserRefitter", "~") + 1);
    auto* const storing = call<Object*>(engine, "VCudaEngine", "createSerializationConfig");
    drop(call<Object*>(engine, "VCudaEngine", "serializeWithConfig", storing));
    for (Object* const object :
         {storing, refitter, inspector, other, options, runtime_config, context})
      drop(object);
    drop(engine);
    drop(runtime);
  }
  for (Object* const object : {plan, config, network, builder}) drop(object);
}

TEST_F(TensorrtClient, KnowsNoCpu) {
  Object* const builder = make_builder(logger);
  Object* const network = make_network(builder);
  auto* const layer = call<Object*>(network, "VNetworkDefinition", "getLayer", 0);
  auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
  EXPECT_EQ(call<DeviceType>(config, "VBuilderConfig", "getDefaultDeviceType"), DeviceType::kGPU);
  EXPECT_EQ(call<DeviceType>(config, "VBuilderConfig", "getDeviceType", layer), DeviceType::kGPU);
  // A program that sets the default still builds for the device of OPWRIGHT_DEVICE.
  call<void>(config, "VBuilderConfig", "setDefaultDeviceType", DeviceType::kGPU);
  call<void>(config, "VBuilderConfig", "setDeviceType", layer, DeviceType::kGPU);
  EXPECT_TRUE(call<bool>(config, "VBuilderConfig", "isDeviceTypeSet", layer));
  auto* const plan = call<Object*>(builder, "VBuilder", "buildSerializedNetwork", network, config);
  EXPECT_NE(plan, nullptr);
  for (Object* const object : {plan, config, network, builder}) drop(object);
}

TEST_F(TensorrtClient, SqueezesWithAxesAndWithout) {
  Object* const builder = make_builder(logger);
  auto* const network = call<Object*>(builder, "VBuilder", "createNetworkV2", 0U);
  const Dims dims{4, {1, -1, 1, 3}};
  auto* const x = call<Object*>(network, "VNetworkDefinition", "addInput", "x", DataType::kFLOAT,
                                static_cast<const Dims*>(&dims));
  static const int32_t first = 0;
  const Dims one{1, {1}};
  auto* const axes = output_of(call<Object*>(network, "VNetworkDefinition", "addConstant", &one,
                                             Weights{DataType::kINT32, &first, 1}));
  Object* const none = nullptr;
  for (const auto& [method, given, rank] :
       {std::tuple("addSqueeze", axes, 3), {"addSqueezeV2", axes, 3}, {"addSqueezeV2", none, 2}}) {
    auto* const layer = call<Object*>(network, "VNetworkDefinition", method, x, given);
    ASSERT_NE(layer, nullptr);
    EXPECT_EQ(call<Dims>(output_of(layer), "VTensor", "getDimensions").nbDims, rank) << method;
    EXPECT_EQ(call<int32_t>(layer, "VLayer", "getNbInputs"), given == none ? 1 : 2);
  }
  for (Object* const object : {network, builder}) drop(object);
}

TEST_F(TensorrtClient, HasTheMethodsOfTensorrt11_4) {
  const MadeEngine made(logger, true);
  const int32_t usual = 0, shared = 1;
  EXPECT_TRUE(call<bool>(made.runtime, "VRuntime", "setDLAWorkspaceAllocationStrategy", usual));
  EXPECT_FALSE(call<bool>(made.runtime, "VRuntime", "setDLAWorkspaceAllocationStrategy", shared));
  EXPECT_EQ(call<int32_t>(made.runtime, "VRuntime", "getDLAWorkspaceAllocationStrategy"), usual);
  auto* const refitter = exported<Object*(void*, void*, int32_t)>(
      "nvinfer", "createInferRefitter_INTERNAL")(made.engine, &logger, 110400);
  EXPECT_TRUE(call<bool>(refitter, "VRefitter", "releaseRefitResources"));
  drop(refitter);
}

TEST_F(TensorrtClient, WeightsWithoutANameHaveThatOfLayerAndRole) {
  const MadeEngine made(logger, true);
  auto* const refitter = exported<Object*(void*, void*, int32_t)>(
      "nvinfer", "createInferRefitter_INTERNAL")(made.engine, &logger, 110100);
  const char* listed = nullptr;
  ASSERT_EQ(call<int32_t>(refitter, "VRefitter", "getAllWeights", 1, &listed), 1);
  EXPECT_STREQ(listed, "factor CONSTANT");
  const float three = 3;
  const Weights weights{DataType::kFLOAT, &three, 1};
  const char* const unknown = "factor KERNEL";
  EXPECT_FALSE(call<bool>(refitter, "VRefitter", "setNamedWeights", unknown, weights));
  EXPECT_EQ(call<Weights>(refitter, "VRefitter", "getWeightsPrototype", listed).count, 1);
  EXPECT_TRUE(call<bool>(refitter, "VRefitter", "setNamedWeights", listed, weights));
  EXPECT_EQ(call<TensorLocation>(refitter, "VRefitter", "getWeightsLocation", listed),
            TensorLocation::kHOST);
  EXPECT_TRUE(call<bool>(refitter, "VRefitter", "unsetNamedWeights", listed));
  EXPECT_TRUE(call<bool>(refitter, "VRefitter", "setNamedWeightsWithLocation", listed, weights,
                         TensorLocation::kHOST));
  EXPECT_EQ(call<int32_t>(refitter, "VRefitter", "getMissingWeights", 1, &listed), 0);
  EXPECT_TRUE(call<bool>(refitter, "VRefitter", "refitCudaEngine"));
  auto* const context = call<Object*>(made.engine, "VCudaEngine", "createExecutionContext",
                                      ExecutionContextAllocationStrategy::kSTATIC);
  EXPECT_EQ(run(context), (std::vector<float>{3, 6, 9, 12, 15, 18}));
  for (Object* const object : {context, refitter}) drop(object);
}

TEST_F(TensorrtClient, MarksOfWeightsWithoutANameAreByLayerAndRole) {
  Object* const builder = make_builder(logger);
  auto* const network = call<Object*>(builder, "VBuilder", "createNetworkV2", 0U);
  const Dims images{4, {1, 2, 1, 1}}, window{2, {1, 1}};
  auto* const x =
      call<Object*>(network, "VNetworkDefinition", "addInput", "x", DataType::kFLOAT, &images);
  const float values[] = {1, 2, 3, 4};
  const Weights four{DataType::kFLOAT, values, 4}, two{DataType::kFLOAT, values, 2},
      none{DataType::kFLOAT, nullptr, 0};
  auto* const convolution = call<Object*>(network, "VNetworkDefinition", "addConvolutionNd", x,
                                          int64_t{2}, &window, four, two);
  call<void>(convolution, "VLayer", "setName", "conv 1");
  auto* const scale = call<Object*>(network, "VNetworkDefinition", "addScale",
                                    output_of(convolution), ScaleMode::kCHANNEL, two, two, none);
  call<void>(scale, "VLayer", "setName", "scale");
  call<void>(network, "VNetworkDefinition", "markOutput", output_of(scale));

  const auto of = [network](const char* method, const char* name) {
    return call<bool>(network, "VNetworkDefinition", method, name);
  };
  const std::vector<const char*> marked = {"conv 1 KERNEL", "conv 1 BIAS", "scale SCALE"};
  for (const char* const name : marked) {
    EXPECT_FALSE(of("areWeightsMarkedRefittable", name)) << name;
    EXPECT_TRUE(of("markWeightsRefittable", name)) << name;
    EXPECT_TRUE(of("areWeightsMarkedRefittable", name)) << name;
  }
  EXPECT_TRUE(of("markWeightsRefittable", "scale SHIFT"));
  EXPECT_TRUE(of("unmarkWeightsRefittable", "scale SHIFT"));
  EXPECT_FALSE(of("areWeightsMarkedRefittable", "scale SHIFT"));
  for (const char* const name : {"scale KERNEL", "conv 1", "conv 1 SHIFT", "other KERNEL", "BIAS"})
    EXPECT_FALSE(of("markWeightsRefittable", name)) << name;

  auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
  const int32_t refit_individual = 22;  // in version 11
  call<void>(config, "VBuilderConfig", "setFlag", refit_individual);
  auto* const plan = call<Object*>(builder, "VBuilder", "buildSerializedNetwork", network, config);
  ASSERT_NE(plan, nullptr);
  auto* const runtime = make_runtime(logger);
  auto* const engine = call<Object*>(runtime, "VRuntime", "deserializeCudaEngine",
                                     call<void*>(plan, "VHostMemory", "data"),
                                     call<size_t>(plan, "VHostMemory", "size"));
  auto* const refitter = exported<Object*(void*, void*, int32_t)>(
      "nvinfer", "createInferRefitter_INTERNAL")(engine, &logger, 110100);
  std::vector<const char*> listed(3);
  ASSERT_EQ(call<int32_t>(refitter, "VRefitter", "getAllWeights", 3, listed.data()), 3);
  EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()),
            std::set<std::string>(marked.begin(), marked.end()));
  for (Object* const object : {refitter, engine, runtime, plan, config, network, builder})
    drop(object);
}

/// Torch-TensorRT stores each part of a graph without the weights that a refit gives. A part may
/// have none.
TEST_F(TensorrtClient, FlagsOfStoringChangeNothingWhereNoWeightsCanBeRefitted) {
  const MadeEngine made(logger, false);
  for (const auto flag : {SerializationFlag::kEXCLUDE_WEIGHTS, SerializationFlag::kINCLUDE_REFIT}) {
    auto* const storing = call<Object*>(made.engine, "VCudaEngine", "createSerializationConfig");
    EXPECT_TRUE(call<bool>(storing, "VSerializationConfig", "setFlag", flag));
    auto* const stored = call<Object*>(made.engine, "VCudaEngine", "serializeWithConfig", storing);
    ASSERT_NE(stored, nullptr);
    EXPECT_EQ(call<size_t>(stored, "VHostMemory", "size"),
              call<size_t>(made.plan, "VHostMemory", "size"));
    for (Object* const object : {stored, storing}) drop(object);
  }
}

/// Torch-TensorRT's processes write one file together, and pass on what they read.
TEST_F(TensorrtClient, DamagedTimingsAreAnEmptyCache) {
  Object* const builder = make_builder(logger);
  auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
  const std::string damaged = "no timings";
  auto* const cache = call<Object*>(config, "VBuilderConfig", "createTimingCache",
                                    static_cast<const void*>(damaged.data()), damaged.size());
  ASSERT_NE(cache, nullptr);
  EXPECT_TRUE(call<bool>(config, "VBuilderConfig", "setTimingCache", cache, false));
  TimingCacheKey* const no_keys = nullptr;
  EXPECT_EQ(call<int64_t>(cache, "VTimingCache", "queryKeys", no_keys, int64_t{0}), 0);
  for (Object* const object : {cache, config, builder}) drop(object);
}

TEST_F(TensorrtClient, ARefusedCacheOfTimingsLeavesAnotherOne) {
  Object* const builder = make_builder(logger);
  auto* const config = call<Object*>(builder, "VBuilder", "createBuilderConfig");
  const auto make_cache = [config](const void* from, size_t size) {
    return call<Object*>(config, "VBuilderConfig", "createTimingCache", from, size);
  };
  Object *others, *stored;
  {
    const ThreadLimit other_device(thread_count() + 1);
    others = make_cache(nullptr, 0);
    stored = call<Object*>(others, "VTimingCache", "serialize");
  }
  auto* const cache = make_cache(call<void*>(stored, "VHostMemory", "data"),
                                 call<size_t>(stored, "VHostMemory", "size"));
  EXPECT_FALSE(call<bool>(config, "VBuilderConfig", "setTimingCache", cache, false));
  auto* const left = call<Object*>(config, "VBuilderConfig", "getTimingCache");
  ASSERT_NE(left, nullptr);
  EXPECT_NE(left, cache);
  drop(call<Object*>(left, "VTimingCache", "serialize"));
  // As NVIDIA's Python binding does.
  for (Object* const object : {left, cache, stored, others, config, builder}) drop(object);
}

/// A program that was compiled with headers that are newer than what Opwright knows.
TEST_F(TensorrtClient, UnknownMethodsOfLaterVersionsReturnNull) {
  Object* const builder = make_builder(logger);
  Object* const network = make_network(builder);
  const size_t last = slot_of("VNetworkDefinition", "addSqueezeV2");
  for (const size_t later : {size_t{1}, size_t{16}})
    EXPECT_EQ(call_slot<void*>(network->implementation, last + later), nullptr);
  for (Object* const object : {network, builder}) drop(object);
}

TEST_F(TensorrtClient, ObjectsOfThreadsAreNotMixedUp) {
  Object* const of_all = make_builder(logger);
  Object* const shared = make_network(of_all);
  Object* const x = call<Object*>(shared, "VNetworkDefinition", "getInput", 0);
  const auto work = [this, shared, x](const std::string& thread) {
    Object* const builder = make_builder(logger);
    for (int i = 0; i < times(); ++i) {
      auto* const network = call<Object*>(builder, "VBuilder", "createNetworkV2", 0U);
      std::vector<Object*> tensors;
      for (int input = 0; input < 20; ++input)
        tensors.push_back(add_input(network, (thread + std::to_string(input)).c_str()));
      EXPECT_EQ(call<Object*>(shared, "VNetworkDefinition", "getInput", 0), x);
      for (int input = 0; input < 20; ++input) {
        auto* const tensor = call<Object*>(network, "VNetworkDefinition", "getInput", input);
        EXPECT_EQ(tensor, tensors[input]);
        EXPECT_EQ(call<char const*>(tensor, "VTensor", "getName"), thread + std::to_string(input));
      }
      drop(network);
    }
    drop(builder);
  };
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c", "d"}) threads.emplace_back(work, name);
  for (std::thread& thread : threads) thread.join();
  drop(shared);
  drop(of_all);
}

}  // namespace
}  // namespace opwright::client
