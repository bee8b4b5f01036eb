// Plugin libraries stay in memory as long as something uses their code.

#include <dlfcn.h>

#include <cmath>

#include "error_recorder.h"
#include "opwright/NvInferRuntime.h"
#include "plugin/abi/v3_model.h"
#include "plugin/engine_for_test.h"
#include "plugin/plugin_test.h"
#include "plugin/registry/registry.h"

namespace opwright {
namespace {

const std::string kCounter = std::string(OPWRIGHT_TEST_PLUGIN_DIR) + "/shared_counter_plugin.so";

bool is_open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

std::unique_ptr<IPluginV3> make_plugin(PluginRegistry& registry, const char* name) {
  IPluginCreatorInterface* creator = registry.getCreator(name, "1", "");
  EXPECT_NE(creator, nullptr) << name;
  if (creator == nullptr) return nullptr;
  const PluginFieldCollection fields{};
  return std::unique_ptr<IPluginV3>(static_cast<IPluginCreatorV3One*>(creator)->createPlugin(
      "layer", &fields, TensorRTPhase::kBUILD));
}

/// Whether the library registers its creator itself or exports it, the rules are the same.
class LibraryLifetime : public testing::TestWithParam<std::pair<std::string, const char*>> {
 protected:
  const std::string& path() const { return GetParam().first; }
  const char* name() const { return GetParam().second; }
  PluginRegistry local_{&PluginRegistry::global()};
};
INSTANTIATE_TEST_SUITE_P(Libraries, LibraryLifetime,
                         testing::Values(std::pair(kIdentity, "identity_plugin"),
                                         std::pair(kCounter, "shared_counter_plugin")));

TEST_P(LibraryLifetime, EndsWithTheRegistry) {
  {
    PluginRegistry registry(&PluginRegistry::global());
    registry.load_library(path());
    EXPECT_NE(registry.getCreator(name(), "1", ""), nullptr);
  }
  EXPECT_FALSE(is_open(path()));
  EXPECT_EQ(local_.getCreator(name(), "1", ""), nullptr);
}

TEST_P(LibraryLifetime, OperatorsKeepTheirCode) {
  void* handle = local_.load_library(path());
  OperatorPtr op = adopt_plugin_v3(make_plugin(local_, name()), 1, 0);
  local_.deregisterLibrary(handle);
  EXPECT_TRUE(is_open(path()));
  EXPECT_EQ(local_.getCreator(name(), "1", ""), nullptr);
  TestContext context({tensor(DataType::kFLOAT, {Expr(3)})});
  EXPECT_EQ(op->infer(context).size(), 1u);

  // Loaded again it is the same code, whose creators are registered again.
  handle = local_.load_library(path());
  EXPECT_NE(local_.getCreator(name(), "1", ""), nullptr);
  op = nullptr;
  EXPECT_TRUE(is_open(path()));
  local_.deregisterLibrary(handle);
  EXPECT_FALSE(is_open(path()));
}

TEST_P(LibraryLifetime, TwoRegistriesShareALibrary) {
  auto first = std::make_unique<PluginRegistry>(&PluginRegistry::global());
  first->load_library(path());
  void* const handle = local_.load_library(path());
  first = nullptr;
  EXPECT_NE(local_.getCreator(name(), "1", ""), nullptr);
  local_.deregister_library(handle);
  EXPECT_EQ(local_.getCreator(name(), "1", ""), nullptr);
  EXPECT_FALSE(is_open(path()));
  EXPECT_CONTAINS(thrown_error([&] { local_.deregister_library(handle); }), "deregisterLibrary()");
}

TEST_P(LibraryLifetime, EnginesOutliveTheRuntimeThatLoadedThem) {
  void* handle = local_.load_library(path());
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  const Blob file = to_file(build(adopt_plugin_v3(make_plugin(local_, name()), 1, 0), {2}, config));
  local_.deregister_library(handle);
  ASSERT_FALSE(is_open(path()));

  class Silent final : public ILogger {
    void log(Severity, AsciiChar const*) noexcept override {}
  } logger;
  std::unique_ptr<IRuntime> runtime(createInferRuntime(logger));
  EXPECT_EQ(runtime->deserializeCudaEngine(file.data(), file.size()), nullptr);
  ASSERT_NE(runtime->getPluginRegistry().loadLibrary(path().c_str()), nullptr);
  std::unique_ptr<ICudaEngine> engine(runtime->deserializeCudaEngine(file.data(), file.size()));
  ASSERT_NE(engine, nullptr);
  runtime = nullptr;
  EXPECT_TRUE(is_open(path()));
  std::unique_ptr<IExecutionContext> context(engine->createExecutionContext());
  const std::vector<float> input{1, 2, 3, 4};
  std::vector<float> output(4);
  ASSERT_TRUE(context->setInputShape("x", Dims{2, {2, 2}}));
  ASSERT_TRUE(context->setInputTensorAddress("x", input.data()));
  ASSERT_TRUE(context->setTensorAddress("y", output.data()));
  ASSERT_TRUE(context->enqueueV3(nullptr));
  EXPECT_EQ(output, input);
  context = nullptr;
  engine = nullptr;
  EXPECT_FALSE(is_open(path()));
}

/// An allocator and a recorder that count.
class CountingAllocator final : public IGpuAllocator {
 public:
  void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags) noexcept override {
    ++allocated;
    last_size = size, last_alignment = alignment;
    return ::operator new(size, std::align_val_t(256), std::nothrow);
  }
  bool deallocate(void* memory) noexcept override {
    --allocated;
    ::operator delete(memory, std::align_val_t(256));
    return true;
  }
  int allocated = 0;
  uint64_t last_size = 0, last_alignment = 0;
};
TEST(ResourceContext, GivesTheContextsRecorderAndAllocator) {
  KeepingErrorRecorder of_engine, of_context;
  CountingAllocator of_build, of_run, unused;
  {
    PluginRegistry registry(&PluginRegistry::global());
    registry.load_library(kCounter);
    BuilderConfig config{DeviceId{"cpu"}};
    config.services.allocator = {std::shared_ptr<void>(), &of_build};
    const Plan plan =
        build(adopt_plugin_v3(make_plugin(registry, "shared_counter_plugin"), 1, 0), {2}, config);
    EXPECT_EQ(of_build.last_size, sizeof(size_t));
    EXPECT_EQ(of_build.last_alignment, 256u);
    EXPECT_EQ(of_build.allocated, 0);

    LoadOptions options;
    options.plugins = &registry;
    options.recorder = &of_engine;
    options.allocator = {std::shared_ptr<void>(), &unused};
    const auto engine = Engine::load(plan, options);
    Context context(engine);
    context.set_allocator({std::shared_ptr<void>(), &of_run});
    context.set_input_shape(0, {1, 2});
    float input[] = {1, 2}, output[2];
    context.set_input_address(0, input);
    context.set_output_address(0, output);
    context.enqueue();
    EXPECT_EQ(of_run.allocated, 1);
    EXPECT_EQ(unused.last_size, 0u);

    input[0] = NAN;
    EXPECT_CONTAINS(thrown_error([&] { context.enqueue(); }), "enqueue() returned -1");
    ASSERT_EQ(of_engine.errors.size(), 1u);
    EXPECT_EQ(of_engine.errors[0].first, ErrorCode::kFAILED_COMPUTATION);
    context.set_error_recorder(&of_context);
    EXPECT_THROW(context.enqueue(), Error);
    EXPECT_EQ(of_context.errors.size(), 1u);
    EXPECT_EQ(of_engine.errors.size(), 1u);
    context.set_error_recorder(nullptr);
    EXPECT_THROW(context.enqueue(), Error);
    EXPECT_EQ(of_context.references, 0);
    input[0] = 1;
    context.enqueue();
  }
  EXPECT_EQ(of_engine.references, 0);
  EXPECT_EQ(of_run.allocated, 0);
}

}  // namespace
}  // namespace opwright
