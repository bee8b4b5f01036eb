// Plugins at fault on a GPU: what debug_plugins finds, and whom an error names after work has
// broken the device's context.

#include <cstdio>

#include "gpu_runtime/test_kernels.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright {
namespace {

constexpr char kPlugins[] = R"cuda(
extern "C" __global__ void twice(const float* x, long long n, float* y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void one_too_many(const float* x, long long n, float* y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
  if (i == n) y[i] = 7;
}
extern "C" __global__ void one_too_few(const float* x, long long n, float* y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n) y[i] = x[i];
}
extern "C" __global__ void spoil_input(float* x, long long n, float* y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
  if (i == 5) x[i] = -1;
}
extern "C" __global__ void crash(const float* x, long long n, float* y) {
  *(float*)16 = x[0];
}
)cuda";

/// Plugins with a kernel of kPlugins each, one after the other, from x [100] to z [100].
std::unique_ptr<Context> plugins(const std::vector<std::string>& functions, bool debug) {
  FakePlan plan(test_gpu());
  int tensor = plan.input("x", kFp32, {100}, {100}, {100});
  for (size_t i = 0; i < functions.size(); ++i) {
    const bool is_last = i + 1 == functions.size();
    const int next = is_last ? plan.output("z", kFp32, {100})
                             : plan.arena("t" + std::to_string(i), kFp32, {100}, 400);
    PlanStep& step = plan.step("the " + functions[i], "CompiledKernel", {tensor}, {next});
    KernelCode code;
    code.name = functions[i];
    code.object = compile_cuda(kPlugins, functions[i] + ".cu");
    code.grid[0] = 4;
    code.block[0] = 32;
    code.arguments = {{ArgumentType::kINT64, 100, 0}};
    const PlannedOperatorPtr op = make_compiled_kernel(code);
    step.attributes = op->attributes();
    step.code = {static_cast<int32_t>(i)};
    plan.plan().code.push_back(op->code().front());
    tensor = next;
  }
  LoadOptions options;
  options.debug_plugins = debug;
  options.allow_device_code = true;
  return plan.context(options);
}

class GpuDebug : public testing::Test {
 protected:
  std::string error_of_run(const std::string& function) {
    const auto context = plugins({function}, true);
    context->set_input_address(0, x.data());
    context->set_output_address(0, z.data());
    return error_of([&] { context->enqueue(stream.queue()); });
  }
  DeviceArray<float> x{FloatVector(100, 3)}, z{FloatVector(100, 0)};
  TestStream stream;
};

TEST_F(GpuDebug, PassesWhatIsRight) {
  EXPECT_EQ(error_of_run("twice"), "no error");
  EXPECT_EQ(z.get(stream.queue()), FloatVector(100, 6));
}

TEST_F(GpuDebug, FindsWritesBesideTensors) {
  const std::string message = error_of_run("one_too_many");
  EXPECT_NE(message.find("layer 'the one_too_many'"), std::string::npos) << message;
  EXPECT_NE(message.find("4 bytes behind the end of output 0 ('z'"), std::string::npos) << message;
  EXPECT_NE(message.find("from element 100 on, where 7 stands now"), std::string::npos) << message;
  EXPECT_EQ(z.get(stream.queue()), FloatVector(100, 0));
}

TEST_F(GpuDebug, FindsElementsThatWereNotWritten) {
  const std::string message = error_of_run("one_too_few");
  EXPECT_NE(message.find("was not written in 1 of 100 elements"), std::string::npos) << message;
}

TEST_F(GpuDebug, FindsInputsThatWereChanged) {
  const std::string message = error_of_run("spoil_input");
  EXPECT_NE(message.find("was changed in 1 of 100 elements"), std::string::npos) << message;
  EXPECT_NE(message.find("from 3 to -1"), std::string::npos) << message;
  EXPECT_EQ(x.get(), FloatVector(100, 3));
}

/// Breaks this process's context and ends the process with the error's message.
[[noreturn]] void end_with_error(const std::vector<std::string>& functions, bool debug,
                                 int runs_before = 0, bool sync = false) {
  const auto context = plugins(functions, debug);
  context->set_debug_sync(sync);
  const DeviceArray<float> x(FloatVector(100, 3)), z(100);
  context->set_input_address(0, x.data());
  context->set_output_address(0, z.data());
  std::string message = "no error";
  try {
    for (int run = 0; run <= runs_before; ++run) context->enqueue();
    context->synchronize();
  } catch (const DeviceLostError& error) {
    message = error.what();
  }
  std::fprintf(stderr, "%s\n", message.c_str());
  std::_Exit(3);
}

class GpuLost : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GpuLost, NamesTheOnlyPlugin) {
  EXPECT_EXIT(end_with_error({"crash"}, false), testing::ExitedWithCode(3),
              "layer 'the crash' .CompiledKernel 'crash.cu'., the only plugin .*ILLEGAL_ADDRESS");
}

TEST_F(GpuLost, NamesAllThatMayHaveDoneIt) {
  EXPECT_EXIT(end_with_error({"twice", "crash"}, false), testing::ExitedWithCode(3),
              "ILLEGAL_ADDRESS.*'the twice'.*'the crash'.*with debug_plugins");
}

TEST_F(GpuLost, NamesThePluginThatDidItWhereRunsAreSynchronized) {
  EXPECT_EXIT(end_with_error({"twice", "crash", "twice"}, false, 4, true),
              testing::ExitedWithCode(3),
              "^layer 'the crash' .CompiledKernel 'crash.cu'.: .*ILLEGAL_ADDRESS");
}

TEST_F(GpuLost, NamesThePluginThatDidItWhereEachIsWaitedFor) {
  EXPECT_EXIT(end_with_error({"twice", "crash", "twice"}, true), testing::ExitedWithCode(3),
              "^layer 'the crash': compiled kernel 'crash.cu', call 1 in this context: "
              ".*ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace opwright
