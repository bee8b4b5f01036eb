#pragma once

// What programs for TensorRT have around their builders. Knows nothing but the public headers.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "NvInfer.h"
#include "NvOnnxParser.h"
#include "error_recorder.h"

namespace program {

class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, char const* message) noexcept override {
    if (severity <= Severity::kERROR) errors += std::string(message) + "\n";
    if (severity == Severity::kWARNING) warnings += std::string(message) + "\n";
  }
  std::string errors, warnings;
};

using Recorder = opwright::KeepingErrorRecorder;

inline std::vector<int64_t> shape_of(nvinfer1::Dims const& dims) {
  return std::vector<int64_t>(dims.d, dims.d + std::max(0, dims.nbDims));
}

inline int64_t volume(nvinfer1::Dims const& dims) {
  int64_t count = 1;
  for (int32_t i = 0; i < dims.nbDims; ++i) count *= dims.d[i];
  return count;
}

inline nvinfer1::Dims dims(std::vector<int64_t> const& extents) {
  nvinfer1::Dims result{static_cast<int32_t>(extents.size()), {}};
  for (size_t i = 0; i < extents.size(); ++i) result.d[i] = extents[i];
  return result;
}

inline nvinfer1::Weights weights(std::vector<float> const& values) {
  return {nvinfer1::DataType::kFLOAT, values.data(), static_cast<int64_t>(values.size())};
}

inline nvinfer1::Weights const kNoWeights{nvinfer1::DataType::kFLOAT, nullptr, 0};

/// A builder with a network and a config.
class Program : public testing::Test {
 protected:
  void SetUp() override {
    builder.reset(nvinfer1::createInferBuilder(logger));
    ASSERT_NE(builder, nullptr);
    network.reset(builder->createNetworkV2(0));
    config.reset(builder->createBuilderConfig());
    ASSERT_TRUE(network && config) << logger.errors;
    config->setDefaultDeviceType(nvinfer1::DeviceType::kCPU);
    config->setBuilderOptimizationLevel(0);  // what is timed makes no difference to results
  }

  nvinfer1::ITensor& input(char const* name, std::vector<int64_t> const& extents,
                           nvinfer1::DataType type = nvinfer1::DataType::kFLOAT) {
    nvinfer1::ITensor* const tensor = network->addInput(name, type, dims(extents));
    if (tensor == nullptr) throw std::runtime_error(logger.errors);
    return *tensor;
  }

  /// Builds the network with the tensor as its only output.
  void build(nvinfer1::ITensor& output) {
    network->markOutput(output);
    std::unique_ptr<nvinfer1::IHostMemory> const plan(
        builder->buildSerializedNetwork(*network, *config));
    ASSERT_NE(plan, nullptr) << logger.errors;
    runtime.reset(nvinfer1::createInferRuntime(logger));
    engine.reset(runtime->deserializeCudaEngine(plan->data(), plan->size()));
    ASSERT_NE(engine, nullptr) << logger.errors;
    context.reset(engine->createExecutionContext());
    ASSERT_NE(context, nullptr) << logger.errors;
  }

  /// Runs the engine; each input is given by its name with its shape and elements.
  template <class T = float>
  std::vector<T> run(
      std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> const& inputs) {
    for (auto const& [name, value] : inputs) {
      EXPECT_TRUE(context->setInputShape(name.c_str(), dims(value.first))) << logger.errors;
      EXPECT_TRUE(context->setInputTensorAddress(name.c_str(), value.second.data()));
    }
    char const* const output = engine->getIOTensorName(engine->getNbIOTensors() - 1);
    output_shape = context->getTensorShape(output);
    std::vector<T> result(static_cast<size_t>(volume(output_shape)));
    EXPECT_TRUE(context->setTensorAddress(output, result.data()));
    EXPECT_TRUE(context->enqueueV3(nullptr)) << logger.errors;
    return result;
  }

  /// Builds and runs a network of one input `x`.
  template <class T = float>
  std::vector<T> result_of(nvinfer1::ITensor& output, std::vector<int64_t> const& extents,
                           std::vector<float> const& values) {
    build(output);
    if (HasFatalFailure()) return {};
    return run<T>({{"x", {extents, values}}});
  }

  Logger logger;
  std::unique_ptr<nvinfer1::IBuilder> builder;
  std::unique_ptr<nvinfer1::INetworkDefinition> network;
  std::unique_ptr<nvinfer1::IBuilderConfig> config;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::unique_ptr<nvinfer1::IExecutionContext> context;
  nvinfer1::Dims output_shape{};
};

}  // namespace program
