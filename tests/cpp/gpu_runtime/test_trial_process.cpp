// Builds that verify their candidates run those that never ran on the GPU in another process first.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "compile/build_budget.h"
#include "compile/compile.h"
#include "error_of.h"
#include "gpu_runtime/test_kernels.h"
#include "loggers.h"
#include "network/network.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright {
namespace {

namespace fs = std::filesystem;

constexpr char kFaulty[] = R"cuda(
extern "C" __global__ void twice(const float* x, long long n, float* y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void misaligned(const float* x, long long n, float* y) {
  *(float4*)(y + 1) = make_float4(x[0], x[1], x[2], x[3]);
}
extern "C" __global__ void illegal(const float* x, long long n, float* y) {
  *(float*)16 = x[0];
}
extern "C" __global__ void endless(const float* x, long long n, float* y) {
  for (volatile float* at = y; n > 0;) *at = *at + x[0];
}
)cuda";
constexpr int64_t kElements = 100;

/// y = 2 x, or what the functions do: those of kFaulty, by tactics from 1 on.
class Faulty final : public Operator {
 public:
  explicit Faulty(std::vector<std::string> functions) : functions_(std::move(functions)) {}
  std::string_view kind() const override { return "Gpu:faulty"; }
  bool is_pure() const override { return false; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    OutputInfo info;
    info.dtype = context.inputs[0]->dtype;
    info.dims = context.inputs[0]->dims;
    return {info};
  }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    require(!query.device->is_host(), "it is for GPUs");
    std::vector<Candidate> all;
    for (size_t i = 0; i < functions_.size(); ++i)
      all.push_back({{kFp32}, {kFp32}, static_cast<int64_t>(i) + 1, functions_[i]});
    return all;
  }
  std::optional<std::string> timing_key() const override {
    std::string key;
    for (const std::string& function : functions_) key += function + ' ';
    return key;
  }
  PlannedOperatorPtr plan(const KernelArgs& args) const override {
    static const CodeObject object = compile_cuda(kFaulty, "faulty.cu");
    KernelCode code;
    code.name = functions_[static_cast<size_t>(args.candidate->tactic) - 1];
    code.object = object;
    code.grid[0] = 4;
    code.block[0] = 32;
    code.arguments = {{ArgumentType::kINT64, kElements, 0}};
    return make_compiled_kernel(code);
  }

 private:
  const std::vector<std::string> functions_;
};

/// This process's children that run candidates.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string name, state;
    pid_t pid = 0, parent = 0;
    std::ifstream(entry.path() / "stat") >> pid >> name >> state >> parent;
    if (parent == getpid() && name == "(opwright-trials)") found.push_back(pid);
  }
  return found;
}

/// But for those of the emulated GPU, which keeps what it has compiled.
ptrdiff_t open_files() {
  return std::ranges::count_if(fs::directory_iterator("/proc/self/fd"), [](const auto& entry) {
    std::error_code ignored;
    return !fs::read_symlink(entry.path(), ignored).string().starts_with("/memfd:emulated");
  });
}

class GpuTrials : public testing::Test {
 protected:
  GpuTrials() {
    test_gpu();
    config.device = device_of(DeviceType::kGPU);
    config.max_aux_streams = 0;
    config.log = Log(&logger);
    config.verification = VerificationLevel::kALL;
    config.timing_cache = std::make_shared<TimingCache>(test_gpu().identity());
  }
  ~GpuTrials() override {
    EXPECT_EQ(children(), std::vector<pid_t>());
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "nobody has waited for a child";
  }

  /// `layers` of the functions in a row.
  Plan build(const std::vector<std::string>& functions, int layers = 1) {
    Network network;
    Tensor* tensor = network.add_input("x", DataType::kFLOAT, {kElements});
    for (int i = 0; i < layers; ++i) {
      Tensor* const inputs[] = {tensor};
      Layer* const layer = network.add_layer(std::make_shared<Faulty>(functions), inputs,
                                             "the layer " + std::to_string(i));
      tensor = layer->output(0);
    }
    tensor->set_name("y");
    network.mark_output(*tensor);
    return compile(network, config);
  }

  std::string error_of_build(const std::vector<std::string>& functions) {
    return error_of([&] { build(functions); });
  }

  CollectingLogger logger;
  BuilderConfig config{DeviceId{"cpu"}};
};

