#include "runtime/api_engine.h"

#include <algorithm>

#include "plan/shapes.h"
#include "runtime/api_context.h"
#include "runtime/api_host_memory.h"
#include "runtime/api_inspector.h"
#include "runtime/api_runtime_config.h"
#include "runtime/inspect.h"
#include "runtime/serialization.h"

namespace opwright {
namespace {

class SerializationConfigApi final : public ISerializationConfig {
 public:
  SerializationConfigApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  bool setFlags(SerializationFlags serializationFlags) noexcept override {
    return errors_.run([&] {
      require(serializationFlags >> EnumMax<SerializationFlag>() == 0,
              "setFlags: ", serializationFlags, " has bits that are no SerializationFlag");
      flags_ = serializationFlags;
    });
  }
  SerializationFlags getFlags() const noexcept override { return flags_; }
  bool clearFlag(SerializationFlag serializationFlag) noexcept override {
    return errors_.run([&] { flags_ &= ~checked_bit(serializationFlag); });
  }
  bool setFlag(SerializationFlag serializationFlag) noexcept override {
    return errors_.run([&] { flags_ |= checked_bit(serializationFlag); });
  }
  bool getFlag(SerializationFlag serializationFlag) const noexcept override {
    return errors_.guard(false, [&] { return (flags_ & checked_bit(serializationFlag)) != 0; });
  }

 private:
  static SerializationFlags checked_bit(SerializationFlag flag) {
    const auto number = static_cast<int32_t>(flag);
    require(number >= 0 && number < EnumMax<SerializationFlag>(), "there is no SerializationFlag ",
            number);
    return 1U << number;
  }

