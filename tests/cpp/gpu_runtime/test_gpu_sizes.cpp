// Size tensors on a GPU: read when something needs them, and not before.

#include "api/border.h"
#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

/// kept = x[x > 0], again = kept[kept > 0], shape = {extent of again}, z = 2 * x; x [n], n in 0..8.
class GpuSizes : public testing::Test {
 protected:
  void SetUp() override {
    register_gpu_kinds();
    const Expr n = plan.extent("n", "x", 0);
    const Expr first = plan.symbol(Symbol::Kind::kSizeTensor, "first", "first", 0, n, n);
    const Expr second = plan.symbol(Symbol::Kind::kSizeTensor, "second", "second", 0, first, first);
    const int x = plan.input("x", kFp32, {n}, {0}, {8});
    const int count = plan.arena("first", kInt32, {}, 4);
    const int again = plan.arena("second", kInt32, {}, 4);
    const int kept = plan.arena("kept", kFp32, {first}, 32);
    plan.step("keep", "Gpu:keep_positive", {x}, {count, kept}).size_symbols = {1, -1};
    plan.step("double", "Gpu:twice", {x}, {plan.output("z", kFp32, {n})});
    plan.step("again", "Gpu:keep_positive", {kept}, {again, plan.output("kept2", kFp32, {second})})
        .size_symbols = {2, -1};
    context = plan.context();
    context->set_input_address(0, x_.data());
    context->set_output_address(0, z.data());
    context->set_output_address(1, kept2.data());
  }

  FakePlan plan{test_gpu()};
  std::unique_ptr<Context> context;
  DeviceArray<float> x_{FloatVector{1, -1, 2, -2, 3, -3, 4, -4}}, z{8}, kept2{8};
};

TEST_F(GpuSizes, AreKnownWhenSomebodyAsks) {
  context->set_input_shape(0, {8});
  EXPECT_EQ(context->output_shape(1), Shape({-1}));
  reset_driver_calls();
  context->enqueue();
  // The second step of its kind needs the first one's size; nobody has asked for the second yet.
  EXPECT_EQ(driver_calls("cuEventSynchronize"), 1);
  EXPECT_EQ(context->output_shape(0), Shape({8}));
  EXPECT_EQ(driver_calls("cuEventSynchronize"), 1);
  EXPECT_EQ(context->output_shape(1), Shape({4}));
  EXPECT_EQ(driver_calls("cuEventSynchronize"), 2);
  EXPECT_EQ(fake_calls()["again"].inputs(), (std::vector<Shape>{{4}}));
  EXPECT_EQ(z.get()[6], 8);
  FloatVector kept = kept2.get();
  kept.resize(4);
  EXPECT_EQ(kept, (FloatVector{1, 2, 3, 4}));
}

TEST_F(GpuSizes, FollowTheData) {
  context->set_input_shape(0, {8});
  TestStream stream;
  context->enqueue(stream.queue());
  context->synchronize(stream.queue());
  context->enqueue(stream.queue());
  EXPECT_EQ(context->output_shape(1), Shape({4}));
  x_.set({-1, -1, 5, -2, 3, -3, -4, -4});
  context->enqueue(stream.queue());
  EXPECT_EQ(context->output_shape(1), Shape({2}));
  context->enqueue(stream.queue());
  // The shape changes before the sizes of the last run are read.
  context->set_input_shape(0, {3});
  EXPECT_EQ(context->output_shape(1), Shape({-1}));
  context->enqueue(stream.queue());
  EXPECT_EQ(context->output_shape(1), Shape({1}));
  EXPECT_EQ(kept2.get(stream.queue())[0], 5);
}

TEST_F(GpuSizes, OutOfBoundsAreRefusedByName) {
  context->set_input_shape(0, {3});
  x_.set({1000, 1, 1});
  EXPECT_ERROR(context->enqueue(), "layer 'keep' (Gpu:keep_positive): the size tensor 'first'");
  x_.set({1, -1, 1});
  context->enqueue();
  EXPECT_EQ(context->output_shape(1), Shape({2}));
}

