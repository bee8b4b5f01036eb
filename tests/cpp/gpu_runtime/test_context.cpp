// Contexts on a GPU: the emulated driver makes a host's read of device memory a fault, and runs
// nothing before somebody waits for it.

#include "api/border.h"
#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

class GpuContext : public testing::Test {
 protected:
  void SetUp() override { register_gpu_kinds(); }
  FakePlan plan{test_gpu()};
};

/// z = 2 * (x + w), x and w [100].
struct Chain {
  Chain() {
    const FloatVector weights(100, 0.5F);
    const int x = plan.input("x", kFp32, {100}, {100}, {100});
    const int w = plan.weight("w", kFp32, {100}, Blob::copy(weights.data(), 400));
    const int sum = plan.arena("sum", kFp32, {100}, 400);
    plan.step("sum", "Gpu:add", {x, w}, {sum});
    plan.step("double", "Gpu:twice", {sum}, {plan.output("z", kFp32, {100})});
  }
  FloatVector expected(const FloatVector& x) const {
    FloatVector z;
    for (const float value : x) z.push_back(2 * (value + 0.5F));
    return z;
  }
  FakePlan plan{test_gpu()};
};

TEST_F(GpuContext, WeightsAndIntermediateTensorsAreOnTheDevice) {
  Chain chain;
  chain.plan.plan().graphs = false;
  const auto context = chain.plan.context();
  const DeviceArray<float> x(ramp(100)), z(100);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  context->enqueue();
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
  reset_driver_calls();
  for (int run = 0; run < 5; ++run) context->enqueue();
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 10);
  for (const char* other : {"cuMemAlloc", "cuMemAllocAsync", "cuMemcpyHtoDAsync", "cuMemcpyAsync",
                            "cuEventRecord", "cuStreamIsCapturing", "cuStreamSynchronize",
                            "cuPointerGetAttributes", "cuStreamGetCtx", "cuStreamWaitEvent"})
    EXPECT_EQ(driver_calls(other), 0) << other;
  EXPECT_LE(driver_calls("cuCtxPushCurrent"), 5);
}

TEST_F(GpuContext, ContextsShareWeightsAndRunOnStreamsOfTheirOwn) {
  Chain chain;
  const auto engine = Engine::load(chain.plan.finish(), {});
  TestStream streams[3];
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<DeviceArray<float>> inputs, outputs;
  for (int i = 0; i < 3; ++i) {
    contexts.push_back(std::make_unique<Context>(engine));
    inputs.emplace_back(ramp(100, static_cast<float>(i)));
    outputs.emplace_back(100);
    contexts[i]->set_input_address(0, inputs[i].data());
    contexts[i]->set_output_address(0, outputs[i].data());
  }
  for (int i = 0; i < 3; ++i) contexts[i]->enqueue(streams[i].queue());
  for (int i = 2; i >= 0; --i) {
    contexts[i]->synchronize(streams[i].queue());
    EXPECT_EQ(outputs[i].get(), chain.expected(ramp(100, static_cast<float>(i))));
  }
}

TEST_F(GpuContext, ValuesFollowTheShapes) {
  const Expr n = plan.extent("n", "x", 0);
  plan.input("x", kFp32, {n}, {0}, {8});
  const int values = plan.values("v", kInt64, {n, n * 2, 7});
  plan.step("convert", "Gpu:to_float", {values}, {plan.output("z", kFp32, {3})});
  plan.schedule().copies = {{values, plan.port("copy", kInt64, {3})}};
  const auto context = plan.context();
  const DeviceArray<float> x(8), z(3);
  const DeviceArray<int64_t> copy(3);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  context->set_output_address(1, copy.data());
  for (const int64_t extent : {3, 5, 5, 3}) {
    context->set_input_shape(0, {extent});
    context->enqueue();
    EXPECT_EQ(z.get(), (FloatVector{float(extent), float(2 * extent), 7}));
    EXPECT_EQ(copy.get(), (std::vector<int64_t>{extent, 2 * extent, 7}));
  }
  // Each run gets the values of its own shapes, however late it is done.
  const DeviceArray<float> late(3);
  context->enqueue();
  context->set_input_shape(0, {6});
  context->set_output_address(0, late.data());
  context->enqueue();
  EXPECT_EQ(z.get(), (FloatVector{3, 6, 7}));
  EXPECT_EQ(late.get(), (FloatVector{6, 12, 7}));
}

