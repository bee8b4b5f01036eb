// CUDA graphs: what is captured, and that replaying it gives what running it does.

#include <thread>

#include "gpu_runtime/test_kernels.h"

namespace opwright {
namespace {

class RecordingLogger final : public ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kINFO) text += std::string(message) + "\n";
  }
  std::string text;
};

/// y = 2^count * x in `count` steps "s0", "s1", ...; x [n], n in 1..200.
struct Doubles {
  explicit Doubles(int count, const std::map<int, std::string>& kinds = {}) {
    n = plan.extent("n", "x", 0);
    int tensor = plan.input("x", kFp32, {n}, {1}, {200});
    for (int i = 0; i < count; ++i) {
      const std::string name = "s" + std::to_string(i);
      const int next = i + 1 == count ? plan.output("y", kFp32, {n})
                                      : plan.arena("t" + std::to_string(i), kFp32, {n}, 800);
      const auto kind = kinds.find(i);
      plan.step(name, kind == kinds.end() ? "Gpu:twice" : kind->second, {tensor}, {next});
      tensor = next;
    }
  }
  std::unique_ptr<Context> context(int64_t extent = 100) {
    LoadOptions options;
    options.log = Log(&logger);
    auto made = plan.context(options);
    made->set_input_shape(0, {extent});
    return made;
  }
  FakePlan plan{test_gpu()};
  Expr n;
  RecordingLogger logger;
};

void bind(Context& context, const DeviceArray<float>& x, const DeviceArray<float>& y) {
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
}

class GraphReplayTest : public testing::Test {
 protected:
  void SetUp() override {
    register_gpu_kinds();
    const auto twice = [](const FakeRun& run) { launch("twice", run); };
    register_fake("Gpu:called", {.run = twice, .capture_obstacle = "somebody must be called"});
    register_fake("Gpu:waits", {.run = [twice](const FakeRun& run) {
                    twice(run);
                    test_gpu().synchronize(run.queue);
                  }});
    // Without saying that it failed.
    register_fake("Gpu:waits silently", {.run = [twice](const FakeRun& run) {
                    twice(run);
                    try {
                      test_gpu().synchronize(run.queue);
                    } catch (const Error&) {
                    }
                  }});
  }
  TestStream stream;
};

TEST_F(GraphReplayTest, RepeatsWhatRunsWithOneCall) {
  Doubles doubles(10);
  const auto context = doubles.context();
  DeviceArray<float> x(100), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 4; ++run) {
    x.set(ramp(100, static_cast<float>(run)));
    context->enqueue(stream.queue());
    EXPECT_EQ(y.get(stream.queue()), times(1024, ramp(100, static_cast<float>(run)))) << run;
  }
  x.set(ramp(100, 50));
  reset_driver_calls();
  context->enqueue(stream.queue());
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 1);
  for (const char* other : {"cuLaunchKernel", "cuStreamBeginCapture", "cuMemAlloc",
                            "cuMemAllocAsync", "cuEventRecord", "cuStreamSynchronize",
                            "cuStreamWaitEvent", "cuGraphExecKernelNodeSetParams", "cuMemcpyAsync"})
    EXPECT_EQ(driver_calls(other), 0) << other;
  EXPECT_EQ(y.get(stream.queue()), times(1024, ramp(100, 50)));
  const int runs = fake_calls()["s3"].runs;
  context->enqueue(stream.queue());
  EXPECT_EQ(fake_calls()["s3"].runs, runs) << "kernels are not called any more";
  EXPECT_NE(doubles.logger.text.find("engine 'fake': steps 0 to 9 are replayed as one graph of "
                                     "10 kernels, copies and fills\n"),
            std::string::npos)
      << doubles.logger.text;
}

TEST_F(GraphReplayTest, NewAddressesNeedNoNewCapture) {
  Doubles doubles(3);
  const auto context = doubles.context();
  std::vector<DeviceArray<float>> xs, ys;
  for (int i = 0; i < 4; ++i) {
    xs.emplace_back(ramp(100, static_cast<float>(10 * i)));
    ys.emplace_back(100);
  }
  bind(*context, xs[0], ys[0]);
  for (int run = 0; run < 5; ++run) context->enqueue(stream.queue());
  context->synchronize(stream.queue());
  reset_driver_calls();
  for (const int i : {1, 2, 2, 3, 0}) {
    ys[i].set(FloatVector(100, -1));
    bind(*context, xs[i], ys[3 - i]);
    context->enqueue(stream.queue());
    EXPECT_EQ(ys[3 - i].get(stream.queue()), times(8, ramp(100, static_cast<float>(10 * i)))) << i;
  }
  EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 0);
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 0);
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 5);
  EXPECT_GT(driver_calls("cuGraphExecKernelNodeSetParams"), 0);
  // Input and output change places.
  bind(*context, ys[0], xs[0]);
  const FloatVector before = ys[0].get(stream.queue());
  context->enqueue(stream.queue());
  EXPECT_EQ(xs[0].get(stream.queue()), times(8, before));
}

