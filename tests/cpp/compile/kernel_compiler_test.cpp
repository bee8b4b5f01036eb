#include "compile/kernel_compiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/parallel.h"
#include "compile/tuner.h"
#include "operators/movement.h"

namespace opwright {
namespace {

using namespace std::chrono_literals;

/// A device that compiles as the test says.
class CompilingDevice final : public Device {
 public:
  const Backend& backend() const override { return get_backend("cpu"); }
  DeviceType type() const override { return DeviceType::kGPU; }
  std::string identity() const override { return "compiling"; }
  std::string architecture() const override { return "none"; }
  void* allocate(size_t) const override { return nullptr; }
  void free(void*) const noexcept override {}
  void copy(void*, const void*, size_t, Queue) const override {}
  void synchronize(Queue) const override {}
  std::unique_ptr<Event> make_event(bool) const override { return nullptr; }
  std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) const override {
    return {{{query.inputs[0].type}, {query.outputs[0].type}, 0, ""}};
  }
  std::unique_ptr<Kernel> make_kernel(const Operator&, const KernelArgs&) const override {
    return nullptr;
  }
  PlannedOperatorPtr compile(const Operator&, const KernelArgs& args) const override {
    on_compile(args);
    return nullptr;
  }
  std::vector<TensorFormat> formats(int) const override { return {}; }
  double time(Kernel&, void const* const*, void* const*, void*, int,
              const CacheScene&) const override {
    return 0;
  }
  std::function<void(const KernelArgs&)> on_compile;
};

/// Waits at most so long that a test fails and does not hang.
template <class Condition>
bool wait_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return condition();
}

/// Compiles a list of kernels, numbered by their tactics, on four threads.
class CompilingKernels : public testing::Test {
 protected:
  CompilingKernels() {
    node_.name = "the layer";
    node_.op = std::make_shared<Reformat>();
    device_.on_compile = [this](const KernelArgs& args) {
      const auto number = static_cast<size_t>(args.candidate->tactic);
      if (on_kernel_) on_kernel_(number, *args.gives_up);
      is_compiled_[number] = true;
      ++compilations_;
    };
  }
  size_t compile(size_t kernels, const KernelCompiler::Steps& steps = {},
                 double seconds = std::numeric_limits<double>::infinity()) {
    const ThreadLimit limit(threads_);
    is_compiled_ = std::vector<std::atomic<bool>>(kernels);
    std::vector<KernelCompiler::Work> work;
    for (size_t i = 0; i < kernels; ++i) {
      const Candidate candidate{{}, {}, static_cast<int64_t>(i), ""};
      work.push_back({&node_, {}, candidate, str("kernel ", i), true});
    }
    const BuildBudget budget(resolved({}, machine_memory()), UINT64_MAX, Deadline(seconds));
    compiler_.emplace(device_, config_, budget);
    const auto progress = [&](int done, int total) { progress_.emplace_back(done, total); };
    return compiler_->compile(work, progress, steps);
  }
  /// Steps of which each needs one more kernel.
  KernelCompiler::Steps one_by_one(size_t count) {
    KernelCompiler::Steps steps;
    for (size_t i = 0; i < count; ++i) steps.kernels.push_back(i + 1);
    steps.run = [this, thread = std::this_thread::get_id()](size_t step) {
      EXPECT_EQ(std::this_thread::get_id(), thread);
      EXPECT_EQ(step, steps_++);
      for (size_t kernel = 0; kernel <= step; ++kernel) EXPECT_TRUE(is_compiled_[kernel]);
      if (on_step_) on_step_(step);
    };
    return steps;
  }
  /// Compiles until somebody gives up.
  void compile_without_end(const std::function<bool()>& gives_up) {
    ++running_;
    EXPECT_TRUE(wait_until(gives_up));
    --running_;
    fail("given up");
  }

  GraphNode node_;
  CompilingDevice device_;
  BuilderConfig config_{DeviceId{"cpu"}};
  std::optional<KernelCompiler> compiler_;
  int threads_ = 4;
  std::function<void(size_t kernel, const std::function<bool()>& gives_up)> on_kernel_;
  std::function<void(size_t step)> on_step_;
  std::vector<std::atomic<bool>> is_compiled_;
  std::atomic<int> compilations_ = 0, running_ = 0;
  size_t steps_ = 0;
  std::vector<std::pair<int, int>> progress_;
};

TEST_F(CompilingKernels, AllOfThemCompileOnce) {
  compile(100);
  EXPECT_EQ(compilations_, 100);
  ASSERT_FALSE(progress_.empty());
  for (size_t i = 0; i < progress_.size(); ++i) {
    EXPECT_EQ(progress_[i].second, 100);
    EXPECT_TRUE(i == 0 || progress_[i].first > progress_[i - 1].first);
  }
  EXPECT_EQ(progress_.back().first, 100);
}

TEST_F(CompilingKernels, StepsRunInOrderOnceTheirKernelsAreCompiled) {
  on_kernel_ = [](size_t kernel, const auto&) {
    std::this_thread::sleep_for(std::chrono::microseconds(kernel * 7919 % 1000));
  };
  const size_t run = compile(100, one_by_one(100));
  EXPECT_EQ(run, steps_);
  EXPECT_LT(run, 100u) << "the last one needs all kernels";
  EXPECT_EQ(compilations_, 100);
}