TEST_F(GpuSizes, OfARunThatNobodyAsksAboutDoNotOutliveTheContext) {
  context->set_input_shape(0, {8});
  context->enqueue();
  context.reset();
}

TEST_F(GpuSizes, CannotBeCapturedByTheCaller) {
  context->set_input_shape(0, {8});
  TestStream stream;
  context->enqueue(stream.queue());
  context->synchronize(stream.queue());
  const DeviceScope scope(test_gpu());
  static auto* const begin =
      symbol_of<int(void*, int)>("OPWRIGHT_CUDA_DRIVER", "cuStreamBeginCapture_v2");
  static auto* const end =
      symbol_of<int(void*, void**)>("OPWRIGHT_CUDA_DRIVER", "cuStreamEndCapture");
  ASSERT_EQ(begin(stream.queue(), 2), 0);
  EXPECT_ERROR(context->enqueue(stream.queue()),
               "layer 'keep' (Gpu:keep_positive): it computes the size of a tensor");
  void* graph = nullptr;
  EXPECT_EQ(end(stream.queue(), &graph), 0);
  context->enqueue(stream.queue());
  EXPECT_EQ(context->output_shape(1), Shape({4}));
}

class LastShape final : public OutputMemory {
 public:
  void* reallocate(const OutputRequest& request) override {
    memory.grow(test_gpu(), request.bytes);
    return memory.data();
  }
  void notify_shape(const std::string&, const Shape& given) override { shape = given; }
  DeviceMemory memory;
  Shape shape;
};

TEST_F(GpuSizes, AreReportedToOutputAllocators) {
  LastShape memory;
  context->set_output_memory(1, unowned(&memory));
  context->set_input_shape(0, {8});
  context->enqueue();
  EXPECT_EQ(memory.shape, Shape({4}));
  x_.set({-1, -1, 5, -2, 3, -3, -4, -4});
  context->enqueue();
  EXPECT_EQ(memory.shape, Shape({2}));
}

TEST(GpuSizesInValues, AreWaitedForByCopiesAndConsumers) {
  register_gpu_kinds();
  FakePlan plan(test_gpu());
  const Expr n = plan.extent("n", "x", 0);
  const Expr count = plan.symbol(Symbol::Kind::kSizeTensor, "count", "count", 0, n, n);
  const int x = plan.input("x", kFp32, {n}, {0}, {8});
  const int size = plan.arena("count", kInt32, {}, 4);
  const int kept = plan.output("kept", kFp32, {count});
  const int values = plan.values("v", kInt64, {count, n});
  plan.step("keep", "Gpu:keep_positive", {x}, {size, kept}).size_symbols = {1, -1};
  plan.step("convert", "Gpu:to_float", {values}, {plan.output("z", kFp32, {2})});
  plan.schedule().copies = {{values, plan.port("shape", kInt64, {2})}};
  const auto context = plan.context();
  const DeviceArray<float> in(FloatVector{1, -1, 2}), out(3), z(2);
  const DeviceArray<int64_t> shape(2);
  context->set_input_shape(0, {3});
  context->set_input_address(0, in.data());
  context->set_output_address(0, out.data());
  context->set_output_address(1, z.data());
  context->set_output_address(2, shape.data());
  for (const FloatVector& elements : {FloatVector{1, -1, 2}, FloatVector{1, 1, 2}}) {
    DeviceArray<float> next(elements);
    context->set_input_address(0, next.data());
    context->enqueue();
    const auto expected = static_cast<int64_t>(
        std::count_if(elements.begin(), elements.end(), [](float e) { return e > 0; }));
    EXPECT_EQ(z.get(), (FloatVector{static_cast<float>(expected), 3}));
    EXPECT_EQ(shape.get(), (std::vector<int64_t>{expected, 3}));
  }
}

}  // namespace
}  // namespace opwright
