#include "opwright/runtime.h"

#include "api/border.h"
#include "api/dla.h"
#include "api/engine.h"
#include "runtime/runtime.h"

namespace opwright {
namespace {

/// The public face of a Runtime.
class RuntimeApi final : public IRuntime {
 public:
  explicit RuntimeApi(ILogger* logger) : runtime_(Log(logger)) {}

  ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept override {
    return loaded([&] {
      require(blob != nullptr, "the engine's bytes are null");
      return Blob::copy(blob, size);  // the caller may free the bytes
    });
  }
  ICudaEngine* deserializeCudaEngine(IStreamReader& streamReader) noexcept override {
    return loaded([&] {
      return read_stream([&](void* to, int64_t size) { return streamReader.read(to, size); });
    });
  }
  ICudaEngine* deserializeCudaEngine(IStreamReaderV2& streamReader) noexcept override {
    return loaded([&] {
      return read_stream(
          [&](void* to, int64_t size) { return streamReader.read(to, size, nullptr); });
    });
  }
  void setEngineHostCodeAllowed(bool allowed) noexcept override {
    options().allow_host_code = allowed;
  }
  bool getEngineHostCodeAllowed() const noexcept override { return options().allow_host_code; }
  void setEngineDeviceCodeAllowed(bool allowed) noexcept override {
    options().allow_device_code = allowed;
  }
  bool getEngineDeviceCodeAllowed() const noexcept override { return options().allow_device_code; }
  void setDLACore(int32_t dlaCore) noexcept override {
    errors_.run([&] { require_no_dla(dlaCore); });
  }
  int32_t getDLACore() const noexcept override { return kNoDla; }
  int32_t getNbDLACores() const noexcept override { return 0; }
  IPluginRegistry& getPluginRegistry() noexcept override { return *runtime_.registry(); }
  ILogger* getLogger() const noexcept override { return errors_.log().logger(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { runtime_.set_max_threads(maxThreads); });
  }
  int32_t getMaxThreads() const noexcept override { return runtime_.max_threads(); }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  void setGpuAllocator(IGpuAllocator* allocator) noexcept override {
    options().allocator = unowned(allocator);
  }
  void setTemporaryDirectory(char const* path) noexcept override {
    errors_.run([&] {
      auto& directory = runtime_.temporary_directory;
      path == nullptr ? directory.reset() : void(directory = path);
    });
  }
  char const* getTemporaryDirectory() const noexcept override {
    return runtime_.temporary_directory ? runtime_.temporary_directory->c_str() : nullptr;
  }
  void setTempfileControlFlags(TempfileControlFlags flags) noexcept override {
    options().tempfile_flags = flags;
  }
  TempfileControlFlags getTempfileControlFlags() const noexcept override {
    return options().tempfile_flags;
  }
  IRuntime* loadRuntime(char const* path) noexcept override {
    return errors_.guard<IRuntime*>(nullptr,
                                    [&]() -> IRuntime* { fail_other_runtime(path ? path : ""); });
  }
  void setDebugPlugins(bool debug) noexcept override { options().debug_plugins = debug; }
  bool getDebugPlugins() const noexcept override { return options().debug_plugins.value_or(false); }
  bool setLimits(Limits const& limits) noexcept override {
    return errors_.run([&] { runtime_.set_limits(limits); });
  }
  Limits getLimits() const noexcept override { return options().limits; }

 private:
  LoadOptions& options() { return runtime_.options(); }
  const LoadOptions& options() const { return runtime_.options(); }
  /// Loads an engine from the bytes that `read` returns.
  template <class Read>
  ICudaEngine* loaded(Read&& read) const noexcept {
    return errors_.guard<ICudaEngine*>(nullptr,
                                       [&] { return new EngineApi(runtime_.load(read())); });
  }

  Runtime runtime_;
  ErrorReport& errors_ = runtime_.errors();
};

}  // namespace
}  // namespace opwright

void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  using namespace opwright;
  return create_face(logger, true, "a runtime needs a logger; it is null", version,
                     [](ILogger* user) -> IRuntime* { return new RuntimeApi(user); });
}

int32_t getInferLibVersion() noexcept { return NV_TENSORRT_VERSION; }
int32_t getInferLibMajorVersion() noexcept { return NV_TENSORRT_MAJOR; }
int32_t getInferLibMinorVersion() noexcept { return NV_TENSORRT_MINOR; }
int32_t getInferLibPatchVersion() noexcept { return NV_TENSORRT_PATCH; }
int32_t getInferLibBuildVersion() noexcept { return NV_TENSORRT_BUILD; }
