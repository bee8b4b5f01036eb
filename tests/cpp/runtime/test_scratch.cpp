#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <random>
#include <thread>

#include "allocations.h"
#include "runtime/fake_plan.h"

namespace opwright {
namespace {

using Strategy = ExecutionContextAllocationStrategy;

constexpr int kMost = 1000;  ///< elements of the first profile
constexpr int kContexts = 16;
constexpr size_t kWorkspace = 512;

/// Called between the two steps of a run, with the first element of x.
std::function<void(float)>& between() {
  static std::function<void(float)> function;
  return function;
}

void next(const FakeRun& run) {
  for (int64_t i = 0; i < run.output_shapes[0].numel(); ++i)
    run.out<float>(0)[i] = run.in<float>(0)[i] + 1;
  std::memset(run.workspace, 0x5A, kWorkspace);
}

/// h = x + 1, y = h + 1 with h in the arena; x [n], n in 1..1000, in a second profile to 4000.
std::shared_ptr<const Engine> make_engine(const LoadOptions& options = {}) {
  between() = nullptr;
  register_fake("TestNext", {.run = next, .workspace = kWorkspace});
  register_fake("TestPause", {.run = [](const FakeRun& run) {
                  if (between()) between()(*run.in<float>(0));
                }});
  FakePlan plan;
  const Expr n = plan.extent("n", "x", 0);
  const int x = plan.input("x", kFp32, {n}, {1}, {kMost});
  const int h = plan.arena("h", kFp32, {n}, 4 * kMost);
  const int nothing = plan.arena("nothing", kFp32, {1}, 4);
  plan.step("first", "TestNext", {x}, {h});
  plan.step("pause", "TestPause", {h}, {nothing});
  plan.step("second", "TestNext", {h}, {plan.output("y", kFp32, {n})});
  Schedule large = plan.schedule();
  large.inputs[0] = {{1}, {4 * kMost}, {4 * kMost}, false};
  large.tensors[static_cast<size_t>(h)].size = 16 * kMost;
  large.tensors[static_cast<size_t>(nothing)].offset = 16 * kMost;
  large.arena_size = 16 * kMost + 64;
  plan.plan().schedules.push_back(large);
  return Engine::load(plan.finish(), options);
}

/// A context with the memory of its input and output.
struct Caller {
  explicit Caller(const std::shared_ptr<const Engine>& engine) : context(engine) {}
  Context context;
  std::vector<float> x, y;

  /// Sets everything for a run of x = first, first + 1, ...
  void prepare(int size, float first) {
    x.resize(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i);
    y.assign(x.size(), 0);
    context.set_input_shape(0, {size});
    context.set_input_address(0, x.data());
    context.set_output_address(0, y.data());
  }
  bool is_right() const {
    for (size_t i = 0; i < x.size(); ++i)
      if (y[i] != x[i] + 2) return false;
    return true;
  }
  bool run(int size, float first) {
    prepare(size, first);
    context.enqueue();
    return is_right();
  }
};

std::vector<std::unique_ptr<Caller>> make_callers(const std::shared_ptr<const Engine>& engine) {
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kContexts; ++i) callers.push_back(std::make_unique<Caller>(engine));
  return callers;
}

TEST(Scratch, ContextsInTurnsHaveTheMemoryOfOne) {
  const auto engine = make_engine();
  const auto callers = make_callers(engine);
  EXPECT_EQ(engine->scratch().memory_size(), 0u);
  ASSERT_TRUE(callers[0]->run(7, 1));
  const size_t one = callers[0]->context.memory_size();
  EXPECT_GE(one, 16 * kMost + kWorkspace);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kContexts; ++i) {
      EXPECT_TRUE(callers[static_cast<size_t>(i)]->run(1 + 50 * i + round, 10.0F * i));
      EXPECT_EQ(engine->scratch().memory_size(), one);
    }
  }
  EXPECT_EQ(callers[0]->context.memory_size(), 0u);
  EXPECT_EQ(callers.back()->context.memory_size(), one);
}

TEST(Scratch, TurnsAllocateNothing) {
  const auto engine = make_engine();
  Caller a(engine), b(engine);
  for (Caller* caller : {&a, &b}) EXPECT_TRUE(caller->run(100, 1));
  const long before = allocation_count();
  for (int i = 0; i < 10; ++i)
    for (Caller* caller : {&a, &b}) caller->context.enqueue();
  EXPECT_EQ(allocation_count(), before);
}

