#include "threads/pool.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "threads/cpu_budget.h"

extern "C" {
void opwright_GOMP_parallel_start(void (*function)(void*), void* data, unsigned count);
void opwright_GOMP_parallel_end();
void opwright_GOMP_barrier();
bool opwright_GOMP_loop_static_start(long start, long end, long step, long chunk, long* first,
                                     long* last);
bool opwright_GOMP_loop_static_next(long* first, long* last);
int opwright_omp_get_max_threads();
int opwright_omp_get_num_threads();
int opwright_omp_get_thread_num();
int opwright_omp_in_parallel();
}

namespace opwright::threads {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif

template <class Body>
void run_tasks(int count, Body body) {
  run(
      count, [](void* data, int index, int tasks) { (*static_cast<Body*>(data))(index, tasks); },
      &body);
}

template <class Condition>
bool comes_true(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void expect_each_once(int count) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
  run_tasks(count, [&](int index, int tasks) {
    EXPECT_EQ(tasks, count);
    ++visits[static_cast<size_t>(index)];
  });
  for (const auto& v : visits) ASSERT_EQ(v, 1);
}

TEST(Pool, EachTaskRunsOnce) {
  for (const int count : {1, 2, 3, 17, 4096})
    for (int i = 0; i < 50; ++i) expect_each_once(count);
}

TEST(Pool, ServesManyCallersAtOnce) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 16; ++caller)
    callers.emplace_back([caller] {
      const Call call;
      for (int i = 0; i < 500; ++i) expect_each_once(1 + (caller + i) % 9);
    });
  for (std::thread& caller : callers) caller.join();
}

TEST(Pool, ServesMoreThreadsThanItHasTeams) {
  for (int round = 0; round < 150; ++round) {
    std::vector<std::thread> callers;
    for (int i = 0; i < 10; ++i) callers.emplace_back([] { expect_each_once(3); });
    for (std::thread& caller : callers) caller.join();
  }
}

TEST(Pool, LoopsWithinTasksStayOnTheirThread) {
  run_tasks(4, [](int, int) {
    EXPECT_EQ(thread_count(), 1);
    const auto self = std::this_thread::get_id();
    int runs = 0;
    run_tasks(5, [&](int, int) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++runs;
    });
    EXPECT_EQ(runs, 5);
  });
}

TEST(Pool, OneThreadOfTheProcessIsTheCaller) {
  set_process_threads(1);
  const auto self = std::this_thread::get_id();
  EXPECT_EQ(thread_count(), 1);
  // Those that were awake see it at their next look.
  EXPECT_TRUE(comes_true([] { return pool_state().sleeping == pool_state().threads; }));
  for (int i = 0; i < 100; ++i)
    run_tasks(8, [&](int, int) { EXPECT_EQ(std::this_thread::get_id(), self); });
  set_process_threads(0);
}