TEST_F(CompilingKernels, OtherThreadsCompileWhileAStepRuns) {
  if (thread_count() == 1) GTEST_SKIP() << "no thread helps on one core";
  std::atomic<bool> has_run = false, is_running = false;
  on_kernel_ = [&](size_t kernel, const auto&) {
    EXPECT_TRUE(kernel == 0 || wait_until([&] { return is_running.load(); }));
    EXPECT_TRUE(kernel <= 1 || wait_until([&] { return has_run.load(); }));
  };
  on_step_ = [&](size_t step) {
    if (step > 0) return;
    is_running = true;
    EXPECT_TRUE(wait_until([&] { return is_compiled_[1].load(); }));
    EXPECT_EQ(thread_count(), 1) << "the other cores are busy";
    has_run = true;
  };
  KernelCompiler::Steps steps = one_by_one(3);
  steps.kernels = {0, 2, KernelCompiler::Steps::kAll};
  steps.run = on_step_;
  EXPECT_LE(compile(8, steps), 2u);
  EXPECT_TRUE(has_run);
}

TEST_F(CompilingKernels, AThreadCompilesForItselfWhereNoneHelps) {
  threads_ = 1;
  EXPECT_EQ(compile(5, one_by_one(5)), 4u);
  EXPECT_EQ(compilations_, 5);
}

TEST_F(CompilingKernels, AKernelThatFailsKeepsNoStepWaiting) {
  on_kernel_ = [&](size_t kernel, const auto&) {
    is_compiled_[kernel] = true;
    if (kernel % 2 == 0) fail("kernel ", kernel, " is broken");
  };
  EXPECT_GT(compile(20, one_by_one(20)) + 1, steps_);
  EXPECT_EQ(compiler_->failure("kernel 4"), "kernel 4 is broken");
  EXPECT_EQ(compiler_->failure("kernel 5"), "");
}

TEST_F(CompilingKernels, TheExceptionOfAStepEndsAllThreads) {
  if (thread_count() == 1) GTEST_SKIP() << "no thread helps on one core";
  on_kernel_ = [&](size_t kernel, const auto& gives_up) {
    if (kernel > 0) compile_without_end(gives_up);
  };
  on_step_ = [&](size_t) {
    EXPECT_TRUE(wait_until([&] { return running_ > 0; }));
    throw std::out_of_range("a step's own");
  };
  KernelCompiler::Steps steps{{0}, on_step_};
  EXPECT_THROW(compile(50, steps), std::out_of_range);
  EXPECT_EQ(running_, 0);
  EXPECT_LE(compilations_, 1);
}

TEST_F(CompilingKernels, AnInterruptEndsAllThreads) {
  on_kernel_ = [&](size_t, const auto& gives_up) { compile_without_end(gives_up); };
  config_.interrupt_check = [&] {
    if (running_ > 0) throw BuildCancelledError("enough");
  };
  EXPECT_THROW(compile(50, one_by_one(50)), BuildCancelledError);
  EXPECT_EQ(running_, 0);
  EXPECT_EQ(steps_, 0u);
}

TEST_F(CompilingKernels, TheEndOfTheBuildsTimeEndsAllThreads) {
  on_kernel_ = [&](size_t, const auto& gives_up) { compile_without_end(gives_up); };
  EXPECT_THROW(compile(50, one_by_one(50), 0.1), BuildTimeError);
  EXPECT_EQ(running_, 0);
}

TEST(CompilingConversions, EqualOnesCompileOnce) {
  const ThreadLimit limit(2);
  CompilingDevice device;
  std::mutex mutex;
  std::map<std::string, int> compilations;
  device.on_compile = [&](const KernelArgs& args) {
    const std::lock_guard lock(mutex);
    ++compilations[str(args.inputs[0].opt.str(), " ", str(args.inputs[0].type), " to ",
                       str(args.outputs[0].type))];
  };
  const Network network;
  const ProfileRanges ranges(network, nullptr);
  const BuilderConfig config{DeviceId{"cpu"}};
  const BuildBudget budget(resolved({}, machine_memory()), UINT64_MAX,
                           Deadline(std::numeric_limits<double>::infinity()));
  TimingCache cache(device.identity());
  Tuner tuner(ranges, device, config, true, cache, budget, {});
  GraphValue first, second, third;
  for (GraphValue* value : {&first, &second, &third}) value->info.dims = {1, 8, 4, 4};
  third.info.dims = {1, 16, 4, 4};
  const PortType linear{DataType::kHALF}, last{DataType::kHALF, TensorFormat::kHWC};
  const std::vector<Conversion> conversions = {
      {&first, linear, last}, {&second, linear, last},   {&third, linear, last},
      {&first, last, linear}, {&second, linear, linear},
  };
  std::vector<std::pair<int, int>> steps;
  const auto progress = [&](int done, int total) { steps.emplace_back(done, total); };
  tuner.compile_conversions(conversions, progress);
  EXPECT_EQ(compilations.size(), 3u);
  for (const auto& [what, count] : compilations) EXPECT_EQ(count, 1) << what;
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], std::pair(0, 3));
}

}  // namespace
}  // namespace opwright
