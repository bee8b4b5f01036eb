#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "runtime/fake_plan.h"
#include "runtime/run_queue.h"

namespace opwright {
namespace {

class TestRun final : public QueuedRun {
 public:
  explicit TestRun(std::function<void()> body) : body_(std::move(body)) {}
  void run() noexcept override {
    body_();
    ++runs;
  }
  void drop() noexcept override { ++drops; }
  std::atomic<int> runs = 0, drops = 0;

 private:
  std::function<void()> body_;
};

std::shared_ptr<TestRun> make_run(std::function<void()> body = [] {}) {
  return std::make_shared<TestRun>(std::move(body));
}

/// Runs that begin, and go on when they may.
struct Gate {
  std::counting_semaphore<> begun{0}, open{0};
  std::shared_ptr<TestRun> run() {
    return make_run([this] {
      begun.release();
      open.acquire();
    });
  }
};

void wait_for(const std::function<bool()>& holds) {
  for (int i = 0; i < 10000; ++i) {
    if (holds()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL() << "not within ten seconds";
}

TEST(RunQueue, RunsInTheOrderInWhichTheyCame) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(1, 100);
  std::vector<int> order;
  std::vector<std::shared_ptr<TestRun>> runs;
  for (int i = 0; i < 100; ++i) {
    runs.push_back(make_run([&order, i] { order.push_back(i); }));
    queue.submit(runs.back());
  }
  wait_for([&] { return runs.back()->runs == 1; });
  queue.stop();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(RunQueue, AsManyRunAtOnceAsThereAreThreads) {
  RunQueue queue("the engine 'x'", "advice");
  EXPECT_EQ(queue.max_threads(), thread_count());
  EXPECT_EQ(queue.max_waiting(), RunQueue::kDefaultWaiting);
  queue.set_limits(3, 100);
  std::latch together(3);  // opens when three are there
  std::atomic<int> within = 0, most = 0;
  std::vector<std::shared_ptr<TestRun>> runs;
  for (int i = 0; i < 30; ++i) {
    runs.push_back(make_run([&, i] {
      const int now = ++within;
      for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
      }
      if (i < 3) together.arrive_and_wait();
      --within;
    }));
    queue.submit(runs.back());
  }
  wait_for([&] {
    return std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run->runs == 1; });
  });
  EXPECT_EQ(most, 3);
}

TEST(RunQueue, AFullQueueRefusesAtOnce) {
  RunQueue queue("the engine 'x'", "ask for more");
  queue.set_limits(1, 2);
  Gate gate;
  const auto first = gate.run(), second = gate.run(), third = gate.run();
  queue.submit(first);  // counts as running before a thread has begun it
  queue.submit(second);
  queue.submit(third);
  const auto refused = make_run();
  EXPECT_ERROR(queue.submit(refused), "the engine 'x' has no place for another run");
  EXPECT_ERROR(queue.submit(refused), "ask for more");
  gate.begun.acquire();
  EXPECT_EQ(queue.num_waiting(), 2u);
  try {
    queue.submit(refused);
    FAIL();
  } catch (const QueueFullError& error) {
    EXPECT_EQ(error.waiting(), 2u);
    EXPECT_EQ(error.limit(), 2u);
  }
  queue.set_limits(1, 3);
  const auto fourth = make_run();
  queue.submit(fourth);
  gate.open.release(3);
  wait_for([&] { return fourth->runs == 1; });
  EXPECT_EQ(refused->runs, 0);
}

TEST(RunQueue, WithoutPlacesToWaitAFreeThreadTakesARun) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(2, 0);
  Gate gate;
  queue.submit(gate.run());
  queue.submit(gate.run());
  EXPECT_ERROR(queue.submit(make_run()), "no place");
  gate.open.release(2);
  wait_for([&] {
    const auto run = make_run();
    try {
      queue.submit(run);
    } catch (const QueueFullError&) {
      return false;
    }
    return true;
  });
}

TEST(RunQueue, WithdrawingFreesThePlaceAtOnce) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(1, 1);
  Gate gate;
  const auto running = gate.run();
  queue.submit(running);
  gate.begun.acquire();
  const auto waiting = make_run(), next = make_run();
  queue.submit(waiting);
  EXPECT_ERROR(queue.submit(next), "no place");
  EXPECT_TRUE(queue.withdraw(*waiting));
  EXPECT_FALSE(queue.withdraw(*waiting));
  EXPECT_FALSE(queue.withdraw(*running));
  EXPECT_EQ(waiting.use_count(), 1);
  queue.submit(next);
  gate.open.release();
  wait_for([&] { return next->runs == 1; });
  EXPECT_EQ(waiting->runs, 0);
  EXPECT_EQ(waiting->drops, 0);
  EXPECT_FALSE(queue.withdraw(*next));
}

