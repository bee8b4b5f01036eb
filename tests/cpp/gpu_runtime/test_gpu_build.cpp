// Builds for a GPU: the tuner's memory there, engines through the public API, and the CPU in place
// of a GPU that nobody chose.

#include <algorithm>

#include "base/log.h"
#include "compile/compile.h"
#include "gpu_runtime/test_kernels.h"
#include "network/network.h"
#include "opwright/runtime.h"

namespace opwright {
namespace {

class Logger final : public ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity == Severity::kWARNING) warnings.emplace_back(message);
    if (severity <= Severity::kERROR) errors.emplace_back(message);
  }
  std::vector<std::string> warnings, errors;
};

/// y = x + w with a kernel for GPUs, in two tactics.
class AddOnGpu final : public Operator {
 public:
  std::string_view kind() const override { return "Gpu:network_add"; }
  bool is_pure() const override { return false; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    OutputInfo info;
    info.dtype = context.inputs[0]->dtype;
    info.dims = context.inputs[0]->dims;
    return {info};
  }
  std::vector<Candidate> candidates(const CandidateQuery&) const override {
    return {{{kFp32, kFp32}, {kFp32}, 1, "one"}, {{kFp32, kFp32}, {kFp32}, 2, "two"}};
  }
  PlannedOperatorPtr plan(const KernelArgs&) const override { return planned(); }
  static PlannedOperatorPtr planned() {
    return std::make_shared<FakeOperator>(
        "Gpu:network_add",
        FakeKind{.run = [](const FakeRun& run) { launch("add", run); }, .workspace = 100});
  }
};

/// y = x + 0.5, both [rows, 8].
std::unique_ptr<Network> add_network(int64_t rows) {
  register_operator_kind("Gpu:network_add", [](const Attributes&, const OperatorLoadContext&) {
    return AddOnGpu::planned();
  });
  auto network = std::make_unique<Network>();
  Tensor* const x = network->add_input("x", DataType::kFLOAT, {rows, 8});
  const FloatVector half(static_cast<size_t>(8 * rows), 0.5F);
  Tensor* const w = network->add_constant(DataType::kFLOAT, {rows, 8},
                                          Blob::copy(half.data(), half.size() * sizeof(float)));
  Tensor* const inputs[] = {x, w};
  Layer* const layer = network->add_layer(std::make_shared<AddOnGpu>(), inputs, "the sum");
  layer->output(0)->set_name("y");
  network->mark_output(*layer->output(0));
  return network;
}

Blob to_file(const Plan& plan) {
  std::vector<std::byte> bytes;
  for (const Blob& piece : serialize(plan))
    bytes.insert(bytes.end(), piece.bytes().begin(), piece.bytes().end());
  return Blob::copy(bytes.data(), bytes.size());
}

TEST(GpuBuild, TimesKernelsOnTheDeviceAndTheEngineRuns) {
  test_gpu();
  BuilderConfig config(device_of(DeviceType::kGPU));
  config.max_aux_streams = 0;
  const Plan plan = compile(*add_network(4), config);
  EXPECT_EQ(plan.device_type, DeviceType::kGPU);
  EXPECT_EQ(plan.backend, "cuda");
  EXPECT_EQ(plan.architecture, test_gpu().architecture());
  ASSERT_EQ(plan.schedules[0].steps.size(), 1u);
  EXPECT_EQ(plan.schedules[0].steps[0].considered.size(), 2u);
  const auto engine = Engine::load(deserialize(to_file(plan)), {});
  Context context(engine);
  const DeviceArray<float> x(FloatVector(32, 2)), y(32);
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  context.enqueue();
  EXPECT_EQ(y.get(), FloatVector(32, 2.5F));
}

TEST(GpuBuild, RunsThroughThePublicApi) {
  test_gpu();
  BuilderConfig config(device_of(DeviceType::kGPU));
  config.max_aux_streams = 0;
  const Blob file = to_file(compile(*add_network(4), config));
  Logger logger;
  const std::unique_ptr<IRuntime> runtime(createInferRuntime(logger));
  const std::unique_ptr<ICudaEngine> engine(
      runtime->deserializeCudaEngine(file.data(), file.size()));
  ASSERT_NE(engine, nullptr) << logger.errors.back();
  EXPECT_EQ(engine->getTensorLocation("x"), TensorLocation::kDEVICE);
  const std::unique_ptr<IExecutionContext> context(
      engine->createExecutionContext(ExecutionContextAllocationStrategy::kUSER_MANAGED));
  const DeviceArray<std::byte> memory(static_cast<size_t>(engine->getDeviceMemorySizeV2()));
  context->setDeviceMemoryV2(memory.data(), engine->getDeviceMemorySizeV2());
  const DeviceArray<float> x(FloatVector(32, 2)), y(32);
  EXPECT_TRUE(context->setTensorAddress("x", x.data()));
  EXPECT_TRUE(context->setTensorAddress("y", y.data()));
  TestStream stream;
  EXPECT_TRUE(context->enqueueV3(static_cast<cudaStream_t>(stream.queue())));
  EXPECT_EQ(y.get(stream.queue()), FloatVector(32, 2.5F));
  const DeviceArray<float> z(32);
  void* bindings[] = {x.data(), z.data()};
  EXPECT_TRUE(context->executeV2(bindings));
  EXPECT_EQ(z.get(), FloatVector(32, 2.5F));
  FloatVector host(32);
  EXPECT_FALSE(context->setTensorAddress("x", host.data()) && context->enqueueV3(nullptr));
  EXPECT_NE(logger.errors.back().find("input 'x'"), std::string::npos) << logger.errors.back();
}

/// A network with a layer that the GPU has no kernel for.
class NoGpuKernel final : public Operator {
 public:
  std::string_view kind() const override { return "Gpu:none"; }
  bool is_pure() const override { return false; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    OutputInfo info;
    info.dtype = context.inputs[0]->dtype;
    info.dims = context.inputs[0]->dims;
    return {info};
  }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    if (!query.device->is_host()) return {};
    return {{{kFp32}, {kFp32}, 0, ""}};
  }
  PlannedOperatorPtr plan(const KernelArgs&) const override {
    return std::make_shared<FakeOperator>("Gpu:none", FakeKind{.run = [](const FakeRun& run) {
                                            std::fill_n(run.out<float>(0), 6, 1.0F);
                                          }});
  }
};

TEST(GpuBuild, FallsToTheCpuOnlyWhereNobodyChoseTheGpu) {
  test_gpu();
  Network network;
  Tensor* const inputs[] = {network.add_input("x", DataType::kFLOAT, {2, 3})};
  Layer* const layer = network.add_layer(std::make_shared<NoGpuKernel>(), inputs, "odd one");
  network.mark_output(*layer->output(0));
  Logger logger;
  BuilderConfig config(device_of(DeviceType::kGPU));
  config.max_aux_streams = 0;
  config.log = Log(&logger);
  EXPECT_ERROR(compile(network, config), "Layer 'odd one' (Gpu:none): the GPU (sm_");
  EXPECT_TRUE(logger.warnings.empty());
  config.is_device_chosen = false;
  const Plan plan = compile(network, config);
  EXPECT_EQ(plan.device_type, DeviceType::kCPU);
  ASSERT_EQ(logger.warnings.size(), 1u);
  EXPECT_NE(logger.warnings[0].find("built for the CPU"), std::string::npos);
  EXPECT_NE(logger.warnings[0].find("Layer 'odd one'"), std::string::npos);
}

}  // namespace
}  // namespace opwright
