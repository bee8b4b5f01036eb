// libnvinfer.so.10 and .11: TensorRT's entry points with TensorRT's tables.

#include "tensorrt/abi/entry.h"

namespace {
// The newest versions whose tables are described.
constexpr int32_t kMajor = OPWRIGHT_TENSORRT_MAJOR;
constexpr int32_t kMinor = kMajor == 10 ? 16 : 4;
}  // namespace

extern "C" {

OPWRIGHT_API void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept {
  return opwrightTensorrtBuilder(logger, version);
}
OPWRIGHT_API void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  return opwrightTensorrtRuntime(logger, version);
}
OPWRIGHT_API void* createInferRefitter_INTERNAL(void* engine, void* logger,
                                                int32_t version) noexcept {
  return opwrightTensorrtRefitter(engine, logger, version);
}
OPWRIGHT_API void* getPluginRegistry() noexcept { return opwrightTensorrtRegistry(kMajor); }
OPWRIGHT_API void* getBuilderPluginRegistry(int32_t capability) noexcept {
  return opwrightTensorrtBuilderRegistry(kMajor, capability);
}
OPWRIGHT_API void* getLogger() noexcept { return opwrightTensorrtLogger(kMajor); }
OPWRIGHT_API int32_t getInferLibVersion() noexcept { return kMajor * 10000 + kMinor * 100; }
OPWRIGHT_API int32_t getInferLibMajorVersion() noexcept { return kMajor; }
OPWRIGHT_API int32_t getInferLibMinorVersion() noexcept { return kMinor; }
OPWRIGHT_API int32_t getInferLibPatchVersion() noexcept { return 0; }
OPWRIGHT_API int32_t getInferLibBuildVersion() noexcept { return 0; }
/// For the folder of TensorRT's builder resources. Opwright has none.
OPWRIGHT_API bool setInternalLibraryPath(char const* /*path*/) noexcept { return true; }
}
