#include "opwright/builder.h"

#include <memory>
#include <vector>

#include "api/builder.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/host_memory.h"
#include "api/network.h"
#include "plan/file_stream.h"

namespace opwright {
namespace {

/// The public face of a Builder.
class BuilderApi final : public IBuilder {
 public:
  explicit BuilderApi(ILogger* logger) : builder_(Log(logger)) {}

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
      return new EngineApi(
          builder_.load(build(network, config), core(network), BuilderConfigApi::of(config)));
    });
  }
  bool buildSerializedNetworkToStream(INetworkDefinition& network, IBuilderConfig& config,
                                      IStreamWriter& writer) noexcept override {
    return errors_.run([&] {
      write_stream(serialize(build(network, config)),
                   [&](const void* data, int64_t size) { return writer.write(data, size); });
    });
  }
  void reset() noexcept override { builder_.reset(); }
  bool isNetworkSupported(INetworkDefinition const& network,
                          IBuilderConfig const& config) const noexcept override {
    return errors_.run(
        [&] { builder_.check_supported(core(network), BuilderConfigApi::of(config)); });
  }
  IPluginRegistry& getPluginRegistry() noexcept override { return *builder_.registry(); }
  ILogger* getLogger() const noexcept override { return errors_.log().logger(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { builder_.set_max_threads(maxThreads); });
  }
  int32_t getMaxThreads() const noexcept override { return builder_.max_threads(); }
  int32_t getMaxDLABatchSize() const noexcept override { return 0; }
  int32_t getNbDLACores() const noexcept override { return 0; }
  bool platformHasFastFp16() const noexcept override { return true; }
  bool platformHasFastInt8() const noexcept override { return true; }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  void setGpuAllocator(IGpuAllocator* allocator) noexcept override {
    builder_.set_allocator(unowned(allocator));
  }

 private:
  static const Network& core(INetworkDefinition const& network) {
    return NetworkApi::of(network).network();
  }
  Plan build(INetworkDefinition const& network, IBuilderConfig const& config) const {
    return builder_.build(core(network), BuilderConfigApi::of(config));
  }

  Builder builder_;
  ErrorReport& errors_ = builder_.errors();
  std::vector<std::unique_ptr<ProfileApi>> profiles_;
};

}  // namespace
}  // namespace opwright

void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept {
  using namespace opwright;
  return create_face(logger, true, "a builder needs a logger; it is null", version,
                     [](ILogger* user) -> IBuilder* { return new BuilderApi(user); });
}
