// libnvinfer.so: the functions of builder.h, runtime.h, registry.h, logger.h.

#include "opwright/builder.h"
#include "opwright/logger.h"
#include "opwright/registry.h"
#include "opwright/runtime.h"
#include "tensorrt/forward.h"

extern "C" OPWRIGHT_API void* createInferRefitter_INTERNAL(void* engine, void* logger,
                                                           int32_t version) noexcept;

void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept {
  OPWRIGHT_FORWARD(nullptr, createInferBuilder_INTERNAL, logger, version);
}
void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  OPWRIGHT_FORWARD(nullptr, createInferRuntime_INTERNAL, logger, version);
}
void* createInferRefitter_INTERNAL(void* engine, void* logger, int32_t version) noexcept {
  OPWRIGHT_FORWARD(nullptr, createInferRefitter_INTERNAL, engine, logger, version);
}
opwright::IPluginRegistry* getPluginRegistry() noexcept {
  OPWRIGHT_FORWARD(nullptr, getPluginRegistry);
}
opwright::IPluginRegistry* getBuilderPluginRegistry(
    opwright::EngineCapability capability) noexcept {
  OPWRIGHT_FORWARD(nullptr, getBuilderPluginRegistry, capability);
}
opwright::ILogger* getLogger() noexcept { OPWRIGHT_FORWARD(nullptr, getLogger); }
int32_t getInferLibVersion() noexcept { OPWRIGHT_FORWARD(0, getInferLibVersion); }
int32_t getInferLibMajorVersion() noexcept { OPWRIGHT_FORWARD(0, getInferLibMajorVersion); }
int32_t getInferLibMinorVersion() noexcept { OPWRIGHT_FORWARD(0, getInferLibMinorVersion); }
int32_t getInferLibPatchVersion() noexcept { OPWRIGHT_FORWARD(0, getInferLibPatchVersion); }
int32_t getInferLibBuildVersion() noexcept { OPWRIGHT_FORWARD(0, getInferLibBuildVersion); }
