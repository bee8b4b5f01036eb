#pragma once

#include <memory>

#include "api/border.h"
#include "api/context.h"
#include "api/engine_configs.h"
#include "api/host_memory.h"
#include "api/inspector.h"
#include "backend/backend.h"
#include "opwright/runtime.h"
#include "runtime/engine.h"
#include "runtime/serialization.h"

namespace opwright {

/// The public face of an Engine.
class EngineApi final : public ICudaEngine {
 public:
  explicit EngineApi(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)), errors_(engine_->errors()) {}

  const std::shared_ptr<Engine>& engine() const { return engine_; }

  char const* getName() const noexcept override { return engine_->plan().name.c_str(); }
  int32_t getNbLayers() const noexcept override { return engine_->num_layers(); }
  IHostMemory* serialize() const noexcept override { return stored({}); }
  ISerializationConfig* createSerializationConfig() noexcept override {
    return errors_.guard<ISerializationConfig*>(
        nullptr, [&] { return new SerializationConfigApi(errors_.log(), errors_.recorder()); });
  }
  IHostMemory* serializeWithConfig(ISerializationConfig& config) const noexcept override {
    return stored(static_cast<SerializationConfigApi&>(config).config());
  }
  IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy) noexcept override {
    return errors_.guard<IExecutionContext*>(
        nullptr, [&] { return new ContextApi(*this, engine_, strategy); });
  }
  IRuntimeConfig* createRuntimeConfig() noexcept override {
    return errors_.guard<IRuntimeConfig*>(nullptr, [&] { return new RuntimeConfigApi(); });
  }
  IExecutionContext* createExecutionContext(IRuntimeConfig* runtimeConfig) noexcept override {
    return createExecutionContext(runtimeConfig == nullptr
                                      ? ExecutionContextAllocationStrategy::kSTATIC
                                      : runtimeConfig->getExecutionContextAllocationStrategy());
  }
  IEngineInspector* createEngineInspector() const noexcept override {
    return errors_.guard<IEngineInspector*>(
        nullptr, [&] { return new InspectorApi(engine_, errors_.recorder()); });
  }
  ProfilingVerbosity getProfilingVerbosity() const noexcept override {
    return engine_->profiling_verbosity();
  }
  int32_t getNbIOTensors() const noexcept override { return engine_->num_io_tensors(); }
  char const* getIOTensorName(int32_t index) const noexcept override {
    return errors_.guard<char const*>(nullptr, [&] { return engine_->tensor_name(index).c_str(); });
  }
  Dims getTensorShape(char const* name) const noexcept override {
    return errors_.guard(kNoDims, [&] { return engine_->tensor_shape(checked_name(name)).dims(); });
  }
  DataType getTensorDataType(char const* name) const noexcept override {
    return errors_.guard(DataType::kFLOAT,
                         [&] { return engine_->tensor_dtype(checked_name(name)); });
  }
  TensorIOMode getTensorIOMode(char const* name) const noexcept override {
    return name == nullptr ? TensorIOMode::kNONE : engine_->tensor_mode(name);
  }
  TensorLocation getTensorLocation(char const* name) const noexcept override {
    return errors_.guard(TensorLocation::kDEVICE,
                         [&] { return engine_->tensor_location(checked_name(name)); });
  }
  bool isShapeInferenceIO(char const* name) const noexcept override {
    return errors_.guard(false, [&] { return engine_->is_shape_inference_io(checked_name(name)); });
  }
  char const* getAliasedInputTensor(char const* name) const noexcept override {
    return errors_.guard<char const*>(nullptr, [&] {
      const std::string* const input = engine_->aliased_input_tensor(checked_name(name));
      return input == nullptr ? nullptr : input->c_str();
    });
  }
  TensorFormat getTensorFormat(char const* name, int32_t profile) const noexcept override {
    return errors_.guard(TensorFormat::kLINEAR,
                         [&] { return engine_->tensor_format(checked_name(name), profile); });
  }
  char const* getTensorFormatDesc(char const* name, int32_t profile) const noexcept override {
    return errors_.guard<char const*>(
        nullptr, [&] { return engine_->tensor_format_desc(checked_name(name), profile).c_str(); });
  }
  int32_t getTensorBytesPerComponent(char const* name, int32_t profile) const noexcept override {
    return errors_.guard(
        -1, [&] { return engine_->tensor_bytes_per_component(checked_name(name), profile); });
  }
  int32_t getTensorComponentsPerElement(char const* name, int32_t profile) const noexcept override {
    return errors_.guard(
        -1, [&] { return engine_->tensor_components_per_element(checked_name(name), profile); });
  }
  int32_t getTensorVectorizedDim(char const* name, int32_t profile) const noexcept override {
    return errors_.guard(
        -1, [&] { return engine_->tensor_vectorized_dim(checked_name(name), profile); });
  }
  int32_t getNbOptimizationProfiles() const noexcept override { return engine_->num_profiles(); }
  Dims getProfileShape(char const* name, int32_t profile,
                       OptProfileSelector select) const noexcept override {
    return errors_.guard(kNoDims, [&] {
      return engine_->profile_shape(checked_name(name), profile, select).dims();
    });
  }
  int64_t const* getProfileTensorValuesV2(char const* name, int32_t profile,
                                          OptProfileSelector select) const noexcept override {
    return errors_.guard<int64_t const*>(nullptr, [&] {
      return engine_->profile_values(checked_name(name), profile, select).begin();
    });
  }
  int64_t getDeviceMemorySizeV2() const noexcept override {
    return static_cast<int64_t>(engine_->memory_size());
  }
  int64_t getDeviceMemorySizeForProfileV2(int32_t profile) const noexcept override {
    return errors_.guard<int64_t>(
        0, [&] { return static_cast<int64_t>(engine_->memory_size(profile)); });
  }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool isRefittable() const noexcept override { return engine_->is_refittable(); }
  EngineCapability getEngineCapability() const noexcept override {
    return EngineCapability::kSTANDARD;
  }
  HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override {
    return engine_->hardware_compatibility_level();
  }
  TacticSources getTacticSources() const noexcept override { return engine_->tactic_sources(); }
  int32_t getNbAuxStreams() const noexcept override { return engine_->num_aux_streams(); }
  int64_t getEngineStat(EngineStat stat) const noexcept override {
    return errors_.guard<int64_t>(-1, [&] { return engine_->stat(stat); });
  }
  bool isDebugTensor(char const* name) const noexcept override {
    return errors_.guard(false, [&] { return engine_->is_debug_tensor(checked_name(name)); });
  }
  int64_t getStreamableWeightsSize() const noexcept override {
    return errors_.guard<int64_t>(0, [&] { return engine_->streamable_weights_size(); });
  }
  bool setWeightStreamingBudgetV2(int64_t bytes) noexcept override {
    return errors_.run([&] { engine_->set_weight_streaming_budget(bytes); });
  }
  int64_t getWeightStreamingBudgetV2() const noexcept override {
    return engine_->weight_streaming_budget();
  }
  int64_t getWeightStreamingAutomaticBudget() const noexcept override {
    return errors_.guard<int64_t>(0, [&] { return engine_->automatic_weight_streaming_budget(); });
  }
  int64_t getWeightStreamingScratchMemorySize() const noexcept override {
    return errors_.guard<int64_t>(0, [&] { return engine_->weight_streaming_scratch_size(); });
  }

 private:
  IHostMemory* stored(const SerializationConfig& config) const noexcept {
    return errors_.guard<IHostMemory*>(
        nullptr, [&] { return new HostMemoryApi(serialize_with(*engine_, config)); });
  }

  std::shared_ptr<Engine> engine_;
  ErrorReport& errors_;
};

}  // namespace opwright
