#include <memory>
#include <vector>

#include "api/config.h"
#include "api/network.h"
#include "compile/compile.h"
#include "opwright/builder.h"
#include "plan/stream.h"
#include "plugin/registry.h"
#include "runtime/api_engine.h"
#include "runtime/api_host_memory.h"

namespace opwright {
namespace {

class BuilderApi final : public IBuilder {
 public:
  explicit BuilderApi(ILogger* logger)
      : errors_(Log(logger)), registry_(&PluginRegistry::global(), Log(logger)) {}

  INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept override {
    return errors_.guard<INetworkDefinition*>(
        nullptr, [&] { return new NetworkApi(*this, flags, errors_.log(), errors_.recorder()); });
  }
  IBuilderConfig* createBuilderConfig() noexcept override {
    return errors_.guard<IBuilderConfig*>(
        nullptr, [&] { return new BuilderConfigApi(errors_.log(), errors_.recorder()); });
  }
  IOptimizationProfile* createOptimizationProfile() noexcept override {
    return errors_.guard<IOptimizationProfile*>(nullptr, [&] {
      profiles_.push_back(std::make_unique<ProfileApi>(errors_.log(), errors_.recorder()));
      return profiles_.back().get();
    });
  }
  IHostMemory* buildSerializedNetwork(INetworkDefinition& network,
                                      IBuilderConfig& config) noexcept override {
    return errors_.guard<IHostMemory*>(
        nullptr, [&] { return new HostMemoryApi(serialize(build(network, config))); });
  }
  IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config,
                                      IHostMemory*& kernelText) noexcept override {
    kernelText = nullptr;
    return buildSerializedNetwork(network, config);
  }
  ICudaEngine* buildEngineWithConfig(INetworkDefinition& network,
                                     IBuilderConfig& config) noexcept override {
    return errors_.guard<ICudaEngine*>(nullptr, [&] {
      LoadOptions options;
      options.plugins = &registry_;
      options.log = errors_.log();
      options.recorder = errors_.recorder();
      options.allocator = unowned(allocator_);
      options.max_threads = threads_;
      options.limits = config.getLimits();
      const auto engine = Engine::load(build(network, config), options);
      return new EngineApi(engine);
    });
  }
  bool buildSerializedNetworkToStream(INetworkDefinition& network, IBuilderConfig& config,
                                      IStreamWriter& writer) noexcept override {
    return errors_.run([&] {
      write_stream(serialize(build(network, config)),
                   [&](const void* data, int64_t size) { return writer.write(data, size); });
    });
  }
  void reset() noexcept override {
    errors_.set_recorder(nullptr);
    allocator_ = nullptr;
    threads_ = 0;
  }
  bool isNetworkSupported(INetworkDefinition const& network,
                          IBuilderConfig const& config) const noexcept override {
    return errors_.run([&] {
      const Network& core = NetworkApi::of(network).network();
      BuildConfig trial =
          BuilderConfigApi::of(config).build_config(core.flags().strongly_typed, errors_.log());
      trial.timing = false;
      trial.progress = nullptr;
      compile(core, trial);
    });
  }
  IPluginRegistry& getPluginRegistry() noexcept override { return registry_; }
  ILogger* getLogger() const noexcept override { return errors_.log().logger(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { threads_ = checked_threads(maxThreads, "a builder"); });
  }
  int32_t getMaxThreads() const noexcept override {
    return threads_ > 0 ? threads_ : thread_count();
  }
  int32_t getMaxDLABatchSize() const noexcept override { return 0; }
  int32_t getNbDLACores() const noexcept override { return 0; }
  bool platformHasFastFp16() const noexcept override { return true; }
  bool platformHasFastInt8() const noexcept override { return true; }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  void setGpuAllocator(IGpuAllocator* allocator) noexcept override { allocator_ = allocator; }

 private:
  Plan build(INetworkDefinition& network, IBuilderConfig& config) const {
    const ThreadLimit limit(threads_);
    const Network& core = NetworkApi::of(network).network();
    BuildConfig build =
        BuilderConfigApi::of(config).build_config(core.flags().strongly_typed, errors_.log());
    build.services = {errors_.recorder(), unowned(allocator_), nullptr};
    return compile(core, build);
  }

  ErrorReport errors_;
  PluginRegistry registry_;
  std::vector<std::unique_ptr<ProfileApi>> profiles_;
  IGpuAllocator* allocator_ = nullptr;
  int threads_ = 0;  ///< 0: what the calling thread has
};

}  // namespace
}  // namespace opwright

void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept {
  using namespace opwright;
  auto* const user = static_cast<ILogger*>(logger);
  const ErrorReport errors{user == nullptr ? Log() : Log(user)};
  return errors.guard<void*>(nullptr, [&]() -> void* {
    require(user != nullptr, "a builder needs a logger; it is null");
    require(version / 10000 == NV_TENSORRT_MAJOR, "the program was compiled for API level ",
            version / 10000, ", the library has ", NV_TENSORRT_MAJOR);
    return static_cast<IBuilder*>(new BuilderApi(user));
  });
}