TEST(Pool, HelpsWhereACoreIsFree) {
  if (available_cores() < 2) GTEST_SKIP() << "one core";
  std::mutex mutex;
  std::set<std::thread::id> seen;
  EXPECT_TRUE(comes_true([&] {
    run_tasks(2, [&](int, int) {
      {
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    return seen.size() > 1;
  }));
}

TEST(Pool, SleepsWhenThereIsNothingToDo) {
  run_tasks(4, [](int, int) {});
  EXPECT_TRUE(comes_true([] {
    const PoolState state = pool_state();
    return state.sleeping == state.threads;
  }));
}

TEST(Pool, AChildHasAPoolOfItsOwn) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers do not follow a fork of a process with threads";
  // While another thread is within a loop.
  std::atomic<bool> is_running = false, is_over = false;
  std::thread other([&] {
    run_tasks(4, [&](int, int) {
      is_running = true;
      while (!is_over) std::this_thread::yield();
    });
  });
  while (!is_running) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::atomic<int> runs = 0;
    for (int i = 0; i < 100; ++i) run_tasks(5, [&](int, int) { ++runs; });
    std::thread([&] { run_tasks(5, [&](int, int) { ++runs; }); }).join();
    _exit(runs == 505 ? 0 : 1);
  }
  is_over = true;
  other.join();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Pool, FollowsTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &before)) {
      CPU_SET(core, &one);
      break;
    }
  ASSERT_EQ(sched_setaffinity(getpid(), sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(sched_setaffinity(getpid(), sizeof before, &before), 0);
  EXPECT_LE(available_cores(), CPU_COUNT(&before));
}

struct Shared {
  std::atomic<int> arrived = 0, missing = 0;
  std::vector<std::atomic<int>> visits = std::vector<std::atomic<int>>(100);
  long step = 1, chunk = 0;
};

void parallel(unsigned count, void (*function)(void*), void* data) {
  opwright_GOMP_parallel_start(function, data, count);
  function(data);
  opwright_GOMP_parallel_end();
}

TEST(OpenMP, TasksOfALoopWaitForEachOther) {
  for (int round = 0; round < 20; ++round) {
    Shared shared;
    parallel(
        6,
        [](void* data) {
          Shared& s = *static_cast<Shared*>(data);
          EXPECT_EQ(opwright_omp_get_num_threads(), 6);
          EXPECT_TRUE(opwright_omp_in_parallel());
          EXPECT_EQ(opwright_omp_get_max_threads(), 1);
          ++s.visits[static_cast<size_t>(opwright_omp_get_thread_num())];
          for (int barrier = 1; barrier <= 3; ++barrier) {
            ++s.arrived;
            opwright_GOMP_barrier();
            if (s.arrived < 6 * barrier) ++s.missing;
            opwright_GOMP_barrier();
          }
        },
        &shared);
    EXPECT_EQ(shared.missing, 0);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(shared.visits[i], 1);
    EXPECT_FALSE(opwright_omp_in_parallel());
  }
}

TEST(OpenMP, StaticLoopsCoverTheirRangeOnce) {
  for (const long chunk : {0L, 1L, 7L, 200L})
    for (const long step : {1L, 3L, -2L}) {
      Shared shared;
      shared.step = step;
      shared.chunk = chunk;
      parallel(
          5,
          [](void* data) {
            Shared& s = *static_cast<Shared*>(data);
            const long start = s.step > 0 ? 0 : 99, end = s.step > 0 ? 100 : -1;
            long first, last;
            bool is_there =
                opwright_GOMP_loop_static_start(start, end, s.step, s.chunk, &first, &last);
            for (; is_there; is_there = opwright_GOMP_loop_static_next(&first, &last))
              for (long i = first; s.step > 0 ? i < last && i < end : i > last && i > end;
                   i += s.step)
                ++s.visits[static_cast<size_t>(i)];
          },
          &shared);
      for (long i = 0; i < 100; ++i) {
        const bool is_hit = step > 0 ? i % step == 0 : (99 - i) % -step == 0;
        ASSERT_EQ(shared.visits[static_cast<size_t>(i)], is_hit) << i << ", step " << step;
      }
    }
}

size_t threads_of_process() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

TEST(ForeignCode, ThreadsThatItsOpenMPLeftAreGoneBeforeTheNextLoop) {
  void* const library = dlopen("libgomp.so.1", RTLD_NOW);
  if (library == nullptr) GTEST_SKIP() << "there is no libgomp here";
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  const auto foreign = reinterpret_cast<Parallel>(dlsym(library, "GOMP_parallel"));
  ASSERT_NE(foreign, nullptr);
  if (process_threads() < 2) GTEST_SKIP() << "there is one core";
  run_tasks(2, [](int, int) {});  // starts the pool's own thread
  ASSERT_GE(pool_state().threads, 1);
  const size_t before = threads_of_process();
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> visits = 0;
    {
      const ForeignCode code;
      foreign([](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &visits, 3, 0);
    }
    EXPECT_EQ(visits, 3);
    EXPECT_EQ(threads_of_process(), before + 2) << "which look for work";
    run_tasks(1, [](int, int) {});
    EXPECT_EQ(threads_of_process(), before + 2) << "nobody is in their way";
    run_tasks(2, [](int, int) {});
    EXPECT_TRUE(comes_true([&] { return threads_of_process() == before; }));
  }
}

TEST(OpenMP, LoopsWithinLoopsHaveOneThread) {
  std::atomic<int> inner = 0;
  parallel(
      3,
      [](void* data) {
        const int outer = opwright_omp_get_thread_num();
        parallel(
            4,
            [](void* count) {
              EXPECT_EQ(opwright_omp_get_num_threads(), 1);
              EXPECT_EQ(opwright_omp_get_thread_num(), 0);
              EXPECT_TRUE(opwright_omp_in_parallel());
              ++*static_cast<std::atomic<int>*>(count);
            },
            data);
        EXPECT_EQ(opwright_omp_get_thread_num(), outer);
        EXPECT_EQ(opwright_omp_get_num_threads(), 3);
      },
      &inner);
  EXPECT_EQ(inner, 3);
}

}  // namespace
}  // namespace opwright::threads
