// Calls functions of all three libraries, linked and loaded at run time; status 0 where each does
// what it should, and the number of the check otherwise.

#include <dlfcn.h>

#include <memory>

#include "NvInferPlugin.h"
#include "NvOnnxConfig.h"
#include "NvOnnxParser.h"
#include "logger.h"

int main() {
  ProjectLogger logger;
  if (!initLibNvInferPlugins(&logger, "")) return 1;
  std::unique_ptr<nvinfer1::IBuilder> builder{nvinfer1::createInferBuilder(logger)};
  if (builder == nullptr) return 2;
  std::unique_ptr<nvinfer1::INetworkDefinition> network{builder->createNetworkV2(0)};
  std::unique_ptr<nvonnxparser::IParser> parser{nvonnxparser::createParser(*network, logger)};
  if (parser == nullptr || !parser->supportsOperator("Relu")) return 3;
  std::unique_ptr<nvonnxparser::IOnnxConfig> config{nvonnxparser::createONNXConfig()};
  config->setModelFileName("model.onnx");
  if (config->getModelFileName()[0] != 'm') return 4;
  if (getInferLibMajorVersion() != NV_TENSORRT_MAJOR || getNvOnnxParserVersion() < 110000) return 5;
  if (getBuilderPluginRegistry(nvinfer1::EngineCapability::kSTANDARD) != getPluginRegistry())
    return 6;

  // As programs load them that do not link them: by their sonames, wherever they lie.
  void* const loaded = dlopen("libnvinfer.so.11", RTLD_LAZY);
  if (loaded == nullptr) return 7;
  auto* const registry =
      reinterpret_cast<decltype(&getPluginRegistry)>(dlsym(loaded, "getPluginRegistry"));
  if (registry == nullptr || registry() != getPluginRegistry()) return 8;
  void* const parsers = dlopen("libnvonnxparser.so.11", RTLD_LAZY);
  if (parsers == nullptr || dlsym(parsers, "createNvOnnxParser_INTERNAL") == nullptr) return 9;
  void* const plugins = dlopen("libnvinfer_plugin.so.11", RTLD_LAZY);
  if (plugins == nullptr || dlsym(plugins, "initLibNvInferPlugins") == nullptr) return 10;
  return 0;
}
