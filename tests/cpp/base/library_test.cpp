#include "base/library.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace opwright {
namespace {

/// Runs the body in a forked child, which has a limit of time.
template <class Body>
bool passes_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

struct Counted {
  Counted() { ++made; }
  inline static std::atomic<int> made = 0;
  LibraryLock lock;
  int first = 0, second = 0;
};

TEST(Library, APartIsMadeOnce) {
  std::set<Counted*> seen;
  std::mutex seen_lock;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      Counted* const part = &Library::part<Counted>();
      const std::lock_guard lock(seen_lock);
      seen.insert(part);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_EQ(Counted::made, 1);
}

TEST(Library, NumbersDiffer) {
  std::vector<std::vector<int64_t>> numbers(4);
  std::vector<std::thread> threads;
  for (std::vector<int64_t>& mine : numbers)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(Library::next_number());
    });
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> all;
  for (const std::vector<int64_t>& mine : numbers) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 4000U);
}

TEST(Library, AChildFindsLocksFreeAndWhatTheyGuardComplete) {
  auto& part = Library::part<Counted>();
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      const std::lock_guard lock(part.lock);
      ++part.first;
      std::this_thread::yield();
      ++part.second;
    }
  });
  int passed = 0;
  for (int i = 0; i < 50; ++i)
    passed += passes_in_child([&] {
      const std::lock_guard lock(part.lock);
      return part.first == part.second;
    });
  stop = true;
  writer.join();
  EXPECT_EQ(passed, 50);
}

struct MadeByThreads {
  MadeByThreads() : made(new LibraryLock(LockOrder::kLast)) {}
  LibraryLock lock{LockOrder::kBackendLoading};
  const std::unique_ptr<LibraryLock> made;
};

TEST(Library, WhoHoldsAnOuterLockMayMakePartsWhileOthersFork) {
  auto& outer = Library::part<MadeByThreads>();
  std::atomic<bool> stop = false;
  std::thread loader([&] {
    while (!stop) {
      const std::lock_guard lock(outer.lock);
      const LibraryLock inner;  // listed, as that of a part which is made
      std::this_thread::yield();
    }
  });
  int passed = 0;
  for (int i = 0; i < 50; ++i)
    passed += passes_in_child([&] {
      const std::lock_guard lock(outer.lock);
      const LibraryLock inner;
      return true;
    });
  stop = true;
  loader.join();
  EXPECT_EQ(passed, 50);
}

}  // namespace
}  // namespace opwright
