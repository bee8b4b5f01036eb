// When memory is given back: after the work that uses it, which the emulated driver only does when
// somebody waits, and without waiting for other work where that can be told apart.

#include <map>
#include <tuple>

#include "api/border.h"
#include "backend/last_use.h"
#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

/// Puts work on a stream that nobody waits for.
class OtherWork {
 public:
  OtherWork() : array_(FloatVector(8, 1)) {
    const DeviceScope scope(test_gpu());
    test_gpu().copy(array_.data(), array_.data() + 4, 16, stream_.queue());
  }
  bool was_waited_for() const { return !is_busy(stream_.queue()); }

 private:
  DeviceArray<float> array_;
  TestStream stream_;
};

/// Memory that is written to as soon as it is given back, as by somebody who gets it next.
class ReusingAllocator final : public IGpuAllocator {
 public:
  void* allocate(uint64_t size, uint64_t, AllocatorFlags) noexcept override {
    void* memory = test_gpu().allocate(size);
    sizes_[memory] = size;
    return memory;
  }
  bool deallocate(void* memory) noexcept override {
    if (sizes_.count(memory) == 0) return false;
    const std::vector<std::byte> garbage(sizes_[memory], std::byte{0x41});
    test_gpu().copy(memory, garbage.data(), garbage.size(), stream_.queue());
    test_gpu().synchronize(stream_.queue());
    sizes_.erase(memory);
    kept_.push_back(memory);
    return true;
  }
  ~ReusingAllocator() override {
    for (void* memory : kept_) test_gpu().free(memory);
  }
  size_t live() const { return sizes_.size(); }
  size_t given_back() const { return kept_.size(); }

 private:
  TestStream stream_;
  std::map<void*, uint64_t> sizes_;
  std::vector<void*> kept_;
};

/// z = 2 * (x + w) by way of `workspace` bytes of scratch memory, and an uploaded value. The second
/// profile has larger tensors.
class MemoryUse : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  MemoryUse() : plan_(test_gpu()), x_(FloatVector(100, 3)), z_(100), value_(1) {
    register_gpu_kinds();
    register_fake("Gpu:by_way_of_scratch", {.run =
                                                [](const FakeRun& run) {
                                                  void* const outputs[] = {run.workspace};
                                                  FakeRun to_scratch = run;
                                                  to_scratch.outputs = outputs;
                                                  launch("twice", to_scratch);
                                                  test_gpu().copy(run.outputs[0], run.workspace,
                                                                  400, run.queue);
                                                },
                                            .workspace = 400});
    const FloatVector weights(100, 0.5F);
    const int x = plan_.input("x", kFp32, {100}, {100}, {100});
    const int w = plan_.weight("w", kFp32, {100}, Blob::copy(weights.data(), 400));
    const int sum = plan_.arena("sum", kFp32, {100}, 400);
    const int value = plan_.values("value", kInt64, {7});
    plan_.step("sum", "Gpu:add", {x, w}, {sum});
    plan_.step("double", "Gpu:by_way_of_scratch", {sum}, {plan_.output("z", kFp32, {100})});
    plan_.step("convert", "Gpu:to_float", {value}, {plan_.output("v", kFp32, {1})});
    plan_.plan().graphs = std::get<0>(GetParam());
  }
  /// Other streams may be gone, so nobody knows when their work ends.
  static bool is_on_default_stream() { return std::get<1>(GetParam()); }
  Queue queue() const { return is_on_default_stream() ? nullptr : stream_.queue(); }
  /// A context that has run, as a graph where those are on.
  std::unique_ptr<Context> context(IGpuAllocator* allocator = nullptr) {
    LoadOptions options;
    if (allocator != nullptr) options.allocator = unowned(allocator);
    auto context = plan_.context(options);
    context->set_input_address(0, x_.data());
    context->set_output_address(0, z_.data());
    context->set_output_address(1, value_.data());
    for (int run = 0; run < 5; ++run) context->enqueue(queue());
    context->synchronize(queue());
    z_.set(FloatVector(100, 0));
    return context;
  }
  void expect_results() {
    EXPECT_EQ(z_.get(queue()), FloatVector(100, 7));
    EXPECT_EQ(value_.get(queue()), FloatVector{7});
  }

  FakePlan plan_;
  const DeviceArray<float> x_;
  DeviceArray<float> z_, value_;
  TestStream stream_;
};

INSTANTIATE_TEST_SUITE_P(GraphsAndStreams, MemoryUse,
                         testing::Combine(testing::Bool(), testing::Bool()));

TEST_P(MemoryUse, AnAllocatorGetsItBackAfterTheWork) {
  ReusingAllocator allocator;
  auto context = this->context(&allocator);
  const OtherWork other;
  context->enqueue(queue());
  context.reset();  // and the engine with it
  EXPECT_EQ(allocator.live(), 0u);
  EXPECT_GE(allocator.given_back(), 4u);  // weights, values, arena, workspace
  EXPECT_EQ(other.was_waited_for(), !is_on_default_stream());
  expect_results();
}