TEST_F(GraphReplayTest, InputsThatLayInOneMemoryPart) {
  FakePlan plan{test_gpu()};
  const Expr n(100);
  const int a = plan.input("a", kFp32, {n}, {100}, {100});
  const int b = plan.input("b", kFp32, {n}, {100}, {100});
  const int sum = plan.arena("sum", kFp32, {n}, 400);
  plan.step("s0", "Gpu:add", {a, b}, {sum});
  plan.step("s1", "Gpu:twice", {sum}, {plan.output("y", kFp32, {n})});
  const auto context = plan.context({});
  const DeviceArray<float> x(ramp(100)), other(ramp(100, 500));
  const DeviceArray<float> y(100);
  const auto check = [&](const DeviceArray<float>& first, const DeviceArray<float>& second) {
    context->set_input_address(0, first.data());
    context->set_input_address(1, second.data());
    context->set_output_address(0, y.data());
    context->enqueue(stream.queue());
    FloatVector expected = first.get(stream.queue());
    const FloatVector more = second.get(stream.queue());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = 2 * (expected[i] + more[i]);
    EXPECT_EQ(y.get(stream.queue()), expected);
  };
  for (int run = 0; run < 4; ++run) check(x, x);
  for (int run = 0; run < 2; ++run) {
    check(other, x);
    check(x, x);
    check(x, other);
    check(other, other);
  }
}

TEST_F(GraphReplayTest, ShapesThatChangeAreCapturedAnew) {
  Doubles doubles(2);
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(200)), y(200);
  bind(*context, x, y);
  for (const int64_t extent : {100, 200, 7}) {
    context->set_input_shape(0, {extent});
    reset_driver_calls();
    for (int run = 0; run < 6; ++run) {
      y.set(FloatVector(200, -1));
      context->enqueue(stream.queue());
      FloatVector expected = times(4, ramp(static_cast<size_t>(extent)));
      expected.resize(200, -1);
      EXPECT_EQ(y.get(stream.queue()), expected) << extent;
    }
    EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 1) << extent;
    EXPECT_EQ(driver_calls("cuGraphLaunch"), 3) << extent;
  }
}

TEST_F(GraphReplayTest, WhatMayNotBeCapturedSplitsTheRun) {
  Doubles doubles(7, {{3, "Gpu:called"}, {6, "Gpu:called"}});
  const auto context = doubles.context();
  DeviceArray<float> x(100), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 6; ++run) {
    x.set(ramp(100, static_cast<float>(run)));
    reset_driver_calls();
    context->enqueue(stream.queue());
    EXPECT_EQ(y.get(stream.queue()), times(128, ramp(100, static_cast<float>(run)))) << run;
  }
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 2);
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 2);
  EXPECT_EQ(fake_calls()["s3"].runs, 6);
  EXPECT_NE(
      doubles.logger.text.find(
          "steps 0 to 2 are replayed as one graph of 3 kernels, copies and fills; step 3, "
          "layer 's3' (Gpu:called), is not captured: somebody must be called; steps 4 to 5 are "
          "replayed as one graph of 2 kernels, copies and fills; step 6, layer 's6' "
          "(Gpu:called), is not captured"),
      std::string::npos)
      << doubles.logger.text;
}

TEST_F(GraphReplayTest, WhatBreaksACaptureRunsPlainly) {
  for (const char* kind : {"Gpu:waits", "Gpu:waits silently"}) {
    Doubles doubles(6, {{2, kind}});
    const auto context = doubles.context();
    DeviceArray<float> x(100), y(100);
    bind(*context, x, y);
    for (int run = 0; run < 8; ++run) {
      x.set(ramp(100, static_cast<float>(run)));
      reset_driver_calls();
      context->enqueue(stream.queue());
      EXPECT_EQ(y.get(stream.queue()), times(64, ramp(100, static_cast<float>(run)))) << run;
    }
    EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 0) << "it is tried once";
    EXPECT_EQ(driver_calls("cuGraphLaunch"), 2);
    EXPECT_EQ(driver_calls("cuLaunchKernel"), 1);
    EXPECT_NE(doubles.logger.text.find(std::string("step 2, layer 's2' (") + kind +
                                       "), cannot be captured and runs outside of graphs: "),
              std::string::npos)
        << doubles.logger.text;
    EXPECT_EQ(doubles.logger.text.find("'s3'"), std::string::npos) << doubles.logger.text;
  }
}