TEST(RunQueue, StoppingDropsWhatWaitsAndWaitsForWhatRuns) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(1, 2);
  Gate gate;
  const auto running = gate.run(), waiting = gate.run();
  queue.submit(running);
  queue.submit(waiting);
  gate.begun.acquire();
  std::thread opener([&] {
    wait_for([&] { return waiting->drops == 1; });
    EXPECT_EQ(running->runs, 0);
    gate.open.release();
  });
  queue.stop();
  EXPECT_EQ(running->runs, 1);
  EXPECT_EQ(waiting->runs, 0);
  EXPECT_EQ(waiting->drops, 1);
  EXPECT_ERROR(queue.submit(make_run()), "takes no more runs");
  opener.join();
}

TEST(RunQueue, FinishingDoesWhatWaits) {
  std::vector<std::shared_ptr<TestRun>> runs;
  Gate gate;
  {
    RunQueue queue("the engine 'x'", "advice");
    queue.set_limits(2, 10);
    for (int i = 0; i < 10; ++i) {
      runs.push_back(gate.run());
      queue.submit(runs.back());
    }
    queue.finish();
    EXPECT_ERROR(queue.submit(make_run()), "takes no more runs");
    gate.open.release(10);
    for (const auto& run : runs) wait_for([&] { return run->runs == 1; });
  }
  for (const auto& run : runs) EXPECT_EQ(run->drops, 0);
}

TEST(RunQueue, ItsOwnThreadMayBeTheLastToHaveIt) {
  auto queue = std::make_shared<RunQueue>("the engine 'x'", "advice");
  queue->set_limits(3, 10);
  std::binary_semaphore go{0}, gone{0};
  RunQueue& face = *queue;
  face.submit(make_run());
  face.submit(make_run());
  face.submit(make_run([&go, &gone, queue]() mutable {
    go.acquire();
    queue.reset();
    gone.release();
  }));
  queue.reset();
  go.release();
  ASSERT_TRUE(gone.try_acquire_for(std::chrono::seconds(10)));
}

TEST(RunQueue, FewerThreadsEndAndMoreStart) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(4, 10);
  const auto run_together = [&](int count) {
    std::latch all(count);
    std::vector<std::shared_ptr<TestRun>> runs;
    for (int i = 0; i < count; ++i) {
      runs.push_back(make_run([&all] { all.arrive_and_wait(); }));
      queue.submit(runs.back());
    }
    for (const auto& run : runs) wait_for([&] { return run->runs == 1; });
  };
  for (int round = 0; round < 20; ++round) {
    queue.set_limits(4, 10);
    run_together(4);
    queue.set_limits(1, 10);
    run_together(1);
    std::atomic<int> within = 0, most = 0;
    std::vector<std::shared_ptr<TestRun>> runs;
    for (int i = 0; i < 5; ++i) {
      runs.push_back(make_run([&] {
        most = std::max<int>(most, ++within);
        std::this_thread::yield();
        --within;
      }));
      queue.submit(runs.back());
    }
    for (const auto& run : runs) wait_for([&] { return run->runs == 1; });
    EXPECT_EQ(most, 1);
  }
}

TEST(RunQueue, LimitsAreChecked) {
  RunQueue queue("the engine 'x'", "advice");
  EXPECT_ERROR(queue.set_limits(-1, 1), "must be 1 to 4096");
  EXPECT_ERROR(queue.set_limits(5000, 1), "not 5000");
  EXPECT_ERROR(queue.set_limits(1, -1), "must be 0 or more, not -1");
  EXPECT_EQ(queue.max_waiting(), RunQueue::kDefaultWaiting);
}

TEST(RunQueue, ManyThreadsSubmitAndWithdraw) {
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(3, 8);
  constexpr int kThreads = 6, kRuns = 500;
  std::atomic<int> begun = 0, withdrawn = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        const auto run = make_run([&begun] { ++begun; });
        try {
          queue.submit(run);
        } catch (const QueueFullError&) {
          ++refused;
          std::this_thread::yield();
          continue;
        }
        if ((i + t) % 3 == 0 && queue.withdraw(*run)) ++withdrawn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  wait_for([&] { return begun + withdrawn + refused == kThreads * kRuns; });
  EXPECT_GT(begun, 0);
  EXPECT_EQ(queue.num_waiting(), 0u);
}

TEST(RunQueue, AForkedChildHasThreadsOfItsOwn) {
#ifdef OPWRIGHT_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer lets no forked child start threads";
#endif
  RunQueue queue("the engine 'x'", "advice");
  queue.set_limits(1, 5);
  Gate gate;
  const auto running = gate.run(), waiting = gate.run();
  queue.submit(running);
  queue.submit(waiting);
  gate.begun.acquire();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // rather than hang
    bool good = queue.num_waiting() == 0 && queue.max_waiting() == 5;
    good = good && !queue.withdraw(*waiting);
    std::binary_semaphore ran{0};
    queue.submit(make_run([&ran] { ran.release(); }));
    ran.acquire();
    queue.stop();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(queue.num_waiting(), 1u);
  gate.open.release(2);
  wait_for([&] { return waiting->runs == 1; });
}

}  // namespace
}  // namespace opwright
