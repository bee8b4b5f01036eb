// Steps of one run on several queues: results are those of a run in order, whatever the plan says.

#include <random>

#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

constexpr int kCount = 64;
constexpr uint64_t kBytes = kCount * sizeof(float);

class RunStreamsTest : public testing::TestWithParam<bool> {
 protected:
  RunStreamsTest() : plan_(test_gpu()) {
    register_gpu_kinds();
    register_fake("Gpu:fails", {.run = [](const FakeRun& run) {
                    launch("twice", run);
                    if (fails_) fail("somebody failed");
                  }});
    register_fake("Gpu:with scratch",
                  {.run =
                       [](const FakeRun& run) {
                         void* scratch[] = {run.workspace};
                         launch("twice", {run.inputs, scratch, run.input_shapes, run.output_shapes,
                                          nullptr, run.queue});
                         const void* again[] = {run.workspace};
                         launch("twice", {again, run.outputs, run.input_shapes, run.output_shapes,
                                          nullptr, run.queue});
                       },
                   .workspace = kBytes});
    plan_.plan().graphs = GetParam();
    x_ = plan_.input("x", kFp32, {kCount}, {kCount}, {kCount});
  }
  int arena(const std::string& name) { return plan_.arena(name, kFp32, {kCount}, kBytes); }
  int output(const std::string& name) { return plan_.output(name, kFp32, {kCount}); }
  void step(const std::string& kind, std::vector<int> inputs, int output, int32_t stream) {
    plan_
        .step("s" + std::to_string(plan_.schedule().steps.size()), kind, std::move(inputs),
              {output})
        .stream = stream;
  }
  void twice(int from, int to, int32_t stream) { step("Gpu:twice", {from}, to, stream); }
  void add(int a, int b, int to, int32_t stream) { step("Gpu:add", {a, b}, to, stream); }

  std::unique_ptr<Context> context() {
    auto context = plan_.context();
    context->set_input_address(0, input_.data());
    for (size_t i = 0; i < plan_.plan().outputs.size(); ++i) {
      while (outputs_.size() <= i) outputs_.emplace_back(kCount);
      context->set_output_address(static_cast<int>(i), outputs_[i].data());
    }
    return context;
  }
  /// Some runs, the last of which are replayed where there are graphs.
  void expect(Context& context, const std::vector<FloatVector>& expected) {
    for (int run = 0; run < 6; ++run) {
      for (auto& output : outputs_) output.set(FloatVector(kCount, -1));
      context.enqueue(stream_.queue());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(outputs_[i].get(stream_.queue()), expected[i]) << "run " << run;
    }
  }
  static FloatVector all(float value) { return FloatVector(kCount, value); }

  static inline bool fails_ = false;
  FakePlan plan_;
  int x_ = 0;
  DeviceArray<float> input_{FloatVector(kCount, 1)};
  std::vector<DeviceArray<float>> outputs_;
  TestStream stream_;
};

TEST_P(RunStreamsTest, BranchesAreJoined) {
  const int a = arena("a"), b = arena("b"), c = arena("c"), d = arena("d"), y = output("y");
  twice(x_, a, kAlone);  // 2
  twice(a, b, 0);        // 4
  twice(a, c, 1);        // 4
  twice(c, d, 1);        // 8
  add(b, d, y, kAlone);
  const auto made = context();
  EXPECT_EQ(made->engine()->num_aux_streams(), 1);
  reset_driver_calls();
  made->enqueue(stream_.queue());
  // The second stream begins behind the first one's, which waits for it in the end.
  EXPECT_EQ(driver_calls("cuStreamWaitEvent"), 2);
  expect(*made, {all(12)});
}

TEST_P(RunStreamsTest, StreamsWaitForEachOther) {
  const int a = arena("a"), b = arena("b"), c = arena("c"), d = arena("d"), y = output("y"),
            z = output("z");
  twice(x_, a, 0);  // 2
  twice(x_, b, 1);  // 2
  add(a, b, c, 2);  // 4
  add(c, b, d, 1);  // 6
  add(d, a, y, 0);  // 8
  twice(d, z, 2);   // 12
  expect(*context(), {all(8), all(12)});
}

TEST_P(RunStreamsTest, MemoryThatIsUsedAgainKeepsItsOrder) {
  // As in a plan that knows no streams: what a stream writes another one may still read.
  const int a = arena("a"), b = arena("b"), c = arena("c"), d = arena("d"), y = output("y");
  plan_.schedule().tensors[c].offset = plan_.schedule().tensors[a].offset;
  twice(x_, a, kAlone);  // 2
  twice(a, b, 0);        // 4
  twice(b, c, 1);        // 8, over a
  twice(b, d, 2);        // 8
  add(c, d, y, 3);
  expect(*context(), {all(16)});
}

TEST_P(RunStreamsTest, AnOutputMayLieWhereAnInputWas) {
  const int a = arena("a"), y = output("y");
  twice(x_, a, 0);
  twice(a, y, 1);
  const auto made = context();
  made->set_output_address(0, input_.data());
  for (int run = 0; run < 5; ++run) {
    input_.set(all(1));
    made->enqueue(stream_.queue());
    EXPECT_EQ(input_.get(stream_.queue()), all(4));
  }
}