TEST_F(GraphReplayTest, AGraphOfOneKernelIsNotMade) {
  Doubles doubles(1);
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 5; ++run) context->enqueue(stream.queue());
  EXPECT_EQ(y.get(stream.queue()), times(2, ramp(100)));
  reset_driver_calls();
  context->enqueue(stream.queue());
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 1);
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 0);
  EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 0);
  EXPECT_EQ(driver_calls("cuStreamIsCapturing"), 0) << "such runs cost what they do without graphs";
}

TEST_F(GraphReplayTest, CanBeTurnedOff) {
  Doubles doubles(3);
  doubles.plan.plan().graphs = false;
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  reset_driver_calls();
  for (int run = 0; run < 6; ++run) context->enqueue(stream.queue());
  EXPECT_EQ(y.get(stream.queue()), times(8, ramp(100)));
  EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 0);
  EXPECT_EQ(driver_calls("cuLaunchKernel"), 18);
}

TEST_F(GraphReplayTest, TheCallersOwnCaptureGetsTheKernels) {
  Doubles doubles(3);
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 6; ++run) context->enqueue(stream.queue());
  context->synchronize(stream.queue());
  reset_driver_calls();
  const DeviceScope scope(test_gpu());
  const auto graph = test_gpu().capture([&](Queue queue) { context->enqueue(queue); });
  EXPECT_EQ(driver_calls("cuStreamBeginCapture"), 1);
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 0);
  EXPECT_EQ(graph->size(), 3);
  x.set(ramp(100, 30));
  graph->launch(stream.queue());
  EXPECT_EQ(y.get(stream.queue()), times(8, ramp(100, 30)));
  context->enqueue(stream.queue());
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 2) << "the context's own graph is still there";
}

TEST_F(GraphReplayTest, ProfiledRunsAreNotReplayed) {
  Doubles doubles(3);
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 5; ++run) context->enqueue(stream.queue());
  int layers = 0;
  context->set_layer_time_callback([&](const std::string&, float) { ++layers; });
  reset_driver_calls();
  context->enqueue(stream.queue());
  EXPECT_EQ(layers, 3);
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 0);
  context->set_layer_time_callback({});
  context->enqueue(stream.queue());
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 1);
  EXPECT_EQ(y.get(stream.queue()), times(8, ramp(100)));
}

/// A graph has the scratch memory that it was captured with, which another profile may have
/// replaced since, though runs in between that were not replayed had the new one.
TEST_F(GraphReplayTest, AGraphGoesWithItsScratchMemory) {
  const auto through_scratch = [](size_t bytes) {
    return FakeKind{.run =
                        [](const FakeRun& run) {
                          const auto size = static_cast<size_t>(run.input_shapes[0].numel()) * 4;
                          test_gpu().copy(run.workspace, run.inputs[0], size, run.queue);
                          test_gpu().copy(run.outputs[0], run.workspace, size, run.queue);
                        },
                    .workspace = bytes};
  };
  register_fake("Gpu:small", through_scratch(800));
  register_fake("Gpu:large", through_scratch(1 << 20));
  Doubles doubles(2, {{0, "Gpu:small"}});
  doubles.plan.plan().schedules.push_back(doubles.plan.schedule());
  doubles.plan.plan().schedules[1].steps[0].kind = "Gpu:large";
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  for (int run = 0; run < 5; ++run) context->enqueue(stream.queue());
  for (const int profile : {1, 0}) {
    context->set_profile(profile);
    context->set_input_shape(0, {100});
    context->set_layer_time_callback([](const std::string&, float) {});
    context->enqueue(stream.queue());
  }
  context->set_layer_time_callback({});
  reset_driver_calls();
  context->enqueue(stream.queue());
  EXPECT_EQ(driver_calls("cuGraphLaunch"), 0) << "its scratch memory was given back";
  EXPECT_EQ(y.get(stream.queue()), times(2, ramp(100)));
}

