#include "opwright/runtime.h"

#include <optional>

#include "base/limits.h"
#include "plan/stream.h"
#include "plugin/registry.h"
#include "runtime/api_border.h"
#include "runtime/api_engine.h"

namespace opwright {
namespace {

class RuntimeApi final : public IRuntime {
 public:
  explicit RuntimeApi(ILogger* logger)
      : errors_(Log(logger)), registry_(&PluginRegistry::global(), Log(logger)) {}

  ICudaEngine* deserializeCudaEngine(void const* blob, std::size_t size) noexcept override {
    return errors_.guard<ICudaEngine*>(nullptr, [&] {
      require(blob != nullptr, "the engine's bytes are null");
      // The caller may free the bytes, so weights stay in a copy.
      return load(Blob::copy(blob, size));
    });
  }
  ICudaEngine* deserializeCudaEngine(IStreamReader& streamReader) noexcept override {
    return errors_.guard<ICudaEngine*>(nullptr, [&] {
      return load(read_stream([&](void* to, int64_t size) { return streamReader.read(to, size); }));
    });
  }
  ICudaEngine* deserializeCudaEngine(IStreamReaderV2& streamReader) noexcept override {
    return errors_.guard<ICudaEngine*>(nullptr, [&] {
      return load(read_stream(
          [&](void* to, int64_t size) { return streamReader.read(to, size, nullptr); }));
    });
  }
  void setEngineHostCodeAllowed(bool allowed) noexcept override { host_code_allowed_ = allowed; }
  bool getEngineHostCodeAllowed() const noexcept override { return host_code_allowed_; }
  void setEngineDeviceCodeAllowed(bool allowed) noexcept override {
    device_code_allowed_ = allowed;
  }
  bool getEngineDeviceCodeAllowed() const noexcept override { return device_code_allowed_; }
  void setDLACore(int32_t dlaCore) noexcept override {
    errors_.run([&] { require_no_dla("IRuntime::setDLACore", dlaCore); });
  }
  int32_t getDLACore() const noexcept override { return -1; }
  int32_t getNbDLACores() const noexcept override { return 0; }
  IPluginRegistry& getPluginRegistry() noexcept override { return registry_; }
  ILogger* getLogger() const noexcept override { return errors_.log().logger(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { threads_ = checked_threads(maxThreads, "a runtime"); });
  }
  int32_t getMaxThreads() const noexcept override {
    return threads_ > 0 ? threads_ : thread_count();
  }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  void setGpuAllocator(IGpuAllocator* allocator) noexcept override { allocator_ = allocator; }
  void setTemporaryDirectory(char const* path) noexcept override {
    errors_.run([&] {
      temporary_directory_.reset();
      if (path != nullptr) temporary_directory_ = path;
    });
  }
  char const* getTemporaryDirectory() const noexcept override {
    return temporary_directory_ ? temporary_directory_->c_str() : nullptr;
  }
  void setTempfileControlFlags(TempfileControlFlags flags) noexcept override {
    tempfile_flags_ = flags;
  }
  TempfileControlFlags getTempfileControlFlags() const noexcept override { return tempfile_flags_; }
  IRuntime* loadRuntime(char const* path) noexcept override {
    return errors_.guard<IRuntime*>(nullptr,
                                    [&]() -> IRuntime* { fail_other_runtime(path ? path : ""); });
  }
  void setDebugPlugins(bool debug) noexcept override { debug_plugins_ = debug; }
  bool getDebugPlugins() const noexcept override { return debug_plugins_.value_or(false); }
  bool setLimits(Limits const& limits) noexcept override {
    return errors_.run([&] {
      check_limits(limits);
      limits_ = limits;
    });
  }
  Limits getLimits() const noexcept override { return limits_; }

 private:
  ICudaEngine* load(const Blob& file) {
    const ThreadLimit limit(threads_);
    LoadOptions options;
    options.allow_host_code = host_code_allowed_;
    options.allow_device_code = device_code_allowed_;
    options.tempfile_flags = tempfile_flags_;
    options.plugins = &registry_;
    options.log = errors_.log();
    options.recorder = errors_.recorder();
    options.allocator = unowned(allocator_);
    options.debug_plugins = debug_plugins_;
    options.max_threads = threads_;
    options.limits = limits_;
    return new EngineApi(Engine::load(deserialize(file), options));
  }

  ErrorReport errors_;
  PluginRegistry registry_;
  IGpuAllocator* allocator_ = nullptr;
  bool host_code_allowed_ = is_permitted_by_environment(kAllowHostCode);
  bool device_code_allowed_ = is_permitted_by_environment(kAllowDeviceCode);
  std::optional<std::string> temporary_directory_;
  TempfileControlFlags tempfile_flags_ = kAllTempfiles;
  std::optional<bool> debug_plugins_;  ///< empty: as the engine was built
  int threads_ = 0;                    ///< 0: what the calling thread has
  Limits limits_;
};

}  // namespace
}  // namespace opwright

void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  using namespace opwright;
  auto* const user = static_cast<ILogger*>(logger);
  const ErrorReport errors{user == nullptr ? Log() : Log(user)};
  return errors.guard<void*>(nullptr, [&]() -> void* {
    require(user != nullptr, "a runtime needs a logger; it is null");
    require(version / 10000 == NV_TENSORRT_MAJOR, "the program was compiled for API level ",
            version / 10000, ", the library has ", NV_TENSORRT_MAJOR);
    return static_cast<IRuntime*>(new RuntimeApi(user));
  });
}

int32_t getInferLibVersion() noexcept { return NV_TENSORRT_VERSION; }
int32_t getInferLibMajorVersion() noexcept { return NV_TENSORRT_MAJOR; }
int32_t getInferLibMinorVersion() noexcept { return NV_TENSORRT_MINOR; }
int32_t getInferLibPatchVersion() noexcept { return NV_TENSORRT_PATCH; }
int32_t getInferLibBuildVersion() noexcept { return NV_TENSORRT_BUILD; }