TEST(Scratch, RunsAtOnceHaveMemoryOfTheirOwn) {
  const auto engine = make_engine();
  const auto callers = make_callers(engine);
  ASSERT_TRUE(callers[0]->run(7, 1));
  const size_t one = engine->scratch().memory_size();
  std::barrier together(kContexts);
  between() = [&](float) { together.arrive_and_wait(); };
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kContexts; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 3; ++round)
          right += callers[static_cast<size_t>(i)]->run(kMost - 50 * i - round, 10.0F * i);
      });
    }
  }
  EXPECT_EQ(right, 3 * kContexts);
  EXPECT_EQ(engine->scratch().memory_size(), kContexts * one);
  between() = nullptr;
  for (const auto& caller : callers) EXPECT_TRUE(caller->run(3, 1));
  EXPECT_EQ(engine->scratch().memory_size(), kContexts * one);
}

TEST(Scratch, ARunWithinARunHasMemoryOfItsOwn) {
  const auto engine = make_engine();
  Caller outer(engine), inner(engine);
  ASSERT_TRUE(inner.run(5, 7));  // so that the outer one takes its memory
  int depth = 0;
  between() = [&](float) {
    if (depth++ == 0) {
      EXPECT_TRUE(inner.run(kMost, 100));
    }
  };
  EXPECT_TRUE(outer.run(kMost, 1));
  EXPECT_EQ(depth, 2);
  EXPECT_EQ(engine->scratch().memory_size(), 2 * outer.context.memory_size());
}

TEST(Scratch, AFailedRunGivesItsMemoryBack) {
  const auto engine = make_engine();
  Caller a(engine), b(engine);
  for (const bool is_ours : {true, false}) {
    between() = [&](float) {
      if (is_ours) fail("no");
      throw std::runtime_error("no");
    };
    EXPECT_THROW(a.run(5, 1), std::exception);
    between() = nullptr;
    const size_t one = engine->scratch().memory_size();
    EXPECT_TRUE(b.run(5, 1));
    EXPECT_EQ(engine->scratch().memory_size(), one);
    EXPECT_TRUE(a.run(6, 1));
    EXPECT_EQ(engine->scratch().memory_size(), one);
  }
}

TEST(Scratch, ProfilesOfDifferentSizesShareTheLargest) {
  const auto engine = make_engine();
  const auto callers = make_callers(engine);
  for (const auto& caller : callers)
    caller->context.set_memory_strategy(Strategy::kON_PROFILE_CHANGE);
  EXPECT_TRUE(callers[0]->run(kMost, 1));
  EXPECT_LT(engine->scratch().memory_size(), 16u * kMost);
  size_t largest = 0;
  for (int i = 0; i < kContexts; ++i) {
    Caller& caller = *callers[static_cast<size_t>(i)];
    caller.context.set_profile(i % 2);
    EXPECT_TRUE(caller.run(i % 2 == 1 ? 4 * kMost : kMost, 1));
    largest = std::max(largest, engine->scratch().memory_size());
  }
  EXPECT_GE(largest, 16u * kMost);
  EXPECT_LT(largest, 32u * kMost);
  // A change of the profile gives back what the context itself has.
  callers.back()->context.set_profile(0);
  EXPECT_EQ(engine->scratch().memory_size(), 0u);
  EXPECT_TRUE(callers.back()->run(kMost, 1));
  EXPECT_LT(engine->scratch().memory_size(), 16u * kMost);
}

TEST(Scratch, WhatFitsIsTakenBeforeWhatIsThere) {
  const auto engine = make_engine();
  Caller small(engine), large(engine), other(engine);
  for (Caller* caller : {&small, &large, &other})
    caller->context.set_memory_strategy(Strategy::kON_PROFILE_CHANGE);
  large.context.set_profile(1);
  other.context.set_profile(1);
  int depth = 0;
  between() = [&](float) {
    if (depth++ == 0) {
      EXPECT_TRUE(small.run(1, 1));
    }
  };
  EXPECT_TRUE(large.run(1, 1));
  between() = nullptr;
  const size_t both = engine->scratch().memory_size();
  EXPECT_TRUE(other.run(4 * kMost, 1));
  EXPECT_EQ(large.context.memory_size(), 0u);
  EXPECT_GT(small.context.memory_size(), 0u);
  EXPECT_EQ(engine->scratch().memory_size(), both);
}