TEST_P(RunStreamsTest, ScratchMemoryIsEachStreamsOwn) {
  const int a = arena("a"), b = arena("b"), y = output("y");
  twice(x_, a, kAlone);
  step("Gpu:with scratch", {x_}, b, 0);
  const int c = arena("c");
  step("Gpu:with scratch", {a}, c, 1);
  add(b, c, y, kAlone);
  plan_.schedule().workspace_size = 2 * kBytes;
  expect(*context(), {all(12)});
}

TEST_P(RunStreamsTest, AFailureLeavesNothingBehind) {
  const int a = arena("a"), b = arena("b"), c = arena("c"), y = output("y");
  twice(x_, a, kAlone);
  twice(a, b, 1);
  step("Gpu:fails", {a}, c, 2);
  add(b, c, y, 0);
  const auto made = context();
  fails_ = true;
  for (int run = 0; run < 5; ++run) {
    EXPECT_ERROR(made->enqueue(stream_.queue()), "somebody failed");
    made->synchronize(stream_.queue());
  }
  fails_ = false;
  expect(*made, {all(8)});
}

TEST_P(RunStreamsTest, InputsAreReadAtTheEndOfAGroup) {
  const int a = arena("a"), b = arena("b"), c = arena("c"), y = output("y");
  twice(x_, a, 0);
  twice(x_, b, 1);
  twice(b, c, 1);
  add(a, c, y, kAlone);
  const auto made = context();
  static auto* const create =
      symbol_of<int(void**, unsigned)>("OPWRIGHT_CUDA_DRIVER", "cuEventCreate");
  static auto* const wait = symbol_of<int(void*)>("OPWRIGHT_CUDA_DRIVER", "cuEventSynchronize");
  void* read = nullptr;
  {
    const DeviceScope scope(test_gpu());
    ASSERT_EQ(create(&read, 2), 0);
  }
  made->set_input_consumed_event(read);
  for (int run = 0; run < 6; ++run) {
    input_.set(all(1));
    made->enqueue(stream_.queue());
    {
      const DeviceScope scope(test_gpu());
      ASSERT_EQ(wait(read), 0);
    }
    input_.set(all(100));
    EXPECT_EQ(outputs_[0].get(stream_.queue()), all(6)) << run;
  }
}

TEST_P(RunStreamsTest, NothingIsBesideAStepThatMayNotMove) {
  register_fake("Gpu:called", {.run = [](const FakeRun& run) { launch("twice", run); },
                               .capture_obstacle = "somebody must be called"});
  const int a = arena("a"), b = arena("b"), y = output("y");
  step("Gpu:called", {x_}, a, 0);
  twice(x_, b, 1);
  add(a, b, y, kAlone);
  const auto made = context();
  reset_driver_calls();
  made->enqueue(stream_.queue());
  EXPECT_EQ(driver_calls("cuStreamWaitEvent"), 0);
  expect(*made, {all(4)});
}

TEST_P(RunStreamsTest, LongGroupsRunInOrder) {
  int last = x_;
  for (uint32_t i = 0; i < kMaxGroupSteps + 4; ++i) {
    const int next = arena("t" + std::to_string(i));
    step(i % 2 == 0 ? "Gpu:twice" : "Gpu:half", {last}, next, static_cast<int32_t>(i % 3));
    last = next;
  }
  const int y = output("y");
  twice(last, y, kAlone);
  const auto made = context();
  reset_driver_calls();
  made->enqueue(stream_.queue());
  EXPECT_EQ(driver_calls("cuStreamWaitEvent"), 0);
  expect(*made, {all(2)});
}

/// Random networks on random streams, in memory that a run in order would be content with.
TEST_P(RunStreamsTest, RandomPlans) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    plan_ = FakePlan(test_gpu());
    plan_.plan().graphs = GetParam();
    x_ = plan_.input("x", kFp32, {kCount}, {kCount}, {kCount});
    const size_t steps = 2 + below(14);
    std::vector<int> tensors = {x_};
    std::vector<float> values = {1};
    std::vector<std::pair<size_t, size_t>> uses;  // of each step
    std::vector<size_t> last_use(steps + 1, 0);
    for (size_t i = 0; i < steps; ++i) {
      const size_t a = tensors.size() - 1 - below(std::min<size_t>(tensors.size(), 4));
      const size_t b = below(2) == 0 ? a : below(tensors.size());
      uses.emplace_back(a, b);
      last_use[a] = last_use[b] = i;
      const bool is_last = i + 1 == steps;
      tensors.push_back(is_last ? output("y") : arena("t" + std::to_string(i)));
      values.push_back(values[a] + values[b]);
      const bool is_alone = below(5) == 0;
      add(tensors[a], tensors[b], tensors.back(),
          is_alone ? kAlone : static_cast<int32_t>(below(4)));
    }
    // A place is taken again once nobody reads in the order of the steps what lies there.
    std::vector<std::pair<size_t, uint64_t>> busy;  // until which step, where
    for (size_t i = 0; i + 1 < steps; ++i) {
      uint64_t offset = 0;
      const auto is_free = [&] {
        return std::ranges::none_of(
            busy, [&](const auto& each) { return each.first >= i && each.second == offset; });
      };
      while (!is_free()) offset += kBytes;
      plan_.schedule().tensors[tensors[i + 1]].offset = offset;
      busy.emplace_back(std::max(last_use[i + 1], i), offset);
    }
    SCOPED_TRACE(round);
    expect(*context(), {all(values.back())});
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, RunStreamsTest, testing::Bool());

}  // namespace
}  // namespace opwright
