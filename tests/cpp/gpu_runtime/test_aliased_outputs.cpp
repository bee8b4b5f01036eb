// Outputs that are computed in the memory of an input, bound there and elsewhere, with CUDA graphs.

#include "api/border.h"
#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

/// x *= 2 in place, which is the output y; z = 4 x.
struct InPlace {
  InPlace() {
    register_gpu_kinds();
    const int x = plan.input("x", kFp32, {100}, {100}, {100});
    const int y = plan.arena("y", kFp32, {100}, 400);
    PlanTensor& written = plan.schedule().tensors[y];
    written.location = PlanTensor::Location::kInput;
    written.index = 0;
    plan.schedule().arena_size = 0;
    const int t = plan.arena("t", kFp32, {100}, 400);
    plan.step("double", "Gpu:twice", {x}, {y});
    plan.step("again", "Gpu:twice", {y}, {t});
    plan.step("sum", "Gpu:add", {y, y}, {plan.output("z", kFp32, {100})});
    plan.schedule().copies = {{y, plan.port("y", kFp32, {100}, 0)}};
    // An aliased port has its input's type and shape.
    plan.plan().outputs[1].dims = plan.plan().inputs[0].dims;
    context = plan.context();
  }

  /// Runs with x anew at `x`; null `y`: no address.
  void run(DeviceArray<float>& x, const DeviceArray<float>* y) {
    FloatVector values;
    for (int i = 0; i < 100; ++i) values.push_back(static_cast<float>(i + 7 * runs));
    x.set(values);
    context->set_input_address(0, x.data());
    context->set_output_address(0, z.data());
    context->set_output_address(1, y == nullptr ? nullptr : y->data());
    context->enqueue(stream.queue());
    EXPECT_EQ(z.get(stream.queue()), times(4, values)) << "run " << runs;
    EXPECT_EQ(x.get(stream.queue()), times(2, values)) << "run " << runs;
    if (y != nullptr) {
      EXPECT_EQ(y->get(stream.queue()), times(2, values)) << "run " << runs;
    }
    ++runs;
  }

  FakePlan plan{test_gpu()};
  DeviceArray<float> z{100};
  TestStream stream;
  std::unique_ptr<Context> context;
  int runs = 0;
};

TEST(AliasedOutputs, FollowTheirAddressInGraphs) {
  InPlace net;
  DeviceArray<float> a(100), b(100), c(100), d(100);
  const auto runs = [&](DeviceArray<float>& x, const DeviceArray<float>* y, int count) {
    for (int i = 0; i < count; ++i) net.run(x, y);
  };
  runs(a, &b, 5);
  reset_driver_calls();
  runs(a, &b, 1);
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 1);
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 0);
  runs(a, &c, 2);  // elsewhere
  runs(d, &c, 2);
  runs(c, &d, 2);       // one where the other was
  runs(c, &c, 5);       // in the input's memory
  runs(b, &b, 2);       // which moves
  runs(b, nullptr, 2);  // as before
  runs(b, &a, 5);       // and back
  runs(a, &b, 2);
  runs(d, nullptr, 2);
}

TEST(AliasedOutputs, MustNotOverlapTheirInput) {
  InPlace net;
  DeviceArray<float> x(200);
  net.context->set_input_address(0, x.data());
  net.context->set_output_address(0, net.z.data());
  net.context->set_output_address(1, x.data() + 10);
  EXPECT_ERROR(net.context->enqueue(), "output 'y' at ");
  EXPECT_ERROR(net.context->enqueue(), "overlaps input 'x'");
  net.context->set_output_address(1, x.data() + 100);
  net.context->enqueue();
}

/// Gives the memory that it was made with.
struct Provider final : OutputMemory {
  explicit Provider(void* memory) : memory(memory) {}
  void* reallocate(const OutputRequest&) override { return memory; }
  void notify_shape(const std::string&, const Shape& shape) override { told = shape; }
  void* memory;
  Shape told;
};

TEST(AliasedOutputs, GetMemoryFromAllocators) {
  InPlace net;
  DeviceArray<float> x(100), y(100), other(100);
  Provider provider(y.data());
  net.context->set_output_memory(1, unowned(&provider));
  const FloatVector ones(100, 1), twos(100, 2), fours(100, 4);
  x.set(ones);
  net.context->set_input_address(0, x.data());
  net.context->set_output_address(0, net.z.data());
  net.context->enqueue();
  EXPECT_EQ(y.get(), twos);
  EXPECT_EQ(x.get(), twos);
  EXPECT_EQ(provider.told, (Shape{100}));
  provider.memory = x.data();
  net.context->enqueue();
  EXPECT_EQ(x.get(), fours);
  provider.memory = x.data() + 1;
  EXPECT_ERROR(net.context->enqueue(), "overlaps input 'x'");
  provider.memory = other.data();
  net.context->enqueue();
  EXPECT_EQ(other.get(), times(2, fours));
}

}  // namespace
}  // namespace opwright
