#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "allocations.h"
#include "base/error.h"

namespace opwright {
namespace {

class Parallel : public testing::Test {
 protected:
  void SetUp() override { before_ = thread_count(); }
  void TearDown() override { set_thread_count(before_); }

 private:
  int before_ = 1;
};

TEST_F(Parallel, RangesCoverEverythingOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    for (const int64_t count : {0, 1, 2, 5, 64, 1000, 1001}) {
      for (const int64_t grain : {0, 1, 3, 100, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
        std::atomic<int64_t> ranges = 0, shortest = count, longest = 0;
        parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          ++ranges;
          const int64_t length = end - begin;
          for (int64_t seen = shortest;
               length < seen && !shortest.compare_exchange_weak(seen, length);) {
          }
          for (int64_t seen = longest;
               length > seen && !longest.compare_exchange_weak(seen, length);) {
          }
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& v : visits) ASSERT_EQ(v, 1);
        ASSERT_LE(ranges, threads);
        if (count > 0) {
          ASSERT_GE(shortest, std::min(count, std::max<int64_t>(grain, 1)));
          ASSERT_LE(longest - shortest, 1);
        }
      }
    }
  }
}

TEST_F(Parallel, ExceptionsReachTheCaller) {
  set_thread_count(4);
  std::atomic<int64_t> done = 0;
  try {
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      if (begin == 0) throw std::out_of_range("first");
      done += end - begin;
    });
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(done, 75);  // the other ranges ended
  // The loop is usable again.
  std::atomic<int64_t> sum = 0;
  parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 100);
}

TEST_F(Parallel, NestedLoopsRunSerially) {
  set_thread_count(4);
  std::atomic<int> outer = 0, inner = 0;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    ++outer;
    const auto self = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      ++inner;
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(end - begin, 100);
    });
  });
  EXPECT_EQ(outer, 4);
  EXPECT_EQ(inner, 4);
}

TEST_F(Parallel, ThreadCountBelongsToTheThread) {
  set_thread_count(3);
  int other = 0;
  std::thread([&] {
    set_thread_count(5);
    other = thread_count();
  }).join();
  EXPECT_EQ(other, 5);
  EXPECT_EQ(thread_count(), 3);
  EXPECT_THROW(set_thread_count(0), Error);
}

TEST_F(Parallel, AllocatesNothing) {
  set_thread_count(2);
  std::vector<int> data(1000);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++data[static_cast<size_t>(i)];
  };
  parallel_for(1000, 1, body);  // starts the threads
  const long before = allocation_count();
  for (int i = 0; i < 10; ++i) parallel_for(1000, 1, body);
  EXPECT_EQ(allocation_count(), before);
}

TEST(ParallelDefault, FollowsTheEnvironment) {
  // In processes of their own, because the default is read once.
  const auto count_with = [](const char* value) {
    setenv("OMP_NUM_THREADS", value, 1);
    std::exit(thread_count());
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(count_with("3"), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(count_with("5,2"), testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace opwright