TEST_P(MemoryUse, AnAllocatorGetsTheArenaBackAfterTheWork) {
  ReusingAllocator allocator;
  const auto context = this->context(&allocator);
  const DeviceArray<float> own(1000);
  const OtherWork other;
  context->enqueue(queue());
  context->set_memory(own.data(), 4000);  // instead of the arena
  EXPECT_GE(allocator.given_back(), 1u);
  EXPECT_EQ(other.was_waited_for(), !is_on_default_stream());
  expect_results();
}

TEST_P(MemoryUse, TheDeviceGetsItBackAfterTheWork) {
  auto context = this->context();
  const OtherWork other;
  const DeviceArray<float> own(1000);
  context->enqueue(queue());
  EXPECT_TRUE(is_busy(queue()));
  context->set_memory(own.data(), 4000);
  context->enqueue(queue());
  context.reset();
  EXPECT_EQ(other.was_waited_for(), !is_on_default_stream());
  expect_results();
}

TEST_P(MemoryUse, OfRunsOnSeveralStreamsIsGivenBackAfterAllWork) {
  ReusingAllocator allocator;
  auto context = this->context(&allocator);
  TestStream second;
  DeviceArray<float> later(100);
  context->enqueue(queue());
  context->synchronize(queue());
  context->set_output_address(0, later.data());
  context->enqueue(second.queue());
  context.reset();
  EXPECT_EQ(later.get(second.queue()), FloatVector(100, 7));
  expect_results();
}

TEST_P(MemoryUse, AStreamMayBeGoneBeforeTheContext) {
  ReusingAllocator allocator;
  auto context = this->context(&allocator);
  {
    TestStream gone;
    context->enqueue(gone.queue());
  }
  context.reset();
  expect_results();
}

TEST_P(MemoryUse, OfARunThatFailedIsUsedByTheStepsBefore) {
  register_fake("Gpu:fails", {.run = [](const FakeRun&) { fail("on purpose"); }});
  FakePlan plan(test_gpu());
  const int x = plan.input("x", kFp32, {100}, {100}, {100});
  const int sum = plan.arena("sum", kFp32, {100}, 400);
  plan.step("first", "Gpu:twice", {x}, {sum});
  plan.step("second", "Gpu:twice", {sum}, {plan.output("z", kFp32, {100})});
  plan.step("third", "Gpu:fails", {sum}, {plan.output("y", kFp32, {100})});
  ReusingAllocator allocator;
  LoadOptions options;
  options.allocator = unowned(&allocator);
  auto context = plan.context(options);
  const DeviceArray<float> y(100);
  context->set_input_address(0, x_.data());
  context->set_output_address(0, z_.data());
  context->set_output_address(1, y.data());
  EXPECT_ERROR(context->enqueue(queue()), "on purpose");
  context.reset();
  EXPECT_EQ(z_.get(queue()), FloatVector(100, 12));
}

/// A run within a graph that the caller captures may come again at any time.
TEST_P(MemoryUse, OfACapturedRunIsGivenBackAfterAllWork) {
  static auto* const begin =
      symbol_of<int(void*, int)>("OPWRIGHT_CUDA_DRIVER", "cuStreamBeginCapture_v2");
  static auto* const end =
      symbol_of<int(void*, void**)>("OPWRIGHT_CUDA_DRIVER", "cuStreamEndCapture");
  static auto* const instantiate = symbol_of<int(void**, void*, unsigned long long)>(
      "OPWRIGHT_CUDA_DRIVER", "cuGraphInstantiateWithFlags");
  static auto* const start = symbol_of<int(void*, void*)>("OPWRIGHT_CUDA_DRIVER", "cuGraphLaunch");
  ReusingAllocator allocator;
  auto context = this->context(&allocator);
  void *graph = nullptr, *executable = nullptr;
  {
    const DeviceScope scope(test_gpu());
    TestStream captured, second;
    ASSERT_EQ(begin(captured.queue(), 0), 0);
    context->enqueue(captured.queue());
    ASSERT_EQ(end(captured.queue(), &graph), 0);
    ASSERT_EQ(instantiate(&executable, graph, 0), 0);
    ASSERT_EQ(start(executable, second.queue()), 0);
  }
  context.reset();
  expect_results();
}

TEST_P(MemoryUse, ThatIsHeldIsGivenBackAfterAllWork) {
  ReusingAllocator allocator;
  const auto last_use = std::make_shared<LastUse>(test_gpu());
  DeviceMemory memory;
  memory.grow(test_gpu(), 400, unowned(&allocator), last_use);
  const DeviceScope scope(test_gpu());
  test_gpu().copy(memory.data(), x_.data(), 400, nullptr);
  test_gpu().synchronize(nullptr);
  auto held = hold_memory(memory.data());
  memory.reset();
  EXPECT_EQ(allocator.given_back(), 0u);
  test_gpu().copy(z_.data(), held.get() == nullptr ? nullptr : x_.data(), 400, queue());
  held.reset();
  EXPECT_EQ(allocator.given_back(), 1u);
  EXPECT_FALSE(is_busy(queue()));
}

}  // namespace
}  // namespace opwright