TEST_F(GpuTrials, WhatFaultsIsLeftOutAndTheBuildGoesOn) {
  config.kernel_seconds = 2;
  build({"twice"});
  const ptrdiff_t files = open_files();
  const Plan plan = build({"misaligned", "illegal", "endless", "twice"}, 2);
  EXPECT_EQ(open_files(), files);
  for (const PlanStep& step : plan.schedules[0].steps) EXPECT_EQ(step.candidate.tactic, 4);
  expect_contains(
      logger.warnings,
      {"Layer 'the layer 0': the candidate FP32 -> FP32, tactic 1 misaligned is left out",
       "it faults, in another process that ran it first: ", "CUDA_ERROR_MISALIGNED_ADDRESS",
       "tactic 2 illegal is left out", "CUDA_ERROR_ILLEGAL_ADDRESS", "tactic 3 endless is left out",
       "it did not end within 2 seconds (kernel_seconds)",
       "Layer 'the layer 1': the candidate FP32 -> FP32, tactic 1 misaligned is left out"});
  EXPECT_EQ(logger.warnings.find("lost"), std::string::npos) << logger.warnings;
  // The device is as well as before.
  LoadOptions options;
  options.allow_device_code = true;
  Context context(Engine::load(plan, options));
  const DeviceArray<float> x(ramp(kElements)), y(kElements);
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  context.enqueue();
  EXPECT_EQ(y.get(), times(4, ramp(kElements)));
}

TEST_F(GpuTrials, WithoutAnotherCandidateItIsAnError) {
  expect_contains(error_of_build({"illegal"}), {"Layer 'the layer 0'", "tactic 1 illegal", "faults",
                                                "CUDA_ERROR_ILLEGAL_ADDRESS"});
  expect_contains(error_of_build({"illegal", "misaligned"}),
                  {"Layer 'the layer 0'", "none of its 2 candidates works",
                   "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS"});
  config.verification = VerificationLevel::kSTRICT;
  expect_contains(
      error_of_build({"misaligned", "twice"}),
      {"tactic 1 misaligned", "CUDA_ERROR_MISALIGNED_ADDRESS", "verification is strict"});
}

TEST_F(GpuTrials, WhatRanOnTheDeviceBeforeRunsInThisProcess) {
  const char* const kStarted = "runs candidates that never ran on this device";
  config.verification = VerificationLevel::kPLUGINS;
  build({"twice"});
  EXPECT_EQ(logger.verbose.find(kStarted), std::string::npos) << "nobody asked for it";
  config.verification = VerificationLevel::kALL;
  build({"twice"});
  EXPECT_EQ(logger.verbose.find(kStarted), std::string::npos) << "the timing cache knows it";
  config.timing_cache->clear();
  build({"twice"});
  EXPECT_NE(logger.verbose.find(kStarted), std::string::npos);
  EXPECT_EQ(logger.warnings, "");
}

/// While a candidate runs for ever in the other process.
class GpuEndlessTrial : public GpuTrials {
 protected:
  /// Calls the function once the process is there.
  template <class Act>
  std::string error_meanwhile(const Act& act) {
    std::atomic<bool> is_over = false;
    std::thread actor([&] {
      while (children().empty() && !is_over)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      act();
    });
    std::string text = error_of_build({"endless"});
    is_over = true;
    actor.join();
    return text;
  }
};

TEST_F(GpuEndlessTrial, AProcessThatIsKilledIsAFault) {
  const std::string text = error_meanwhile([] {
    for (const pid_t child : children()) kill(child, SIGKILL);
  });
  expect_contains(text, {"tactic 1 endless", "the process that ran it first ended by signal 9"});
}

TEST_F(GpuEndlessTrial, AnInterruptEndsIt) {
  std::atomic<bool> is_interrupted = false;
  config.interrupt_check = [&] {
    if (is_interrupted) throw BuildCancelledError("the user is tired of it");
  };
  EXPECT_EQ(error_meanwhile([&] { is_interrupted = true; }), "the user is tired of it");
}

TEST_F(GpuEndlessTrial, TheBuildsTimeEndsIt) {
  build({"twice"});
  config.limits.build_seconds = 3;
  expect_contains(error_of_build({"endless"}), {"in another process"});
}

}  // namespace
}  // namespace opwright
