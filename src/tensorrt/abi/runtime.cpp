#include <cmath>

#include "tensorrt/abi/driver_context.h"
#include "tensorrt/abi/slot.h"
#include "tensorrt/abi/weights_by_role.h"

namespace opwright::tensorrt {
const Table host_memory_table = {"VHostMemory",
                                 {
                                     OPWRIGHT_SAME(IHostMemory, data),
                                     OPWRIGHT_SAME(IHostMemory, size),
                                     OPWRIGHT_SAME(IHostMemory, type),
                                 }};

const Table runtime_table = {
    "VRuntime",
    {
        own_face(),
        OPWRIGHT_OTHER(IRuntime, deserializeCudaEngine,
                       [](IRuntime& self, void const* blob, std::size_t size) {
                         return self.deserializeCudaEngine(blob, size);
                       }),
        until_10(OPWRIGHT_OTHER(IRuntime, deserializeCudaEngine,
                                [](IRuntime& self, IStreamReader& reader) {
                                  return self.deserializeCudaEngine(reader);
                                })),
        OPWRIGHT_PROPERTY(IRuntime, DLACore),
        OPWRIGHT_SAME(IRuntime, getNbDLACores),
        OPWRIGHT_SAME(IRuntime, setGpuAllocator),
        OPWRIGHT_PROPERTY(IRuntime, ErrorRecorder),
        OPWRIGHT_SAME(IRuntime, getLogger),
        OPWRIGHT_PROPERTY(IRuntime, MaxThreads),
        OPWRIGHT_PROPERTY(IRuntime, TemporaryDirectory),
        OPWRIGHT_PROPERTY(IRuntime, TempfileControlFlags),
        OPWRIGHT_SAME(IRuntime, getPluginRegistry),
        OPWRIGHT_OTHER(
            IRuntime, setPluginRegistryParent,
            [](IRuntime&, IPluginRegistry*) { lacks("IRuntime::setPluginRegistryParent"); }),
        OPWRIGHT_SAME(IRuntime, loadRuntime),
        OPWRIGHT_PROPERTY(IRuntime, EngineHostCodeAllowed),
        OPWRIGHT_OTHER(IRuntime, deserializeCudaEngineV2,
                       [](IRuntime& self, IStreamReaderV2& reader) {
                         // A reader of NVIDIA's Python binding asks the driver about addresses.
                         make_context_current();
                         return self.deserializeCudaEngine(reader);
                       }),
        since_11_4(OPWRIGHT_OTHER(IRuntime, setDLAWorkspaceAllocationStrategy,
                                  [](IRuntime&, int32_t strategy) {
                                    constexpr int32_t kDefault = 0;
                                    return strategy == kDefault ||
                                           lacks("IRuntime::setDLAWorkspaceAllocationStrategy");
                                  })),
        since_11_4(OPWRIGHT_OTHER(IRuntime, getDLAWorkspaceAllocationStrategy,
                                  [](IRuntime const&) -> int32_t { return 0; })),
    }};

const Table refitter_table = {
    "VRefitter",
    {
        own_face(),
        OPWRIGHT_SAME(IRefitter, setWeights),
        OPWRIGHT_SAME(IRefitter, refitCudaEngine),
        OPWRIGHT_SAME(IRefitter, getMissing),
        OPWRIGHT_SAME(IRefitter, getAll),
        until_10(OPWRIGHT_OTHER(IRefitter, setDynamicRange,
                                [](IRefitter&, char const*, float, float) {
                                  return lacks("IRefitter::setDynamicRange");
                                })),
        until_10(OPWRIGHT_OTHER(IRefitter, getDynamicRangeMin,
                                [](IRefitter const&, char const*) { return NAN; })),
        until_10(OPWRIGHT_OTHER(IRefitter, getDynamicRangeMax,
                                [](IRefitter const&, char const*) { return NAN; })),
        until_10(
            OPWRIGHT_OTHER(IRefitter, getTensorsWithDynamicRange,
                           [](IRefitter const&, int32_t, char const**) -> int32_t { return 0; })),
        OPWRIGHT_PROPERTY(IRefitter, ErrorRecorder),
        OPWRIGHT_OTHER(IRefitter, setNamedWeights,
                       [](IRefitter& self, char const* name, Weights weights) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.setNamedWeights(own, weights);
                         });
                       }),
        OPWRIGHT_OTHER(IRefitter, getMissingWeights,
                       [](IRefitter& self, int32_t size, char const** names) {
                         return list_weights(self, Listed::kMissing, size, names);
                       }),
        OPWRIGHT_OTHER(IRefitter, getAllWeights,
                       [](IRefitter& self, int32_t size, char const** names) {
                         return list_weights(self, Listed::kAll, size, names);
                       }),
        OPWRIGHT_SAME(IRefitter, getLogger),
        OPWRIGHT_PROPERTY(IRefitter, MaxThreads),
        OPWRIGHT_OTHER(
            IRefitter, setNamedWeightsWithLocation,
            [](IRefitter& self, char const* name, Weights weights, TensorLocation location) {
              return by_own_name(self, name, [&](char const* own) {
                return self.setNamedWeights(own, weights, location);
              });
            }),
        OPWRIGHT_OTHER(IRefitter, getNamedWeights,
                       [](IRefitter const& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.getNamedWeights(own);
                         });
                       }),
        OPWRIGHT_OTHER(IRefitter, getWeightsLocation,
                       [](IRefitter const& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.getWeightsLocation(own);
                         });
                       }),
        OPWRIGHT_OTHER(IRefitter, unsetNamedWeights,
                       [](IRefitter& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.unsetNamedWeights(own);
                         });
                       }),
        OPWRIGHT_PROPERTY(IRefitter, WeightsValidation),
        OPWRIGHT_SAME(IRefitter, refitCudaEngineAsync),
        OPWRIGHT_OTHER(IRefitter, getWeightsPrototype,
                       [](IRefitter const& self, char const* name) {
                         return by_own_name(self, name, [&](char const* own) {
                           return self.getWeightsPrototype(own);
                         });
                       }),
        // A refitter keeps nothing between refits that could be released.
        since_11_4(
            OPWRIGHT_OTHER(IRefitter, releaseRefitResources, [](IRefitter&) { return true; })),
    }};