TEST_F(GpuContext, ShapeInputsAreOnTheHost) {
  const int shape = plan.input("shape", kInt64, {2}, {1, 1}, {8, 8}, true);
  const Expr rows = plan.symbol(Symbol::Kind::kInputValue, "rows", "shape", 0);
  const Expr columns = plan.symbol(Symbol::Kind::kInputValue, "columns", "shape", 1);
  const int values = plan.values("v", kInt64, {rows * columns});
  plan.step("convert", "Gpu:to_float", {shape}, {plan.output("z", kFp32, {2})});
  plan.step("product", "Gpu:to_float", {values}, {plan.output("p", kFp32, {1})});
  plan.schedule().copies = {{shape, plan.port("copy", kInt64, {2})}};
  const auto context = plan.context();
  int64_t host[] = {2, 3};
  const DeviceArray<float> z(2), p(1);
  const DeviceArray<int64_t> copy(2);
  context->set_input_address(0, host);
  context->set_output_address(0, z.data());
  context->set_output_address(1, p.data());
  context->set_output_address(2, copy.data());
  context->enqueue();
  host[1] = 5;
  EXPECT_EQ(z.get(), (FloatVector{2, 3}));
  EXPECT_EQ(p.get(), FloatVector{6});
  EXPECT_EQ(copy.get(), (std::vector<int64_t>{2, 3}));
  context->enqueue();
  EXPECT_EQ(z.get(), (FloatVector{2, 5}));
  EXPECT_EQ(p.get(), FloatVector{10});
}

TEST_F(GpuContext, ShapeInputsOnTheDeviceAreRefused) {
  plan.input("shape", kInt64, {2}, {1, 1}, {8, 8}, true);
  const Expr rows = plan.symbol(Symbol::Kind::kInputValue, "rows", "shape", 0);
  const int values = plan.values("v", kInt64, {rows});
  plan.step("convert", "Gpu:to_float", {values}, {plan.output("z", kFp32, {1})});
  const auto context = plan.context();
  const DeviceArray<int64_t> device({2, 3});
  const DeviceArray<float> z(1);
  context->set_output_address(0, z.data());
  EXPECT_ERROR(context->set_input_address(0, device.data()),
               "input 'shape', whose values decide shapes, is given");
  EXPECT_ERROR(context->enqueue(), "address of shape input 'shape' is not set");
  const int64_t host[] = {2, 3};
  context->set_input_address(0, host);
  context->enqueue();
  EXPECT_EQ(z.get(), FloatVector{2});
  EXPECT_ERROR(context->set_input_address(0, device.data()), "memory of GPU 0");
  reset_driver_calls();
  context->enqueue();  // the address of before is still there
  context->set_input_address(0, host);
  EXPECT_EQ(driver_calls("cuPointerGetAttributes"), 0);
  EXPECT_EQ(z.get(), FloatVector{2});
}

TEST_F(GpuContext, ProfilesAreSwitched) {
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {0}, {4});
  const int middle = plan.arena("t", kFp32, {n}, 32);
  const int values = plan.values("v", kInt64, {n});
  plan.step("first", "Gpu:twice", {x}, {middle});
  plan.step("second", "Gpu:twice", {middle}, {plan.output("z", kFp32, {n})});
  plan.step("extent", "Gpu:to_float", {values}, {plan.output("e", kFp32, {1})});
  Schedule wide = plan.schedule();
  wide.inputs[0] = {{5}, {8}, {8}, false};
  plan.plan().schedules.push_back(wide);
  const auto context = plan.context();
  const DeviceArray<float> in(ramp(8)), out(8), extent(1);
  context->set_input_address(0, in.data());
  context->set_output_address(0, out.data());
  context->set_output_address(1, extent.data());
  const std::vector<std::pair<int, int>> runs = {{0, 3}, {1, 8}, {0, 2}, {1, 5}};
  for (const auto& [profile, count] : runs) {
    context->set_profile(profile);
    context->set_input_shape(0, {count});
    context->enqueue();
    EXPECT_EQ(extent.get(), FloatVector{static_cast<float>(count)});
    EXPECT_EQ(out.get()[static_cast<size_t>(count - 1)], static_cast<float>(4 * count));
  }
}

