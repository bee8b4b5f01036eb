#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "opwright/runtime.h"
#include "runtime/api_border.h"
#include "runtime/context.h"
#include "runtime/engine.h"

namespace opwright {

/// A network input or output by its name.
struct Port {
  int input = -1, output = -1;
  explicit operator bool() const { return input >= 0 || output >= 0; }
};
/// Throws Error when there is none of that name or the name is null.
Port find_port(const Engine& engine, const char* name);
const PlanPort& port_of(const Engine& engine, Port port);

inline constexpr Dims kNoDims{-1, {}};

class EngineApi final : public ICudaEngine {
 public:
  explicit EngineApi(std::shared_ptr<Engine> engine);

  const std::shared_ptr<Engine>& engine() const { return engine_; }

  char const* getName() const noexcept override { return plan().name.c_str(); }
  int32_t getNbLayers() const noexcept override;
  IHostMemory* serialize() const noexcept override;
  ISerializationConfig* createSerializationConfig() noexcept override;
  IHostMemory* serializeWithConfig(ISerializationConfig& config) const noexcept override;
  IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy) noexcept override;
  IRuntimeConfig* createRuntimeConfig() noexcept override;
  IExecutionContext* createExecutionContext(IRuntimeConfig* runtimeConfig) noexcept override;
  IEngineInspector* createEngineInspector() const noexcept override;
  ProfilingVerbosity getProfilingVerbosity() const noexcept override;
  int32_t getNbIOTensors() const noexcept override;
  char const* getIOTensorName(int32_t index) const noexcept override;
  Dims getTensorShape(char const* tensorName) const noexcept override;
  DataType getTensorDataType(char const* tensorName) const noexcept override;
  TensorIOMode getTensorIOMode(char const* tensorName) const noexcept override;
  TensorLocation getTensorLocation(char const* tensorName) const noexcept override;
  bool isShapeInferenceIO(char const* tensorName) const noexcept override;
  char const* getAliasedInputTensor(char const* tensorName) const noexcept override;
  TensorFormat getTensorFormat(char const* tensorName,
                               int32_t profileIndex) const noexcept override;
  char const* getTensorFormatDesc(char const* tensorName,
                                  int32_t profileIndex) const noexcept override;
  int32_t getTensorBytesPerComponent(char const* tensorName,
                                     int32_t profileIndex) const noexcept override;
  int32_t getTensorComponentsPerElement(char const* tensorName,
                                        int32_t profileIndex) const noexcept override;
  int32_t getTensorVectorizedDim(char const* tensorName,
                                 int32_t profileIndex) const noexcept override;
  int32_t getNbOptimizationProfiles() const noexcept override;
  Dims getProfileShape(char const* tensorName, int32_t profileIndex,
                       OptProfileSelector select) const noexcept override;
  int64_t const* getProfileTensorValuesV2(char const* tensorName, int32_t profileIndex,
                                          OptProfileSelector select) const noexcept override;
  int64_t getDeviceMemorySizeV2() const noexcept override;
  int64_t getDeviceMemorySizeForProfileV2(int32_t profileIndex) const noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool isRefittable() const noexcept override { return !plan().refit.weights.empty(); }
  EngineCapability getEngineCapability() const noexcept override {
    return EngineCapability::kSTANDARD;
  }
  HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override {
    return engine_->device().backend().code_format().level(plan().code);
  }
  TacticSources getTacticSources() const noexcept override { return 0; }
  int32_t getNbAuxStreams() const noexcept override { return 0; }
  int64_t getEngineStat(EngineStat stat) const noexcept override;
  bool isDebugTensor(char const* name) const noexcept override;
  int64_t getStreamableWeightsSize() const noexcept override { return 0; }
  bool setWeightStreamingBudgetV2(int64_t gpuMemoryBudget) noexcept override;
  int64_t getWeightStreamingBudgetV2() const noexcept override { return 0; }
  int64_t getWeightStreamingAutomaticBudget() const noexcept override { return 0; }
  int64_t getWeightStreamingScratchMemorySize() const noexcept override { return 0; }

 private:
  const Plan& plan() const { return engine_->plan(); }
  /// The port, for a profile that exists. Throws Error otherwise.
  const PlanPort& port(const char* name, int32_t profile) const;
  const Shape& profile_shape(const char* name, int32_t profile, OptProfileSelector select,
                             bool values) const;

  std::shared_ptr<Engine> engine_;
  ErrorReport& errors_;
  std::vector<std::string> format_texts_;  ///< of the inputs, then the outputs
};

}  // namespace opwright