const Table engine_inspector_table = {"VEngineInspector",
                                      {
                                          own_face(),
                                          OPWRIGHT_PROPERTY(IEngineInspector, ExecutionContext),
                                          OPWRIGHT_SAME(IEngineInspector, getLayerInformation),
                                          OPWRIGHT_SAME(IEngineInspector, getEngineInformation),
                                          OPWRIGHT_PROPERTY(IEngineInspector, ErrorRecorder),
                                      }};

const Table serialization_config_table = {"VSerializationConfig",
                                          {
                                              OPWRIGHT_PROPERTY(ISerializationConfig, Flags),
                                              OPWRIGHT_SAME(ISerializationConfig, clearFlag),
                                              OPWRIGHT_PROPERTY(ISerializationConfig, Flag),
                                          }};

const Table runtime_config_table = {
    "VRuntimeConfig",
    {
        own_face(),
        OPWRIGHT_PROPERTY(IRuntimeConfig, ExecutionContextAllocationStrategy),
    }};

const Kind host_memory_kind = {{&host_memory_table}, destroy<IHostMemory>};
const Kind runtime_kind = {{&runtime_table}, destroy<IRuntime>};
const Kind refitter_kind = {{&refitter_table}, destroy_refitter};
const Kind inspector_kind = {{&engine_inspector_table}, destroy<IEngineInspector>};
const Kind serialization_config_kind = {{&serialization_config_table},
                                        destroy<ISerializationConfig>};
const Kind runtime_config_kind = {{&runtime_config_table}, destroy<IRuntimeConfig>};

}  // namespace opwright::tensorrt
