#include "tensorrt/abi/own.h"
#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {

namespace {

/// The number of values of a shape tensor.
int32_t count_of(Dims const& shape) {
  return shape.nbDims == 0 ? 1 : static_cast<int32_t>(shape.d[0]);
}

/// The client owns the options: NVIDIA's Python binding deletes them after the context. A context
/// gives the same ones again until the client deletes them.
Slot runtime_config() {
  const auto run = +[](Part* part) noexcept -> Facade* {
    if (Facade* const known = part->facade->kept()) return known;
    auto& context = *static_cast<IExecutionContext*>(part->object);
    IRuntimeConfig* const ours =
        const_cast<ICudaEngine&>(context.getEngine()).createRuntimeConfig();
    if (ours == nullptr) return nullptr;
    ours->setExecutionContextAllocationStrategy(
        context.getRuntimeConfig()->getExecutionContextAllocationStrategy());
    Facade* const face = Facade::owned(ours, runtime_config_kind, part->facade->major());
    part->facade->keep(face);
    return face;
  };
  return {"getRuntimeConfig", reinterpret_cast<void*>(run), &typeid(IRuntimeConfig * ())};
}

}  // namespace

const Table engine_table = {
    "VCudaEngine",
    {
        own_face(),
        OPWRIGHT_SAME(ICudaEngine, getNbLayers),
        OPWRIGHT_SAME(ICudaEngine, serialize),
        OPWRIGHT_OTHER(ICudaEngine, createExecutionContext,
                       [](ICudaEngine& self, ExecutionContextAllocationStrategy strategy) {
                         return self.createExecutionContext(strategy);
                       }),
        until_10(OPWRIGHT_OTHER(ICudaEngine, createExecutionContextWithoutDeviceMemory,
                                [](ICudaEngine& self) {
                                  return self.createExecutionContext(
                                      ExecutionContextAllocationStrategy::kUSER_MANAGED);
                                })),
        until_10(OPWRIGHT_SAME(ICudaEngine, getDeviceMemorySize)),
        OPWRIGHT_SAME(ICudaEngine, isRefittable),
        OPWRIGHT_SAME(ICudaEngine, getName),
        OPWRIGHT_SAME(ICudaEngine, getNbOptimizationProfiles),
        until_10(OPWRIGHT_OTHER(ICudaEngine, getProfileTensorValues,
                                [](ICudaEngine const& self, char const* name, int32_t profile,
                                   OptProfileSelector select) {
                                  return narrowed(
                                      self.getProfileTensorValuesV2(name, profile, select),
                                      count_of(self.getTensorShape(name)));
                                })),
        OPWRIGHT_SAME(ICudaEngine, getEngineCapability),
        OPWRIGHT_PROPERTY(ICudaEngine, ErrorRecorder),
        until_10(OPWRIGHT_OTHER(ICudaEngine, hasImplicitBatchDimension,
                                [](ICudaEngine const&) { return false; })),
        OPWRIGHT_OTHER(ICudaEngine, getTacticSources,
                       [](ICudaEngine const& self) -> Mask<TacticSource> {
                         return {self.getTacticSources()};
                       }),
        OPWRIGHT_SAME(ICudaEngine, getProfilingVerbosity),
        OPWRIGHT_SAME(ICudaEngine, createEngineInspector),
        OPWRIGHT_SAME(ICudaEngine, getTensorShape),
        OPWRIGHT_SAME(ICudaEngine, getTensorDataType),
        OPWRIGHT_SAME(ICudaEngine, getTensorLocation),
        OPWRIGHT_SAME(ICudaEngine, isShapeInferenceIO),
        OPWRIGHT_SAME(ICudaEngine, getTensorIOMode),
        OPWRIGHT_OTHER(ICudaEngine, getTensorBytesPerComponent,
                       [](ICudaEngine const& self, char const* name) {
                         return self.getTensorBytesPerComponent(name);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorComponentsPerElement,
                       [](ICudaEngine const& self, char const* name) {
                         return self.getTensorComponentsPerElement(name);
                       }),
        OPWRIGHT_OTHER(
            ICudaEngine, getTensorFormat,
            [](ICudaEngine const& self, char const* name) { return self.getTensorFormat(name); }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorFormatDesc,
                       [](ICudaEngine const& self, char const* name) {
                         return self.getTensorFormatDesc(name);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorVectorizedDim,
                       [](ICudaEngine const& self, char const* name) {
                         return self.getTensorVectorizedDim(name);
                       }),
        OPWRIGHT_SAME(ICudaEngine, getProfileShape),
        OPWRIGHT_SAME(ICudaEngine, getNbIOTensors),
        OPWRIGHT_SAME(ICudaEngine, getIOTensorName),
        OPWRIGHT_SAME(ICudaEngine, getHardwareCompatibilityLevel),
        OPWRIGHT_SAME(ICudaEngine, getNbAuxStreams),
        OPWRIGHT_OTHER(ICudaEngine, getTensorBytesPerComponentV2,
                       [](ICudaEngine const& self, char const* name, int32_t profile) {
                         return self.getTensorBytesPerComponent(name, profile);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorComponentsPerElementV2,
                       [](ICudaEngine const& self, char const* name, int32_t profile) {
                         return self.getTensorComponentsPerElement(name, profile);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorFormatV2,
                       [](ICudaEngine const& self, char const* name, int32_t profile) {
                         return self.getTensorFormat(name, profile);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorFormatDescV2,
                       [](ICudaEngine const& self, char const* name, int32_t profile) {
                         return self.getTensorFormatDesc(name, profile);
                       }),
        OPWRIGHT_OTHER(ICudaEngine, getTensorVectorizedDimV2,
                       [](ICudaEngine const& self, char const* name, int32_t profile) {
                         return self.getTensorVectorizedDim(name, profile);
                       }),
        OPWRIGHT_SAME(ICudaEngine, createSerializationConfig),
        OPWRIGHT_OTHER(ICudaEngine, serializeWithConfig,
                       [](ICudaEngine const& self, ISerializationConfig& config) {
                         // TensorRT's flags only speak of weights that can be refitted.
                         return self.isRefittable() ? self.serializeWithConfig(config)
                                                    : self.serialize();
                       }),
        until_10(OPWRIGHT_SAME(ICudaEngine, getDeviceMemorySizeForProfile)),
        OPWRIGHT_OTHER(ICudaEngine, createRefitter,
                       [](ICudaEngine& self, ILogger& logger) {
                         return static_cast<IRefitter*>(OPWRIGHT_OWN(createInferRefitter_INTERNAL)(
                             &self, &logger, NV_TENSORRT_VERSION));
                       }),
        until_10(OPWRIGHT_OTHER(ICudaEngine, setWeightStreamingBudget,
                                [](ICudaEngine& self, int64_t budget) {
                                  return self.setWeightStreamingBudgetV2(budget);
                                })),
        until_10(OPWRIGHT_OTHER(
            ICudaEngine, getWeightStreamingBudget,
            [](ICudaEngine const& self) { return self.getWeightStreamingBudgetV2(); })),
        until_10(OPWRIGHT_OTHER(ICudaEngine, getMinimumWeightStreamingBudget,
                                [](ICudaEngine const&) -> int64_t { return 0; })),
        OPWRIGHT_SAME(ICudaEngine, getStreamableWeightsSize),
        OPWRIGHT_SAME(ICudaEngine, isDebugTensor),
        OPWRIGHT_PROPERTY(ICudaEngine, WeightStreamingBudgetV2),
        OPWRIGHT_SAME(ICudaEngine, getWeightStreamingAutomaticBudget),
        OPWRIGHT_SAME(ICudaEngine, getWeightStreamingScratchMemorySize),
        OPWRIGHT_SAME(ICudaEngine, getDeviceMemorySizeV2),
        OPWRIGHT_SAME(ICudaEngine, getDeviceMemorySizeForProfileV2),
        OPWRIGHT_SAME(ICudaEngine, getProfileTensorValuesV2),
        OPWRIGHT_OTHER(ICudaEngine, createExecutionContextWithRuntimeConfig,
                       [](ICudaEngine& self, IRuntimeConfig* config) {
                         return self.createExecutionContext(config);
                       }),
        OPWRIGHT_SAME(ICudaEngine, createRuntimeConfig),
        OPWRIGHT_SAME(ICudaEngine, getEngineStat),
        OPWRIGHT_SAME(ICudaEngine, getAliasedInputTensor),
    }};

const Table execution_context_table = {
    "VExecutionContext",
    {
        own_face(),
        OPWRIGHT_PROPERTY(IExecutionContext, DebugSync),
        OPWRIGHT_PROPERTY(IExecutionContext, Profiler),
        OPWRIGHT_SAME(IExecutionContext, getEngine),
        OPWRIGHT_PROPERTY(IExecutionContext, Name),
        OPWRIGHT_SAME(IExecutionContext, setDeviceMemory),
        OPWRIGHT_SAME(IExecutionContext, getOptimizationProfile),
        OPWRIGHT_SAME(IExecutionContext, allInputDimensionsSpecified),
        until_10(OPWRIGHT_OTHER(
            IExecutionContext, allInputShapesSpecified,
            [](IExecutionContext const& self) { return self.allInputDimensionsSpecified(); })),
        OPWRIGHT_PROPERTY(IExecutionContext, ErrorRecorder),
        OPWRIGHT_SAME(IExecutionContext, executeV2),
        OPWRIGHT_SAME(IExecutionContext, setOptimizationProfileAsync),
        OPWRIGHT_PROPERTY(IExecutionContext, EnqueueEmitsProfile),
        OPWRIGHT_SAME(IExecutionContext, reportToProfiler),
        OPWRIGHT_SAME(IExecutionContext, setInputShape),
        OPWRIGHT_SAME(IExecutionContext, getTensorShape),
        OPWRIGHT_SAME(IExecutionContext, getTensorStrides),
        OPWRIGHT_PROPERTY(IExecutionContext, TensorAddress),
        OPWRIGHT_SAME(IExecutionContext, setInputTensorAddress),
        OPWRIGHT_SAME(IExecutionContext, setOutputTensorAddress),
        OPWRIGHT_SAME(IExecutionContext, inferShapes),
        OPWRIGHT_PROPERTY(IExecutionContext, InputConsumedEvent),
        OPWRIGHT_SAME(IExecutionContext, getOutputTensorAddress),
        OPWRIGHT_PROPERTY(IExecutionContext, OutputAllocator),
        OPWRIGHT_SAME(IExecutionContext, getMaxOutputSize),
        OPWRIGHT_PROPERTY(IExecutionContext, TemporaryStorageAllocator),
        OPWRIGHT_SAME(IExecutionContext, enqueueV3),
        OPWRIGHT_PROPERTY(IExecutionContext, PersistentCacheLimit),
        OPWRIGHT_PROPERTY(IExecutionContext, NvtxVerbosity),
        OPWRIGHT_SAME(IExecutionContext, setAuxStreams),
        OPWRIGHT_PROPERTY(IExecutionContext, DebugListener),
        OPWRIGHT_SAME(IExecutionContext, setTensorDebugState),
        OPWRIGHT_SAME(IExecutionContext, getDebugState),
        OPWRIGHT_SAME(IExecutionContext, setAllTensorsDebugState),
        OPWRIGHT_SAME(IExecutionContext, updateDeviceMemorySizeForShapes),
        OPWRIGHT_SAME(IExecutionContext, setDeviceMemoryV2),
        runtime_config(),
        OPWRIGHT_PROPERTY(IExecutionContext, UnfusedTensorsDebugState),
        OPWRIGHT_SAME(IExecutionContext, setCommunicator),
    }};

const Kind engine_kind = {{&engine_table}, destroy<ICudaEngine>};
const Kind context_kind = {{&execution_context_table}, destroy<IExecutionContext>};

}  // namespace opwright::tensorrt