  ErrorReport errors_;
  SerializationFlags flags_ = 0;
};

bool is_vectorized(const PlanPort& port) { return layout_of(port.type.format).block > 1; }

}  // namespace

Port find_port(const Engine& engine, const char* name) {
  require(name != nullptr, "the tensor's name is null");
  const Port port{engine.input_index(name), engine.output_index(name)};
  if (port) return port;
  std::string names;
  for (const auto* ports : {&engine.plan().inputs, &engine.plan().outputs}) {
    for (const PlanPort& known : *ports) names += (names.empty() ? "" : ", ") + known.name;
  }
  fail("the engine has no input or output '", name, "'; it has ", names);
}

const PlanPort& port_of(const Engine& engine, Port port) {
  return port.input >= 0 ? engine.plan().inputs[port.input] : engine.plan().outputs[port.output];
}

EngineApi::EngineApi(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), errors_(engine_->errors()) {
  for (const auto* ports : {&plan().inputs, &plan().outputs}) {
    for (const PlanPort& port : *ports) {
      format_texts_.push_back(
          str(name(port.type.dtype), " in the layout ", name(port.type.format)));
    }
  }
}

const PlanPort& EngineApi::port(const char* name, int32_t profile) const {
  require(profile >= 0 && profile < getNbOptimizationProfiles(), "profile ", profile,
          " does not exist: the engine has ", getNbOptimizationProfiles());
  return port_of(*engine_, find_port(*engine_, name));
}

int32_t EngineApi::getNbLayers() const noexcept {
  return static_cast<int32_t>(plan().schedules[0].steps.size());
}

IHostMemory* EngineApi::serialize() const noexcept {
  return errors_.guard<IHostMemory*>(
      nullptr, [&] { return new HostMemoryApi(serialize_with(*engine_, 0)); });
}

ISerializationConfig* EngineApi::createSerializationConfig() noexcept {
  return errors_.guard<ISerializationConfig*>(
      nullptr, [&] { return new SerializationConfigApi(errors_.log(), errors_.recorder()); });
}

IHostMemory* EngineApi::serializeWithConfig(ISerializationConfig& config) const noexcept {
  return errors_.guard<IHostMemory*>(
      nullptr, [&] { return new HostMemoryApi(serialize_with(*engine_, config.getFlags())); });
}

IExecutionContext* EngineApi::createExecutionContext(
    ExecutionContextAllocationStrategy strategy) noexcept {
  return errors_.guard<IExecutionContext*>(nullptr, [&] {
    const auto number = static_cast<int32_t>(strategy);
    require(number >= 0 && number < EnumMax<ExecutionContextAllocationStrategy>(),
            "createExecutionContext: there is no allocation strategy ", number);
    return new ContextApi(*this, strategy);
  });
}

IRuntimeConfig* EngineApi::createRuntimeConfig() noexcept {
  return errors_.guard<IRuntimeConfig*>(nullptr, [&] { return new RuntimeConfigApi(); });
}

IExecutionContext* EngineApi::createExecutionContext(IRuntimeConfig* runtimeConfig) noexcept {
  if (runtimeConfig == nullptr)
    return createExecutionContext(ExecutionContextAllocationStrategy::kSTATIC);
  return createExecutionContext(runtimeConfig->getExecutionContextAllocationStrategy());
}

int64_t EngineApi::getEngineStat(EngineStat stat) const noexcept {
  return errors_.guard<int64_t>(-1, [&] {
    if (stat == EngineStat::kSTRIPPED_WEIGHTS_SIZE)
      return static_cast<int64_t>(plan().refit.stripped_bytes);
    require(stat == EngineStat::kTOTAL_WEIGHTS_SIZE, "getEngineStat: there is no number ",
            static_cast<int32_t>(stat));
    return static_cast<int64_t>(weights_size(plan()));
  });
}

IEngineInspector* EngineApi::createEngineInspector() const noexcept {
  return errors_.guard<IEngineInspector*>(
      nullptr, [&] { return new InspectorApi(engine_, errors_.recorder()); });
}

ProfilingVerbosity EngineApi::getProfilingVerbosity() const noexcept {
  const auto& steps = plan().schedules[0].steps;
  const bool detailed = std::any_of(steps.begin(), steps.end(),
                                    [](const PlanStep& step) { return !step.considered.empty(); });
  return detailed ? ProfilingVerbosity::kDETAILED : ProfilingVerbosity::kLAYER_NAMES_ONLY;
}

int32_t EngineApi::getNbIOTensors() const noexcept {
  return static_cast<int32_t>(plan().inputs.size() + plan().outputs.size());
}

char const* EngineApi::getIOTensorName(int32_t index) const noexcept {
  return errors_.guard<char const*>(nullptr, [&] {
    require(index >= 0 && index < getNbIOTensors(), "tensor ", index,
            " does not exist: the engine has ", getNbIOTensors(), " inputs and outputs");
    const auto inputs = static_cast<int32_t>(plan().inputs.size());
    return index < inputs ? plan().inputs[index].name.c_str()
                          : plan().outputs[index - inputs].name.c_str();
  });
}

Dims EngineApi::getTensorShape(char const* tensorName) const noexcept {
  return errors_.guard(kNoDims, [&] { return declared_shape(plan(), port(tensorName, 0)).dims(); });
}

DataType EngineApi::getTensorDataType(char const* tensorName) const noexcept {
  return errors_.guard(DataType::kFLOAT, [&] { return port(tensorName, 0).type.dtype; });
}

TensorIOMode EngineApi::getTensorIOMode(char const* tensorName) const noexcept {
  // Asking whether there is such a tensor is no error.
  if (tensorName == nullptr) return TensorIOMode::kNONE;
  if (engine_->input_index(tensorName) >= 0) return TensorIOMode::kINPUT;
  return engine_->output_index(tensorName) >= 0 ? TensorIOMode::kOUTPUT : TensorIOMode::kNONE;
}

TensorLocation EngineApi::getTensorLocation(char const* tensorName) const noexcept {
  return errors_.guard(TensorLocation::kDEVICE, [&] {
    return port(tensorName, 0).is_shape_input ? TensorLocation::kHOST : TensorLocation::kDEVICE;
  });
}

bool EngineApi::isShapeInferenceIO(char const* tensorName) const noexcept {
  return errors_.guard(false, [&] {
    const Port found = find_port(*engine_, tensorName);
    if (found.input >= 0) return plan().inputs[found.input].is_shape_input;
    const Schedule& schedule = plan().schedules[0];
    return std::any_of(schedule.copies.begin(), schedule.copies.end(), [&](const OutputCopy& copy) {
      return copy.output == found.output &&
             schedule.tensors[copy.tensor].location == PlanTensor::Location::kValues;
    });
  });
}

char const* EngineApi::getAliasedInputTensor(char const* tensorName) const noexcept {
  return errors_.guard<char const*>(nullptr, [&]() -> char const* {
    const int32_t input = port(tensorName, 0).aliased_input;
    return input < 0 ? nullptr : plan().inputs[input].name.c_str();
  });
}

TensorFormat EngineApi::getTensorFormat(char const* tensorName,
                                        int32_t profileIndex) const noexcept {
  return errors_.guard(TensorFormat::kLINEAR,
                       [&] { return port(tensorName, profileIndex).type.format; });
}

char const* EngineApi::getTensorFormatDesc(char const* tensorName,
                                           int32_t profileIndex) const noexcept {
  return errors_.guard<char const*>(nullptr, [&] {
    port(tensorName, profileIndex);
    const Port found = find_port(*engine_, tensorName);
    const size_t index =
        found.input >= 0 ? static_cast<size_t>(found.input) : plan().inputs.size() + found.output;
    return format_texts_[index].c_str();
  });
}

int32_t EngineApi::getTensorBytesPerComponent(char const* tensorName,
                                              int32_t profileIndex) const noexcept {
  return errors_.guard(-1, [&] {
    const PlanPort& found = port(tensorName, profileIndex);
    return is_vectorized(found) ? static_cast<int32_t>(bytes_of(found.type.dtype, 1)) : -1;
  });
}

int32_t EngineApi::getTensorComponentsPerElement(char const* tensorName,
                                                 int32_t profileIndex) const noexcept {
  return errors_.guard(-1, [&] {
    const PlanPort& found = port(tensorName, profileIndex);
    return is_vectorized(found) ? layout_of(found.type.format).block : -1;
  });
}

int32_t EngineApi::getTensorVectorizedDim(char const* tensorName,
                                          int32_t profileIndex) const noexcept {
  return errors_.guard(-1, [&] { return is_vectorized(port(tensorName, profileIndex)) ? 1 : -1; });
}

int32_t EngineApi::getNbOptimizationProfiles() const noexcept {
  return static_cast<int32_t>(plan().schedules.size());
}

const Shape& EngineApi::profile_shape(const char* name, int32_t profile, OptProfileSelector select,
                                      bool values) const {
  port(name, profile);
  const int input = engine_->input_index(name);
  require(input >= 0, "'", name, "' is an output; profiles have ranges for inputs");
  const ProfileInput& range = plan().schedules[profile].inputs[input];
  require(range.values == values, "the profile has ", range.values ? "values" : "a shape",
          " for input '", name, "'");
  switch (select) {
    case OptProfileSelector::kMIN:
      return range.min;
    case OptProfileSelector::kOPT:
      return range.opt;
    case OptProfileSelector::kMAX:
      return range.max;
  }
  fail("the selector ", static_cast<int>(select), " is none of kMIN, kOPT and kMAX");
}

Dims EngineApi::getProfileShape(char const* tensorName, int32_t profileIndex,
                                OptProfileSelector select) const noexcept {
  return errors_.guard(
      kNoDims, [&] { return profile_shape(tensorName, profileIndex, select, false).dims(); });
}

int64_t const* EngineApi::getProfileTensorValuesV2(char const* tensorName, int32_t profileIndex,
                                                   OptProfileSelector select) const noexcept {
  return errors_.guard<int64_t const*>(
      nullptr, [&] { return profile_shape(tensorName, profileIndex, select, true).begin(); });
}

int64_t EngineApi::getDeviceMemorySizeV2() const noexcept {
  return static_cast<int64_t>(context_memory(plan()));
}

int64_t EngineApi::getDeviceMemorySizeForProfileV2(int32_t profileIndex) const noexcept {
  return errors_.guard<int64_t>(0, [&] {
    require(profileIndex >= 0 && profileIndex < getNbOptimizationProfiles(), "profile ",
            profileIndex, " does not exist: the engine has ", getNbOptimizationProfiles());
    const Schedule& schedule = plan().schedules[profileIndex];
    return static_cast<int64_t>(context_memory(schedule));
  });
}

bool EngineApi::isDebugTensor(char const* name) const noexcept {
  return errors_.guard(false, [&] {
    require(name != nullptr, "isDebugTensor: the tensor's name is null");
    return is_debug_tensor(plan(), name);
  });
}

bool EngineApi::setWeightStreamingBudgetV2(int64_t gpuMemoryBudget) noexcept {
  return errors_.run([&] {
    require(gpuMemoryBudget == 0, "setWeightStreamingBudgetV2: the budget is ", gpuMemoryBudget,
            ", but weights are not streamed: all of them lie in the device's memory; leave it at "
            "0");
  });
}

}  // namespace opwright