TEST_F(GpuContext, LayersAreTimed) {
  Chain chain;
  const auto context = chain.plan.context();
  const DeviceArray<float> x(ramp(100)), z(100);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  std::vector<std::pair<std::string, float>> times;
  context->set_layer_time_callback(
      [&](const std::string& name, float milliseconds) { times.emplace_back(name, milliseconds); });
  TestStream stream;
  context->enqueue(stream.queue());
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].first, "sum");
  EXPECT_EQ(times[1].first, "double");
  for (const auto& [name, milliseconds] : times) EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
}

TEST_F(GpuContext, HostAddressesAreRefused) {
  Chain chain;
  const auto context = chain.plan.context();
  FloatVector host(100);
  const DeviceArray<float> x(ramp(100)), z(100);
  context->set_input_address(0, host.data());
  context->set_output_address(0, z.data());
  EXPECT_ERROR(context->enqueue(), "input 'x'");
  context->set_input_address(0, x.data());
  context->enqueue();
  EXPECT_ERROR(context->set_output_address(0, host.data()), "output 'z'");
  context->enqueue();
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
}

TEST_F(GpuContext, AddressesOfEmptyTensorsDoNotMatter) {
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {0}, {8});
  plan.step("double", "Gpu:twice", {x}, {plan.output("z", kFp32, {n})});
  const auto context = plan.context();
  FloatVector host(8);
  context->set_input_shape(0, {0});
  context->enqueue();
  context->set_input_address(0, host.data());
  context->set_output_address(0, host.data());
  context->enqueue();
  context->synchronize();
  context->set_input_shape(0, {8});
  EXPECT_ERROR(context->enqueue(), "input 'x'");
}

TEST_F(GpuContext, StreamsAreChecked) {
  Chain chain;
  const auto context = chain.plan.context();
  const DeviceArray<float> x(ramp(100)), z(100);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  TestStream stream;
  const Queue queue = stream.queue();
  stream.destroy();
  EXPECT_ERROR(context->enqueue(queue), "destroyed");
  context->enqueue();
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
}

TEST_F(GpuContext, TakesTheCallersMemory) {
  Chain chain;
  const auto context = chain.plan.context();
  const DeviceArray<float> x(ramp(100)), z(100), memory(1000);
  context->set_memory(memory.data(), 4000);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  context->enqueue();
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
  EXPECT_EQ(context->memory_size(), 0u);
  FloatVector sums = memory.get();
  sums.resize(100);
  EXPECT_EQ(sums, ramp(100, 1.5F));
  alignas(64) static std::byte host[4096];
  EXPECT_ERROR(context->set_memory(host, sizeof host), "the memory given to the context");
}

/// Gives memory of the device until `left` allocations were made.
class CountingAllocator final : public IGpuAllocator {
 public:
  void* allocate(uint64_t size, uint64_t, AllocatorFlags) noexcept override {
    if (left-- <= 0) return nullptr;
    ++live;
    return test_gpu().allocate(size);
  }
  bool deallocate(void* memory) noexcept override {
    --live;
    test_gpu().free(memory);
    return true;
  }
  int left = 100, live = 0;
};

TEST_F(GpuContext, MemoryComesFromTheUsersAllocator) {
  CountingAllocator allocator;
  LoadOptions options;
  options.allocator = unowned(&allocator);
  Chain chain;
  allocator.left = 0;
  EXPECT_ERROR(chain.plan.context(options), "allocator gave no memory for");
  allocator.left = 1;  // the weights
  auto context = chain.plan.context(options);
  EXPECT_EQ(allocator.live, 1);
  const DeviceArray<float> x(ramp(100)), z(100);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  EXPECT_ERROR(context->enqueue(), "allocator gave no memory for");
  allocator.left = 100;
  context->enqueue();
  EXPECT_EQ(z.get(), chain.expected(ramp(100)));
  EXPECT_GE(allocator.live, 2);
  context.reset();
  EXPECT_EQ(allocator.live, 0);
}

}  // namespace
}  // namespace opwright