TEST(Scratch, TheUsersMemoryIsNobodyElses) {
  const auto engine = make_engine();
  Caller given(engine), own(engine);
  alignas(64) static std::byte memory[1 << 15];
  given.context.set_memory_strategy(Strategy::kUSER_MANAGED);
  given.context.set_memory(memory, sizeof memory);
  EXPECT_TRUE(given.run(kMost, 1));
  EXPECT_EQ(engine->scratch().memory_size(), 0u);
  EXPECT_TRUE(own.run(kMost, 3));
  const size_t one = engine->scratch().memory_size();
  std::fill(std::begin(memory), std::end(memory), std::byte{7});
  EXPECT_TRUE(own.run(kMost, 3));
  EXPECT_TRUE(std::all_of(std::begin(memory), std::end(memory),
                          [](std::byte byte) { return byte == std::byte{7}; }));
  EXPECT_TRUE(given.run(kMost, 1));
  EXPECT_EQ(engine->scratch().memory_size(), one);
  // And then memory of its own again.
  given.context.set_memory_strategy(Strategy::kSTATIC);
  given.context.set_memory(nullptr, 0);
  EXPECT_TRUE(given.run(kMost, 1));
  EXPECT_EQ(engine->scratch().memory_size(), one);
}

TEST(Scratch, AfterAFailedAllocationAllCanRun) {
  register_fake("TestNext", {.run = next, .workspace = kWorkspace});
  FakePlan plan;
  const int x = plan.input("x", kFp32, {4}, {4}, {4});
  const int h = plan.arena("h", kFp32, {4}, 16);
  plan.step("first", "TestNext", {x}, {h});
  plan.step("second", "TestNext", {h}, {plan.output("y", kFp32, {4})});
  Schedule huge = plan.schedule();
  huge.arena_size = uint64_t{1} << 48;  // more than addresses have
  plan.plan().schedules.push_back(huge);
  LoadOptions options;
  options.limits.memory = uint64_t{1} << 62;
  const auto engine = Engine::load(plan.finish(), options);
  Caller a(engine), b(engine);
  for (Caller* caller : {&a, &b}) caller->context.set_memory_strategy(Strategy::kON_PROFILE_CHANGE);
  EXPECT_TRUE(b.run(4, 1));
  a.context.set_profile(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(a.run(4, 1), "could not allocate");
    EXPECT_LT(engine->scratch().memory_size(), 10000u);
  }
  EXPECT_TRUE(b.run(4, 1));
  a.context.set_profile(0);
  EXPECT_TRUE(a.run(4, 1));
  EXPECT_TRUE(b.run(4, 1));
}

TEST(Scratch, ContextsComeAndGoWhileOthersRun) {
  const auto engine = make_engine();
  constexpr int kThreads = 8;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        std::vector<std::unique_ptr<Caller>> mine;
        for (int i = 0; i < 400; ++i) {
          if (mine.size() < 4) {
            mine.push_back(std::make_unique<Caller>(engine));
            if (random() % 2 == 0)
              mine.back()->context.set_memory_strategy(Strategy::kON_PROFILE_CHANGE);
          }
          Caller& caller = *mine[random() % mine.size()];
          const bool is_large = random() % 4 == 0;
          caller.context.set_profile(is_large ? 1 : 0);
          const int size = 1 + static_cast<int>(random() % (is_large ? 4 * kMost : kMost));
          if (!caller.run(size, static_cast<float>(t))) ++wrong;
          for (int again = 0; again < 3; ++again) {
            caller.context.enqueue();
            if (!caller.is_right()) ++wrong;
          }
          if (random() % 8 == 0) mine.erase(mine.begin());
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine->scratch().memory_size(), 0u);
}

TEST(Scratch, AForkedChildRunsBesideARunThatItsParentHas) {
  const auto engine = make_engine();
  Caller idle(engine), fresh(engine), running(engine);
  std::atomic<bool> has_begun = false, may_end = false;
  between() = [&](float) {
    has_begun = true;
    has_begun.notify_one();
    may_end.wait(false);
  };
  running.prepare(kMost, 1);
  std::jthread thread([&] { running.context.enqueue(); });
  has_begun.wait(false);
  between() = nullptr;
  EXPECT_TRUE(idle.run(kMost, 2));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool is_right = idle.run(kMost, 3) && fresh.run(kMost, 4);
    is_right = idle.run(kMost, 5) && fresh.run(kMost, 6) && is_right;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  may_end = true;
  may_end.notify_one();
  thread.join();
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(running.is_right());
}

}  // namespace
}  // namespace opwright
