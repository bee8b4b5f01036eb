// program PLUGIN_LIBRARY: builds a network with the library's plugin, stores the engine with the
// library in it, and runs it. Written as for TensorRT, but for the choice of the device.

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "NvInfer.h"

using namespace nvinfer1;

namespace {

class Logger : public ILogger {
  void log(Severity severity, char const* msg) noexcept override {
    if (severity <= Severity::kWARNING) std::printf("%s\n", msg);
  }
} gLogger;

/// Ends the program where a call failed.
template <typename T>
std::unique_ptr<T> made(T* object, char const* what) {
  if (object == nullptr) {
    std::printf("%s failed\n", what);
    std::exit(1);
  }
  return std::unique_ptr<T>(object);
}

}  // namespace

int main(int, char** arguments) {
  if (getInferLibVersion() != NV_TENSORRT_VERSION) return 2;
  auto builder = made(createInferBuilder(gLogger), "createInferBuilder");
  auto network = made(builder->createNetworkV2(0), "createNetworkV2");
  auto config = made(builder->createBuilderConfig(), "createBuilderConfig");
  config->setDefaultDeviceType(DeviceType::kCPU);
  config->setPluginsToSerialize(&arguments[1], 1);

  auto& registry = builder->getPluginRegistry();
  if (registry.loadLibrary(arguments[1]) == nullptr) return 3;
  auto* creator =
      static_cast<IPluginCreatorV3One*>(registry.getCreator("identity_plugin", "1", ""));
  PluginFieldCollection fields{};
  auto plugin = made(creator->createPlugin("copy", &fields, TensorRTPhase::kBUILD), "createPlugin");
  ITensor* x = network->addInput("x", DataType::kFLOAT, Dims2{2, 2});
  auto* copy = network->addPluginV3(&x, 1, nullptr, 0, *plugin);
  auto* relu = network->addActivation(*copy->getOutput(0), ActivationType::kRELU);
  relu->getOutput(0)->setName("y");
  network->markOutput(*relu->getOutput(0));
  auto plan = made(builder->buildSerializedNetwork(*network, *config), "buildSerializedNetwork");

  auto runtime = made(createInferRuntime(gLogger), "createInferRuntime");
  runtime->setEngineHostCodeAllowed(true);
  auto engine =
      made(runtime->deserializeCudaEngine(plan->data(), plan->size()), "deserializeCudaEngine");
  auto context = made(engine->createExecutionContext(), "createExecutionContext");
  float const input[] = {1, -2, 3, -4};
  float output[4] = {};
  context->setInputTensorAddress("x", input);
  context->setTensorAddress("y", output);
  if (!context->enqueueV3(nullptr)) return 4;
  return output[0] == 1 && output[1] == 0 && output[2] == 3 && output[3] == 0 ? 0 : 5;
}