TEST_F(GraphReplayTest, CopiesIntoOutputsBelongToTheLastGraph) {
  Doubles doubles(2);
  doubles.plan.schedule().copies = {{0, doubles.plan.port("same", kFp32, {doubles.n})}};
  const auto context = doubles.context();
  DeviceArray<float> x(100), y(100), same(100), other(100);
  bind(*context, x, y);
  context->set_output_address(1, same.data());
  const auto check = [&](const DeviceArray<float>& copy, float first, long graphs) {
    x.set(ramp(100, first));
    reset_driver_calls();
    context->enqueue(stream.queue());
    EXPECT_EQ(driver_calls("cuGraphLaunch"), graphs) << first;
    EXPECT_EQ(y.get(stream.queue()), times(4, ramp(100, first))) << first;
    EXPECT_EQ(copy.get(stream.queue()), ramp(100, first)) << first;
  };
  for (int run = 0; run < 3; ++run) check(same, static_cast<float>(run), 0);
  for (int run = 3; run < 6; ++run) check(same, static_cast<float>(run), 1);
  context->set_output_address(1, other.data());
  check(other, 7, 1);
  // The output is where the input is: there is nothing to copy.
  context->set_output_address(1, x.data());
  check(x, 8, 1);
  context->set_output_address(1, same.data());
  check(same, 9, 1);
}

TEST_F(GraphReplayTest, SizesAreReadBetweenGraphs) {
  const Expr n = 8;
  FakePlan plan(test_gpu());
  const Expr size = plan.symbol(Symbol::Kind::kSizeTensor, "count", "count", 0, n, n);
  const int x = plan.input("x", kFp32, {n}, {8}, {8});
  const int twice = plan.arena("twice", kFp32, {n}, 32);
  const int count = plan.arena("count", kInt32, {}, 4);
  const int kept = plan.arena("kept", kFp32, {size}, 32);
  const int more = plan.arena("more", kFp32, {size}, 32);
  plan.step("double", "Gpu:twice", {x}, {twice});
  plan.step("keep", "Gpu:keep_positive", {twice}, {count, kept}).size_symbols = {0, -1};
  plan.step("more", "Gpu:twice", {kept}, {more});
  plan.step("most", "Gpu:twice", {more}, {plan.output("y", kFp32, {size})});
  const auto context = plan.context();
  DeviceArray<float> in(8), out(8);
  bind(*context, in, out);
  const auto check = [&](const FloatVector& values, const FloatVector& expected, long graphs) {
    in.set(values);
    out.set(FloatVector(8, -5));
    reset_driver_calls();
    context->enqueue(stream.queue());
    EXPECT_EQ(driver_calls("cuGraphLaunch"), graphs);
    EXPECT_EQ(context->output_shape(0), Shape({static_cast<int64_t>(expected.size())}));
    FloatVector all = expected;
    all.resize(8, -5);
    EXPECT_EQ(out.get(stream.queue()), all);
  };
  for (int run = 0; run < 3; ++run) check({1, 0, 2, 0, 0, 0, 0, 0}, {8, 16}, 0);
  check({3, 0, 4, 0, 0, 0, 0, 0}, {24, 32}, 2);
  // Another size: what needs it is run plainly for a while, what comes before is not.
  check({1, 1, 1, 0, 0, 0, 0, 0}, {8, 8, 8}, 1);
  check({2, 1, 1, 0, 0, 0, 0, 0}, {16, 8, 8}, 1);
  check({3, 1, 1, 0, 0, 0, 0, 0}, {24, 8, 8}, 1);
  check({4, 1, 1, 0, 0, 0, 0, 0}, {32, 8, 8}, 2);
}

TEST_F(GraphReplayTest, ContextsHaveGraphsOfTheirOwn) {
  Doubles doubles(4);
  const auto engine = Engine::load(doubles.plan.finish(), {});
  constexpr int kContexts = 3;
  std::vector<FloatVector> results(kContexts);
  std::vector<std::thread> threads;
  for (int i = 0; i < kContexts; ++i) {
    threads.emplace_back([&, i] {
      TestStream own;
      Context context(engine);
      context.set_input_shape(0, {50});
      DeviceArray<float> x(50), y(50);
      bind(context, x, y);
      for (int run = 0; run < 8; ++run) {
        x.set(ramp(50, static_cast<float>(100 * i + run)));
        context.enqueue(own.queue());
        context.synchronize(own.queue());
      }
      results[i] = y.get(own.queue());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kContexts; ++i)
    EXPECT_EQ(results[i], times(16, ramp(50, static_cast<float>(100 * i + 7)))) << i;
}

TEST_F(GraphReplayTest, OneContextRunsOnSeveralStreams) {
  Doubles doubles(2);
  const auto context = doubles.context();
  DeviceArray<float> x(ramp(100)), y(100);
  bind(*context, x, y);
  TestStream other;
  for (int run = 0; run < 8; ++run) {
    const Queue queue = run % 2 == 0 ? stream.queue() : other.queue();
    y.set(FloatVector(100, -1));
    context->enqueue(queue);
    EXPECT_EQ(y.get(queue), times(4, ramp(100))) << run;
  }
}

}  // namespace
}  // namespace opwright
